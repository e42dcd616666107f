"""Sizes as people write them: 500MB, 1.5 GB, 512MiB, 5e8."""

from __future__ import annotations

import re
from decimal import Decimal

_DECIMAL = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "pb": 10**15}
_BINARY = {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40, "pib": 2**50}
_UNITS = _DECIMAL | _BINARY
_SIZE = re.compile(r"\s*(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?\s*([a-z]*)\s*", re.IGNORECASE | re.ASCII)
_LARGEST = 2**63 - 1  # the byte counts of XLA are 64-bit


def parse_size(text: str) -> int:
    """The bytes in `text`: a number and a unit, MB = 10^6 and MiB = 2^20 bytes, in any case; bytes without a unit.

    A fraction of a byte is dropped. Raises ValueError, with a sentence for the user, for anything that is not
    a size of at least one byte.
    """
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a size; write it as 500MB, 1.5GB, 512MiB or 5e8")
    number, exponent, unit = found[1], found[2] or "", found[3].lower()
    if unit not in _UNITS:
        raise ValueError(f"{text!r} has an unknown unit{_suggestion(number + exponent, found[3])}")
    value = Decimal(number + exponent) * _UNITS[unit]
    if value > _LARGEST:
        raise ValueError(f"{text!r} is more than a 64-bit number of bytes")
    if value < 1:
        raise ValueError(f"{text!r} is less than one byte")
    return int(value)


def format_size(count: int) -> str:
    """`count` bytes in three digits and a decimal unit, as in 1.02GB; `parse_size` reads it back."""
    scale, unit = 1, "B"
    for name in ("KB", "MB", "GB", "TB", "PB"):
        if abs(count) / scale < 999.5:  # above, three digits round to 1000
            break
        scale, unit = _UNITS[name.lower()], name
    value = f"{count / scale:.3g}" if abs(count) / scale < 999.5 else f"{count / scale:.0f}"
    return value + unit


def round_up(count: int) -> int:
    """The next number of bytes, from `count` up, that `format_size` writes exactly, so that users can pass it back."""
    step: int = 10 ** max(len(str(count)) - 3, 0)
    return -(-count // step) * step


def _suggestion(number: str, unit: str) -> str:
    first = unit[0].upper()
    if first not in "KMGTP":
        return "; use KB, MB, GB or KiB, MiB, GiB"
    return f"; did you mean {number}{first}B or {number}{first}iB?"
