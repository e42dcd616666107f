"""Small builders of StableHLO ops, at the current insertion point and location."""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from .values import Number


def tensor_of(value: ir.Value) -> ir.RankedTensorType:
    """The tensor type of a value. Raises ValueError for any other type."""
    return ir.RankedTensorType(value.type)


def shape_of(value: ir.Value) -> list[int]:
    """The shape of a tensor."""
    return list(tensor_of(value).shape)


def with_shape(kind: ir.RankedTensorType, shape: Sequence[int]) -> ir.RankedTensorType:
    """The same element type in another shape."""
    return ir.RankedTensorType.get(list(shape), kind.element_type)


def scalar_i32(number: int) -> ir.Value:
    """A constant of type tensor<i32>."""
    return splat(ir.RankedTensorType.get([], ir.IntegerType.get_signless(32)), number)


def scalar_like(index: ir.Value, number: int) -> ir.Value:
    """A constant of the type of another index, a 0-d integer tensor."""
    return splat(index.type, number)


def splat(kind: ir.Type, number: Number) -> ir.Value:
    """A constant of tensor type `kind` with the value `number` everywhere; for a complex type, as the real part.

    An integer is taken modulo 2^n.
    """
    tensor = ir.RankedTensorType(kind)
    element = tensor.element_type
    if isinstance(element, ir.ComplexType):
        return constant_of_text(tensor, f"({float(number)!r}, 0.0)")
    if isinstance(element, ir.IntegerType):
        # The bindings take signed 64-bit numbers for any type, and truncate them.
        attribute: ir.Attribute = ir.IntegerAttr.get(element, _signed(int(number), 64))
    else:
        attribute = ir.FloatAttr.get(element, float(number))
    return stablehlo.constant(ir.DenseElementsAttr.get_splat(tensor, attribute))


def wrapped(kind: ir.IntegerType, number: int) -> int:
    """The integer that is equal modulo 2^n and fits the type."""
    return number % 2**kind.width if kind.is_unsigned else _signed(number, kind.width)


def _signed(number: int, bits: int) -> int:
    half: int = 2 ** (bits - 1)
    return (number + half) % (2 * half) - half


def constant_of_text(kind: ir.RankedTensorType, value: str) -> ir.Value:
    """A constant of values as MLIR prints them; the bindings have no other way to build complex ones."""
    made = ir.Operation.parse(f'"stablehlo.constant"() {{value = dense<{value}> : {kind}}} : () -> {kind}').operation
    made.location = ir.Location.current
    ir.InsertionPoint.current.insert(made)
    built: ir.Value = made.results[0]
    return built


def zeros(kind: ir.Type) -> ir.Value:
    """A constant of the tensor type `kind`, zero (false) everywhere."""
    return splat(kind, 0)


def convert(value: ir.Value, element: ir.Type) -> ir.Value:
    """The tensor with another element type; the value itself if it already has that type."""
    kind = tensor_of(value)
    if kind.element_type == element:
        return value
    return stablehlo.convert(ir.RankedTensorType.get(list(kind.shape), element), value)


def reshaped(value: ir.Value, shape: Sequence[int]) -> ir.Value:
    """The tensor in another shape; itself if that is its shape."""
    kind = with_shape(tensor_of(value), shape)
    made: ir.Value = value if kind == value.type else stablehlo.reshape(kind, value)
    return made


def transposed(value: ir.Value, order: Sequence[int]) -> ir.Value:
    """The tensor with its dimensions in this order; itself if that is theirs."""
    if list(order) == sorted(order):
        return value
    made: ir.Value = stablehlo.transpose(value, ir.DenseI64ArrayAttr.get(list(order)))
    return made


def broadcast(value: ir.Value, shape: Sequence[int]) -> ir.Value:
    """A 0-d tensor broadcast to `shape`; the value itself if that is 0-d too."""
    kind = tensor_of(value)
    if not shape:
        return value
    return stablehlo.broadcast_in_dim(with_shape(kind, shape), value, ir.DenseI64ArrayAttr.get([]))


def compare(left: ir.Value, right: ir.Value, direction: str, how: str) -> ir.Value:
    """left < right or another comparison. direction: as in LT; how: as in UNSIGNED."""
    kind = stablehlo.ComparisonTypeAttr.get(how)
    return stablehlo.compare(left, right, stablehlo.ComparisonDirectionAttr.get(direction), compare_type=kind)


def less_than(left: ir.Value, right: ir.Value) -> ir.Value:
    """left < right, of signed integers."""
    return compare(left, right, "LT", "SIGNED")


def equal(left: ir.Value, right: ir.Value) -> ir.Value:
    """left == right, of signed integers."""
    return compare(left, right, "EQ", "SIGNED")


def join(left: ir.Value, right: ir.Value, dim: int) -> ir.Value:
    """The concatenation of both tensors along `dim`."""
    shape = shape_of(left)
    shape[dim] += shape_of(right)[dim]
    return stablehlo.ConcatenateOp([left, right], dim, results=[with_shape(tensor_of(left), shape)]).result


def take_along_last(value: ir.Value, places: ir.Value) -> ir.Value:
    """Elements of the last dimension by index: result[..., j] = value[..., places[..., j]]; all in range."""
    shape = shape_of(places)
    rows = list(range(len(shape) - 1))
    numbers = stablehlo.GatherDimensionNumbers.get(
        offset_dims=[],
        collapsed_slice_dims=[len(rows)],
        operand_batching_dims=rows,
        start_indices_batching_dims=rows,
        start_index_map=[len(rows)],
        index_vector_dim=len(shape),
    )
    sizes = ir.DenseI64ArrayAttr.get([1] * len(shape))
    return stablehlo.gather(value, places, numbers, sizes)


def _starts(rank: int, dim: int, start: ir.Value) -> list[ir.Value]:
    zero = zeros(start.type) if rank > 1 else start
    return [start if place == dim else zero for place in range(rank)]


def slice_along(value: ir.Value, dim: int, start: ir.Value, length: int) -> ir.Value:
    """Elements [start, start + length) of dimension `dim`. start: a 0-d integer tensor, in range."""
    shape = shape_of(value)
    starts = _starts(len(shape), dim, start)
    shape[dim] = length
    return stablehlo.dynamic_slice(value, starts, ir.DenseI64ArrayAttr.get(shape))


def update_along(whole: ir.Value, part: ir.Value, dim: int, start: ir.Value) -> ir.Value:
    """The tensor `whole` with elements [start, ...) of dimension `dim` replaced by `part`."""
    return stablehlo.dynamic_update_slice(whole, part, _starts(len(shape_of(whole)), dim, start))


def clamp(low: ir.Value, value: ir.Value, high: ir.Value) -> ir.Value:
    """value, bounded by low and high."""
    return stablehlo.clamp(low, value, high)


def wide_float() -> ir.Type:
    """The type that accumulates sums of narrower floats."""
    return ir.F32Type.get()


def sum_along(value: ir.Value, dims: Sequence[int]) -> ir.Value:
    """The sum over some dimensions, from zero."""
    kind = tensor_of(value)
    shape = [size for dim, size in enumerate(kind.shape) if dim not in dims]
    scalar = with_shape(kind, [])
    made = stablehlo.ReduceOp([with_shape(kind, shape)], [value], [zeros(scalar)], list(dims))
    block = made.body.blocks.append(scalar, scalar)
    with ir.InsertionPoint(block):
        stablehlo.return_([stablehlo.add(*block.arguments)])
    result: ir.Value = made.operation.results[0]
    return result


def sorted_along_last(value: ir.Value) -> ir.Value:
    """The floats of every row in ascending order, NaNs at the ends."""
    kind = tensor_of(value)
    made = stablehlo.SortOp([kind], [value], dimension=len(kind.shape) - 1, is_stable=False)
    scalar = with_shape(kind, [])
    block = made.comparator.blocks.append(scalar, scalar)
    with ir.InsertionPoint(block):
        left, right = block.arguments
        stablehlo.return_([compare(left, right, "LT", "TOTALORDER")])
    result: ir.Value = made.operation.results[0]
    return result


def precision(name: str) -> ir.Attribute:
    """The precision_config of a dot_general, the same for both operands: DEFAULT, HIGH or HIGHEST."""
    return ir.ArrayAttr.get([stablehlo.PrecisionAttr.get(name)] * 2)


def dot(
    left: ir.Value,
    right: ir.Value,
    batch: tuple[Sequence[int], Sequence[int]],
    contracted: tuple[Sequence[int], Sequence[int]],
    shape: Sequence[int],
    precision: ir.Attribute,
) -> ir.Value:
    """A dot_general. batch, contracted: dimensions of left and of right. shape: that of the result."""
    (left_batch, right_batch), (left_contracted, right_contracted) = batch, contracted
    numbers = stablehlo.DotDimensionNumbers.get(
        list(left_batch), list(right_batch), list(left_contracted), list(right_contracted)
    )
    return stablehlo.dot_general(with_shape(tensor_of(left), shape), left, right, numbers, precision_config=precision)
