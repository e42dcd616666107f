"""The main figures: peak memory and time, before and after, and their source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from exla_opt.memory.timeline import Timeline
from exla_opt.options import Options
from exla_opt.remarks import Kind, Remark
from exla_opt.report.summary import Summary
from exla_opt.report.text import format_seconds
from exla_opt.sizes import format_size

if TYPE_CHECKING:
    from exla_opt.budget.fit import Fit

# A peak that falls by less does not count as falling.
_FALLEN = 0.99
# A compiled peak that differs by less is said to consist of the predicted tensors.
_NEAR = 0.02


@dataclass(frozen=True, slots=True)
class Side:
    """One column of the summary: a module's peak and its source, its time, and an overview of the module."""

    peak: str
    time: str
    summary: Summary


@dataclass(frozen=True, slots=True)
class Sides:
    """The columns before and after. who_timed: the source of the time, "measured" or "predicted"."""

    before: Side
    after: Side
    who_timed: str


def sides(
    before: tuple[Summary, Timeline],
    after: tuple[Summary, Timeline],
    fit: Fit | None = None,
    measured: tuple[float, float] | None = None,
) -> Sides:
    """The columns before and after. measured: the seconds of a run of each, if they were run at the real size."""
    peaks = [f"{_at_least(one)}{format_size(one.memory.peak)}, predicted" for _, one in (before, after)]
    if fit is not None and fit.before.compiled:
        peaks[0] = f"{format_size(fit.before.peak)}, compiled"
    if fit is not None and fit.compiled:
        peaks[1] = f"{format_size(fit.peak)}, compiled"
    seconds = times(before[1].seconds, after[1].seconds)
    if measured is not None:
        seconds = format_seconds(measured[0]), format_seconds(measured[1])
    return Sides(
        before=Side(peaks[0], seconds[0], before[0]),
        after=Side(peaks[1], seconds[1], after[0]),
        who_timed="predicted" if measured is None else "measured",
    )


def times(before: float, after: float) -> tuple[str, str]:
    """Predicted seconds as multiples of those before: they order programs, and promise nothing."""
    return "1 x", f"{after / before if before else 1:.2g} x"


def nothing_gained(
    before: tuple[Summary, Timeline], after: tuple[Summary, Timeline], options: Options, remarks: Sequence[Remark]
) -> str:
    """A clause that says why nothing was gained; "" if something was. remarks: of the passes."""
    if after[1].memory.peak < _FALLEN * before[1].memory.peak:
        return ""
    largest, threshold = after[0].largest, options.size_threshold
    if largest is not None and largest.bytes > threshold:
        return f"the peak did not fall: {largest} ({format_size(largest.bytes)}) stays"
    if any(remark.kind is Kind.PASSED for remark in remarks):
        return "the peak did not fall"
    rest = "" if largest is None else f"; the largest is {format_size(largest.bytes)}"
    return f"nothing was split: no tensor is over {format_size(threshold)}{rest}"


def is_held_worth_a_line(remarks: Sequence[Remark], fitted: Fit | None) -> bool:
    """Whether a run ends with what holds its peak: not if nothing was big, or the limit's own line names it."""
    return bool(remarks) if fitted is None else fitted.fits


def held_at_peak(timeline: Timeline, named: Callable[[str], str], fit: Fit | None = None) -> str:
    """A clause with the peak and its largest tensors, which are those of the predicted peak.

    named: maps locations to the user's own. fit: the outcome of a search, if there was one: the peak may be compiled.
    """
    memory = timeline.memory
    predicted = format_size(memory.peak)
    peak, of = f"peak {_at_least(timeline)}{predicted}, predicted", "of it"
    if fit is not None and fit.compiled:
        peak = f"peak {format_size(fit.peak)}, compiled"
        of = of if abs(fit.peak - memory.peak) <= _NEAR * fit.peak else f"of the {predicted} that was predicted"
    alive = [] if timeline.peak is None else timeline.alive_at(timeline.peak)
    held = memory.peak - memory.temp
    if not alive or held >= alive[0].bytes:
        return f"{peak}, {format_size(held)} {of} arguments and results"
    return f"{peak}, {format_size(alive[0].bytes)} {of} {alive[0].name} at {named(alive[0].location)}"


def _at_least(timeline: Timeline) -> str:
    return "at least " if timeline.memory.unknown else ""
