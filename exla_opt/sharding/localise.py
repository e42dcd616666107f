"""The program of one device, from a module on whose ops Shardy wrote how their results are spread.

Every op is made once more on the parts that one device has. For most that is the op itself with smaller types; what
asks where its part begins, or combines the parts of several devices, has a function here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integer, is_splat, splat_text
from exla_opt.ir.rewrite import remap
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import operations_of, terminator
from exla_opt.ops.definition import NONE
from exla_opt.ops.reducers import IDENTITY, body_of, counts_once, monoid_of, run_body
from exla_opt.ops.rules import OPS
from exla_opt.ops.shardy import RULE

from .collectives import Collectives, moves_of
from .indexing import GATHER, SCATTER, in_own_rows, indexed_dims, mask_of
from .mesh import Axes, Mesh, Sharding, is_replicated, local_shape, parts
from .prepare import TOP_K
from .shardings import SHARDING, shardings_of_results

Results = list[ir.Value]


class NoLocalForm(Exception):
    """An op has no form on the part of one device; the text names it."""


@dataclass(slots=True)
class Localiser:
    """The ops of one device so far. local, shardings: by value of the module of all devices.

    start: what is still to be combined with the sum of all devices' results, by result: a scatter's operand, or what a
    reduce starts with.
    """

    mesh: Mesh
    collectives: Collectives
    local: dict[ir.Value, ir.Value] = field(default_factory=dict)
    shardings: dict[ir.Value, Sharding] = field(default_factory=dict)
    start: dict[ir.Value, ir.Value] = field(default_factory=dict)

    def block(self, block: ir.Block) -> None:
        """Make the ops of a block at the current insertion point, its terminator left out."""
        for op in operations_of(block)[:-1]:
            with op.location:
                self.op(op)

    def op(self, op: ir.Operation) -> None:
        """Make one op. Raises NoLocalForm."""
        shardings = shardings_of_results(op, self.mesh)
        make = _FORMS.get(op.name, _plain)
        made = make(self, op, shardings)
        if RULE in op.attributes and op.name in _REDUCING and (axes := self.reduced_axes(op)):
            # Shardy leaves it to an op with a rule of its own to combine what its devices have.
            made = [self.combined(op, self.collectives.reduce(made[0], axes, monoid_between(op)))]
        for result, value, sharding in zip(op.results, made, shardings, strict=True):
            expected = self.local_type(result, sharding)
            if value.type != expected:
                raise NoLocalForm(f"{op.name} of {result.type} on one device is {value.type}, not {expected}")
            self.local[result] = value
            self.shardings[result] = sharding

    def combined(self, op: ir.Operation, value: ir.Value) -> ir.Value:
        """What all devices' results of an op combine to, with what the op starts with."""
        start = self.start.pop(op.results[0], None)
        if start is None:
            return value
        found: ir.Value = run_body(body_of(op), [start, value])[0]
        return found

    def local_type(self, value: ir.Value, sharding: Sharding) -> ir.Type:
        """The type of the part of one device. Raises NoLocalForm where a dimension does not divide."""
        kind: ir.Type = value.type
        if not isinstance(kind, ir.RankedTensorType):
            return kind
        tensor = build.tensor_of(value)
        try:
            return build.with_shape(tensor, local_shape(tensor.shape, sharding or ((),) * len(tensor.shape)))
        except ValueError as error:
            raise NoLocalForm(str(error)) from None

    def operands(self, op: ir.Operation) -> list[ir.Value]:
        """The parts of an op's operands."""
        return [self.local[value] for value in op.operands]

    def is_replicated(self, op: ir.Operation) -> bool:
        """Whether all that the op reads is on every device."""
        return all(is_replicated(self.shardings[value]) for value in op.operands)

    def reduced_axes(self, op: ir.Operation) -> Axes:
        """The axes along which devices have different parts of the operands, and no result is cut."""
        given = {axis: None for value in op.operands for axes in self.shardings[value] for axis in axes}
        for sharding in shardings_of_results(op, self.mesh):
            for axes in sharding:
                for axis in axes:
                    given.pop(axis, None)
        return tuple(given)


def _plain(self: Localiser, op: ir.Operation, shardings: Sequence[Sharding]) -> Results:
    """The op itself, with smaller types and the attributes that go with them."""
    if op.name == "stablehlo.rng" or op.name.startswith("sdy."):
        raise NoLocalForm(f"{op.name} has no form on one device")
    before = [tuple(build.shape_of(v)) for v in (*op.operands, *op.results) if isinstance(v.type, ir.RankedTensorType)]
    made = op.clone(ip=ir.InsertionPoint.current).operation
    remap(made, self.local)
    for result, own, sharding in zip(made.results, op.results, shardings, strict=True):
        result.set_type(self.local_type(own, sharding))
    for name in (SHARDING, RULE):
        if name in made.attributes:
            del made.attributes[name]
    definition = OPS.get(op.name)
    if definition is None:
        if not (self.is_replicated(op) and all(map(is_replicated, shardings))):
            raise NoLocalForm(f"nothing is known of {op.name}")
    elif definition.resize is not NONE:
        definition.resize(made, before)
    return list(made.results)


def _constant(self: Localiser, op: ir.Operation, shardings: Sequence[Sharding]) -> Results:
    kind = ir.RankedTensorType(self.local_type(op.results[0], shardings[0]))
    value = op.attributes["value"]
    if is_replicated(shardings[0]):
        return [stablehlo.constant(value)]
    if isinstance(kind.element_type, ir.ComplexType):
        text = splat_text(op) if is_splat(op) else None
        if text is not None:
            return [build.splat_of_text(kind, text)]
    elif is_splat(op):
        one = ir.DenseElementsAttr(value).get_splat_value()
        return [stablehlo.constant(ir.DenseElementsAttr.get_splat(kind, one))]
    return [_own_part(self, stablehlo.constant(value), shardings[0])]


def _own_part(self: Localiser, value: ir.Value, sharding: Sharding) -> ir.Value:
    for dim, axes in enumerate(sharding):
        value = self.collectives.part(value, dim, axes)
    return value


def _iota(self: Localiser, op: ir.Operation, shardings: Sequence[Sharding]) -> Results:
    kind = ir.RankedTensorType(self.local_type(op.results[0], shardings[0]))
    dim = integer(op, "iota_dimension")
    axes = shardings[0][dim] if shardings[0] else ()
    if parts(axes) == 1:
        return [stablehlo.iota(kind, dim)]
    # Counted in integers: a narrow float could not hold the sum.
    counted = ir.RankedTensorType.get(list(kind.shape), ir.IntegerType.get_signless(32))
    begin = build.broadcast(self.collectives.offset(axes, kind.shape[dim]), kind.shape)
    return [build.convert(stablehlo.add(stablehlo.iota(counted, dim), begin), kind.element_type)]


def _reduce(self: Localiser, op: ir.Operation, shardings: Sequence[Sharding]) -> Results:
    """What it starts with counts once: where devices combine their results, each starts with what changes nothing."""
    if not self.reduced_axes(op):
        return _plain(self, op, shardings)
    monoid, init = monoid_of(op), op.operands[1]
    if monoid is None:
        raise NoLocalForm(f"{op.name} combines its elements in a way that devices cannot")
    made = _plain(self, op, shardings)
    if not counts_once(init, monoid):
        reduce = defining_op(made[0])
        assert reduce is not None
        with ir.InsertionPoint(reduce):
            reduce.operands[1] = build.splat(init.type, IDENTITY[monoid])
        self.start[op.results[0]] = build.broadcast(self.local[init], build.shape_of(made[0]))
    return made


def _gather(self: Localiser, op: ir.Operation, shardings: Sequence[Sharding]) -> Results:
    """Of rows that other devices have it gives zeros, which their sum leaves."""
    cut = [dim for dim in indexed_dims(op) if parts(self.shardings[op.operands[0]][dim]) > 1]
    if not cut:
        return _plain(self, op, shardings)
    operand, indices = self.operands(op)
    masks = []
    for dim in cut:
        size = build.shape_of(operand)[dim]
        offset = self.collectives.offset(self.shardings[op.operands[0]][dim], size)
        indices = in_own_rows(op, indices, dim, offset, build.shape_of(op.operands[0])[dim])
        masks.append((dim, size))
    before = self.local[op.operands[1]]
    self.local[op.operands[1]] = indices
    [found] = _plain(self, op, shardings)
    self.local[op.operands[1]] = before
    for dim, size in masks:
        mask = mask_of(op, indices, dim, size, build.shape_of(found))
        found = stablehlo.select(mask, found, build.zeros(found.type))
    return [found]


def _scatter(self: Localiser, op: ir.Operation, shardings: Sequence[Sharding]) -> Results:
    """Indices of other devices' rows lie outside, where nothing is written. Where the updates are spread, each device
    adds its own to zeros, and the operand comes in once."""
    operand, given, *_ = op.operands
    before = dict(self.local)
    for dim in indexed_dims(op):
        axes = self.shardings[operand][dim]
        if parts(axes) > 1:
            size = build.shape_of(self.local[operand])[dim]
            offset = self.collectives.offset(axes, size)
            self.local[given] = in_own_rows(op, self.local[given], dim, offset, build.shape_of(operand)[dim])
    axes = _spread_updates(self, op)
    if axes:
        self.start[op.results[0]] = self.local[operand]
        self.local[operand] = build.zeros(self.local[operand].type)
    made = _plain(self, op, shardings)
    self.local[given], self.local[operand] = before[given], before[operand]
    return made


def _spread_updates(self: Localiser, op: ir.Operation) -> Axes:
    kept = {axis for axes in self.shardings[op.operands[0]] for axis in axes}
    spread = {axis: None for value in list(op.operands)[1:] for axes in self.shardings[value] for axis in axes}
    return tuple(axis for axis in spread if axis not in kept)


def _top_k(self: Localiser, op: ir.Operation, shardings: Sequence[Sharding]) -> Results:
    """The best of every part, and the best of these: in the order of the devices, so that ties stay as they were."""
    if op.attributes["call_target_name"] != ir.StringAttr.get(TOP_K):
        return _plain(self, op, shardings)
    [operand] = self.operands(op)
    last = len(build.shape_of(operand)) - 1
    axes = self.shardings[op.operands[0]][last]
    count, size = build.shape_of(op.results[0])[last], build.shape_of(operand)[last]
    values, places = _largest(operand, min(count, size))
    if parts(axes) == 1:
        return [values, places]
    offset = build.broadcast(self.collectives.offset(axes, size), build.shape_of(places))
    moved = stablehlo.add(places, offset)
    values, places = (self.collectives.gather(each, last, axes) for each in (values, moved))
    best, at = _largest(values, count)
    return [best, build.take_along_last(places, at)]


def _largest(value: ir.Value, count: int) -> tuple[ir.Value, ir.Value]:
    shape = [*build.shape_of(value)[:-1], count]
    places = ir.RankedTensorType.get(shape, ir.IntegerType.get_signless(32))
    kinds = [build.with_shape(build.tensor_of(value), shape), places]
    k = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), count)
    found = ir.Operation.create("chlo.top_k", kinds, [value], {"k": k})
    return found.results[0], found.results[1]


def _all_gather(self: Localiser, op: ir.Operation, _: Sequence[Sharding]) -> Results:
    [value] = self.operands(op)
    for dim, axes in enumerate(self.mesh.read_lists(str(op.attributes["gathering_axes"]))):
        value = self.collectives.gather(value, dim, axes)
    return [value]


def _all_slice(self: Localiser, op: ir.Operation, _: Sequence[Sharding]) -> Results:
    [value] = self.operands(op)
    return [_own_part(self, value, tuple(self.mesh.read_lists(str(op.attributes["slicing_axes"]))))]


def _all_reduce(self: Localiser, op: ir.Operation, _: Sequence[Sharding]) -> Results:
    [value], source = self.operands(op), _source(op)
    axes = self.mesh.read_axes(str(op.attributes["reduction_axes"]))
    return [self.combined(source, self.collectives.reduce(value, axes, monoid_between(source)))]


def _reduce_scatter(self: Localiser, op: ir.Operation, _: Sequence[Sharding]) -> Results:
    [value], source = self.operands(op), _source(op)
    scattered = tuple(self.mesh.read_lists(str(op.attributes["reduce_scatter_axes"])))
    for dim, axes in enumerate(scattered):
        value = self.collectives.reduce_scatter(value, dim, axes, monoid_between(source))
    start = self.start.get(source.results[0])
    if start is not None:
        self.start[source.results[0]] = _own_part(self, start, scattered)
    return [self.combined(source, value)]


def monoid_between(op: ir.Operation) -> str:
    """How the results that several devices have of an op are combined. Raises NoLocalForm."""
    if op.name == "stablehlo.reduce":
        monoid = monoid_of(op)
        if monoid is not None:
            return monoid
    if op.name == GATHER:
        return "or" if build.tensor_of(op.results[0]).element_type == ir.IntegerType.get_signless(1) else "add"
    if op.name in ("stablehlo.dot_general", "stablehlo.dot", "stablehlo.convolution", SCATTER):
        return "add"
    raise NoLocalForm(f"the results of {op.name} on several devices are combined")


def _source(op: ir.Operation) -> ir.Operation:
    """The op whose results a collective combines. Raises NoLocalForm where it is none."""
    made = defining_op(op.operands[0])
    while made is not None and made.name in ("sdy.all_reduce", "sdy.reduce_scatter"):
        made = defining_op(made.operands[0])
    if made is None:
        raise NoLocalForm("the parts of an argument are combined")
    return made


def _all_to_all(self: Localiser, op: ir.Operation, _: Sequence[Sharding]) -> Results:
    [value] = self.operands(op)
    for axes, source, target in moves_of(self.mesh, op):
        value = self.collectives.all_to_all(value, axes, source, target)
    return [value]


def _permute(self: Localiser, op: ir.Operation, shardings: Sequence[Sharding]) -> Results:
    [value] = self.operands(op)
    return [self.collectives.permute(value, self.shardings[op.operands[0]], shardings[0])]


def _control(self: Localiser, op: ir.Operation, shardings: Sequence[Sharding]) -> Results:
    """Control flow block by block. What a block gets and returns is spread as the results are."""
    kinds = [self.local_type(result, sharding) for result, sharding in zip(op.results, shardings, strict=True)]
    made = ir.Operation.create(op.name, kinds, self.operands(op), regions=len(op.regions))
    for old, new in zip(op.regions, made.regions, strict=True):
        block = old.blocks[0]
        types = kinds if block.arguments else []
        inner = new.blocks.append(*types, arg_locs=[argument.location for argument in block.arguments])
        for argument, value, sharding in zip(block.arguments, inner.arguments, shardings, strict=False):
            self.local[argument], self.shardings[argument] = value, sharding
        with ir.InsertionPoint(inner):
            self.block(block)
            stablehlo.return_([self.local[value] for value in terminator(block).operands])
    return list(made.results)


def _manual(self: Localiser, op: ir.Operation, shardings: Sequence[Sharding]) -> Results:
    """The body of a manual computation is written for one device already, as far as its axes go."""
    manual = {axis.name for axis in self.mesh.read_axes(str(op.attributes["manual_axes"]))}
    is_partial = any(size > 1 and name not in manual for name, size in self.mesh.axes)
    block = op.regions[0].blocks[0]
    if is_partial and any("replica_groups" in each.attributes for each in operations_of(block)):
        raise NoLocalForm("a computation that is manual over some axes and talks to other devices")
    for argument, operand in zip(block.arguments, op.operands, strict=True):
        given = self.shardings[operand]
        self.local[argument] = self.local[operand]
        self.shardings[argument] = tuple(tuple(axis for axis in axes if axis.name not in manual) for axes in given)
        if self.local[operand].type != self.local_type(argument, self.shardings[argument]):
            raise NoLocalForm("a manual computation of tensors that are spread in another way")
    self.block(block)
    return [self.local[value] for value in terminator(block).operands]


_REDUCING = ("stablehlo.reduce", GATHER, SCATTER)
Form = Callable[[Localiser, ir.Operation, Sequence[Sharding]], Results]
_FORMS: dict[str, Form] = {
    "sdy.constant": _constant,
    "stablehlo.constant": _constant,
    "stablehlo.iota": _iota,
    "stablehlo.reduce": _reduce,
    GATHER: _gather,
    SCATTER: _scatter,
    "stablehlo.custom_call": _top_k,
    "sdy.all_gather": _all_gather,
    "sdy.all_slice": _all_slice,
    "sdy.all_reduce": _all_reduce,
    "sdy.reduce_scatter": _reduce_scatter,
    "sdy.all_to_all": _all_to_all,
    "sdy.collective_permute": _permute,
    "sdy.manual_computation": _manual,
    "stablehlo.while": _control,
    "stablehlo.case": _control,
    "stablehlo.if": _control,
}
