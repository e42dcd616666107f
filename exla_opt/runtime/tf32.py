"""Whether products of f32 are rounded to TF32, as XLA and cuDNN do on a GPU unless the program asks for more.

TF32 has the exponent of f32 and the 10 bits of f16's significand: two programs that add the same products in another
order then differ as two of f16 do.
"""

from __future__ import annotations

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir.types import Types
from exla_opt.ir.walk import inside_out

_PRODUCTS = ("stablehlo.dot_general", "stablehlo.dot", "stablehlo.convolution")
_ROUNDED = ("f32", "complex<f32>")


def rounds_to_tf32(module: ir.Module) -> bool:
    """Whether the module has a product of f32 that a GPU may compute in TF32."""
    types = Types()
    return any(
        types.of(operand).dtype in _ROUNDED
        for op in inside_out(module, *_PRODUCTS)
        if not _is_exact(op)
        for operand in op.operands
    )


def _is_exact(op: ir.Operation) -> bool:
    if "algorithm" in op.attributes:
        return "tf32" not in str(op.attributes["algorithm"])
    if "precision_config" not in op.attributes:
        return False
    asked = [stablehlo.PrecisionAttr(each).value for each in ir.ArrayAttr(op.attributes["precision_config"])]
    return bool(asked) and all(each == "HIGHEST" for each in asked)
