"""The tile of an op with windows that overlap or are padded: it reads what its own windows span."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integer, integers
from exla_opt.ops.rules import Kind
from exla_opt.ops.windows import Window, windows_of

from .slices import Tile, replaced, result_mapping


def read_padded(
    value: ir.Value, dim: int, start: ir.Value, length: int, padding: tuple[int, int, int], fill: ir.Value
) -> ir.Value:
    """Elements [start, start + length) of dimension `dim` of pad(value), without making pad(value).

    start: tensor<i32>, counted in pad(value). padding: low, high and interior. What is read of `value` is a slice that
    is moved inward where it would lie beyond an end; it is padded by enough that the elements stand in it.
    """
    low, high, interior = padding
    step = interior + 1
    size = build.shape_of(value)[dim]
    if padding == (0, 0, 0):
        return build.slice_along(value, dim, start, length)
    read = min(size, -(-(length + interior - 1) // step) + 1)
    # Division rounds towards zero, and every negative place is moved to zero anyway.
    place = start if low == 0 else stablehlo.subtract(start, build.scalar_i32(low))
    index = place if step == 1 else stablehlo.divide(place, build.scalar_i32(step))
    begin = build.clamp(build.scalar_i32(0), index, build.scalar_i32(size - read))
    part = build.slice_along(value, dim, begin, read)
    begins = begin if step == 1 else stablehlo.multiply(begin, build.scalar_i32(step))
    inside = stablehlo.add(stablehlo.subtract(place, begins), build.scalar_i32(max(low, 0)))
    return build.slice_along(_pad_along(part, dim, (max(low, 0), max(high, 0), interior), fill), dim, inside, length)


def _pad_along(value: ir.Value, dim: int, padding: tuple[int, int, int], fill: ir.Value) -> ir.Value:
    low, high, interior = padding
    shape = build.shape_of(value)
    edges = [replaced([0] * len(shape), dim, number) for number in padding]
    shape[dim] = low + high + (shape[dim] - 1) * (interior + 1) + 1
    return stablehlo.PadOp(value, fill, *edges, results=[build.with_shape(build.tensor_of(value), shape)]).result


def _spanned(value: ir.Value, dim: int, window: Window, start: ir.Value, count: int, fill: ir.Value) -> ir.Value:
    """What `count` windows from number `start` on span of the padded operand."""
    first = start if window.stride == 1 else stablehlo.multiply(start, build.scalar_i32(window.stride))
    length = (count - 1) * window.stride + window.reach
    return read_padded(value, dim, first, length, (window.low, window.high, window.base - 1), fill)


def cut_reduce_window(tile: Tile) -> list[ir.Value]:
    mapping, place = result_mapping(tile)
    count = place[1] - place[0]
    window = windows_of(tile.op, integers(tile.op, "window_dimensions", []))[mapping.dim]
    results = len(tile.types)
    if tile.factor.kind is Kind.SCAN:
        return tile.clone(_running(tile.op, mapping.dim, count))
    if tile.factor.operands[0] is not None:
        return tile.clone()
    start = tile.begin(place, ir.IntegerType.get_signless(32))
    inits = tile.operands[results:]
    read = [
        _spanned(value, mapping.dim, window, start, count, init)
        for value, init in zip(tile.operands[:results], inits, strict=True)
    ]
    return replace(tile, operands=[*read, *inits]).clone(_unpadded(tile.op, mapping.dim, "base_dilations"))


def _running(op: ir.Operation, dim: int, length: int) -> dict[str, ir.Attribute]:
    sizes = integers(op, "window_dimensions", [])
    padding = integers(op, "padding", [0] * (2 * len(sizes)))
    return {
        "window_dimensions": ir.DenseI64ArrayAttr.get(replaced(sizes, dim, length)),
        "padding": _edges(replaced(padding, 2 * dim, length - 1)),
    }


def _unpadded(op: ir.Operation, dim: int, base: str) -> dict[str, ir.Attribute]:
    """The attributes of an op whose operand is padded along `dim` already."""
    changed: dict[str, ir.Attribute] = {}
    if base in op.attributes:
        changed[base] = ir.DenseI64ArrayAttr.get(replaced(integers(op, base, []), dim, 1))
    if "padding" in op.attributes:
        edges = integers(op, "padding", [])
        changed["padding"] = _edges(replaced(replaced(edges, 2 * dim, 0), 2 * dim + 1, 0))
    return changed


def _edges(numbers: Sequence[int]) -> ir.Attribute:
    """The padding attribute: low and high for each dimension."""
    kind = ir.IntegerType.get_signless(64)
    shaped = ir.RankedTensorType.get([len(numbers) // 2, 2], kind)
    return ir.DenseElementsAttr.get([ir.IntegerAttr.get(kind, number) for number in numbers], type=shaped)


def cut_convolution(tile: Tile) -> list[ir.Value]:
    """Where groups are cut, the tile has fewer of them; along a spatial dimension it reads what its windows span."""
    numbers = stablehlo.ConvDimensionNumbers(tile.op.attributes["dimension_numbers"])
    left, kernel = tile.factor.operands
    if left is None and kernel is None:
        return _rows_of_convolution(tile, numbers)
    if left is None or kernel is None or kernel.dim != numbers.kernel_output_feature_dimension:
        return tile.clone()
    by_feature = left.dim == numbers.input_feature_dimension
    name = "feature_group_count" if by_feature else "batch_group_count"
    place = tile.operand_ranges[0]
    assert place is not None and integer(tile.op, name) == tile.factor.size
    count = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), place[1] - place[0])
    return tile.clone({name: count})


def _rows_of_convolution(tile: Tile, numbers: stablehlo.ConvDimensionNumbers) -> list[ir.Value]:
    mapping, place = result_mapping(tile)
    left, kernel = tile.operands
    sizes = [build.shape_of(kernel)[dim] for dim in numbers.kernel_spatial_dimensions]
    index = list(numbers.output_spatial_dimensions).index(mapping.dim)
    dim = numbers.input_spatial_dimensions[index]
    start = tile.begin(place, ir.IntegerType.get_signless(32))
    zero = build.zeros(build.with_shape(build.tensor_of(left), []))
    read = _spanned(left, dim, windows_of(tile.op, sizes)[index], start, place[1] - place[0], zero)
    return replace(tile, operands=[read, kernel]).clone(_unpadded(tile.op, index, "lhs_dilation"))
