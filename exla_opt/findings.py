"""What a rewrite in this process found: the summary, and Python's warnings."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING, Any

from exla_opt.sizes import format_size

if TYPE_CHECKING:  # at run time this would load MLIR
    from exla_opt.rewriting import Rewriting

# Python's record of the warnings that it has shown.
_SHOWN: dict[Any, Any] = {}


class StaysInMemory(UserWarning):
    """A tensor is above the threshold and was not split, or the program does not fit, or may not."""


def summary_of(found: Rewriting) -> str:
    from rich.console import Console

    from exla_opt.report.figures import held_at_peak, is_held_worth_a_line, nothing_gained, sides
    from exla_opt.report.table import print_summary

    console = Console(highlight=False, width=100, color_system=None)
    why = "" if found.fitted is not None else nothing_gained(found.before, found.after, found.options, found.remarks)
    held = held_at_peak(found.after[1], str, found.fitted) if is_held_worth_a_line(found.remarks, found.fitted) else ""
    left_out = found.fitted.note if found.fitted is not None else found.unjudged
    notes = why, "; ".join(filter(None, (held, left_out)))
    with console.capture() as printed:
        print_summary(console, sides(found.before, found.after, found.fitted), found.remarks, notes=notes)
    return printed.get()


def warn_of(found: Rewriting, limit: int | None) -> None:
    """Warn about what stays in memory; Python shows an equal warning once."""
    fitted = found.fitted
    if fitted is not None and not fitted.fits and limit is not None:
        warnings.warn(
            f"does not fit into {format_size(limit)}: needs {format_size(fitted.peak)}, due to {fitted.held_by}",
            StaysInMemory,
            stacklevel=2,
        )
    if fitted is not None:
        return
    if found.unjudged:
        warnings.warn(found.unjudged, StaysInMemory, stacklevel=2)
    from exla_opt.report.summary import staying

    for remark in staying(found.remarks, found.after[0]):
        text = f"{remark.location}: {remark.tensor} ({format_size(remark.bytes)}){remark.where} {remark.text}"
        _warn_at(remark.location, f"{text} [{remark.code}]")


def _warn_at(location: str, text: str) -> None:
    """Warn with the line of the user's program, which Python then prints."""
    line = re.fullmatch(r"(.+\.py):(\d+):\d+", location)
    if line is None:
        warnings.warn(text, StaysInMemory, stacklevel=3)
    else:
        warnings.warn_explicit(text, StaysInMemory, line[1], int(line[2]), registry=_SHOWN)
