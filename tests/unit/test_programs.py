"""Programs written in JAX, forward and gradient, split under a forced small threshold and executed.

Each must have the results of the original and, by XLA's own count, the stated part of its temporary memory; what
cannot be split must say why.
"""

from __future__ import annotations

import pytest

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.remarks import Kind, Remark
from exla_opt.runtime.check import compare_results
from exla_opt.runtime.compile import Program as Compiled
from exla_opt.runtime.compile import compile_program, run_program
from tests.execute import random_arguments
from tests.programs import control, indexing, kernels, loops, networks, reductions, values
from tests.programs.model import Program, export_program

OPTIONS = Options(size_threshold=64_000, split_size=16_000)
PROGRAMS = [
    program
    for module in (kernels, networks, indexing, reductions, values, control, loops)
    for program in module.PROGRAMS
]
# Results of which no element is larger are rounding errors of larger numbers that cancel.
NOISE = 1e-5
# What a loop's own counters, slices and alignment take, which is a lot against nothing.
SMALL_CHANGE = 40_000
# The part of the memory that a program keeps of which nothing big stays.
ALL_SPLIT = 0.2


def split(text: str) -> tuple[str, tuple[Remark, ...]]:
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        remarks = run_pipeline(module, DEFAULT_PASSES, OPTIONS).remarks
        return serialise(module, "text").decode(), remarks


def temp_bytes(compiled: Compiled) -> int:
    statistics = compiled.executable.get_compiled_memory_stats()
    return int(statistics.temp_size_in_bytes)


def test_names_differ() -> None:
    names = [program.name for program in PROGRAMS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_program(program: Program) -> None:
    before = export_program(program)
    after, remarks = split(before)
    assert split(after)[0] == after, "a second run changes it"
    assert ("jax.buffer_donor" in before or "tf.aliasing_output" in before) == bool(program.donated)

    arrays = random_arguments(before)
    # Compiled once, for memory and for results: with the memory that XLA:CPU does not count left out.
    original, rewritten = (compile_program(text, count_all_memory=True) for text in (before, after))
    expected, actual = (run_program(compiled, arrays) for compiled in (original, rewritten))
    comparisons = compare_results(expected, actual, lambda inputs: run_program(original, inputs), arrays)
    for number, comparison in enumerate(comparisons):
        assert comparison.passed, f"result {number}: {comparison.problem}"
        # Only where all of a result is noise may the original's own spread excuse a difference.
        assert not comparison.spread or comparison.largest < NOISE, f"result {number} is forgiven by its spread"
        assert not comparison.all_nan, f"result {number} is NaN throughout: it proves nothing"

    messages = [remark.message for remark in remarks if remark.kind is Kind.MISSED]
    # A newer jax may write a program so that all of it can be split.
    all_split = not messages and temp_bytes(rewritten) <= ALL_SPLIT * temp_bytes(original) + SMALL_CHANGE
    if program.remark and not all_split:
        assert any(program.remark in message for message in messages), messages
    elif program.temp < 1:
        assert any(remark.kind is Kind.PASSED for remark in remarks)
    assert temp_bytes(rewritten) <= program.temp * temp_bytes(original) + SMALL_CHANGE, messages
