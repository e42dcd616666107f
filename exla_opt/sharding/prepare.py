"""What Shardy is asked: how the tensors of a module are spread over its devices, with the communication written out.

Shardy propagates the shardings and inserts collectives where an op and its operands disagree. Four things are done
before, so that its answer is the one that XLA's own run of Shardy gives, and one that the local forms can do:

- a broadcast that only adds dimensions of 1 becomes a reshape, as XLA has it by then: reshapes come first when
  shardings are propagated, and others would be found;
- positions are counted once for each reader, for each is spread in its own way;
- a `chlo.top_k`, which Shardy does not know, becomes a call with a rule;
- an op that has no local form along one of its factors gets a rule that says so, and its operand is gathered there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from jaxlib.mlir import ir, passmanager
from jaxlib.mlir.dialects import sdy, stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integers
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import CONTROL_FLOW, inside_out, walk_functions
from exla_opt.ops.collectives import moved_dims
from exla_opt.ops.factor import Factor, Kind
from exla_opt.ops.reducers import chooses_from_the_end, monoid_of
from exla_opt.ops.rules import OpRule, read_rules
from exla_opt.ops.shardy import RULE, annotated_copy
from exla_opt.ops.traits import Trait, traits_of

from .agree import agree, places_of
from .indexing import GATHER, SCATTER, indexed_dims, is_summing
from .meshes import keep_meshes, mesh_ops
from .uneven import mask_uneven, spread_masks

TOP_K = "exla_opt.top_k"
_SPREAD = ("builtin.module(sdy-import-pipeline)", "builtin.module(sdy-user-priority-propagate)")
_COMMUNICATE = ("builtin.module(sdy-export-pipeline{enable-insert-explicit-collectives=true})",)
# A pass of functions up to jaxlib 0.11, and of modules since.
_PAD = ("builtin.module(func.func(sdy-pad-for-divisibility))", "builtin.module(sdy-pad-for-divisibility)")
# The bodies of computations that are manual over some axes are spread over the others.
_WALKED = CONTROL_FLOW | {"sdy.manual_computation"}
# What Shardy's rule says of these is true of the parts that devices have, along every factor.
_TRUSTED = frozenset("stablehlo." + name for name in "broadcast_in_dim reshape transpose dot_general dot".split())
# These have no rule of Shardy's that is needed: their shardings are those of the values that go in and out.
_BY_VALUES = frozenset(
    "stablehlo.while stablehlo.case stablehlo.if stablehlo.return stablehlo.constant stablehlo.iota "
    "stablehlo.optimization_barrier func.return chlo.constant".split()
)


def propagate(module: ir.Module) -> None:
    """Write on every op of `module`, in place, how its results are spread, and all communication as ops of Shardy's.

    The module has neither calls nor composites. Shardy may abort the process. Raises MLIRError where it refuses.
    """
    with module.context, ir.Location.unknown():
        _drop_constraints_of_scalars(module)
        _separate_constants(module)
        _reshape_broadcasts(module)
        _call_top_k(module)
        _state_rules(module)
        _run(module, _SPREAD)
        agree(module)
        meshes = [mesh.clone(ip=False).operation for mesh in mesh_ops(module)]
        _run(module, _COMMUNICATE)
        mask_uneven(module)
        _run(module, (_that_parses(_PAD),))
        spread_masks(module)
        keep_meshes(module, meshes)


def _that_parses(pipelines: Sequence[str]) -> str:
    """The first of some pipelines that this release knows. Raises ValueError where it knows none."""
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
    """jax constrains the sums in the bodies of reduces and the like; they say nothing, and hide what is computed."""
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
    """Count once for each reader: along rows and along columns, positions are spread in two ways.

    Readers first: what is made for one of them is read once.
    """
    for op in reversed(inside_out(module)):
        if len(op.results) != 1 or op.regions or not _counts(op):
            continue
        for use in list(op.results[0].uses)[1:]:
            with ir.InsertionPoint(op):
                use.owner.operation.operands[use.operand_number] = op.clone().operation.results[0]


def _counts(op: ir.Operation) -> bool:
    """Whether the op counts, or repeats or converts what does."""
    found: ir.Operation | None = op
    while found is not None and found.name in ("stablehlo.broadcast_in_dim", "stablehlo.reshape", "stablehlo.convert"):
        found = defining_op(found.operands[0])
    return found is not None and found.name == "stablehlo.iota"


def _is_constant(value: ir.Value) -> bool:
    """Whether nothing is read to make the tensor: of such ones Shardy makes one for each way in which it is read."""
    op = defining_op(value)
    while op is not None and len(op.operands) == 1 and Trait.POINTWISE in traits_of(op.name):
        op = defining_op(op.operands[0])
    return op is not None and not op.operands


def _call_top_k(module: ir.Module) -> None:
    for op in inside_out(module, "chlo.top_k"):
        rank = len(build.shape_of(op.operands[0]))
        sizes = [*build.shape_of(op.operands[0]), build.shape_of(op.results[0])[-1]]
        operand = _mapping(range(rank))
        found = _mapping([*range(rank - 1), rank])
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


def _is_top_k(op: ir.Operation) -> bool:
    return "call_target_name" in op.attributes and op.attributes["call_target_name"] == ir.StringAttr.get(TOP_K)


def _mapping(factors: Iterable[int]) -> ir.Attribute:
    dims = [sdy.DimMappingAttr.get([factor]) for factor in factors]
    return sdy.TensorMappingAttr.get(dims)


def _state_rules(module: ir.Module) -> None:
    """Give every op a rule that has no more factors than there are local forms for."""
    ops = list(walk_functions(module.operation, _WALKED))
    copy_of_all = annotated_copy(module)  # its ops live as long as it is held
    annotated = list(walk_functions(copy_of_all, _WALKED))
    own = read_rules(module, inside=_WALKED)
    for number, (op, copy) in enumerate(zip(ops, annotated, strict=True)):
        if op.name in _TRUSTED | _BY_VALUES or op.name.startswith("sdy.") or _is_top_k(op):
            continue
        if Trait.COLLECTIVE in traits_of(op.name):
            op.attributes[RULE] = _by_places(op)
            continue
        if Trait.POINTWISE in traits_of(op.name) and RULE in copy.attributes:  # Shardy knows neither chlo's nor a map
            continue
        found = copy.attributes[RULE] if RULE in copy.attributes and op.name != "stablehlo.custom_call" else None
        if found is None:
            rule = _by_own_factors(op, own[number])
        else:
            rule = _restricted(op, sdy.OpShardingRuleAttr(found), own[number])
        if rule is not None:
            op.attributes[RULE] = rule


def _by_places(op: ir.Operation) -> ir.Attribute:
    """A collective's rule: it may be cut along the dimensions in which it moves nothing, each result as its operand."""
    moved = moved_dims(op)
    sizes: list[int] = []
    operands, results = [], []
    complete: list[int] = []
    for operand, result in zip(op.operands, op.results, strict=True):
        letters: list[list[int]] = [[], []]
        for dim, (before, after) in enumerate(zip(build.shape_of(operand), build.shape_of(result), strict=True)):
            letters[0].append(len(sizes))
            sizes.append(before)
            if dim in moved:
                complete += [len(sizes) - 1, len(sizes)]
                sizes.append(after)
            letters[1].append(len(sizes) - 1)
        operands.append(_mapping(letters[0]))
        results.append(_mapping(letters[1]))
    return sdy.OpShardingRuleAttr.get(sizes, operands, results, need_replication_factors=complete, is_custom=True)


def _by_own_factors(op: ir.Operation, own: OpRule) -> ir.Attribute | None:
    """A rule that says what our factors do, and that all else is needed complete; None where there can be none."""
    values = [*op.operands, *op.results]
    if not len(op.operands) or not len(op.results):  # Shardy has no rules for these
        return None
    if not all(isinstance(value.type, ir.RankedTensorType) for value in values):
        return None
    sizes: list[int] = []
    letters = [[-1] * len(build.shape_of(value)) for value in values]
    for factor in own.factors:
        mappings = (*factor.operands, *factor.results)
        dims = [None if each is None else each.dim for each in mappings]
        if factor.kind is Kind.INDEPENDENT and not factor.reaches and _fills(factor, values, dims):
            for letter, dim in zip(letters, dims, strict=True):
                if dim is not None:
                    letter[dim] = len(sizes)
            sizes.append(next(build.shape_of(v)[d] for v, d in zip(values, dims, strict=True) if d is not None))
    complete = len(sizes)
    for value, letter in zip(values, letters, strict=True):
        for dim, size in enumerate(build.shape_of(value)):
            if letter[dim] < 0:
                letter[dim] = len(sizes)
                sizes.append(size)
    mappings_of = [_mapping(letter) for letter in letters]
    split = len(op.operands)
    return sdy.OpShardingRuleAttr.get(
        sizes,
        mappings_of[:split],
        mappings_of[split:],
        need_replication_factors=list(range(complete, len(sizes))),
        is_custom=True,
    )


def _restricted(op: ir.Operation, rule: sdy.OpShardingRuleAttr, own: OpRule) -> ir.Attribute | None:
    """Shardy's rule of an op, with those factors complete that have no local form; None where all have one."""
    places = [places_of(tensor) for tensors in (rule.operand_mappings, rule.result_mappings) for tensor in tensors]
    count = len(rule.operand_mappings)
    replicated = set(rule.need_replication_factors)
    for factor in range(len(rule.factor_sizes)):
        stands = [each.get(factor) for each in places]
        if factor not in replicated and not _has_local_form(op, stands[:count], stands[count:], own):
            replicated.add(factor)
    is_choice = op.name == "stablehlo.reduce" and len(op.results) > 1
    if not replicated and not is_choice:  # one with a rule of its own is left alone: what it chooses is no sum
        return None
    return sdy.OpShardingRuleAttr.get(
        list(rule.factor_sizes),
        list(rule.operand_mappings),
        list(rule.result_mappings),
        reduction_factors=[each for each in rule.reduction_factors if each not in replicated and not is_choice],
        need_replication_factors=sorted(replicated),
        permutation_factors=[each for each in rule.permutation_factors if each not in replicated],
        blocked_propagation_factors=[each for each in rule.blocked_propagation_factors if each not in replicated],
        is_custom=True,
    )


def _has_local_form(op: ir.Operation, operands: list[int | None], results: list[int | None], own: OpRule) -> bool:
    """Whether the parts that devices have along a factor can be computed from the operands' parts.

    operands, results: the dimension that the factor stands in, by tensor.
    """
    if op.name in (GATHER, SCATTER):
        if operands[0] is not None and operands[0] in indexed_dims(op):
            return True
        if op.name == SCATTER and not any(each is not None for each in results):
            return is_summing(op)
    if op.name == "stablehlo.reduce" and not any(each is not None for each in results):
        return monoid_of(op) is not None or chooses_from_the_end(op)
    if not any(each is not None for each in results):
        return False
    values = [*op.operands, *op.results]
    return any(
        factor.kind is Kind.INDEPENDENT and not factor.reaches and _fills(factor, values, [*operands, *results])
        for factor in own.factors
    )


def _fills(factor: Factor, values: Sequence[ir.Value], dims: Sequence[int | None]) -> bool:
    """Whether the factor fills these dimensions of the values, and stands in no others."""
    for value, mapping, dim in zip(values, (*factor.operands, *factor.results), dims, strict=True):
        if mapping is None or dim is None:
            if mapping is not None or dim is not None:
                return False
        elif (mapping.dim, mapping.low, mapping.length) != (
            dim,
            0,
            factor.size,
        ) or factor.size * mapping.inner != build.shape_of(value)[dim]:
            return False
    return True
