"""Generated programs: the generator, the judge, and a short run with a fixed seed (`make fuzz` is the long one)."""

from __future__ import annotations

import numpy as np
import pytest
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.runtime.compile import compile_program, run_program
from tests.fuzz.cases import prepare
from tests.fuzz.generate import generate, text_with
from tests.fuzz.judge import judge_exact, judge_rounded
from tests.fuzz.roundings import rounded_text
from tests.fuzz.workers import run_range

SEED = 20
PIECES = 4
PROGRAMS_A_PIECE = 24
PROGRAMS_ON_DEVICES = 30


@pytest.mark.parametrize("piece", range(PIECES))
def test_generated_programs_keep_their_results(piece: int) -> None:
    outcomes = run_range(SEED, range(piece * PROGRAMS_A_PIECE, (piece + 1) * PROGRAMS_A_PIECE), 8, plain=False)
    assert len(outcomes) == PROGRAMS_A_PIECE
    assert not [(outcome.index, outcome.problem) for outcome in outcomes if outcome.status == "failed"]
    assert sum(outcome.status == "ok" for outcome in outcomes) >= 0.9 * PROGRAMS_A_PIECE
    assert sum("tensor-splitter" in outcome.changed for outcome in outcomes) >= 0.2 * PROGRAMS_A_PIECE


def test_generated_programs_for_eight_devices_keep_their_results() -> None:
    outcomes = run_range(SEED, range(PROGRAMS_ON_DEVICES), 5, plain=False, devices=8)
    assert len(outcomes) == PROGRAMS_ON_DEVICES
    assert not [(outcome.index, outcome.problem) for outcome in outcomes if outcome.status == "failed"]
    assert sum(len(outcome.sent) > 0 for outcome in outcomes) >= 0.6 * PROGRAMS_ON_DEVICES
    assert {"constrained", "on_each_device"} <= {kind for outcome in outcomes for kind in outcome.kinds}


def test_generated_programs_are_valid_and_the_same_each_time() -> None:
    for index in range(40):
        program = generate(0, index)
        assert generate(0, index) == program
        for text in (program.text, text_with(program, "f64")):
            if text:
                with new_context() as context:
                    assert ir.Module.parse(text, context).operation.verify()


def test_the_wide_program_has_no_narrow_floats() -> None:
    wide = [text for text in (text_with(generate(0, index), "f64") for index in range(40)) if text]
    assert len(wide) > 20
    assert not [text for text in wide if "xf32>" in text or "bf16" in text or "xf16>" in text]


def test_exact_results_must_be_equal() -> None:
    one = np.array([1.0, np.nan, np.inf, -0.0], np.float32)
    assert not judge_exact(one, np.array([1.0, np.nan, np.inf, 0.0], np.float32), swaps=False)
    assert judge_exact(one, np.array([np.nextafter(np.float32(1), 2), np.nan, np.inf, 0.0], np.float32), swaps=False)
    swapped = np.array([1.0, np.inf, np.nan, 0.0], np.float32)
    assert judge_exact(one, swapped, swaps=False)
    assert not judge_exact(one, swapped, swaps=True)
    assert judge_exact(one, np.array([np.nan, np.nan, np.inf, 0.0], np.float32), swaps=True)
    assert judge_exact(np.array([1, 2]), np.array([1, 3]), swaps=True)
    assert judge_exact(np.zeros(2, np.float32), np.zeros(2), swaps=False)


@pytest.mark.parametrize(
    ("actual", "passes"),
    [(1.0, True), (1 + 2e-7, True), (1.004, True), (1.005, False), (np.nan, False)],
    ids=["equal", "a-rounding", "four-times-the-original's-error", "above", "nan"],
)
def test_rounded_results_may_be_off_by_the_error_of_the_original(actual: float, passes: bool) -> None:
    expected, exact = np.array([1.001], np.float32), np.array([1.0])
    verdict = judge_rounded(expected, np.array([actual], np.float32), lambda: exact, lambda: [exact], swaps=False)
    assert (not verdict.problem) == passes


@pytest.mark.parametrize(("actual", "passes"), [(0.0, True), (9e-38, True), (2e-37, False)])
def test_what_is_no_normal_number_may_be_zero(actual: float, passes: bool) -> None:
    expected, exact = np.array([1e-38], np.float32), np.array([1e-38])
    verdict = judge_rounded(expected, np.array([actual], np.float32), lambda: exact, lambda: [exact], swaps=False)
    assert (not verdict.problem) == passes


def test_an_exact_original_is_forgiven_by_inputs_that_are_off() -> None:
    expected, actual, exact = np.array([0.0], np.float32), np.array([1e-3], np.float32), np.array([0.0])
    assert judge_rounded(expected, actual, lambda: exact, lambda: [exact], swaps=False).problem
    assert not judge_rounded(expected, actual, lambda: exact, lambda: [exact + 5e-4], swaps=False).problem


def test_ops_round_what_the_narrow_type_does_not_hold() -> None:
    """A table of counts leads to a third, which float32 rounds; one half it holds."""
    text = """func.func @main(%x: tensor<f64>) -> (tensor<3xf64>, tensor<3xf64>) {
    %c = "stablehlo.constant"() {value = dense<1> : tensor<3xi32>} : () -> (tensor<3xi32>)
    %one = "stablehlo.convert"(%c) : (tensor<3xi32>) -> (tensor<3xf64>)
    %three = "stablehlo.constant"() {value = dense<3.0> : tensor<3xf64>} : () -> (tensor<3xf64>)
    %two = "stablehlo.constant"() {value = dense<2.0> : tensor<3xf64>} : () -> (tensor<3xf64>)
    %third = "stablehlo.divide"(%one, %three) : (tensor<3xf64>, tensor<3xf64>) -> (tensor<3xf64>)
    %half = "stablehlo.divide"(%one, %two) : (tensor<3xf64>, tensor<3xf64>) -> (tensor<3xf64>)
    "func.return"(%third, %half) : (tensor<3xf64>, tensor<3xf64>) -> ()
    }"""
    number = np.zeros((), np.float64)
    seen = set()
    for seed in (1, 2, 3):
        moved = rounded_text(text, np.dtype(np.float32), seed)
        third, half = run_program(compile_program(moved), [number])
        assert 0 < np.abs(third - 1 / 3).max() < 4 * 2.0**-24
        assert (half == 0.5).all()
        seen.add(float(third[0]))
    assert len(seen) == 3
    assert not rounded_text(text, np.dtype(np.int32), 1)


@pytest.mark.parametrize(("seed", "index"), [(113057, 5)])
def test_programs_that_once_failed_are_rewritten(seed: int, index: int) -> None:
    """A maximum whose initial value no kernel reads: recompute asked for its size."""
    assert prepare(seed, index, 1).rewritten
