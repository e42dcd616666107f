"""The local forms of ops that depend on the position of their shard, or combine the shards of several devices."""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy, stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import elements_text, integer, integers, is_splat, splat_text
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import terminator
from exla_opt.ops.collectives import OPS as COLLECTIVES
from exla_opt.ops.reducers import IDENTITY, counts_once, monoid_of
from exla_opt.ops.shardy import RULE

from . import at_index
from .communication import COMMUNICATION
from .halo import WINDOWED
from .indexing import GATHER, SCATTER, in_own_rows, indexed_dims, mask_of
from .localise import Form, Localiser, NoLocalForm, Results, own_part, plain
from .mesh import Axes, Sharding, is_replicated, parts
from .own_groups import stays_between
from .rules import TOP_K
from .shardings import SHARDING, axes_in_manual, sharding_of_attribute, without
from .shift_parts import EDGES
from .shifted import shifted
from .shifts import is_shift


def _constant(localiser: Localiser, op: ir.Operation, shardings: Sequence[Sharding]) -> Results:
    kind = ir.RankedTensorType(localiser.local_type(op.results[0], shardings[0]))
    if isinstance(kind.element_type, ir.ComplexType):
        text = splat_text(op)
        if text is not None:
            return [build.constant_of_text(kind, text)]
        whole = ir.RankedTensorType(op.results[0].type)
        return [own_part(localiser, build.constant_of_text(whole, elements_text(op)), shardings[0])]
    value = op.attributes["value"]
    if is_replicated(shardings[0]):
        return [stablehlo.constant(value)]
    if is_splat(op):
        one = ir.DenseElementsAttr(value).get_splat_value()
        return [stablehlo.constant(ir.DenseElementsAttr.get_splat(kind, one))]
    return [own_part(localiser, stablehlo.constant(value), shardings[0])]


def _iota(localiser: Localiser, op: ir.Operation, shardings: Sequence[Sharding]) -> Results:
    kind = ir.RankedTensorType(localiser.local_type(op.results[0], shardings[0]))
    dim = integer(op, "iota_dimension")
    axes = shardings[0][dim] if shardings[0] else ()
    if parts(axes) == 1:
        return [stablehlo.iota(kind, dim)]
    # Counted in integers: a narrow float could not hold the sum.
    counted = ir.RankedTensorType.get(list(kind.shape), ir.IntegerType.get_signless(32))
    begin = build.broadcast(localiser.collectives.offset(axes, kind.shape[dim]), kind.shape)
    return [build.convert(stablehlo.add(stablehlo.iota(counted, dim), begin), kind.element_type)]


def _slice(localiser: Localiser, op: ir.Operation, shardings: Sequence[Sharding]) -> Results:
    """Along a sharded dimension it keeps every n-th element: the same ones of each shard."""
    starts, strides = integers(op, "start_indices", []), integers(op, "strides", [])
    before, after = (build.shape_of(value) for value in (op.operands[0], op.results[0]))
    for dim in _cut(shardings[0]):
        if starts[dim] >= strides[dim] or before[dim] != after[dim] * strides[dim]:
            raise NoLocalForm("a slice along a dimension that the devices divide differently before and after it")
    [made] = plain(localiser, op, shardings)
    owner = defining_op(made)
    assert owner is not None
    own_starts, own_limits = integers(owner, "start_indices", []), integers(owner, "limit_indices", [])
    for dim in _cut(shardings[0]):
        own_starts[dim] = starts[dim]
        own_limits[dim] = starts[dim] + (build.shape_of(made)[dim] - 1) * strides[dim] + 1
    owner.attributes["start_indices"] = ir.DenseI64ArrayAttr.get(own_starts)
    owner.attributes["limit_indices"] = ir.DenseI64ArrayAttr.get(own_limits)
    return [made]


def _pad(localiser: Localiser, op: ir.Operation, shardings: Sequence[Sharding]) -> Results:
    """Along a sharded dimension there is the same padding around each element."""
    low, high, interior = (integers(op, name, []) for name in EDGES)
    for dim in _cut(shardings[0]):
        if low[dim] < 0 or high[dim] < 0 or low[dim] + high[dim] != interior[dim]:
            raise NoLocalForm("padding along a dimension that the devices divide differently before and after it")
    return plain(localiser, op, shardings)


def _reverse(localiser: Localiser, op: ir.Operation, shardings: Sequence[Sharding]) -> Results:
    """Along a sharded dimension, each shard is reversed, and their order before."""
    operand = op.operands[0]
    before = sent = localiser.local[operand]
    for dim in integers(op, "dimensions", []):
        count = parts(shardings[0][dim])
        if count > 1:
            pairs = [(count - 1 - place, place) for place in range(count)]
            sent = localiser.collectives.send(sent, shardings[0][dim], pairs)
    localiser.local[operand] = sent
    made = plain(localiser, op, shardings)
    localiser.local[operand] = before
    return made


def _cut(sharding: Sharding) -> list[int]:
    return [dim for dim, axes in enumerate(sharding) if parts(axes) > 1]


def _reduce(localiser: Localiser, op: ir.Operation, shardings: Sequence[Sharding]) -> Results:
    """Its initial value counts once: if devices combine their results, each starts from the identity."""
    axes = localiser.reduced_axes(op)
    if not axes:
        return plain(localiser, op, shardings)
    if len(op.results) > 1:
        return _chosen(localiser, op, plain(localiser, op, shardings), axes)
    monoid, init = monoid_of(op), op.operands[1]
    if monoid is None:
        raise NoLocalForm(f"{op.name} has a reducer that cannot combine the results of devices")
    made = plain(localiser, op, shardings)
    if not counts_once(init, monoid):
        reduce = defining_op(made[0])
        assert reduce is not None
        with ir.InsertionPoint(reduce):
            reduce.operands[1] = build.splat(init.type, IDENTITY[monoid])
        localiser.start[op.results[0]] = build.broadcast(localiser.local[init], build.shape_of(made[0]))
    return made


def _chosen(localiser: Localiser, op: ir.Operation, candidates: Results, axes: Axes) -> Results:
    """The best of each device's own choice, as for argmax, with its index in the entire tensor.

    Shardy's rule was restricted to ops whose choices can be chosen from again.
    """
    rank = len(build.shape_of(candidates[0]))
    together = []
    for value in candidates:
        kind = build.with_shape(build.tensor_of(value), [*build.shape_of(value), 1])
        together.append(localiser.collectives.gather(stablehlo.reshape(kind, value), rank, axes))
    made = op.clone(ip=ir.InsertionPoint.current).operation
    inits = [localiser.local[value] for value in list(op.operands)[len(candidates) :]]
    for place, value in enumerate([*together, *inits]):
        made.operands[place] = value
    for result, value in zip(made.results, candidates, strict=True):
        result.set_type(value.type)
    made.attributes["dimensions"] = ir.DenseI64ArrayAttr.get([rank])
    for name in (SHARDING, RULE):
        if name in made.attributes:
            del made.attributes[name]
    return list(made.results)


def _gather(localiser: Localiser, op: ir.Operation, shardings: Sequence[Sharding]) -> Results:
    """For rows of other devices it returns zeros, which vanish in the sum."""
    cut = [dim for dim in indexed_dims(op) if parts(localiser.shardings[op.operands[0]][dim]) > 1]
    if not cut:
        return plain(localiser, op, shardings)
    operand, indices = localiser.operands(op)
    masks = []
    for dim in cut:
        size = build.shape_of(operand)[dim]
        offset = localiser.collectives.offset(localiser.shardings[op.operands[0]][dim], size)
        indices = in_own_rows(op, indices, dim, offset, build.shape_of(op.operands[0])[dim])
        masks.append((dim, size))
    before = localiser.local[op.operands[1]]
    localiser.local[op.operands[1]] = indices
    [found] = plain(localiser, op, shardings)
    localiser.local[op.operands[1]] = before
    for dim, size in masks:
        mask = mask_of(op, indices, dim, size, build.shape_of(found))
        found = stablehlo.select(mask, found, build.zeros(found.type))
    return [found]


def _scatter(localiser: Localiser, op: ir.Operation, shardings: Sequence[Sharding]) -> Results:
    """Scatter locally: indices of other devices' rows are out of bounds, where nothing is written. If the updates are
    sharded, each device adds its own to zeros, and the operand is added once."""
    operand, given, *_ = op.operands
    before = dict(localiser.local)
    for dim in indexed_dims(op):
        axes = localiser.shardings[operand][dim]
        if parts(axes) > 1:
            size = build.shape_of(localiser.local[operand])[dim]
            offset = localiser.collectives.offset(axes, size)
            localiser.local[given] = in_own_rows(op, localiser.local[given], dim, offset, build.shape_of(operand)[dim])
    axes = _spread_updates(localiser, op)
    if axes:
        localiser.start[op.results[0]] = localiser.local[operand]
        localiser.local[operand] = build.zeros(localiser.local[operand].type)
    made = plain(localiser, op, shardings)
    localiser.local[given], localiser.local[operand] = before[given], before[operand]
    return made


def _spread_updates(localiser: Localiser, op: ir.Operation) -> Axes:
    kept = {axis for axes in localiser.shardings[op.operands[0]] for axis in axes}
    spread = {axis: None for value in list(op.operands)[1:] for axes in localiser.shardings[value] for axis in axes}
    return tuple(axis for axis in spread if axis not in kept)


def _call(localiser: Localiser, op: ir.Operation, shardings: Sequence[Sharding]) -> Results:
    return (shifted if is_shift(op) else _top_k)(localiser, op, shardings)


def _top_k(localiser: Localiser, op: ir.Operation, shardings: Sequence[Sharding]) -> Results:
    """The best of every shard, then the best of these: in device order, so that ties are broken as before."""
    if op.attributes["call_target_name"] != ir.StringAttr.get(TOP_K):
        return plain(localiser, op, shardings)
    [operand] = localiser.operands(op)
    last = len(build.shape_of(operand)) - 1
    axes = localiser.shardings[op.operands[0]][last]
    count, size = build.shape_of(op.results[0])[last], build.shape_of(operand)[last]
    values, places = _largest(operand, min(count, size))
    if parts(axes) == 1:
        return [values, places]
    offset = build.broadcast(localiser.collectives.offset(axes, size), build.shape_of(places))
    moved = stablehlo.add(places, offset)
    values, places = (localiser.collectives.gather(each, last, axes) for each in (values, moved))
    best, at = _largest(values, count)
    return [best, build.take_along_last(places, at)]


def _largest(value: ir.Value, count: int) -> tuple[ir.Value, ir.Value]:
    shape = [*build.shape_of(value)[:-1], count]
    places = ir.RankedTensorType.get(shape, ir.IntegerType.get_signless(32))
    kinds = [build.with_shape(build.tensor_of(value), shape), places]
    k = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), count)
    found = ir.Operation.create("chlo.top_k", kinds, [value], {"k": k})
    return found.results[0], found.results[1]


def _control(localiser: Localiser, op: ir.Operation, shardings: Sequence[Sharding]) -> Results:
    """Control flow block by block. Arguments and results of a block are sharded as the op's results are."""
    kinds = [localiser.local_type(result, sharding) for result, sharding in zip(op.results, shardings, strict=True)]
    operands = localiser.operands(op)
    if op.name == "stablehlo.while":
        operands = [localiser.resharded(value, one) for value, one in zip(op.operands, shardings, strict=True)]
    made = ir.Operation.create(op.name, kinds, operands, regions=len(op.regions))
    for number, (old, new) in enumerate(zip(op.regions, made.regions, strict=True)):
        block = old.blocks[0]
        types = kinds if block.arguments else []
        inner = new.blocks.append(*types, arg_locs=[argument.location for argument in block.arguments])
        for argument, value, sharding in zip(block.arguments, inner.arguments, shardings, strict=False):
            localiser.local[argument], localiser.shardings[argument] = value, sharding
        with ir.InsertionPoint(inner):
            localiser.block(block)
            returned = list(terminator(block).operands)
            spread: Sequence[Sharding] = [()] if op.name == "stablehlo.while" and not number else shardings
            stablehlo.return_([localiser.resharded(value, one) for value, one in zip(returned, spread, strict=True)])
    return list(made.results)


def _manual(localiser: Localiser, op: ir.Operation, shardings: Sequence[Sharding]) -> Results:
    """The body of a manual computation is already local, as far as its axes go."""
    manual = axes_in_manual(op, localiser.mesh)
    block = op.regions[0].blocks[0]
    given = sdy.TensorShardingPerValueAttr(op.attributes["in_shardings"]).shardings
    for argument, operand, attribute in zip(block.arguments, op.operands, given, strict=True):
        sharding = sharding_of_attribute(attribute, localiser.mesh)
        localiser.local[argument] = localiser.resharded(operand, sharding)
        localiser.shardings[argument] = without(sharding, manual)
    around = localiser.manual
    localiser.manual = around | manual
    localiser.block(block)
    localiser.manual = around
    returned = zip(terminator(block).operands, shardings, strict=True)
    return [localiser.resharded(value, without(sharding, manual)) for value, sharding in returned]


def _talk(localiser: Localiser, op: ir.Operation, shardings: Sequence[Sharding]) -> Results:
    """A collective in the program itself, between devices that have the same shard along all other axes."""
    if not stays_between(op, localiser.mesh, localiser.manual):
        raise NoLocalForm(f"{op.name} of a computation that is manual over some axes communicates along the others")
    return plain(localiser, op, shardings)


FORMS: dict[str, Form] = {
    **COMMUNICATION,
    **WINDOWED,
    **dict.fromkeys(COLLECTIVES, _talk),
    "stablehlo.constant": _constant,
    "stablehlo.iota": _iota,
    "stablehlo.slice": _slice,
    "stablehlo.pad": _pad,
    "stablehlo.reverse": _reverse,
    at_index.SLICE: at_index.slice_at_index,
    at_index.UPDATE: at_index.update_at_index,
    "stablehlo.reduce": _reduce,
    GATHER: _gather,
    SCATTER: _scatter,
    "stablehlo.custom_call": _call,
    "sdy.manual_computation": _manual,
    "stablehlo.while": _control,
    "stablehlo.case": _control,
    "stablehlo.if": _control,
}
