"""A true boolean that XLA cannot fold: ops in a branch on it are not fused with their readers."""

from __future__ import annotations

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build


def bits_of(value: ir.Value) -> int:
    """The bits of a numeric element type; 0 for others."""
    if not isinstance(value.type, ir.RankedTensorType):
        return 0
    element = build.tensor_of(value).element_type
    if isinstance(element, ir.IntegerType):
        return int(element.width) if element.is_signless and element.width >= 8 else 0
    if isinstance(element, ir.F64Type):
        return 64
    if isinstance(element, ir.F32Type):
        return 32
    return 16 if isinstance(element, (ir.F16Type, ir.BF16Type)) else 0


def always(value: ir.Value) -> ir.Value:
    """A 0-d boolean that is always true, computed from the bits of a tensor of numbers; see `bits_of`."""
    shape = build.shape_of(value)
    kind = build.with_shape(build.tensor_of(value), [1] * len(shape))
    first = stablehlo.slice(value, [0] * len(shape), [1] * len(shape), [1] * len(shape)) if shape else value
    number = stablehlo.reshape(build.with_shape(kind, []), first) if shape else value
    element = build.tensor_of(value).element_type
    if not isinstance(element, ir.IntegerType):
        bits = ir.IntegerType.get_signless(bits_of(value))
        number = stablehlo.bitcast_convert(ir.RankedTensorType.get([], bits), number)
    some = stablehlo.or_(number, build.splat(number.type, 1))
    return build.compare(some, build.splat(number.type, 0), "NE", "SIGNED")
