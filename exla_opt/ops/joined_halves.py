"""Two halves that are computed together and concatenated: the element at any index, from the index alone.

The older threefry of jax.random computes two words from each pair of counters, and joins first and second words:

    a, b = f(counts[:h], counts[h:]);  concatenate(a, b)

Element p of that is element p mod h of a or of b. So if f is elementwise, the steps of a loop included, and its
operands are iotas or the same everywhere, f of p mod h has both words at every position, and one of them is kept. That
is twice the work of the halves, and can be cut anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.values import defining_op, has_discardable_attributes
from exla_opt.ir.walk import operands_of, operations_of, terminator, walk_regions

from .element_at import Asked, Frame, NotElementwise, element_of, is_pointwise, reads
from .traits import Trait, has_trait

_LOOP = "stablehlo.while"
# A draw has fewer ops than this.
_MOST_OPS = 4000

# Computed elements, operands first, each with its operand elements.
Order = Mapping[Asked, Sequence[Asked]]


@dataclass(frozen=True)
class Carries:
    """A loop of which some carries are computed elementwise: the dimensions of each, and the elements of its body."""

    loop: ir.Operation
    dims: Mapping[int, tuple[int, ...]]
    order: Order


@dataclass(frozen=True)
class Halves:
    """Two concatenated halves.

    last: the value to replace: the concatenation, or its slice without last elements, or its reshape, if only that is
    read.
    frame: the shape of `last`. half: the length of a half.
    loops: the loops in between, by their first results.
    """

    last: ir.Value
    frame: Frame
    half: int
    parts: tuple[Asked, Asked]
    order: Order
    loops: Mapping[ir.Value, Carries]


def halves_of(op: ir.Operation) -> Halves | None:
    """The halves that an op joins; None for other ops, elements that need more than the index, and slow arithmetic."""
    if op.name != "stablehlo.concatenate" or len(op.operands) != 2 or has_discardable_attributes(op):
        return None
    first, second = op.operands
    dim = ir.IntegerAttr(op.attributes["dimension"]).value
    shape = build.shape_of(first)
    if first.type != second.type or shape[dim] < 2 or 2 * shape[dim] >= 2**32:
        return None
    frame, last = _end_of(op, dim)
    dims = tuple(range(len(shape)))
    parts = (Asked(first, dims), Asked(second, dims))
    search = _Search(frame)
    try:
        order = search.run(parts)
    except NotElementwise:
        return None
    computed, other = (_computed_for(part, order) for part in parts)
    if computed.isdisjoint(other):  # two halves without common ops would take twice the work of each
        return None
    return Halves(last, frame, shape[dim], parts, order, search.loops)


def _end_of(op: ir.Operation, dim: int) -> tuple[Frame, ir.Value]:
    """Follow the concatenation through a slice that drops its last elements and a reshape that splits the dimension."""
    last = op.results[0]
    if (dropped := _only_reader(last, "stablehlo.slice")) is not None and _keeps_the_start(dropped, dim):
        last = dropped.results[0]
    shape = build.shape_of(last)
    if (taken := _only_reader(last, "stablehlo.reshape")) is not None:
        found = build.shape_of(taken.results[0])
        parts = len(found) - len(shape) + 1
        if parts > 0 and [*found[:dim], prod(found[dim : dim + parts]), *found[dim + parts :]] == shape:
            return Frame(dim, tuple(found), parts), taken.results[0]
    return Frame(dim, tuple(shape), 1), last


def _only_reader(value: ir.Value, name: str) -> ir.Operation | None:
    uses = list(value.uses)
    if len(uses) != 1:
        return None
    op: ir.Operation = uses[0].owner.operation
    return op if op.name == name and not has_discardable_attributes(op) else None


def _keeps_the_start(op: ir.Operation, dim: int) -> bool:
    starts, strides = (list(ir.DenseI64ArrayAttr(op.attributes[name])) for name in ("start_indices", "strides"))
    sizes, kept = build.shape_of(op.operands[0]), build.shape_of(op.results[0])
    others = all(kept[place] == size for place, size in enumerate(sizes) if place != dim)
    return others and not any(starts) and set(strides) == {1}


def _computed_for(part: Asked, order: Order) -> set[ir.Value]:
    """The values that elementwise ops and loops compute for one part; for a loop its first result."""
    found: set[ir.Value] = set()
    seen: set[Asked] = set()
    stack = [part]
    while stack:
        asked = stack.pop()
        if asked in seen or not order[asked]:
            continue
        seen.add(asked)
        op = defining_op(asked.value)
        if op is not None and (op.name == _LOOP or is_pointwise(op)):
            found.add(op.results[0])
        stack += order[asked]
    return found


class _Search:
    """Traces elements to their operands, back to iotas and to values that are the same along the dimension."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.loops: dict[ir.Value, Carries] = {}

    def run(self, wanted: Sequence[Asked]) -> Order:
        """All required elements. Raises NotElementwise."""
        sources: dict[Asked, list[Asked]] = {}
        order: dict[Asked, list[Asked]] = {}
        stack = list(wanted)
        while stack:
            asked = stack.pop()
            if asked in order:
                continue
            if asked in sources:  # met again once its operands are done
                order[asked] = sources[asked]
                continue
            if len(sources) == _MOST_OPS:
                raise NotElementwise
            sources[asked] = self.sources_of(asked)
            stack += [asked, *(source for source in sources[asked] if source not in order)]
        return order

    def sources_of(self, asked: Asked) -> list[Asked]:
        """The operand elements, in this block. Raises NotElementwise."""
        if self.frame.dim not in asked.dims:
            return []
        op = defining_op(asked.value)
        if op is None or has_trait(op, Trait.SLOW):
            raise NotElementwise
        return self.starts_of(op, asked) if op.name == _LOOP else reads(op, asked, self.frame)

    def starts_of(self, op: ir.Operation, asked: Asked) -> list[Asked]:
        """The initial values of all carries that the requested one depends on."""
        if asked.shift or len(op.attributes):
            raise NotElementwise
        index = ir.OpResult(asked.value).result_number
        first = op.results[0]
        if first not in self.loops:
            self.loops[first] = carries_of(op, {index: asked.dims}, self.frame)
        known = self.loops[first]
        if known.dims.get(index) != asked.dims:
            raise NotElementwise
        return [Asked(op.operands[place], dims) for place, dims in known.dims.items()]


class _BodySearch(_Search):
    """The same in the body of a loop, back to its carries."""

    def __init__(self, frame: Frame, body: ir.Block) -> None:
        super().__init__(frame)
        self.body = body
        self.carried: dict[int, tuple[int, ...]] = {}

    def sources_of(self, asked: Asked) -> list[Asked]:
        if self.frame.dim not in asked.dims or asked.value.owner != self.body:
            return super().sources_of(asked)
        place = ir.BlockArgument(asked.value).arg_number
        if asked.shift or self.carried.setdefault(place, asked.dims) != asked.dims:
            raise NotElementwise
        return []

    def starts_of(self, op: ir.Operation, asked: Asked) -> list[Asked]:
        raise NotElementwise


def carries_of(op: ir.Operation, wanted: Mapping[int, tuple[int, ...]], frame: Frame) -> Carries:
    """The carries of a loop that are computed together with the requested ones. Raises NotElementwise."""
    condition, body = (region.blocks[0] for region in op.regions)
    returned = terminator(body).operands
    found = dict(wanted)
    while True:
        search = _BodySearch(frame, body)
        search.carried.update(found)
        order = search.run([Asked(returned[place], dims) for place, dims in found.items()])
        if len(search.carried) == len(found):
            break
        found = search.carried
    reached = _reached(body, [body.arguments[place] for place in found])
    plain = [value for place, value in enumerate(returned) if place not in found]
    plain += [asked.value for asked in order if frame.dim not in asked.dims]
    is_tested = any(True for place in found for _ in condition.arguments[place].uses)
    if is_tested or not reached.isdisjoint(plain):
        raise NotElementwise
    return Carries(op, found, order)


def _reached(body: ir.Block, values: Sequence[ir.Value]) -> set[ir.Value]:
    """These values of a body, and all that it computes from them."""
    found = set(values)
    for op in operations_of(body):
        if not found.isdisjoint(operands_of(op)):
            found.update(op.results)
    return found


def write_halves(halves: Halves) -> ir.Value:
    """Build the elements of `halves.last`, at the insertion point."""
    places = halves.frame.counted()
    half = build.splat(places.type, halves.half)
    is_first = build.compare(places, half, "LT", "UNSIGNED")
    within = stablehlo.select(is_first, places, stablehlo.subtract(places, half))
    made: dict[Asked, ir.Value] = {}
    _write(halves.order, halves, within, made, {})
    return stablehlo.select(is_first, *(made[part] for part in halves.parts))


def _write(
    order: Order,
    halves: Halves,
    places: ir.Value,
    made: dict[Asked, ir.Value],
    copies: Mapping[ir.Value, ir.Value],
) -> None:
    """Compute an order into `made`. copies: in a loop's body, of values that are the same along the dimension."""
    loops: dict[ir.Value, Sequence[ir.Value]] = {}
    for asked, sources in order.items():
        if asked in made:
            continue
        read = [made[source] for source in sources]
        loop = defining_op(asked.value, _LOOP) if sources else None
        if loop is None:
            here = replace(asked, value=copies.get(asked.value, asked.value))
            made[asked] = element_of(here, read, halves.frame, places)
            continue
        first = loop.results[0]
        if first not in loops:
            loops[first] = _write_loop(halves.loops[first], halves, places, made)
        made[asked] = loops[first][ir.OpResult(asked.value).result_number]


def _write_loop(
    carries: Carries, halves: Halves, places: ir.Value, made: Mapping[Asked, ir.Value]
) -> Sequence[ir.Value]:
    """The loop, with the elementwise carries in the frame's shape."""
    old = carries.loop
    operands = list(old.operands)
    for place, dims in carries.dims.items():
        operands[place] = made[Asked(operands[place], dims)]
    kinds = [operand.type for operand in operands]
    new = ir.Operation.create(_LOOP, results=kinds, operands=operands, regions=2)
    condition, body = (region.blocks[0] for region in old.regions)
    tested, steps = (region.blocks.append(*kinds) for region in new.regions)
    with ir.InsertionPoint(tested):
        _copy(operations_of(condition), {**dict(zip(condition.arguments, tested.arguments, strict=True))})
    reached = _reached(body, [body.arguments[place] for place in carries.dims])
    with ir.InsertionPoint(steps):
        copies: dict[ir.Value, ir.Value] = dict(zip(body.arguments, steps.arguments, strict=True))
        _copy([op for op in operations_of(body)[:-1] if reached.isdisjoint(op.results)], copies)
        stepped = {Asked(body.arguments[place], dims): steps.arguments[place] for place, dims in carries.dims.items()}
        _write(carries.order, halves, places, stepped, copies)
        returned = [copies.get(value, value) for value in terminator(body).operands]
        for place, dims in carries.dims.items():
            returned[place] = stepped[Asked(terminator(body).operands[place], dims)]
        stablehlo.return_(returned)
    return list(new.results)


def _copy(ops: Sequence[ir.Operation], values: dict[ir.Value, ir.Value]) -> None:
    """Clone ops on other values, and add their results to these."""
    for op in ops:
        made = op.clone(ip=ir.InsertionPoint.current).operation
        inside = (inner for region in made.regions for block in region.blocks for inner in walk_regions(block))
        for reader in (made, *inside):
            for index, value in enumerate(reader.operands):
                if value in values:
                    reader.operands[index] = values[value]
        values.update(zip(op.results, made.results, strict=True))
