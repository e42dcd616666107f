"""Builds the local program op by op, from a module in which Shardy annotated the shardings of all results.

Every op is rebuilt on local shards. Most ops stay the same with smaller types; those that depend on the position of
their shard, or combine the shards of several devices, have forms of their own (`forms.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy

from exla_opt.ir import build
from exla_opt.ir.rewrite import remap
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import captured_values, operations_of
from exla_opt.ops.definition import NONE
from exla_opt.ops.effects import has_side_effect
from exla_opt.ops.reducers import body_of, monoid_of, run_body
from exla_opt.ops.rules import OPS
from exla_opt.ops.shardy import RULE
from exla_opt.ops.traits import Trait, has_trait, traits_of

from .agree import places_of
from .collectives import Collectives
from .indexing import GATHER, SCATTER
from .mesh import Axes, Mesh, Sharding, is_replicated, local_shape, parts
from .shardings import SHARDING, shardings_of_results

Results = list[ir.Value]
# Its state is an argument and a result, so that all devices draw the same.
_DRAWS_FROM_OPERAND = "stablehlo.rng_bit_generator"
# Ops along whose factors devices have different parts of a sum.
_REDUCING = frozenset(
    {"stablehlo.dot", "stablehlo.dot_general", "stablehlo.convolution", "stablehlo.reduce", GATHER, SCATTER}
)
# What combines the devices' parts of a result: no device has a complete one.
_COMBINING = frozenset({"sdy.all_reduce", "sdy.reduce_scatter"})


class NoLocalForm(Exception):
    """An op has no local form; the message names it."""


@dataclass(slots=True)
class Localiser:
    """Builds the local program. local, shardings: by value of the original module.

    start: by result, a value still to be combined with the sum over all devices: a scatter's operand, or a reduce's
    initial value. lenient: whether an op without a local form may read complete operands, and a value be gathered to be
    sharded otherwise. manual: the axes of the manual computation around the current op; it is sharded over the others.
    """

    mesh: Mesh
    collectives: Collectives
    forms: Mapping[str, Form]
    lenient: bool = False
    local: dict[ir.Value, ir.Value] = field(default_factory=dict)
    shardings: dict[ir.Value, Sharding] = field(default_factory=dict)
    start: dict[ir.Value, ir.Value] = field(default_factory=dict)
    manual: frozenset[str] = frozenset()

    def block(self, block: ir.Block) -> None:
        """Build the ops of a block at the current insertion point, except its terminator."""
        for op in operations_of(block)[:-1]:
            with op.location:
                self.op(op)

    def op(self, op: ir.Operation) -> None:
        """Build one op. Raises NoLocalForm."""
        shardings = shardings_of_results(op, self.mesh)
        made = self.tried(op, shardings) if self.lenient and _may_be_complete(op) else self.on_shards(op, shardings)
        for result, value, sharding in zip(op.results, made, shardings, strict=True):
            self.local[result] = value
            self.shardings[result] = sharding

    def tried(self, op: ir.Operation, shardings: Sequence[Sharding]) -> Results:
        """The op on local shards, or on complete operands."""
        mark = defining_op(build.scalar_i32(0))
        assert mark is not None
        given = {value: self.local[value] for value in op.operands}
        try:
            made = self.on_shards(op, shardings)
        except NoLocalForm:
            self.local.update(given)  # a form may have replaced one, such as indices by those of its own rows
            ops = operations_of(mark.block)
            for written in reversed(ops[ops.index(mark) + 1 :]):
                written.erase()
            made = self.on_complete(op, shardings)
        mark.erase()
        return made

    def on_shards(self, op: ir.Operation, shardings: Sequence[Sharding]) -> Results:
        """The op on local shards. Raises NoLocalForm."""
        self.check_complete(op)
        make = self.forms.get(op.name, plain)
        made = make(self, op, shardings)
        for value in made:
            _check_valid(value)
        is_left = RULE in op.attributes and op.name in _REDUCING and len(op.results) == 1
        if is_left and (axes := self.reduced_axes(op)):
            # Shardy leaves combining the devices' results to an op with a rule of its own.
            made = [self.combined(op, self.collectives.reduce(made[0], axes, monoid_between(op)))]
        for result, value, sharding in zip(op.results, made, shardings, strict=True):
            expected = self.local_type(result, sharding)
            if value.type != expected:
                raise NoLocalForm(f"{op.name} of {result.type} on one device is {value.type}, not {expected}")
        return made

    def on_complete(self, op: ir.Operation, shardings: Sequence[Sharding]) -> Results:
        """The op on complete operands, computed by every device, and the device's shards of its results."""
        complete = [self.resharded(value, ((),) * len(self.shardings[value])) for value in op.operands]
        made = op.clone(ip=ir.InsertionPoint.current).operation
        for index, value in enumerate(complete):
            made.operands[index] = value
        _drop_shardings(made)
        return [own_part(self, value, sharding) for value, sharding in zip(made.results, shardings, strict=True)]

    def resharded(self, value: ir.Value, sharding: Sharding) -> ir.Value:
        """The device's shard of a value under another sharding. Raises NoLocalForm."""
        found = self.local[value]
        changes = []
        for dim, (has, wants) in enumerate(zip(self.shardings[value], sharding, strict=True)):
            before, after = (tuple(axis for axis in axes if axis.size > 1) for axes in (has, wants))
            if before != after:
                if before and after and not self.lenient:
                    raise NoLocalForm("a tensor is sharded differently outside a region than inside it")
                changes.append((dim, before, after))
        # An axis may go from one dimension to another: it is gathered along the old one before it cuts the new one.
        for dim, before, _ in changes:
            found = self.collectives.gather(found, dim, before)
        for dim, _, after in changes:
            found = self.collectives.part(found, dim, after)
        return found

    def check_complete(self, op: ir.Operation) -> None:
        """Raise NoLocalForm if an operand is sharded along a factor that the op's rule needs complete.

        From jaxlib 0.11 on, Shardy does not gather what a loop carries for an op in its body.
        """
        if RULE not in op.attributes:
            return
        rule = sdy.OpShardingRuleAttr(op.attributes[RULE])
        complete = set(rule.need_replication_factors)
        for value, tensor in zip(op.operands, rule.operand_mappings, strict=True):
            sharded = {dim for dim, axes in enumerate(self.shardings[value]) if parts(axes) > 1}
            kept = {dim for factor, dim in places_of(tensor).items() if factor not in complete}
            if sharded - kept:
                raise NoLocalForm(f"{op.name} reads all of a dimension that is sharded")

    def combined(self, op: ir.Operation, value: ir.Value) -> ir.Value:
        """The combined results of all devices, with the op's initial value."""
        start = self.start.pop(op.results[0], None)
        if start is None:
            return value
        found: ir.Value = run_body(body_of(op), [start, value])[0]
        return found

    def local_type(self, value: ir.Value, sharding: Sharding) -> ir.Type:
        """The type of a local shard. Raises NoLocalForm if a dimension is not divisible."""
        kind: ir.Type = value.type
        if not isinstance(kind, ir.RankedTensorType):
            return kind
        tensor = build.tensor_of(value)
        try:
            return build.with_shape(tensor, local_shape(tensor.shape, sharding or ((),) * len(tensor.shape)))
        except ValueError as error:
            raise NoLocalForm(str(error)) from None

    def operands(self, op: ir.Operation) -> list[ir.Value]:
        """The local shards of an op's operands."""
        return [self.local[value] for value in op.operands]

    def is_replicated(self, op: ir.Operation) -> bool:
        """Whether all operands are replicated."""
        return all(is_replicated(self.shardings[value]) for value in op.operands)

    def reduced_axes(self, op: ir.Operation) -> Axes:
        """The axes along which devices have different shards of the operands, and that shard no result."""
        given = {axis: None for value in op.operands for axes in self.shardings[value] for axis in axes}
        for sharding in shardings_of_results(op, self.mesh):
            for axes in sharding:
                for axis in axes:
                    given.pop(axis, None)
        return tuple(given)


Form = Callable[[Localiser, ir.Operation, Sequence[Sharding]], Results]


def plain(localiser: Localiser, op: ir.Operation, shardings: Sequence[Sharding]) -> Results:
    """The op itself, with local types and matching attributes."""
    before = [tuple(build.shape_of(v)) for v in (*op.operands, *op.results) if isinstance(v.type, ir.RankedTensorType)]
    made = with_own_types(localiser, op, shardings)
    definition = OPS.get(op.name)
    if definition is None:
        if not (localiser.is_replicated(op) and all(map(is_replicated, shardings))):
            raise NoLocalForm(f"{op.name} is an unknown op")
    elif definition.resize is not NONE:
        definition.resize(made, before)
    return list(made.results)


def with_own_types(localiser: Localiser, op: ir.Operation, shardings: Sequence[Sharding]) -> ir.Operation:
    """The op itself, with local types."""
    if op.name.startswith("sdy."):
        raise NoLocalForm(f"{op.name} has no form on one device")
    if has_side_effect(op) and op.name != _DRAWS_FROM_OPERAND and not has_trait(op, Trait.COLLECTIVE):
        raise NoLocalForm(f"{op.name} has a side effect, which it would have on each device")
    made = op.clone(ip=ir.InsertionPoint.current).operation
    remap(made, localiser.local)
    for result, own, sharding in zip(made.results, op.results, shardings, strict=True):
        result.set_type(localiser.local_type(own, sharding))
    _drop_shardings(made)
    return made


def _drop_shardings(op: ir.Operation) -> None:
    for name in (SHARDING, RULE):
        if name in op.attributes:
            del op.attributes[name]


def _may_be_complete(op: ir.Operation) -> bool:
    """Whether every device may compute the op on complete operands, as XLA does where it cannot shard an op."""
    if (
        op.name not in OPS
        or has_side_effect(op)
        or _is_ours(op)
        or traits_of(op.name) & (Trait.COLLECTIVE | Trait.CONTROL_FLOW)
    ):
        return False
    readers = {use.owner.operation.name for result in op.results for use in result.uses}
    return readers.isdisjoint(_COMBINING) and not (op.regions and captured_values(op))


def _is_ours(op: ir.Operation) -> bool:
    """Whether it is a call that stands for another op until it has a local form; no compiler knows it."""
    name = "call_target_name"
    return name in op.attributes and ir.StringAttr(op.attributes[name]).value.startswith("exla_opt.")


def _check_valid(value: ir.Value) -> None:
    """Raise NoLocalForm if the op of a value breaks a rule of its dialect."""
    op = defining_op(value)
    if op is None:
        return
    try:
        op.verify()
    except ir.MLIRError as error:
        raise NoLocalForm(f"{op.name} on one device is not valid: {error.error_diagnostics[0].message}") from None


def own_part(localiser: Localiser, value: ir.Value, sharding: Sharding) -> ir.Value:
    """This device's shard of a replicated tensor."""
    for dim, axes in enumerate(sharding):
        value = localiser.collectives.part(value, dim, axes)
    return value


def monoid_between(op: ir.Operation) -> str:
    """How the results of several devices are combined. Raises NoLocalForm."""
    if op.name == "stablehlo.reduce":
        monoid = monoid_of(op)
        if monoid is not None:
            return monoid
    if op.name == GATHER:
        return "or" if build.tensor_of(op.results[0]).element_type == ir.IntegerType.get_signless(1) else "add"
    if op.name in ("stablehlo.dot_general", "stablehlo.dot", "stablehlo.convolution", SCATTER):
        return "add"
    raise NoLocalForm(f"the results of {op.name} on several devices are combined")
