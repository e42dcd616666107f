"""Real exports of GPflow, Keras and JAX, where a checkout has them beside it: the whole tool, executed.

Every small and mid module is split under a forced tiny threshold, run on its own inputs and compared with the
exporter's results.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.read import read_module
from exla_opt.ir.walk import CONTROL_FLOW
from exla_opt.ir.write import serialise
from exla_opt.ops.rules import read_rules
from exla_opt.options import Options
from exla_opt.passes.tensor_splitter.graph import OUTSIDE, TILE_MARK, Graph, read_graphs
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.remarks import Kind
from exla_opt.runtime.compare import compare
from tests.execute import run_module

FOLDER = Path(__file__).parents[2].parent / "shared" / "modules"
RUNNABLE = sorted(path for path in FOLDER.glob("*.mlir*") if "_small_" in path.name or "_mid_" in path.name)
OPTIONS = Options(size_threshold=64_000, split_size=32_000)

pytestmark = pytest.mark.skipif(not RUNNABLE, reason="the sample modules are not beside this checkout")


def arrays(path: Path, prefix: str) -> list[np.ndarray]:
    with np.load(path.with_name(path.name.split(".mlir")[0] + ".npz")) as stored:
        count = sum(name.startswith(prefix) for name in stored)
        return [stored[f"{prefix}{index}"] for index in range(count)]


def big_outside_loops(graph: Graph) -> list[str]:
    """The types of the big tensors that ops of the function's own block make and that it does not return."""
    returned = graph.nodes[graph.terminator].operands
    return [
        str(tensor.type)
        for number, tensor in enumerate(graph.tensors)
        if tensor.type.bytes > OPTIONS.size_threshold
        and tensor.producer != OUTSIDE
        and graph.nodes[tensor.producer].name not in CONTROL_FLOW
        and number not in returned
    ]


@pytest.mark.parametrize("path", RUNNABLE, ids=lambda path: path.name.split(".mlir")[0])
def test_sample(path: Path) -> None:
    with new_context() as context:
        module = read_module(str(path), context).module
        remarks = run_pipeline(module, DEFAULT_PASSES, OPTIONS).remarks
        text = serialise(module, "text")
        main = read_graphs(module, read_rules(module))[0]
        explained = {remark.tensor for remark in remarks if remark.kind is Kind.MISSED}
        assert set(big_outside_loops(main)) <= explained
        assert TILE_MARK.encode() not in text

        run_pipeline(module, DEFAULT_PASSES, OPTIONS)
        assert serialise(module, "text") == text, "a second run changed the output"

        again = read_module(str(path), context).module
        run_pipeline(again, DEFAULT_PASSES, OPTIONS)
        assert serialise(again, "text") == text, "two runs gave different output"

    for number, (expected, actual) in enumerate(
        zip(arrays(path, "out"), run_module(text.decode(), arrays(path, "arg")), strict=True)
    ):
        comparison = compare(expected, actual)
        assert comparison.passed, f"result {number}: {comparison}"


@pytest.mark.parametrize("emit", ["bytecode", "portable"])
def test_sample_through_other_forms(emit: str, tmp_path: Path) -> None:
    """A split module survives bytecode and portable artifacts."""
    path = next(path for path in RUNNABLE if "tf_mha_small" in path.name and "fwd" in path.name)
    with new_context() as context:
        module = read_module(str(path), context).module
        run_pipeline(module, DEFAULT_PASSES, OPTIONS)
        stored = tmp_path / "module"
        stored.write_bytes(serialise(module, emit))  # type: ignore[arg-type]
        loaded = read_module(str(stored), context).module
        assert isinstance(loaded, ir.Module)
        results = run_module(serialise(loaded, "text").decode(), arrays(path, "arg"))
    assert all(compare(e, a).passed for e, a in zip(arrays(path, "out"), results, strict=True))
