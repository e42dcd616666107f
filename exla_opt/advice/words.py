"""Names of arguments and places in advice; of many, the first few."""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir

from exla_opt.ir.types import Types

_SHOWN = 3


def arguments_named(block: ir.Block, numbers: Sequence[int]) -> str:
    """Return "argument 3 (8x4xf32)", or "arguments 3 (8x4xf32), 4 (8xi32) and 2 more". block: of the main function."""
    types = Types()
    shown = [f"{each} ({types.of(block.arguments[each])})" for each in numbers[:_SHOWN]]
    more = f"{len(numbers) - _SHOWN} more" if len(numbers) > _SHOWN else ""
    return f"argument{'s' * (len(numbers) != 1)} {', '.join(shown)}{f' and {more}' if more else ''}"


def places_named(places: Sequence[str]) -> str:
    """Return "model.py:3:4, model.py:7:6", or with "and 2 more places" at the end; each once."""
    once = list(dict.fromkeys(places))
    more = f" and {len(once) - _SHOWN} more places" if len(once) > _SHOWN else ""
    return f"{', '.join(once[:_SHOWN])}{more}"
