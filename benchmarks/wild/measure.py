"""One entry before and after exla-opt: memory at the report's size, results at a small one, time at a middle one."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.walk import inside_out
from exla_opt.memory.peak import Memory
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.runtime.check import compare_results
from exla_opt.runtime.compile import Program, compile_program, run_program, time_programs
from exla_opt.runtime.draws import choose_inputs
from exla_opt.runtime.inputs import Array
from exla_opt.runtime.memory import measure_memory

from .entry import Entry, export

# What a program may take besides arguments and results.
ROOM = 10**9
# A program of middle size keeps the part of its temporary memory that is left to the large one, and no less than this.
LEAST_PART = 0.125
# A threshold that the large tensors of the small programs are above, and a slice that makes many tiles of them.
TINY = Options(size_threshold=64_000, split_size=16_000)
_LOOP = "stablehlo.while"


@dataclass(frozen=True, slots=True)
class Row:
    """What was found for one entry; bytes and seconds, "" and 0.0 where it was not asked or could not be had.

    before, after, by_hand: peaks at the report's size; temp: the temporary memory in `before`. equal: "equal",
    "unsplit" (equal, for nothing was split) or what differs. run: the time before, at the middle size. ratio: the time
    after over it; hand_ratio: over that by hand.
    seconds: those of exla-opt at the report's size. holds: what exla-opt says keeps the memory up.
    """

    name: str
    before: int = 0
    temp: int = 0
    after: int = 0
    limit: int = 0
    by_hand: int = 0
    equal: str = ""
    run: float = 0.0
    ratio: float = 0.0
    hand_ratio: float = 0.0
    seconds: float = 0.0
    holds: str = ""

    @property
    def met(self) -> bool:
        """Whether the program fits after exla-opt."""
        return 0 < self.after <= self.limit

    @property
    def part(self) -> float:
        """The part of the temporary memory that the limit leaves; 1 where that is all of it."""
        return min((self.limit - self.before + self.temp) / max(self.temp, 1), 1.0)

    @property
    def larger(self) -> bool:
        """Whether exla-opt made it worse; a few bytes for a counter are none."""
        return self.after > self.before + self.before // 1000

    def as_json(self) -> dict[str, object]:
        """All fields by name."""
        return asdict(self)


def rewrite(text: str, limit: int, seconds: float) -> tuple[str, str]:
    """What the command line makes of a program under a memory limit, and the last of its complaints.

    Raises RuntimeError when exla-opt fails, subprocess.TimeoutExpired when it takes longer than `seconds`.
    """
    tool = Path(sys.executable).with_name("exla-opt")
    with tempfile.TemporaryDirectory() as directory:
        given, written = Path(directory) / "program.mlir", Path(directory) / "smaller.mlir"
        given.write_text(text)
        command = [str(tool), str(given), f"--memory-limit={limit}", "-o", str(written)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
        if done.returncode:
            raise RuntimeError((done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1])
        complaints = [line.replace(f"{given}:", "") for line in done.stderr.splitlines() if "does not fit" in line]
        return written.read_text(), (complaints or [""])[-1]


def limit_of(entry: Entry, memory: Memory) -> int:
    """The bytes that a program of the report's size may take."""
    return entry.limit or memory.peak - memory.temp + ROOM


def equality(entry: Entry) -> str:
    """Whether the results at the small size stay equal when all that can be split is, and when written by hand.

    As Row.equal says it. Inputs and tolerance are those of exla-opt --check.
    """
    text = export(entry.function, entry.small, entry.gradient)
    with new_context() as context:
        original = ir.Module.parse(text, context)
        rewritten = ir.Module.parse(text, context)
        loops = _loops(rewritten)
        run_pipeline(rewritten, DEFAULT_PASSES, TINY)
        is_split = _loops(rewritten) > loops
        others = {"": str(rewritten)}
        if entry.by_hand is not None:
            others["by hand, "] = export(entry.by_hand, entry.small, entry.gradient)
        return _difference(original, others) or ("equal" if is_split else "unsplit")


def _difference(original: ir.Module, others: dict[str, str]) -> str:
    """What is not equal, "" where all is."""
    program = _compile(str(original))
    run = partial(run_program, program)
    inputs, expected = choose_inputs(original, 0, run)
    for name, text in others.items():
        comparisons = compare_results(expected, run_program(_compile(text), inputs), run, inputs)
        for number, one in enumerate(comparisons):
            if not one.passed:
                return f"{name}result {number}: {one.problem}"
        if all(one.all_nan for one in comparisons):
            return "NaN throughout"
    return ""


def _compile(text: str) -> Program:
    # Tiny programs: LLVM would take longer than all of the run.
    return compile_program(text, count_all_memory=True, optimise=False)


def _loops(module: ir.Module) -> int:
    return sum(1 for _ in inside_out(module, _LOOP))


def times(entry: Entry, part: float, repeats: int, patience: float) -> tuple[float, float, float]:
    """The seconds of a run at the middle size, the time after exla-opt over it, and over that by hand or 0.0.

    part: of temporary memory, which the limit leaves. patience: seconds for exla-opt, as in `rewrite`.
    """
    text = export(entry.function, entry.middle, entry.gradient)
    memory = measure_memory(text)
    limit = memory.peak - memory.temp + int(max(part, LEAST_PART) * memory.temp)
    texts = [text, rewrite(text, limit, patience)[0]]
    if entry.by_hand is not None:
        texts.append(export(entry.by_hand, entry.middle, entry.gradient))
    programs = [compile_program(each) for each in texts]
    arrays = inputs_for(text, programs[0])
    for program in programs:
        run_program(program, arrays)
    before, after, *by_hand = time_programs(programs, arrays, repeats)
    return before, after / before, after / by_hand[0] if by_hand else 0.0


def inputs_for(text: str, program: Program) -> list[Array]:
    """Inputs with which the results of a program are finite where that can be had."""
    with new_context() as context:
        module = ir.Module.parse(text, context)
        return choose_inputs(module, 0, lambda arrays: run_program(program, arrays))[0]


def geometric_mean(numbers: list[float]) -> float:
    """The geometric mean, 0.0 of nothing."""
    return statistics.geometric_mean(numbers) if numbers else 0.0
