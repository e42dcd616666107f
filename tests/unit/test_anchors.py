"""Regions that end at tensors which something reads complete: nothing is computed twice, and less is alive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.memory.timeline import Timeline, read_timeline
from exla_opt.ops.rules import read_rules
from exla_opt.options import Options
from exla_opt.passes.tensor_splitter.graph import Graph, read_graphs
from exla_opt.passes.tensor_splitter.plans import choose, search
from exla_opt.passes.tensor_splitter.plans.allowance import Allowance
from exla_opt.passes.tensor_splitter.plans.block import run_planned
from exla_opt.passes.tensor_splitter.plans.body import work_of
from exla_opt.passes.tensor_splitter.regions.loops import find_loops
from exla_opt.passes.tensor_splitter.regions.region import Region
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from tests.execute import assert_equal_results
from tests.programs.model import Program, export_program

Tensor = Any
ROWS, WIDTH, LAYERS = 512, 16, 3
# Rows of one layer are over it; a square of scores has 32 times as many bytes.
OPTIONS = Options(size_threshold=16_000, split_size=16_000)
SPECS = f"{ROWS}x{WIDTH}xf32 " + " ".join([f"{WIDTH}x{WIDTH}xf32"] * 2 * LAYERS)


def layers(x: Tensor, *weights: Tensor) -> Tensor:
    """Each layer's scores need the rows of all tokens before it."""
    for keys, wide in zip(weights[::2], weights[1::2], strict=True):
        scores = jax.nn.softmax(x @ (x @ keys).T / 64)
        x = (x + scores @ x) / 2
        x = x / 2 + jnp.tanh(x @ wide / 4)
    return x


def gradient(x: Tensor, *weights: Tensor) -> Tensor:
    return jax.grad(lambda weights: (layers(x, *weights) ** 2).sum())(weights)


def rewritten(function: Callable[..., Any]) -> tuple[ir.Module, ir.Module]:
    text = export_program(Program("case", function, SPECS)).encode()
    before, after = (parse_module("m.mlir", text, new_context()).module for _ in range(2))
    run_pipeline(after, DEFAULT_PASSES, OPTIONS)
    return before, after


def timeline_without_anchors(function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Timeline:
    with monkeypatch.context() as patch:
        patch.setattr(choose, "_ANCHORED", 2**40)
        return read_timeline(rewritten(function)[1])


@pytest.mark.parametrize(("function", "seconds", "temp"), [(layers, 0.8, 1.1), (gradient, 1.0, 0.2)])
def test_layers_are_not_recomputed_for_those_behind_them(
    function: Callable[..., Any], seconds: float, temp: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = rewritten(function)
    found, other = read_timeline(after), timeline_without_anchors(function, monkeypatch)
    assert found.seconds < seconds * other.seconds
    assert found.memory.temp < temp * other.memory.temp
    assert found.memory.temp < 0.2 * read_timeline(before).memory.temp
    assert_equal_results(before, after)


@pytest.mark.parametrize("function", [layers, gradient])
def test_a_region_that_ends_at_no_anchor_is_planned_once(
    function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = parse_module("m.mlir", export_program(Program("case", function, SPECS)).encode(), new_context()).module
    graphs = read_graphs(module, read_rules(module, OPTIONS.op_rules))
    seen: list[Region] = []
    anchors: list[frozenset[int]] = []

    def seen_loops(graph: Graph, region: Region, *rest: Any) -> Any:
        seen.append(region)
        return find_loops(graph, region, *rest)

    monkeypatch.setattr(search, "find_loops", seen_loops)
    monkeypatch.setattr(choose, "log_anchors", lambda graph, found: anchors.append(found))
    allowance = Allowance(graphs, OPTIONS.machine)
    choose.choose(graphs[0], OPTIONS, allowance)
    assert anchors and all(region not in seen[:place] for place, region in enumerate(seen))
    first = choose._Chooser(graphs[0], OPTIONS, allowance, True)
    first.choose()
    alone, with_first = (
        choose._Chooser(graphs[0], OPTIONS, allowance, True, anchors[0], before).choose() for before in (None, first)
    )
    assert alone.plans and with_first == alone


# Three products of squares, each of which needs all rows of the one before.
_SQUARES = """
func.func @main(%x: tensor<512x32xf32>) -> tensor<512x32xf32> {
  %0 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [1] : (tensor<512x32xf32>, tensor<512x32xf32>) -> tensor<512x512xf32>
  %1 = stablehlo.tanh %0 : tensor<512x512xf32>
  %y = stablehlo.dot_general %1, %x, contracting_dims = [1] x [0] : (tensor<512x512xf32>, tensor<512x32xf32>) -> tensor<512x32xf32>
  %2 = stablehlo.dot_general %y, %y, contracting_dims = [1] x [1] : (tensor<512x32xf32>, tensor<512x32xf32>) -> tensor<512x512xf32>
  %3 = stablehlo.tanh %2 : tensor<512x512xf32>
  %z = stablehlo.dot_general %3, %y, contracting_dims = [1] x [0] : (tensor<512x512xf32>, tensor<512x32xf32>) -> tensor<512x32xf32>
  %4 = stablehlo.dot_general %z, %z, contracting_dims = [1] x [1] : (tensor<512x32xf32>, tensor<512x32xf32>) -> tensor<512x512xf32>
  %5 = stablehlo.tanh %4 : tensor<512x512xf32>
  %6 = stablehlo.dot_general %5, %z, contracting_dims = [1] x [0] : (tensor<512x512xf32>, tensor<512x32xf32>) -> tensor<512x32xf32>
  return %6 : tensor<512x32xf32>
}
"""  # noqa: E501


def test_loops_that_recompute_count_what_earlier_ones_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "_ANCHORED", 2**40)
    options = Options(size_threshold=32_000, split_size=16_000)
    with new_context() as context:
        module = parse_module("m.mlir", _SQUARES.encode(), context).module
        [graph] = read_graphs(module, read_rules(module, ()))
        [plan] = choose.choose(graph, options, Allowance([graph], options.machine)).plans
        assert len(plan.loops) == 3
        # The second and the third read slices of %y and %z that they compute, and all rows of both from memory.
        stored = run_planned(graph, [plan], options.machine, options.slice_bytes).peak
        assert stored >= 2 * 512 * 32 * 4
        # They do two and three times the work of the first: as much again as all of it.
        work = sum(work_of(graph, options.machine, any_shape=True).values())
        assert 0.95 * work < plan.added < 1.05 * work
