"""Gradients of scans, rewritten and run: the same results, less memory, and a second run that changes nothing."""

from __future__ import annotations

import numpy as np
import pytest
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.write import serialise
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.remarks import Kind, Remark
from exla_opt.runtime.compare import compare
from exla_opt.runtime.compile import Program, compile_program, run_program
from exla_opt.runtime.inputs import Array
from tests.programs.scans import LONG, SCANS, Scan, export_chained, export_gradient

OPTIONS = Options(size_threshold=2000, split_size=500)
ALONE = ("normalise", "rce", "loop-residuals", "normalise")


def rewrite(text: str, passes: tuple[str, ...], options: Options = OPTIONS) -> tuple[str, tuple[Remark, ...]]:
    with new_context() as context:
        module = ir.Module.parse(text, context)
        remarks = run_pipeline(module, passes, options).remarks
        return serialise(module, "text").decode(), remarks


def passed(remarks: tuple[Remark, ...]) -> list[Remark]:
    return [each for each in remarks if each.pass_name == "loop-residuals" and each.kind is Kind.PASSED]


def temp_bytes(program: Program) -> int:
    return int(program.executable.get_compiled_memory_stats().temp_size_in_bytes)


def check(text: str, arrays: list[Array], scan: Scan) -> None:
    """Assert that both pipelines keep the results and lower the memory, and that a second run finds nothing."""
    before = compile_program(text, count_all_memory=True)
    expected = run_program(before, arrays)
    assert any(np.any(np.asarray(each, np.float32)) for each in expected), "results of zero prove nothing"
    for passes in (ALONE, DEFAULT_PASSES):
        rewritten, remarks = rewrite(text, passes)
        after = compile_program(rewritten, count_all_memory=True)
        for number, (one, other) in enumerate(zip(expected, run_program(after, arrays), strict=True)):
            comparison = compare(one, other)
            assert comparison.passed, f"result {number}: {comparison.problem}"
            if scan.exact and passes == ALONE:
                assert one.tobytes() == other.tobytes(), f"result {number} has other bits"
        assert temp_bytes(after) <= scan.temp * temp_bytes(before) + 300
        assert bool(passed(remarks)) == (scan.temp < 1)
        assert not passed(rewrite(rewritten, ALONE)[1]), "a second run changes it"


@pytest.mark.parametrize("scan", SCANS, ids=lambda scan: scan.name)
def test_gradient(scan: Scan) -> None:
    check(export_gradient(scan, 1), [np.asarray(each) for each in scan.arguments(1)], scan)


@pytest.mark.parametrize("scan", LONG, ids=lambda scan: scan.name)
def test_segments(scan: Scan) -> None:
    text = export_gradient(scan, 1)
    assert any("in segments" in each.message for each in passed(rewrite(text, ALONE)[1]))
    check(text, [np.asarray(each) for each in scan.arguments(1)], scan)


@pytest.mark.parametrize("length", [64, 67])
def test_segments_that_are_read_forwards(length: int) -> None:
    text, arguments = export_chained(length)
    assert any("in segments" in each.message for each in passed(rewrite(text, ALONE)[1]))
    scan = Scan("chained", lambda: None, lambda size: arguments, 0.5, exact=True)
    check(text, [np.asarray(each) for each in arguments], scan)
