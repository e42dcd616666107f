"""Runs Shardy: propagates the shardings of a module, and inserts explicit communication.

Shardy propagates the shardings and inserts collectives where an op and its operands disagree. Four preparations make
its result equal that of XLA's own run of Shardy, with ops that have local forms:

- a broadcast that only adds dimensions of 1 becomes a reshape, as XLA does before: propagation visits reshapes first,
  and would give other shardings;
- each reader gets its own iota, as each is sharded in its own way;
- a `chlo.top_k`, which Shardy does not know, becomes a call with a rule;
- an op without a local form along a factor gets a rule that says so, and its operand is gathered along it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm, prod

from jaxlib.mlir import ir, passmanager
from jaxlib.mlir.dialects import sdy, stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import devices_of, elements_text, integers, splat_text
from exla_opt.ir.diagnostics import InputError
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import inside_out
from exla_opt.ops.shardy import RULE
from exla_opt.ops.traits import Trait, traits_of

from .agree import agree
from .fold_pads import fold_pads
from .mesh import parts
from .meshes import keep_meshes, mesh_ops
from .rules import TOP_K, state_rules
from .shardings import SHARDING, read_meshes, sharding_of_value, text_of
from .shifts import call_rolls, call_shifts, mapping_of
from .uneven import copy_carries, is_uneven, mask_uneven, spread_additions

_SPREAD = ("builtin.module(sdy-import-pipeline)", "builtin.module(sdy-user-priority-propagate)")
_COMMUNICATE = ("builtin.module(sdy-export-pipeline{enable-insert-explicit-collectives=true})",)
# A function pass up to jaxlib 0.11, a module pass since.
_PAD = ("builtin.module(func.func(sdy-pad-for-divisibility))", "builtin.module(sdy-pad-for-divisibility)")
_INDEXED = ("stablehlo.gather", "stablehlo.scatter")


def propagate(module: ir.Module, *, evenly: bool = False) -> None:
    """Annotate every op of `module`, in place, with its results' shardings, and insert communication as Shardy ops.

    evenly: shard no dimension that an axis does not divide, so that few are padded, or none. The module has neither
    calls nor composites. Shardy may abort the process. Raises MLIRError if it refuses, and InputError if a dimension
    that devices do not divide cannot be padded.
    """
    with module.context, ir.Location.unknown():
        _drop_constraints_of_scalars(module)
        _separate_constants(module)
        _reshape_broadcasts(module)
        _call_top_k(module)
        fold_pads(module)
        call_rolls(module, devices_of(module))
        if evenly:
            _constrain_evenly(module)
        state_rules(module, _divisor(module) if evenly else 1)
        _run(module, _SPREAD)
        agree(module)
        call_shifts(module)
        meshes = [mesh.clone(ip=False).operation for mesh in mesh_ops(module)]
        _run(module, _COMMUNICATE)
        mask_uneven(module)
        copy_carries(module)
        _pad(module)
        spread_additions(module)
        _unwrap_constants(module)
        keep_meshes(module, meshes)


def _pad(module: ir.Module) -> None:
    rules = [(op.name, op.attributes.get(RULE)) for op in inside_out(module, *_INDEXED)]
    try:
        _run(module, (_that_parses(_PAD),))
    except ir.MLIRError as error:  # what it says is of ops that nobody wrote
        if not is_uneven(module):
            raise InputError(f"Shardy refuses it: {error.error_diagnostics[0].message}") from None
        raise InputError("Shardy cannot partition dimensions that the devices do not divide evenly") from None
    # From jaxlib 0.11 on, Shardy replaces gathers and scatters that read padding by new ones, without rules.
    padded = inside_out(module, *_INDEXED)
    if [op.name for op in padded] != [name for name, _ in rules]:
        raise InputError("Shardy reorders ops when it pads dimensions that the devices do not divide evenly")
    for op, (_, rule) in zip(padded, rules, strict=True):
        if rule is not None:
            op.attributes[RULE] = rule


def _unwrap_constants(module: ir.Module) -> None:
    """Replace Shardy's constants by StableHLO's: only from these is it read whether an initial value is an identity."""
    for op in inside_out(module, "sdy.constant"):
        kind = build.tensor_of(op.results[0])
        with ir.InsertionPoint(op), op.location:
            if isinstance(kind.element_type, ir.ComplexType):
                made = build.constant_of_text(kind, splat_text(op) or elements_text(op))
            else:
                made = stablehlo.constant(op.attributes["value"])
        owner = defining_op(made)
        if owner is not None and SHARDING in op.attributes:
            owner.attributes[SHARDING] = op.attributes[SHARDING]
        op.results[0].replace_all_uses_with(made)
        op.erase()


def _divisor(module: ir.Module) -> int:
    """A size that every single axis divides."""
    return lcm(*(size for mesh in read_meshes(module) for _, size in mesh.axes))


def _constrain_evenly(module: ir.Module) -> None:
    """Remove dimensions that would be sharded unevenly from constraints."""
    meshes = {mesh.name: mesh for mesh in read_meshes(module)}
    for op in inside_out(module, "sdy.sharding_constraint"):
        spread = sharding_of_value(op.results[0], meshes)
        if spread is None:
            continue
        shape = build.shape_of(op.results[0])
        even = tuple(() if size % parts(axes) else axes for size, axes in zip(shape, spread.sharding, strict=True))
        if even != spread.sharding:
            op.attributes["sharding"] = ir.Attribute.parse(f"#sdy.sharding{text_of(even, spread.mesh)}")


def _that_parses(pipelines: Sequence[str]) -> str:
    """The first of some pipelines that this release knows. Raises ValueError if it knows none."""
    for pipeline in pipelines[:-1]:
        try:
            passmanager.PassManager.parse(pipeline)
        except ValueError:
            continue
        return pipeline
    return pipelines[-1]


def _run(module: ir.Module, pipelines: Sequence[str]) -> None:
    for pipeline in pipelines:
        passmanager.PassManager.parse(pipeline).run(module.operation)


def _drop_constraints_of_scalars(module: ir.Module) -> None:
    """Drop jax's constraints on scalars in bodies of reduces and the like: they are no-ops that hide the combiner."""
    for op in inside_out(module, "sdy.sharding_constraint"):
        if not build.shape_of(op.results[0]):
            op.results[0].replace_all_uses_with(op.operands[0])
            op.erase()


def _reshape_broadcasts(module: ir.Module) -> None:
    for op in inside_out(module, "stablehlo.broadcast_in_dim"):
        before, after = (build.shape_of(value) for value in (op.operands[0], op.results[0]))
        dims = integers(op, "broadcast_dimensions", [])
        if prod(before) != prod(after) or dims != sorted(dims) or not before or _is_constant(op.operands[0]):
            continue
        with ir.InsertionPoint(op), op.location:
            op.results[0].replace_all_uses_with(stablehlo.reshape(op.results[0].type, op.operands[0]))
        op.erase()


def _separate_constants(module: ir.Module) -> None:
    """Give each reader its own iota: along rows and along columns, it is sharded in two ways.

    Readers first: a copy for one of them is read once.
    """
    for op in reversed(inside_out(module)):
        if len(op.results) != 1 or op.regions or not _counts(op):
            continue
        for use in list(op.results[0].uses)[1:]:
            with ir.InsertionPoint(op):
                use.owner.operation.operands[use.operand_number] = op.clone().operation.results[0]


def _counts(op: ir.Operation) -> bool:
    """Whether the op is an iota, or a broadcast or conversion of one."""
    found: ir.Operation | None = op
    while found is not None and found.name in ("stablehlo.broadcast_in_dim", "stablehlo.reshape", "stablehlo.convert"):
        found = defining_op(found.operands[0])
    return found is not None and found.name == "stablehlo.iota"


def _is_constant(value: ir.Value) -> bool:
    """Whether the tensor depends on no input: Shardy copies such tensors for each sharding that readers need."""
    op = defining_op(value)
    while op is not None and len(op.operands) == 1 and Trait.POINTWISE in traits_of(op.name):
        op = defining_op(op.operands[0])
    return op is not None and not op.operands


def _call_top_k(module: ir.Module) -> None:
    for op in inside_out(module, "chlo.top_k"):
        rank = len(build.shape_of(op.operands[0]))
        sizes = [*build.shape_of(op.operands[0]), build.shape_of(op.results[0])[-1]]
        operand = mapping_of(range(rank))
        found = mapping_of([*range(rank - 1), rank])
        rule = sdy.OpShardingRuleAttr.get(
            sizes, [operand], [found, found], need_replication_factors=[rank], is_custom=True, context=module.context
        )
        with ir.InsertionPoint(op), op.location:
            attributes = {"call_target_name": ir.StringAttr.get(TOP_K), RULE: rule}
            kinds = [result.type for result in op.results]
            made = ir.Operation.create("stablehlo.custom_call", kinds, list(op.operands), attributes)
        for old, new in zip(op.results, made.results, strict=True):
            old.replace_all_uses_with(new)
        op.erase()
