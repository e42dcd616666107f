"""Names what holds the memory of a program that does not fit."""

from __future__ import annotations

from collections.abc import Sequence

from exla_opt.budget.attempt import SPLITTER, Attempt
from exla_opt.memory.timeline import read_timeline
from exla_opt.remarks import Kind, Remark
from exla_opt.sizes import format_size

# The tensor of a remark with this code does not hold the memory, even if it shares type and line with one that does.
_NEVER_IN_MEMORY = "EX101"
# Where a peak was predicted to be more than this many times the compiled one, its parts add up to more than that one.
_OFF = 1.05


def holder_of(found: Attempt, names: Sequence[str], remarks: Sequence[Remark], limit: int) -> str:
    """What holds the memory at the peak of a program that does not fit, and why it was not split, if known.

    names: of the passes. remarks: of all attempts. limit: bytes.
    """
    timeline = read_timeline(found.module, found.options.machine)
    held = timeline.memory.peak - timeline.memory.temp
    alive = [] if timeline.peak is None else timeline.alive_at(timeline.peak)
    if not alive or held > limit:
        return f"its arguments and results, which alone take {format_size(held)}"
    assert timeline.peak is not None
    point, tensor = timeline.points[timeline.peak], alive[0]
    scratch = point.bytes - sum(each.bytes for each in alive)
    if scratch > tensor.bytes:
        return f"{format_size(scratch)} that {point.op} at {point.location} needs while it runs"
    reasons = [
        remark.text
        for remark in remarks
        if remark.kind is Kind.MISSED
        and remark.code != _NEVER_IN_MEMORY
        and (remark.location, remark.tensor) == (tensor.location, tensor.copy_of or tensor.type)
    ]
    if tensor.copy_of is not None and tensor.op == "stablehlo.while":
        reasons = ["made before a loop that reads slices of it"]
    if SPLITTER not in names:
        reasons = [f"not split: {SPLITTER} is not among the passes"]
    why = f": {reasons[0]}" if reasons else ""
    listed = []
    if held > tensor.bytes / 2:
        listed.append(f"its arguments and results ({format_size(held)})")
    rest = timeline.memory.peak - tensor.bytes - (held if listed else 0)
    if rest > timeline.memory.peak / 4:
        listed.append(f"{format_size(rest)} of tensors no larger")
    listed.append(f"{tensor.name} ({format_size(tensor.bytes)}) at {tensor.location}{why}")
    is_off = found.measured is not None and timeline.memory.peak > _OFF * found.measured
    of = f"; {format_size(timeline.memory.peak)} in all were predicted" if is_off else ""
    return f"{', '.join(listed[:-1])}{' and ' if listed[1:] else ''}{listed[-1]}{of}"
