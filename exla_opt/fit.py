"""One number: finds the sizes with which a module fits into a memory limit, by trying the pipeline.

The first of the candidates that fits is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from jaxlib.mlir import ir

from exla_opt.attempts import Attempt, Measure, Search
from exla_opt.candidates import candidates
from exla_opt.memory.timeline import read_timeline
from exla_opt.options import Options
from exla_opt.pipeline import AfterPass, Outcome
from exla_opt.remarks import Kind, Remark
from exla_opt.sizes import format_size

# Without this pass no size changes anything.
_SPLITTER = "tensor-splitter"
# What a remark with this code is about is not what holds the memory, though both are of one type and line.
_NEVER_IN_MEMORY = "EX101"
# More than any tensor takes.
_NOTHING_IS_BIG = 2**62


@dataclass(frozen=True, slots=True)
class Fit:
    """The module that fits, or that needs about the least memory of all that were tried.

    options: the sizes with which it was made. peak: its bytes, as a compiler plans them if `compiled`, else what is
    predicted and a margin. fits: whether that is within the limit. held_by: what holds the memory at the peak when it
    is not. why_predicted: why it was not compiled although it should have been. unknown: the ops whose own memory a
    prediction leaves out, in order; with any, the peak is "at least".
    """

    module: ir.Module
    outcome: Outcome
    options: Options
    peak: int
    fits: bool
    compiled: bool = False
    held_by: str = ""
    why_predicted: str = ""
    unknown: tuple[str, ...] = ()


def fit(
    module: ir.Module,
    names: Sequence[str],
    options: Options,
    limit: int,
    measure: Measure | None = None,
    *,
    verify_each: bool = True,
    after_pass: AfterPass | None = None,
    tried: Callable[[Options, int], None] | None = None,
) -> Fit:
    """Run the named passes with one pair of sizes after another until the module fits into `limit` bytes.

    The sizes suit the machine of the options.

    module: as it was read; the passes that come before all sizes change it. limit: of arguments, results and temporary
    memory together, in bytes. measure: a compiler, which has the last word; the prediction has it where there is none.
    verify_each, after_pass: as in `run_pipeline`, for every attempt. tried: is called with the sizes and the bytes of
    each attempt. Raises what `run_pipeline` raises.
    """
    search = Search(module, names, options, limit, measure, verify_each, after_pass)
    tried = tried or (lambda sizes, peak: None)
    found = search.attempt(replace(options, size_threshold=_NOTHING_IS_BIG, split_size=None))
    tried(found.options, found.peak)
    if not search.fits(found) and _SPLITTER in names:
        for sizes in search.structures(candidates(found.predicted, options, limit)):
            if search.is_stuck_above(sizes):
                continue
            found = search.attempt(sizes)
            tried(found.options, found.peak)
            if search.fits(found):
                break
    if not search.fits(found):
        found = search.least()
    fits = found.peak <= limit
    said = [remark for attempt in search.attempts for remark in attempt.outcome.remarks]
    return Fit(
        module=found.module,
        outcome=found.outcome,
        options=found.options,
        peak=found.peak,
        fits=fits,
        compiled=found.measured is not None,
        held_by="" if fits else _holder(found, names, said, limit),
        why_predicted=search.refusal,
        unknown=() if found.measured is not None else tuple(sorted(found.predicted.unknown)),
    )


def _holder(found: Attempt, names: Sequence[str], remarks: Sequence[Remark], limit: int) -> str:
    """What takes most at the peak of what was found: bytes and place, and why it was not split where that is known."""
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
    if _SPLITTER not in names:
        reasons = [f"not split: {_SPLITTER} is not among the passes"]
    why = f": {reasons[0]}" if reasons else ""
    listed = []
    if held > tensor.bytes / 2:
        listed.append(f"its arguments and results ({format_size(held)})")
    rest = timeline.memory.peak - tensor.bytes - (held if listed else 0)
    if rest > timeline.memory.peak / 4:
        listed.append(f"{format_size(rest)} of tensors no larger")
    listed.append(f"{tensor.name} ({format_size(tensor.bytes)}) at {tensor.location}{why}")
    return f"{', '.join(listed[:-1])}{' and ' if listed[1:] else ''}{listed[-1]}"
