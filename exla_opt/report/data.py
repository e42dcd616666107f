"""The output of `--report` as plain data: written as JSON, or shown by the page (docs/report.md lists the keys)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from exla_opt import __version__
from exla_opt.memory.timeline import Timeline
from exla_opt.options import Options
from exla_opt.remarks import Kind, Remark
from exla_opt.report.summary import Summary, count_remarks

if TYPE_CHECKING:
    from exla_opt.budget.fit import Fit

# Incremented when a key is removed or changes its meaning; a new key does not affect readers of the others.
_FORMAT = 1
_MEMORY = ("arguments", "results", "aliased", "temp", "peak")


@dataclass(frozen=True, slots=True)
class Run:
    """One run of exla-opt.

    source: the input's name as the user gave it. passes: their names, in order. before, after: the two modules.
    remarks: of the passes. seconds: each step and its time, followed by the rest and the total.
    fit, limit, target: the outcome of a memory limit, its bytes, and the device, if any.
    """

    source: str
    options: Options
    passes: Sequence[str]
    before: tuple[Summary, Timeline]
    after: tuple[Summary, Timeline]
    remarks: Sequence[Remark]
    seconds: Sequence[tuple[str, float]]
    fit: Fit | None = None
    limit: int | None = None
    target: str | None = None


def as_data(run: Run, name_place: Callable[[str], str]) -> dict[str, Any]:
    """The report as JSON data: sizes in bytes, times in seconds.

    name_place: maps the location of an op to the one that is shown; locations in remarks are shown unchanged.
    """
    options, fit = run.options, run.fit
    found = None
    if fit is not None:
        found = {
            "peak": fit.peak,
            "compiled": fit.compiled,
            "fits": fit.fits,
            "held_by": fit.held_by or None,
            "unknown": list(fit.unknown),
            "bound": None if fit.bound is None else asdict(fit.bound),
            "faster": None if fit.faster is None else asdict(fit.faster),
            "ended_early": fit.ended_early,
        }
    return {
        "format": _FORMAT,
        "version": __version__,
        "input": run.source,
        "options": {
            "memory_limit": run.limit,
            "target": run.target,
            "size_threshold": options.size_threshold,
            "split_size": options.slice_bytes,
            "nested_tiles": options.nested_tiles,
            "reassociate": options.reassociate,
            "chain_cost": options.chain_cost,
            "op_rules": [f"{target}={rule}" for target, rule in options.op_rules],
            "passes": list(run.passes),
        },
        "fit": found,
        "before": _side(*run.before, name_place),
        "after": _side(*run.after, name_place),
        "changed": _remarks(run.remarks, Kind.PASSED),
        "not_changed": _remarks(run.remarks, Kind.MISSED),
        "seconds": [{"step": step, "seconds": seconds} for step, seconds in run.seconds],
    }


def _side(summary: Summary, timeline: Timeline, name_place: Callable[[str], str]) -> dict[str, Any]:
    largest = summary.largest
    points, tensors = map(asdict, timeline.points), map(asdict, timeline.tensors)
    return {
        "largest_tensor": None if largest is None else {"type": str(largest), "bytes": largest.bytes},
        "loops": summary.loops,
        "memory": {key: getattr(timeline.memory, key) for key in _MEMORY},
        "unknown": sorted(timeline.memory.unknown),
        "predicted_seconds": timeline.seconds,
        "peak_point": timeline.peak,
        "points": [{**point, "location": name_place(point["location"])} for point in points],
        "tensors": [{**tensor, "location": name_place(tensor["location"])} for tensor in tensors],
    }


def _remarks(remarks: Sequence[Remark], kind: Kind) -> list[dict[str, Any]]:
    return [
        {
            "code": remark.code,
            "pass": remark.pass_name,
            "tensor": remark.tensor,
            "bytes": remark.bytes,
            "devices": remark.devices,
            "count": count,
            "location": remark.location,
            "message": remark.message,
            "stopped_by": remark.stopped_by or None,
            "stopped_at": remark.stopped_at or None,
        }
        for remark, count in count_remarks(remarks, kind)
    ]
