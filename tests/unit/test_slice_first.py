"""Slices before elementwise ops in loops: executed before and after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.types import Types
from exla_opt.ir.walk import walk_functions
from exla_opt.ops.slice_first import slice_first
from exla_opt.options import Options
from exla_opt.passes.tensor_splitter.driver import split_module
from exla_opt.runtime.memory import measure_memory
from tests.execute import assert_equal_results

Array = Any
_TOKENS, _HEADS = 768, 4


def module_of(function: Callable[..., Any], *shapes: Any) -> ir.Module:
    text = str(jax.export.export(jax.jit(function), platforms=["cpu"])(*shapes).mlir_module())
    return parse_module("test", text.encode(), new_context()).module


def in_a_loop(chain: str, view: bool = False) -> ir.Module:
    """A loop whose body computes all of %whole, and reads 8 of its 64 rows in each of eight steps.

    The last steps begin beyond the end: a slice then takes the last rows.
    """
    seen, part, start = (
        ("tensor<1x64x32xf32>", "1, 8, 32", "%zero, %row, %zero") if view else (WHOLE, "8, 32", "%row, %zero")
    )
    kind = f"tensor<{part.replace(', ', 'x')}xf32>"
    text = f"""
    func.func @main(%mask: tensor<64x32xi1>, %x: {WHOLE}) -> tensor<f32> {{
      %none = stablehlo.constant dense<0.0> : tensor<f32>
      %low = stablehlo.constant dense<-3.0> : tensor<f32>
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %nine = stablehlo.constant dense<9> : tensor<i32>
      %many = stablehlo.constant dense<8> : tensor<i32>
      %0:2 = stablehlo.while(%i = %zero, %total = %none) : tensor<i32>, tensor<f32>
      cond {{
        %more = stablehlo.compare LT, %i, %many : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %more : tensor<i1>
      }} do {{
        %nones = stablehlo.broadcast_in_dim %none, dims = [] : (tensor<f32>) -> {WHOLE}
        %lows = stablehlo.broadcast_in_dim %low, dims = [] : (tensor<f32>) -> {WHOLE}
        {chain}
        %row = stablehlo.multiply %i, %nine : tensor<i32>
        %seen = stablehlo.reshape %whole : ({WHOLE}) -> {seen}
        %part = stablehlo.dynamic_slice %seen, {start}, sizes = [{part}] : ({seen}, {
        ", ".join(["tensor<i32>"] * (3 if view else 2))
    }) -> {kind}
        %flat = stablehlo.reshape %part : ({kind}) -> tensor<256xf32>
        %sum = stablehlo.dot_general %flat, %flat, contracting_dims = [0] x [0]
          : (tensor<256xf32>, tensor<256xf32>) -> tensor<f32>
        %next = stablehlo.add %total, %sum : tensor<f32>
        %j = stablehlo.add %i, %one : tensor<i32>
        stablehlo.return %j, %next : tensor<i32>, tensor<f32>
      }}
      return %0#1 : tensor<f32>
    }}"""
    return parse_module("test", text.encode(), new_context()).module


WHOLE = "tensor<64x32xf32>"
SELECTED = f"%whole = stablehlo.select %mask, %nones, %lows : tensor<64x32xi1>, {WHOLE}"
SCALED = f"""%chosen = stablehlo.select %mask, %nones, %lows : tensor<64x32xi1>, {WHOLE}
        %whole = stablehlo.multiply %chosen, %lows : {WHOLE}"""
OF_TWO = f"%whole = stablehlo.add %x, %x : {WHOLE}"
MAPPED = f"""%whole = "stablehlo.map"(%x) <{{dimensions = array<i64: 0, 1>}}> ({{
        ^bb0(%a: tensor<f32>):
          %b = stablehlo.tanh %a : tensor<f32>
          stablehlo.return %b : tensor<f32>
        }}) : ({WHOLE}) -> {WHOLE}"""
IN_HALVES = f"""%halves = stablehlo.bitcast_convert %x : ({WHOLE}) -> tensor<64x32x2xi16>
        %whole = stablehlo.bitcast_convert %halves : (tensor<64x32x2xi16>) -> {WHOLE}"""
READ_WHOLE = f"""%chosen = stablehlo.select %mask, %nones, %lows : tensor<64x32xi1>, {WHOLE}
        %whole = stablehlo.transpose %chosen, dims = [0, 1] : ({WHOLE}) -> {WHOLE}"""


def computed(module: ir.Module) -> list[ir.Operation]:
    """The ops of the loop's body that compute its %whole."""
    [loop] = [op for op in walk_functions(module.operation) if op.name == "stablehlo.while"]
    names = [f"stablehlo.{name}" for name in ("select", "multiply", "add", "transpose", "map", "bitcast_convert")]
    ops = [view.operation for view in loop.regions[1].blocks[0].operations]
    return [op for op in ops if op.name in names and str(op.results[0].type) == WHOLE]


@pytest.mark.parametrize("view", [False, True])
@pytest.mark.parametrize("chain", [SELECTED, SCALED])
def test_the_slices_are_computed_alone(chain: str, view: bool) -> None:
    module = in_a_loop(chain, view)
    before = str(module)
    assert slice_first(computed(module)) == []
    assert module.operation.verify()
    assert computed(module) == []
    assert_equal_results(before, module)


@pytest.mark.parametrize("chain", [OF_TWO, READ_WHOLE, MAPPED, IN_HALVES])
def test_what_reads_more_or_is_read_whole_stays(chain: str) -> None:
    module = in_a_loop(chain)
    before = str(module)
    ops = computed(module)
    assert slice_first(ops) == ops
    assert str(module) == before


def layers(x: Array, keep: Array, weights: Array) -> Array:
    """Layers of attention that each add a mask of their own, as published models do."""
    batch, width = x.shape[0], x.shape[2]
    causal = jnp.tril(jnp.ones((_TOKENS, _TOKENS), bool))[None, None] & (keep[:, None, None, :] > 0)
    for number in range(2):
        q, k, v = ((x @ weights[number, each]).reshape(batch, _TOKENS, _HEADS, -1) for each in range(3))
        bias = jax.lax.select(causal > 0, jnp.zeros(causal.shape), jnp.full(causal.shape, -1e30))
        scores = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) + bias)
        x = x + jnp.einsum("bhqk,bkhd->bqhd", scores, v).reshape(batch, _TOKENS, width)
    return x[:, -1]


def test_masks_of_layers_are_not_in_memory() -> None:
    x, weights = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((4, _TOKENS, 256), (2, 3, 256, 256)))
    module = module_of(layers, x, jax.ShapeDtypeStruct((4, _TOKENS), jnp.int32), weights)
    before = str(module)
    split_module(module, Options(size_threshold=1_000_000, split_size=1_000_000))
    selected = [op for op in walk_functions(module.operation) if op.name == "stablehlo.select"]
    assert selected and all(Types().of(op.results[0]).bytes < _TOKENS * _TOKENS * 4 for op in selected)
    assert measure_memory(str(module)).temp < 10_000_000  # 10.9 MB with a complete mask for each layer
    assert_equal_results(before, module)
