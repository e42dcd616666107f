"""Rewrites and runs the generated loops."""

from __future__ import annotations

from dataclasses import dataclass

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.remarks import Kind
from exla_opt.runtime.check import compare_results
from exla_opt.runtime.compile import Program as Compiled
from exla_opt.runtime.compile import compile_program, run_program
from tests.scans.generate import generate


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one program: what is wrong, "" if nothing is, and its temporary bytes before and after.

    recomputed, split: whether loop-residuals and the splitter have done something.
    """

    problem: str
    before: int
    after: int
    recomputed: bool
    split: bool


def rewrite(text: str, threshold: int) -> tuple[str, frozenset[str]]:
    """The module after all passes, and those that have a remark on what they did."""
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        remarks = run_pipeline(module, DEFAULT_PASSES, Options(size_threshold=threshold, split_size=threshold)).remarks
        passed = frozenset(remark.pass_name for remark in remarks if remark.kind is Kind.PASSED)
        return serialise(module, "text").decode(), passed


def _temp(program: Compiled) -> int:
    return int(program.executable.get_compiled_memory_stats().temp_size_in_bytes)


def run(seed: int, number: int) -> Outcome:
    """Generate, rewrite, compile, run and compare one program."""
    program = generate(seed, number)
    text, passed = rewrite(program.text, program.threshold)
    original, rewritten = (compile_program(each, count_all_memory=True) for each in (program.text, text))
    expected, actual = (run_program(each, program.arrays) for each in (original, rewritten))
    comparisons = compare_results(expected, actual, lambda inputs: run_program(original, inputs), program.arrays)
    problems = [f"result {place}: {each.problem}" for place, each in enumerate(comparisons) if not each.passed]
    problems += [f"result {place} is NaN" for place, each in enumerate(comparisons) if each.all_nan]
    known = ("loop-residuals" in passed, "tensor-splitter" in passed)
    return Outcome("; ".join(problems), _temp(original), _temp(rewritten), *known)
