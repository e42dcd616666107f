"""Element types by their MLIR names, and what fits into them."""

from __future__ import annotations

import re

FLOATS = ("f64", "f32", "f16", "bf16", "f8E4M3FN", "f8E5M2")
COMPLEX = ("complex<f32>", "complex<f64>")

# The integers of at most this magnitude are all held, so sums that stay within it are equal in any order.
_EXACT_UP_TO = {"f64": 2**53, "f32": 2**24, "f16": 2**11, "bf16": 2**8, "f8E4M3FN": 2**4, "f8E5M2": 2**3}
# What the programs keep their numbers below, so that nothing overflows by the order of a sum.
_TAME = {"f64": 1e9, "f32": 1e6, "f16": 500.0, "bf16": 1e5, "f8E4M3FN": 16.0, "f8E5M2": 64.0}
_NEGATIVE_INFINITY = {
    "f64": "0xFFF0000000000000",
    "f32": "0xFF800000",
    "f16": "0xFC00",
    "bf16": "0xFF80",
    "f8E5M2": "0xFC",
}
_POSITIVE_INFINITY = {
    "f64": "0x7FF0000000000000",
    "f32": "0x7F800000",
    "f16": "0x7C00",
    "bf16": "0x7F80",
    "f8E5M2": "0x7C",
}
_NOT_A_NUMBER = {
    "f64": "0x7FF8000000000000",
    "f32": "0x7FC00000",
    "f16": "0x7E00",
    "bf16": "0x7FC0",
    "f8E4M3FN": "0x7F",
    "f8E5M2": "0x7E",
}


def is_float(dtype: str) -> bool:
    """Whether it is a real floating type."""
    return dtype in FLOATS


def is_complex(dtype: str) -> bool:
    """Whether it is a complex type."""
    return dtype in COMPLEX


def is_inexact(dtype: str) -> bool:
    """Whether it is a floating or complex type: sums of it are rounded."""
    return is_float(dtype) or is_complex(dtype)


def is_integer(dtype: str) -> bool:
    """Whether it is an integer type; i1 is not."""
    return not is_inexact(dtype) and dtype != "i1"


def is_unsigned(dtype: str) -> bool:
    """Whether it is an unsigned integer type."""
    return dtype.startswith("ui")


def part_of(dtype: str) -> str:
    """The type of a complex number's parts; every other type itself."""
    return dtype.removeprefix("complex<").removesuffix(">") if is_complex(dtype) else dtype


def bits_of(dtype: str) -> int:
    """The bits of one element."""
    match = re.search(r"\d+", dtype)
    assert match
    return int(match[0]) * (2 if is_complex(dtype) else 1)


def bytes_of(dtype: str) -> int:
    """The bytes of one element; a byte for those of fewer bits."""
    return max(bits_of(dtype) // 8, 1)


def exact_limit(dtype: str) -> float:
    """The magnitude up to which all integers are held."""
    if is_inexact(dtype):
        return float(_EXACT_UP_TO[part_of(dtype)])
    return float(2 ** (bits_of(dtype) - (not is_unsigned(dtype)))) if dtype != "i1" else 1.0


def tame_limit(dtype: str) -> float:
    """The magnitude that the programs keep their numbers below."""
    return _TAME[part_of(dtype)] if is_inexact(dtype) else exact_limit(dtype)


def with_floats(dtype: str, floats: str) -> str:
    """The type with its floats in another one; a type without floats is itself."""
    if is_float(dtype):
        return floats
    return f"complex<{floats}>" if is_complex(dtype) else dtype


def literal(dtype: str, value: complex) -> str:
    """A number as it is written in a dense attribute. Infinities become the largest number where there are none.

    Not a number is the positive quiet one.
    """
    if dtype == "i1":
        return "true" if value else "false"
    if is_complex(dtype):
        return f"({literal(part_of(dtype), complex(value).real)}, {literal(part_of(dtype), complex(value).imag)})"
    real = complex(value).real
    if not is_float(dtype):
        return str(int(abs(real) if is_unsigned(dtype) else real))
    if real != real:
        return _NOT_A_NUMBER[dtype]
    if real in (float("inf"), float("-inf")):
        table = _POSITIVE_INFINITY if real > 0 else _NEGATIVE_INFINITY
        return table.get(dtype, "448.0" if real > 0 else "-448.0")
    text = repr(float(real))
    return text if "." in text else text.replace("e", ".0e")
