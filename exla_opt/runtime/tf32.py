"""Whether products of f32 are rounded to TF32, as XLA and cuDNN do on a GPU unless the program asks for more.

TF32 has the exponent of f32 and the 10 bits of f16's significand: two programs that add the same products in another
order then differ as two of f16 do.
"""

from __future__ import annotations

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir.types import Types
from exla_opt.ir.walk import inside_out
from exla_opt.runtime import pjrt

_PRODUCTS = ("stablehlo.dot_general", "stablehlo.dot", "stablehlo.convolution")
_AMPERE = 8.0  # the compute capability
_ROUNDED = ("f32", "complex<f32>")


def has_tf32() -> bool:
    """Whether this machine's GPU has TF32, as all from Ampere on. Raises RuntimeError when there is no GPU."""
    return float(pjrt.client("cuda").local_devices()[0].compute_capability) >= _AMPERE


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
        return "lhs_precision_type = f32" in str(op.attributes["algorithm"])
    if "precision_config" not in op.attributes:
        return False
    asked = [stablehlo.PrecisionAttr(each).value for each in ir.ArrayAttr(op.attributes["precision_config"])]
    return "HIGHEST" in asked  # XLA takes the higher one of both operands
