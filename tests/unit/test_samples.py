"""Programs of the kind that exla-opt is for: the whole tool, executed.

Each is split under a forced tiny threshold, run, and compared with what jax computes. Where a checkout has exports of
GPflow, Keras and JAX next to it, they are run too.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module, read_module
from exla_opt.ir.walk import CONTROL_FLOW
from exla_opt.ir.write import Emit, serialise
from exla_opt.ops.rules import read_rules
from exla_opt.options import Options
from exla_opt.passes.tensor_splitter.graph import OUTSIDE, TILE_MARK, Graph, read_graphs
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.remarks import Kind
from exla_opt.runtime.compare import compare
from tests.execute import run_module
from tests.programs.samples import NAMES, STORED, Sample, read_sample

OPTIONS = Options(size_threshold=64_000, split_size=32_000)


def check_results(text: str, sample: Sample) -> None:
    """Assert that the module computes what it should."""
    actual = run_module(text, list(sample.arguments))
    for number, (expected, found) in enumerate(zip(sample.results, actual, strict=True)):
        comparison = compare(expected, found)
        assert comparison.passed, f"result {number}: {comparison}"


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


@pytest.mark.parametrize("name", [*NAMES, *STORED])
def test_sample(name: str) -> None:
    sample = read_sample(name)
    with new_context() as context:
        module = parse_module(name, sample.module, context).module
        remarks = run_pipeline(module, DEFAULT_PASSES, OPTIONS).remarks
        text = serialise(module, "text")
        main = read_graphs(module, read_rules(module))[0]
        left = big_outside_loops(main)
        assert TILE_MARK.encode() not in text
        if name in NAMES:
            taken = "EX014" if name == "kernel_vector" else "EX001"  # its matrix is symmetric
            assert any(remark.code == taken for remark in remarks), "nothing was split"
            counted = [each for each in left if not each.endswith("i32")]
            assert not counted, "only the positions behind a mask, which are never written, may be left"

        # What passes after the splitter write, as blocks of rows for an argmin, it sees in a second run.
        remarks += run_pipeline(module, DEFAULT_PASSES, OPTIONS).remarks
        assert serialise(module, "text") == text, "a second run changed the output"
        assert set(left) <= {remark.tensor for remark in remarks if remark.kind is Kind.MISSED}

        again = parse_module(name, sample.module, context).module
        run_pipeline(again, DEFAULT_PASSES, OPTIONS)
        assert serialise(again, "text") == text, "two runs gave different output"
    check_results(text.decode(), sample)


@pytest.mark.parametrize("emit", ["bytecode", "portable"])
@pytest.mark.parametrize("name", ["attention", "elbo_gradient"])
def test_sample_through_other_forms(name: str, emit: Emit, tmp_path: Path) -> None:
    """A split module survives bytecode and portable artifacts."""
    sample = read_sample(name)
    with new_context() as context:
        module = parse_module(name, sample.module, context).module
        run_pipeline(module, DEFAULT_PASSES, OPTIONS)
        stored = tmp_path / "module"
        stored.write_bytes(serialise(module, emit))
        loaded = read_module(str(stored), context).module
        assert isinstance(loaded, ir.Module)
        check_results(serialise(loaded, "text").decode(), sample)
