"""StableHLO's own self-checking modules, where a checkout has them beside it, under a forced tiny threshold.

Each module computes, and calls `check.expect_*(result, expected)`; here both are returned and compared instead.
A fixed sample runs by default, all of them with EXLA_OPT_CORPUS=all.
"""

from __future__ import annotations

import os
import tarfile
from functools import cache
from pathlib import Path

import pytest
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func

from exla_opt.ir.context import new_context
from exla_opt.ir.write import serialise
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.runtime.compare import compare, default_tolerance
from tests.execute import run_module

ARCHIVE = Path(__file__).parents[2].parent / "shared" / "corpus" / "stablehlo-testdata.tar.xz"
OPTIONS = Options(size_threshold=64, split_size=32)
BATCHES = 20

pytestmark = pytest.mark.skipif(not ARCHIVE.exists(), reason="StableHLO's test data is not beside this checkout")


@cache
def modules() -> list[tuple[str, str]]:
    """(name, text) of the chosen modules."""
    with tarfile.open(ARCHIVE) as archive:
        members = sorted((m for m in archive.getmembers() if m.name.endswith(".mlir")), key=lambda m: m.name)
        if os.environ.get("EXLA_OPT_CORPUS") != "all":
            members = members[::30]
        texts = [(member.name, archive.extractfile(member)) for member in members]
        return [(name, file.read().decode()) for name, file in texts if file is not None]


def return_what_is_checked(module: ir.Module) -> None:
    """Replace the checks by returning (result, expected, ...)."""
    main = next(
        view.operation
        for view in module.body.operations
        if ir.StringAttr(view.operation.attributes["sym_name"]).value == "main"
    )
    values: list[ir.Value] = []
    *ops, terminator = [view.operation for view in main.regions[0].blocks[0].operations]
    for op in ops:
        if op.name == "stablehlo.custom_call" and "check." in str(op.attributes["call_target_name"]):
            values += op.operands
            op.erase()
    with ir.InsertionPoint(terminator), ir.Location.unknown(module.context):
        func.ReturnOp(values)
    terminator.erase()
    with module.context:
        main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get([], [value.type for value in values]))
    if "res_attrs" in main.attributes:
        del main.attributes["res_attrs"]


@pytest.mark.parametrize("batch", range(BATCHES))
def test_corpus(batch: int) -> None:
    wrong = []
    for name, text in modules()[batch::BATCHES]:
        with new_context() as context:
            module = ir.Module.parse(text, context)
            return_what_is_checked(module)
            run_pipeline(module, DEFAULT_PASSES, OPTIONS)
            results = run_module(serialise(module, "text").decode(), [])
        for actual, expected in zip(results[::2], results[1::2], strict=True):
            # The expectations were computed elsewhere: a narrow float may be off by a rounding, as NaN may not.
            comparison = compare(expected, actual, default_tolerance(expected.dtype))
            if not comparison.passed:
                wrong.append((name, comparison.problem))
    assert not wrong
