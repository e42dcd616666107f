"""Checks that two modules of one signature give the same results on the same inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from jaxlib.mlir import ir

from exla_opt.ir.diagnostics import InputError
from exla_opt.ir.write import serialise
from exla_opt.runtime.compare import Comparison, Tolerance, compare, default_tolerance, missing, parts_of
from exla_opt.runtime.compile import Program, compile_program, run_program, time_programs
from exla_opt.runtime.draws import choose_inputs
from exla_opt.runtime.inputs import Array
from exla_opt.runtime.nudge import measure_spreads

_SEED = 0
# A zero in place of an expected number is checked if the number exceeds this part of its type's tolerance.
_OF_TOLERANCE = 0.1
_WIDE = 4  # bytes


class CannotRun(Exception):
    """The original module cannot be run here; the message says why."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The comparisons of two modules' results, and the seconds of a warm run of each."""

    comparisons: list[Comparison]
    seconds: tuple[float, float]


def compare_modules(original: ir.Module, rewritten: ir.Module) -> Checked:
    """Run both on the CPU, on the same random inputs, compare their results, and time a second run of each.

    Raises CannotRun if the original cannot be compiled or run here, InputError if only the rewritten one cannot.
    """
    try:
        program = _compile(original)
        inputs, expected = choose_inputs(original, _SEED, lambda arrays: run_program(program, arrays))
    except InputError as error:
        raise CannotRun(error.message) from None
    other = _compile(rewritten)
    actual = run_program(other, inputs)
    comparisons = compare_results(expected, actual, lambda arrays: run_program(program, arrays), inputs)
    before, after = time_programs([program, other], inputs, repeats=1)
    return Checked(comparisons, (before, after))


def compare_results(
    expected: Sequence[Array],
    actual: Sequence[Array],
    run: Callable[[Sequence[Array]], Sequence[Array]],
    inputs: Sequence[Array],
    *,
    tf32: bool = False,
) -> list[Comparison]:
    """Compare all results; measure the tolerance where a float exceeds the tolerance of its type.

    It is also measured where a result passes by the absolute tolerance alone: if inputs that are off by an ulp do not
    move it, its error is no noise around zero, and it must be equal relative to its own size.

    A float that passes but is zero where it should not be is missing, unless a nudge of the inputs moves the expected
    number: rounding does not turn a number into zero that it does not move.

    run: runs the program that computed `expected`. tf32: whether products of f32 were rounded to TF32. Raises
    InputError if the run fails.
    """
    rules = [default_tolerance(wanted.dtype, tf32=tf32) for wanted in expected]
    comparisons = [compare(*triple) for triple in zip(expected, actual, rules, strict=True)]
    gone = [_gone(*group) for group in zip(comparisons, expected, actual, rules, strict=True)]
    are_plain = all(one.passed and not _is_tiny(one, rule) for one, rule in zip(comparisons, rules, strict=True))
    if are_plain and not any(where.size for where in gone):
        return comparisons
    measured = measure_spreads(run, inputs, expected)
    groups = zip(comparisons, expected, actual, measured, rules, strict=True)
    for number, (one, wanted, found, moved, rule) in enumerate(groups):
        spread = float(moved.max(initial=0.0))
        relative = rule.relative
        if one.passed and _is_tiny(one, rule) and spread < relative * one.largest:
            comparisons[number] = compare(wanted, found, Tolerance(relative, 0.0), spread)
        elif not one.passed:
            comparisons[number] = compare(wanted, found, rule, spread)
        elif problem := missing(wanted, gone[number], moved):
            comparisons[number] = replace(one, problem=problem)
    return comparisons


def _gone(one: Comparison, wanted: Array, found: Array, rule: Tolerance) -> npt.NDArray[np.intp]:
    """The positions of floats, as in `parts_of`, that are 0 but should be well above the rounding of the largest.

    Floats of 16 bits and fewer are left out: their small numbers underflow to zero.
    """
    if not one.passed or wanted.dtype.kind not in "fc" or wanted.dtype.itemsize < _WIDE:
        return np.empty(0, np.intp)
    least = _OF_TOLERANCE * rule.relative * one.largest
    return np.flatnonzero((parts_of(found) == 0) & (np.abs(parts_of(wanted)) > least))


def _is_tiny(one: Comparison, rule: Tolerance) -> bool:
    """Whether the error is above the relative tolerance, and below the absolute one alone."""
    return one.absolute.value > rule.relative * one.largest


def _compile(module: ir.Module) -> Program:
    # Compiled as for measuring memory: the fusions that hide scratch memory need more than was predicted.
    return compile_program(serialise(module, "bytecode"), count_all_memory=True)
