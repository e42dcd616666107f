"""An attempt: the program that the pipeline makes with one pair of sizes, its memory, and its time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jaxlib.mlir import ir

from exla_opt.memory.peak import Memory
from exla_opt.memory.timeline import Timeline
from exla_opt.options import Options
from exla_opt.pipeline import Outcome
from exla_opt.remarks import Kind as RemarkKind

# Without this pass the sizes have no effect.
SPLITTER = "tensor-splitter"
# The only pass that looks at the limit.
RECOMPUTE = "recompute"
# Predictions are rarely off by more; without a compiler, this margin is kept below the limit.
MARGIN = 1.2
# A tensor of this many slices that stays unsplit also stays unsplit with smaller slices.
_MANY_SLICES = 16
# Tensors smaller than this fraction of the largest in a loop's step do not count.
_PART = 4
# More than any program needs: stands for one that is not written, as XLA refuses it or each device would send more.
NEVER = 2**62

# Predictions err alike on programs of one kind.
Kind = Literal["original", "recomputed", "split", "calls in loops", "nested tiles"]


@dataclass(frozen=True, slots=True)
class Split:
    """What a smaller slice may save of a program.

    peak: bytes, predicted. large: the bytes that no smaller sizes save unless they split more tensors: arguments,
    results, and the tensors far larger than a slice that are alive at the peak. places: the locations of the largest
    tensors of a loop's step at the peak; empty if the peak is in no loop.
    """

    peak: int
    large: int
    places: tuple[str, ...]


@dataclass(slots=True, eq=False)
class Attempt:
    """The outcome of one pair of sizes.

    largest: the bytes of the largest temporary tensor. split: the outcome of the sizes alone, without recomputing: it
    guides the search, which so does not depend on the limit. final: the outcome of all passes, which only near misses
    use. seconds: of a run, predicted. measured: the compiled peak, None until the compiler is asked; NEVER if it could
    not be written. estimated: the seconds of a run, estimated from the compiled program; None if not known. note: what
    its compile had to leave out. is_refused: whether the module of several devices would be written as it came instead.
    """

    module: ir.Module
    outcome: Outcome
    options: Options
    predicted: Memory
    largest: int
    split: Split
    final: Split
    seconds: float
    measured: int | None = None
    estimated: float | None = None
    note: str = ""
    is_refused: bool = False

    @property
    def kind(self) -> Kind:
        """The programs with which its predictions err alike."""
        if self.options.split_size is None:
            return "recomputed" if self.recomputes else "original"
        if self.options.nested_tiles:
            return "nested tiles"
        return "calls in loops" if self.options.calls_in_loops else "split"

    @property
    def is_changed(self) -> bool:
        """Whether any pass changed a tensor."""
        return any(remark.kind is RemarkKind.PASSED for remark in self.outcome.remarks)

    @property
    def recomputes(self) -> bool:
        """Whether anything is recomputed for the limit."""
        return any(remark.pass_name == RECOMPUTE for remark in self.outcome.remarks)

    @property
    def peak(self) -> int:
        """The compiled bytes or, without a compile, the predicted ones with a margin."""
        return self.predicted_with(MARGIN) if self.measured is None else self.measured

    def predicted_with(self, ratio: float) -> int:
        """The peak if temporary memory is `ratio` times the predicted; arguments and results are certain."""
        return self.predicted.peak + int((ratio - 1) * self.predicted.temp)


def split_of(timeline: Timeline, options: Options) -> Split:
    """What smaller slices may save of the program of a timeline."""
    held = timeline.memory.peak - timeline.memory.temp
    alive = [] if timeline.peak is None else timeline.alive_at(timeline.peak)
    least = max(options.size_threshold, _MANY_SLICES * options.slice_bytes)
    large = held + sum(tensor.bytes for tensor in alive if tensor.bytes > least)
    return Split(timeline.memory.peak, large, _places_at_peak(timeline))


def _places_at_peak(timeline: Timeline) -> tuple[str, ...]:
    peak = timeline.peak
    if peak is None or not timeline.points[peak].depth:
        return ()
    first = last = peak
    while first and timeline.points[first - 1].depth:
        first -= 1
    while last + 1 < len(timeline.points) and timeline.points[last + 1].depth:
        last += 1
    alive = [tensor for tensor in timeline.alive_at(peak) if first <= tensor.first and tensor.last <= last]
    return tuple(sorted({tensor.location for tensor in alive if tensor.bytes * _PART >= alive[0].bytes}))
