"""The arithmetic that all splits of a module may add together, and what it comes to when splits are nested."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf

import jax
import jax.export
import jax.numpy as jnp
import pytest
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.memory.machine import CPU
from exla_opt.ops.rules import read_rules
from exla_opt.options import Options
from exla_opt.passes.tensor_splitter.graph import Graph, read_graphs
from exla_opt.passes.tensor_splitter.plans.allowance import MOST_ARITHMETIC, Allowance
from exla_opt.passes.tensor_splitter.plans.body import work_of
from exla_opt.passes.tensor_splitter.plans.choose import choose
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


def _attention(key: jax.Array, q: jax.Array, k: jax.Array, v: jax.Array) -> tuple[jax.Array, ...]:
    """The gradients of an attention with a random mask, of narrow floats."""

    def loss(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        weights = jax.nn.softmax(jnp.einsum("bhid,bhjd->bhij", q, k).astype(jnp.float32) / 8)
        kept = (weights * jax.random.bernoulli(key, 0.9, weights.shape)).astype(q.dtype)
        return (jnp.einsum("bhij,bhjd->bhid", kept, v).astype(jnp.float32) ** 2).mean()

    gradients: tuple[jax.Array, ...] = jax.grad(loss, (0, 1, 2))(q, k, v)
    return gradients


@pytest.mark.parametrize("batch", [2, 4])
def test_nested_splits_do_little_again(batch: int) -> None:
    """Rows are cut first, then the sums over them along the batch, then along the heads."""
    heads = jax.ShapeDtypeStruct((batch, batch, 128, 16), jnp.bfloat16)
    key = jax.ShapeDtypeStruct((2,), jnp.uint32)
    text = jax.export.export(jax.jit(_attention))(key, heads, heads, heads).mlir_module()
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        run_pipeline(module, ("normalise",), Options())
        before = _arithmetic(module)
        run_pipeline(module, DEFAULT_PASSES, Options(size_threshold=12_500))
        assert "x128x128x" not in str(module)
        assert _arithmetic(module) <= 1.5 * before


def _arithmetic(module: ir.Module) -> float:
    graphs = read_graphs(module, read_rules(module))
    alone = replace(CPU, cache_bytes_per_second=inf)  # without the time to read a matrix once more for each row
    return sum(sum(work_of(graph, alone, any_shape=True).values()) for graph in graphs if not graph.nested)


# Four products, one below the other.
_JOINED = """
func.func @main(%x: tensor<512x64xf32>, %y: tensor<64x64xf32>) -> tensor<64xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %a = stablehlo.slice %x [0:128, 0:64] : (tensor<512x64xf32>) -> tensor<128x64xf32>
  %b = stablehlo.slice %x [128:256, 0:64] : (tensor<512x64xf32>) -> tensor<128x64xf32>
  %c = stablehlo.slice %x [256:384, 0:64] : (tensor<512x64xf32>) -> tensor<128x64xf32>
  %d = stablehlo.slice %x [384:512, 0:64] : (tensor<512x64xf32>) -> tensor<128x64xf32>
  %0 = stablehlo.dot_general %a, %y, contracting_dims = [1] x [0] : (tensor<128x64xf32>, tensor<64x64xf32>) -> tensor<128x64xf32>
  %1 = stablehlo.dot_general %b, %y, contracting_dims = [1] x [0] : (tensor<128x64xf32>, tensor<64x64xf32>) -> tensor<128x64xf32>
  %2 = stablehlo.dot_general %c, %y, contracting_dims = [1] x [0] : (tensor<128x64xf32>, tensor<64x64xf32>) -> tensor<128x64xf32>
  %3 = stablehlo.dot_general %d, %y, contracting_dims = [1] x [0] : (tensor<128x64xf32>, tensor<64x64xf32>) -> tensor<128x64xf32>
  %4 = stablehlo.concatenate %0, %1, %2, %3, dim = 0 : (tensor<128x64xf32>, tensor<128x64xf32>, tensor<128x64xf32>, tensor<128x64xf32>) -> tensor<512x64xf32>
  %5 = stablehlo.reduce(%4 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<512x64xf32>, tensor<f32>) -> tensor<64xf32>
  return %5 : tensor<64xf32>
}
"""  # noqa: E501


def test_a_run_of_tiles_counts_only_the_joined_part_that_it_computes() -> None:
    options = Options(size_threshold=30_000, split_size=8_000)
    with new_context() as context:
        module = ir.Module.parse(_JOINED, context)
        [graph] = read_graphs(module, read_rules(module))
        [plan] = choose(graph, options, Allowance([graph], CPU)).plans
        assert len(plan.loops[0].runs) == 4
        work = sum(work_of(graph, CPU, any_shape=True).values())
        assert abs(plan.added) < 0.05 * work  # counted in the tiles of all of them, products would take four times that
