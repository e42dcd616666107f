"""Ten limits on each of some programs of the zoo: what more memory buys, and whether the answers contradict each other.

    JAX_PLATFORMS=cpu python -m benchmarks.ten_limits --only softmax_of_columns sort_rows

The limits go from little above arguments and results to more than the program takes as it came. A larger limit must
give no slower program and no figure above it, a smaller limit no larger peak; where nothing fits, the least that was
reached counts. Peaks are predicted, or with --compiled those of this machine's compiler. Prints a Markdown table, and
exits with 1 where a program is not monotone. With --near each limit is asked once more with 5 % more memory: how many
times as long the program of the tighter one takes, at most, where it is met and where it is missed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from jaxlib.mlir import ir

from exla_opt.budget.choose import CLEARLY_FASTER, steps
from exla_opt.budget.fit import Fit, fit
from exla_opt.budget.measured import Measure, Measured
from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.memory.timeline import read_timeline
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.runtime.judge import judge_of
from exla_opt.sizes import format_size

from .zoo.__main__ import export, programs
from .zoo.programs import half

_LIMITS, _NEAR = 10, 1.05


def main() -> None:
    """Print a row for each program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", help="only the programs of these names")
    parser.add_argument("--compiled", action="store_true", help="ask the compiler, as exla-opt does")
    parser.add_argument("--near", action="store_true", help="ask for 5 % more than each limit as well")
    parser.add_argument("--part", default="0/1", help="every Nth program from the Ith, as I/N [0/1]")
    arguments = parser.parse_args()
    heads = ["program", "half", "peak", "met", "smallest met", "times as slow", "compiles", "s, met", "s, not met"]
    heads += [*(["near, met", "near, missed"] if arguments.near else []), ""]
    print(f"| {' | '.join(heads)} |\n|{' --- |' * len(heads)}", flush=True)
    known = programs()
    broken = 0
    first, step = map(int, arguments.part.split("/"))
    for name in (arguments.only or list(known))[first::step]:
        text = export(known[name], "cpu")
        counted = Counted(judge_of("cpu").measure) if arguments.compiled else None
        limits, found, seconds = answers(name, text, counted)
        why = contradictions(limits, found)
        broken += bool(why)
        row = [name, half(name), *cells(limits, found, counted), *means(found, seconds)]
        row += [*(near(name, text, limits, found, counted) if arguments.near else []), why or "monotone"]
        print(f"| {' | '.join(row)} |", flush=True)
    sys.exit(1 if broken else 0)


class Counted:
    """A compiler, and how often it was asked, for each limit."""

    def __init__(self, measure: Measure | None):
        assert measure is not None
        self.measure = measure
        self.compiles: list[int] = []

    def __call__(self, data: bytes) -> Measured:
        """What the compiler says of a module."""
        self.compiles[-1] += 1
        return self.measure(data)


def answers(name: str, text: str, measure: Counted | None = None) -> tuple[list[int], list[Fit], list[float]]:
    """Ten limits of a module, in bytes, the smallest first; what is found for each, and in how many seconds.

    The seconds are those of the processor, compiles included.
    """
    limits = limits_of(name, text)
    found, seconds = [], []
    for limit in limits:
        if measure is not None:
            measure.compiles.append(0)
        start = time.process_time()
        found.append(fit(parsed(name, text), DEFAULT_PASSES, Options(), limit, measure))
        seconds.append(time.process_time() - start)
    return limits, found, seconds


def limits_of(name: str, text: str) -> list[int]:
    """From arguments and results with a thousandth of the temporary memory to all that the program takes."""
    module = parsed(name, text)
    run_pipeline(module, DEFAULT_PASSES[:2], Options())
    memory = read_timeline(module, Options().machine).memory
    held = memory.peak - memory.temp
    return [held + int(1.3 * memory.temp * (part / _LIMITS) ** 3) for part in range(1, _LIMITS + 1)]


def parsed(name: str, text: str) -> ir.Module:
    """A module of its own."""
    return parse_module(name, text.encode(), new_context()).module


def contradictions(limits: Sequence[int], found: Sequence[Fit]) -> str:
    """Where the answers for rising limits contradict each other, "" where they do not."""
    said = []
    for limit, answer in zip(limits, found, strict=True):
        if answer.fits and answer.peak > limit:
            said.append(f"{format_size(limit)}: {answer.peak} bytes fit")
    for limit, smaller, larger in zip(limits[1:], found, found[1:], strict=False):
        least = smaller.peak if smaller.smallest is None else smaller.smallest.peak
        if smaller.fits and not larger.fits:
            said.append(f"{format_size(limit)}: not met, a smaller one is")
        if larger.fits and least > larger.peak:
            said.append(f"{format_size(limit)}: {format_size(larger.peak)}, {format_size(least)} for a smaller one")
        if smaller.fits and larger.fits and slower(larger, smaller):
            said.append(f"{format_size(limit)}: {larger.seconds / smaller.seconds:.2f} times as slow as a smaller one")
    return "; ".join(said)


def slower(larger: Fit, smaller: Fit) -> bool:
    """Whether a program is slower than that of a smaller limit: by a step of a tenth, or, as it came, clearly."""
    if larger.options.split_size is None:
        return larger.seconds > CLEARLY_FASTER * smaller.seconds
    return steps(larger.seconds) > steps(smaller.seconds)


def cells(limits: Sequence[int], found: Sequence[Fit], measure: Counted | None) -> list[str]:
    """The peak before, limits met, the smallest of them, what it costs in time, and the most compiles for one limit."""
    before = found[-1].before
    met = [(limit, answer) for limit, answer in zip(limits, found, strict=True) if answer.fits]
    least = [format_size(met[0][0]), f"{met[0][1].seconds / before.seconds:.1f}"] if met else ["-", "-"]
    compiles = "-" if measure is None else str(max(measure.compiles))
    return [format_size(before.peak), f"{len(met)} of {len(limits)}", *least, compiles]


def near(
    name: str, text: str, limits: Sequence[int], found: Sequence[Fit], measure: Counted | None = None
) -> list[str]:
    """How many times as long the programs take as those of 5 % more memory, at most: where limits are met, and missed.

    "-" where there are none.
    """
    ratios: dict[bool, list[float]] = {True: [], False: []}
    for limit, answer in zip(limits, found, strict=True):
        if measure is not None:
            measure.compiles.append(0)
        roomier = fit(parsed(name, text), DEFAULT_PASSES, Options(), int(_NEAR * limit), measure)
        ratios[answer.fits].append(answer.seconds / roomier.seconds)
    return [f"{max(each):.2f}" if each else "-" for each in ratios.values()]


def means(found: Sequence[Fit], seconds: Sequence[float]) -> list[str]:
    """The seconds of a search whose limit is met, and of one whose limit is not; "-" where there is none."""
    by_fits = [
        [taken for answer, taken in zip(found, seconds, strict=True) if answer.fits is fits] for fits in (True, False)
    ]
    return [f"{sum(taken) / len(taken):.2f}" if taken else "-" for taken in by_fits]


if __name__ == "__main__":
    main()
