"""The arithmetic that all splits of a module may add together, and what it comes to when splits are nested."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.memory.machine import CPU
from exla_opt.ops.rules import read_rules
from exla_opt.options import Options
from exla_opt.passes.tensor_splitter.allowance import MOST_ARITHMETIC, Allowance
from exla_opt.passes.tensor_splitter.body import work_of
from exla_opt.passes.tensor_splitter.graph import Graph, read_graphs
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline

# A product of matrices in a loop of ten trips, and one elementwise op outside of it.
_LOOP = """
func.func @main(%a: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %ten = stablehlo.constant dense<10> : tensor<i32>
  %0:2 = stablehlo.while(%i = %zero, %x = %a) : tensor<i32>, tensor<64x64xf32>
    cond {
      %1 = stablehlo.compare LT, %i, %ten : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %1 = stablehlo.add %i, %one : tensor<i32>
      %2 = stablehlo.dot_general %x, %a, contracting_dims = [1] x [0] : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
      stablehlo.return %1, %2 : tensor<i32>, tensor<64x64xf32>
    }
  %1 = stablehlo.negate %0#1 : tensor<64x64xf32>
  return %1 : tensor<64x64xf32>
}
"""
_PRODUCT = 2 * 64**3 / CPU.flops_of("f32")


@pytest.fixture
def graphs() -> Iterator[list[Graph]]:
    with new_context() as context:
        module = ir.Module.parse(_LOOP, context)
        yield read_graphs(module, read_rules(module))


def test_what_a_block_in_a_loop_adds_counts_as_often_as_the_loop_runs(graphs: list[Graph]) -> None:
    main, body = graphs[0].block, next(graph.block for graph in graphs if len(graph.nodes) == 3 and graph.nested)
    allowance = Allowance(graphs, CPU)
    left = allowance.rest()
    assert left == pytest.approx((MOST_ARITHMETIC - 1) * 10 * _PRODUCT, rel=0.01)
    assert allowance.allows(main, 0.9 * left) and not allowance.allows(body, 0.9 * left)
    assert allowance.take(body, 0.06 * left) and not allowance.take(body, 0.06 * left)
    assert allowance.take(main, 0.3 * left)
    assert allowance.rest() == pytest.approx(0.1 * left)


def test_a_look_at_the_module_as_it_is_begins_anew(graphs: list[Graph]) -> None:
    allowance = Allowance(graphs, CPU)
    left = allowance.rest()
    allowance.take(graphs[0].block, left)
    allowance.start(graphs)
    assert allowance.rest() == left


# The gradient of two heads of attention, with a batch of two: rows, then the two sums of a batch, then those of a head.
_ATTENTION = """
func.func @main(%q: {t}, %k: {t}, %v: {t}) -> ({t}, {t}, {t}) {{
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.dot_general %q, %k, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [3] : ({t}, {t}) -> {p}
  %w = stablehlo.convert %s : ({p}) -> {w}
  %e = stablehlo.exponential %w : {w}
  %r = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [3] : ({w}, tensor<f32>) -> {r}
  %d = stablehlo.broadcast_in_dim %r, dims = [0, 1, 2] : ({r}) -> {w}
  %a = stablehlo.divide %e, %d : {w}
  %p = stablehlo.convert %a : ({w}) -> {p}
  %dq = stablehlo.dot_general %p, %k, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2] : ({p}, {t}) -> {t}
  %dk = stablehlo.dot_general %p, %q, batching_dims = [0, 1] x [0, 1], contracting_dims = [2] x [2] : ({p}, {t}) -> {t}
  %dv = stablehlo.dot_general %p, %dq, batching_dims = [0, 1] x [0, 1], contracting_dims = [2] x [2] : ({p}, {t}) -> {t}
  return %dq, %dk, %dv : {t}, {t}, {t}
}}
""".format(t="tensor<2x2x512x64xbf16>", p="tensor<2x2x512x512xbf16>", w="tensor<2x2x512x512xf32>", r="tensor<2x2x512xf32>")


def test_nested_splits_stay_within_the_allowance() -> None:
    with new_context() as context:
        module = ir.Module.parse(_ATTENTION, context)
        before = _arithmetic(module)
        run_pipeline(module, DEFAULT_PASSES, Options(size_threshold=200_000))
        assert "tensor<2x2x512x512x" not in str(module)
        assert _arithmetic(module) <= 1.5 * before


def _arithmetic(module: ir.Module) -> float:
    graphs = read_graphs(module, read_rules(module))
    return sum(sum(work_of(graph, CPU, any_shape=True).values()) for graph in graphs if not graph.nested)
