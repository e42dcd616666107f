"""The value ranges of element types."""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.types import float_bits

# The binary digits of a float type's significand.
DIGITS = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}


def holds(wide: ir.Type, narrow: ir.Type) -> bool:
    """Whether the element type `wide` holds every number of `narrow`: an equal type does, other complex ones do not."""
    if narrow == wide:
        return True
    if isinstance(narrow, ir.IntegerType):
        signed = not narrow.is_unsigned and narrow.width > 1
        if isinstance(wide, ir.IntegerType):
            return wide.width > narrow.width and (not signed or not wide.is_unsigned)
        return narrow.width - signed <= DIGITS.get(str(wide), 0)
    if str(narrow).startswith("f8E8M0") and str(wide) == "f16":
        return False  # f8E8M0 has eight bits of exponent
    return 0 < float_bits(narrow) < float_bits(wide)
