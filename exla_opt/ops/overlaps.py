"""Ops whose tiles read more of an operand than their own part: windows that overlap, or reach beyond its ends.

    tile [a, b) of a convolution's rows reads rows [a - before, b + after) of its operand

If the operand exists unsplit, a tile reads its span (`windows.py`). Here it is computed in tiles as well, each extended
by the reach of its readers: so a few such ops in a row are cut together, and compute a few rows twice. Tile elements
beyond the ends of the operand are replaced by the op's padding.

Along a spatial dimension a convolution is cut in its result, or, if its kernel is as long as its operand, as in the
gradient by the weights, in the kernel: then the tiles' results are added.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integers

from .factor import DimMapping, Factor, Kind, Shapes
from .reducers import body_of, componentwise, counts_once
from .tile import Tile, replaced
from .window_geometry import Window, disjoint_windows, edges, windows_of


@dataclass(frozen=True, slots=True)
class Overlapping:
    """An op's factors with `reaches`, and the function that builds the op of one tile of them."""

    factors: Callable[[ir.Operation, Shapes], tuple[Factor, ...]]
    tile: Callable[[Tile], list[ir.Value]]


@dataclass(frozen=True, slots=True)
class _Lie:
    """The alignment of windows: `length` indices, each of `large` elements of the operand and `small` windows."""

    length: int
    large: int
    small: int
    reach: tuple[int, int]


def _lie_of(window: Window, source: int, count: int) -> _Lie | None:
    """The alignment of windows on a dimension of `source` elements, if each has its own part. count: of windows."""
    first, last = -window.low, window.reach - 1 - window.low  # of window 0, before gaps are removed
    if window.base == 1 and source == count * window.stride:
        found = _Lie(count, window.stride, 1, _reach(first, last, window.stride))
    elif window.stride == 1 and count == source * window.base:
        first = -(window.low // window.base) * window.base  # the first that is not a gap
        found = _Lie(source, 1, window.base, _reach(first, last + window.base - 1, window.base))
    else:
        return None
    return found if sum(found.reach) < found.length and found.length > 1 else None


def _reach(first: int, last: int, each: int) -> tuple[int, int]:
    """The indices before and after the one with elements [0, each) that elements [first, last] belong to."""
    return max(-(first // each), 0), max(last // each, 0)


def _convolution_factors(op: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    (left, kernel), result = shapes.operands, shapes.results[0]
    if any(size < 1 for shape in shapes.all for size in shape):
        return ()
    windows = windows_of(op, [kernel[dim] for dim in numbers.kernel_spatial_dimensions])
    reads, makes = numbers.input_spatial_dimensions, numbers.output_spatial_dimensions
    disjoint = disjoint_windows(windows, tuple(left[dim] for dim in reads), tuple(result[dim] for dim in makes))
    factors = []
    for index, (window, read, made) in enumerate(zip(windows, reads, makes, strict=True)):
        lie = None if index in disjoint else _lie_of(window, left[read], result[made])
        if lie is not None:
            source, target = DimMapping(read, lie.length, lie.large), DimMapping(made, lie.length, lie.small)
            factors.append(Factor(Kind.INDEPENDENT, lie.length, (source, None), (target,), reaches=(lie.reach, (0, 0))))
        elif window.base == 1 and window.size > 1 and left[read] == window.size * window.dilation:
            if _is_reversed(op, index):
                continue
            reach = _reach(-window.low, (result[made] - 1) * window.stride - window.low, window.dilation)
            if sum(reach) < window.size:
                source = DimMapping(read, window.size, window.dilation)
                summed = DimMapping(numbers.kernel_spatial_dimensions[index], window.size)
                factors.append(Factor(Kind.REDUCING, window.size, (source, summed), (None,), reaches=(reach, (0, 0))))
    return tuple(factors)


def _is_reversed(op: ir.Operation, index: int) -> bool:
    name = "window_reversal"
    return name in op.attributes and ir.DenseBoolArrayAttr(op.attributes[name])[index]


def rows_beyond(op: ir.Operation, factor: Factor, length: int) -> tuple[int, int]:
    """The elements before and after its own part of the first operand that the windows of a tile read.

    length: of the tile, in indices of the factor. Fewer than the factor's reach, if an index is several elements.
    """
    source, target = factor.operands[0], factor.results[0]
    assert source is not None
    window, made = _windows_by_dim(op)[source.dim]
    count = build.shape_of(op.results[0])[made] if target is None else length * target.inner
    if target is None:  # the kernel is cut as well
        window = replace(window, size=length)
    last = ((count - 1) * window.stride + window.reach - 1 - window.low) // window.base
    return max(window.low // window.base, 0), max(last - (length * source.inner - 1), 0)


def overlapping_dims(op: ir.Operation) -> set[int]:
    """The dimensions of the first operand in which a window reads more than the elements of its own stride."""
    source, result = (build.shape_of(value) for value in (op.operands[0], op.results[0]))
    return {
        dim
        for dim, (window, made) in _windows_by_dim(op).items()
        if not disjoint_windows([window], (source[dim],), (result[made],))
    }


def _windows_by_dim(op: ir.Operation) -> dict[int, tuple[Window, int]]:
    """The windows along each dimension of the first operand that has any, and the dimension that counts them."""
    if op.name == "stablehlo.reduce_window":
        windows = windows_of(op, integers(op, "window_dimensions", []))
        return {dim: (window, dim) for dim, window in enumerate(windows)}
    numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    sizes = [build.shape_of(op.operands[1])[dim] for dim in numbers.kernel_spatial_dimensions]
    makes = zip(windows_of(op, sizes), numbers.output_spatial_dimensions, strict=True)
    return dict(zip(numbers.input_spatial_dimensions, makes, strict=True))


def _convolution_tile(tile: Tile) -> list[ir.Value]:
    numbers = stablehlo.ConvDimensionNumbers(tile.op.attributes["dimension_numbers"])
    left, kernel = tile.operands
    mapping, read = tile.factor.operands[0], tile.operand_ranges[0]
    assert mapping is not None and read is not None
    index = list(numbers.input_spatial_dimensions).index(mapping.dim)
    # The windows of the tile: for a gradient by the weights all of them, but shorter.
    sizes = [build.shape_of(kernel)[dim] for dim in numbers.kernel_spatial_dimensions]
    window = windows_of(tile.op, sizes)[index]
    made, place = tile.factor.results[0], tile.result_ranges[0]
    if made is None or place is None:
        first, count = 0, build.shape_of(tile.op.results[0])[numbers.output_spatial_dimensions[index]]
    else:
        first, count = place[0] * made.inner, (place[1] - place[0]) * made.inner
    zero = build.zeros(build.with_shape(build.tensor_of(left), []))
    value, padding = _read(tile, 0, window, first, count, zero)
    given = integers(tile.op, "padding", [0] * (2 * len(sizes)))
    given[2 * index : 2 * index + 2] = padding
    return replace(tile, operands=[value, kernel]).clone({"padding": edges(given, tile.op.context)})


def _read(
    tile: Tile, operand: int, window: Window, first: int, count: int, fill: ir.Value
) -> tuple[ir.Value, tuple[int, int]]:
    """The elements of an operand for `count` windows from `first`, counted from the tile's start, and their padding.

    The padding is only for gaps: elements beyond the operand's ends are in its tile, and replaced by `fill`.
    """
    mapping, place = tile.factor.operands[operand], tile.operand_ranges[operand]
    assert mapping is not None and place is not None
    value = _replace_outside(tile, tile.operands[operand], mapping, place, fill)
    length = (place[1] - place[0]) * mapping.inner
    low = place[0] * mapping.inner * window.base + window.low - first * window.stride
    high = (count - 1) * window.stride + window.reach - ((length - 1) * window.base + 1) - low
    before, after = max(-low // window.base, 0), max(-high // window.base, 0)  # elements that no window reads
    kept = _slice(value, mapping.dim, before, length - after)
    return kept, (low + before * window.base, high + after * window.base)


def _slice(value: ir.Value, dim: int, start: int, limit: int) -> ir.Value:
    shape = build.shape_of(value)
    if (start, limit) == (0, shape[dim]):
        return value
    starts = replaced([0] * len(shape), dim, start)
    return stablehlo.slice(value, starts, replaced(shape, dim, limit), [1] * len(shape))


def _replace_outside(
    tile: Tile, value: ir.Value, mapping: DimMapping, place: tuple[int, int], fill: ir.Value
) -> ir.Value:
    """A tile of an operand, with `fill` beyond the operand's ends."""
    shape, index = build.shape_of(value), build.tensor_of(tile.start)
    begin = tile.begin(place)
    if mapping.inner > 1:
        begin = stablehlo.multiply(begin, build.scalar_like(begin, mapping.inner))
    line = build.with_shape(index, [shape[mapping.dim]])
    counted = stablehlo.add(stablehlo.iota(line, 0), build.broadcast(begin, [shape[mapping.dim]]))
    size = mapping.length * mapping.inner
    below = build.less_than(counted, build.splat(line, size))
    inside = stablehlo.and_(below, build.less_than(build.splat(line, -1), counted))
    kind = ir.RankedTensorType.get(shape, ir.IntegerType.get_signless(1))
    mask = stablehlo.broadcast_in_dim(kind, inside, ir.DenseI64ArrayAttr.get([mapping.dim]))
    return stablehlo.select(mask, value, build.broadcast(fill, shape))


def _reduce_window_factors(op: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    source, result = shapes.operands[0], shapes.results[0]
    windows, count = windows_of(op, integers(op, "window_dimensions", [])), len(shapes.results)
    if any(size < 1 for size in (*source, *result)):
        return ()
    disjoint = disjoint_windows(windows, source, result)
    names = componentwise(body_of(op))
    # As for tiles of an unsplit operand (`windows.py`): padding must be an identity.
    no_harm = names is not None and all(map(counts_once, list(op.operands)[count:], names))
    factors = []
    for dim, window in enumerate(windows):
        lie = None if dim in disjoint else _lie_of(window, source[dim], result[dim])
        if lie is None or (window.is_padded and not no_harm):
            continue
        read, made = DimMapping(dim, lie.length, lie.large), DimMapping(dim, lie.length, lie.small)
        operands, reaches = (*[read] * count, *[None] * count), (*[lie.reach] * count, *[(0, 0)] * count)
        factors.append(Factor(Kind.INDEPENDENT, lie.length, operands, (made,) * count, reaches=reaches))
    return tuple(factors)


def _reduce_window_tile(tile: Tile) -> list[ir.Value]:
    sizes, count = integers(tile.op, "window_dimensions", []), len(tile.types)
    made, place = tile.factor.results[0], tile.result_ranges[0]
    assert made is not None and place is not None
    window = windows_of(tile.op, sizes)[made.dim]
    first, windows = place[0] * made.inner, (place[1] - place[0]) * made.inner
    inits = tile.operands[count:]
    read = [_read(tile, index, window, first, windows, init) for index, init in enumerate(inits)]
    padding = integers(tile.op, "padding", [0] * (2 * len(sizes)))
    padding[2 * made.dim : 2 * made.dim + 2] = read[0][1]
    operands = [*(value for value, _ in read), *inits]
    return replace(tile, operands=operands).clone({"padding": edges(padding, tile.op.context)})


OVERLAPS: Mapping[str, Overlapping] = MappingProxyType(
    {
        "stablehlo.convolution": Overlapping(_convolution_factors, _convolution_tile),
        "stablehlo.reduce_window": Overlapping(_reduce_window_factors, _reduce_window_tile),
    }
)


def overlaps_of(op: ir.Operation, shapes: Shapes) -> Sequence[Factor]:
    """The factors of an op whose tiles read more of an operand than their own part."""
    found = OVERLAPS.get(op.name)
    return () if found is None else found.factors(op, shapes)
