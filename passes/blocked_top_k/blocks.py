"""Rows as blocks, whose extreme elements are found first."""

from __future__ import annotations

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.types import element_type, float_bits

# XLA:CPU finds the extreme of up to 32 elements in the loop that computes them, and of more with a slower kernel.
_LONGEST, _SHORTEST = 32, 8
# The widths of floats that can be compared as integers.
WIDTHS = {"f64": 64, "f32": 32, "f16": 16, "bf16": 16}


def block_length(length: int) -> int:
    """The longest block that divides a row, or a padded row."""
    lengths = range(_LONGEST, _SHORTEST - 1, -1)
    return next((each for each in lengths if length % each == 0), _LONGEST)


def in_blocks(operand: ir.Value, fill: ir.Value) -> ir.Value:
    """The rows of [..., n] as blocks, [..., ceil(n / width), width]; the last one is padded with `fill`, 0-d."""
    kind = build.tensor_of(operand)
    *rows, size = kind.shape
    width = block_length(size)
    if size % width:
        rank = len(rows) + 1
        operand = stablehlo.pad(operand, fill, [0] * rank, [0] * (rank - 1) + [-size % width], [0] * rank)
    return stablehlo.reshape(build.with_shape(kind, [*rows, -(-size // width), width]), operand)


def least(kind: ir.RankedTensorType) -> ir.Value:
    """The first element in the order of top_k: for floats, all bits set."""
    element = kind.element_type
    scalar = ir.RankedTensorType.get([], element)
    if isinstance(element, ir.IntegerType):
        return end_of(kind, largest=False)
    bits = ir.RankedTensorType.get([], ir.IntegerType.get_signless(WIDTHS[str(element)]))
    return stablehlo.bitcast_convert(scalar, build.splat(bits, -1))


def in_order(value: ir.Value) -> ir.Value:
    """Floats as integers that compare as in top_k; integers unchanged."""
    if not float_bits(element_type(value)):
        return value
    integers = ir.IntegerType.get_signless(WIDTHS[str(element_type(value))])
    return _flipped(stablehlo.bitcast_convert(ir.RankedTensorType.get(build.shape_of(value), integers), value))


def as_before(value: ir.Value, kind: ir.Type) -> ir.Value:
    """The inverse of `in_order`."""
    if not float_bits(kind):
        return value
    return stablehlo.bitcast_convert(ir.RankedTensorType.get(build.shape_of(value), kind), _flipped(value))


def _flipped(bits: ir.Value) -> ir.Value:
    """Negative numbers with all bits but the sign inverted: the bits of negative floats fall where the floats rise."""
    kind = build.tensor_of(bits)
    ones = build.splat(kind, 2 ** (ir.IntegerType(kind.element_type).width - 1) - 1)
    return stablehlo.select(build.less_than(bits, build.zeros(kind)), stablehlo.xor(bits, ones), bits)


def extreme(blocks: ir.Value, *, largest: bool) -> ir.Value:
    """The largest or the smallest integer along the last dimension.

    For integers only: XLA:CPU's maximum of floats along a dimension loses NaNs at some sizes.
    """
    kind = build.tensor_of(blocks)
    *shape, _ = kind.shape
    scalar = build.with_shape(kind, [])
    made = stablehlo.ReduceOp(
        [build.with_shape(kind, shape)], [blocks], [end_of(kind, largest=not largest)], [len(shape)]
    )
    with ir.InsertionPoint(made.body.blocks.append(scalar, scalar)) as inside:
        choose = stablehlo.maximum if largest else stablehlo.minimum
        stablehlo.return_([choose(*inside.block.arguments)])
    result: ir.Value = made.operation.results[0]
    return result


def has_no_sign(kind: ir.IntegerType) -> bool:
    """Whether no number of the type is below zero: booleans are 0 and 1."""
    return bool(kind.is_unsigned) or kind.width == 1


def end_of(kind: ir.RankedTensorType, *, largest: bool) -> ir.Value:
    """The largest or the smallest integer of the type of a tensor, 0-d."""
    element = ir.IntegerType(kind.element_type)
    low = 0 if has_no_sign(element) else -(2 ** (element.width - 1))
    return build.splat(build.with_shape(kind, []), low + 2**element.width - 1 if largest else low)
