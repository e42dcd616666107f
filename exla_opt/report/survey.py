"""The output of exla-run for many devices: a table of where modules fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console

from exla_opt.report.runs import print_table
from exla_opt.sizes import format_size

if TYPE_CHECKING:  # at run time this would import jax
    from exla_opt.runtime.survey import Row


def print_survey(console: Console, names: Sequence[str], rows: Sequence[Row]) -> None:
    """Print a row for each device that was compiled for, then a sentence for each reason why others were not."""
    heads = ["target", "memory", *(head for name in names for head in (name, "fits"))]
    found = [row for row in rows if row.peaks is not None]
    if found:
        print_table(console, heads, [_cells(row) for row in found])
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.peaks is None:
            reasons.setdefault(row.why, []).append(row.target)
    for why, targets in reasons.items():
        console.print(f"{', '.join(targets)}: {why}", markup=False, highlight=False, soft_wrap=True)


def survey_as_json(names: Sequence[str], rows: Sequence[Row]) -> dict[str, Any]:
    """The same as data: bytes, whether each module fits, and why a device was not compiled for."""
    return {
        "modules": list(names),
        "targets": [
            {
                "target": row.target,
                "memory_bytes": row.memory or None,
                "peak_bytes": None if row.peaks is None else list(row.peaks),
                "fits": None if row.peaks is None else [peak <= row.memory for peak in row.peaks],
                "why": row.why or None,
            }
            for row in rows
        ],
    }


def _cells(row: Row) -> list[str]:
    cells = [row.target, format_size(row.memory)]
    for peak in row.peaks or ():
        cells += [format_size(peak), "yes" if peak <= row.memory else "no"]
    return cells
