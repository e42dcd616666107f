"""Barriers of several tensors: each is cut or not, and what is computed behind them stays behind them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.walk import walk_functions
from exla_opt.memory.peak import predict
from exla_opt.ops.barriers import BarrierRule
from exla_opt.ops.factor import DimMapping, Kind
from exla_opt.ops.rules import read_rules
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.runtime.compare import default_tolerance
from tests.execute import assert_equal_results

ROWS = DimMapping(0, 6)


def rule() -> BarrierRule:
    text = """
func.func @main(%x: tensor<6x4xf32>, %w: tensor<4x6xf32>, %y: tensor<24xf32>) -> tensor<6x4xf32> {
  %0:3 = stablehlo.optimization_barrier %x, %w, %y : tensor<6x4xf32>, tensor<4x6xf32>, tensor<24xf32>
  return %0#0 : tensor<6x4xf32>
}"""
    with new_context(), ir.Location.unknown():
        found = read_rules(ir.Module.parse(text))[0]
    assert isinstance(found, BarrierRule)
    return found


def test_a_factor_begins_with_one_tensor() -> None:
    factor = rule().at_result(0, 0)
    assert factor is not None and factor.kind is Kind.INDEPENDENT
    assert factor.operands == factor.results == (ROWS, None, None)
    assert factor == rule().at_operand(0, 0)
    assert rule().at_operand(0, 0, 6) is None


def test_more_tensors_are_held_in_the_same_slices() -> None:
    factor = rule().at_result(0, 0)
    assert factor is not None
    columns, merged = DimMapping(1, 6), DimMapping(0, 6, 4)
    found = rule().extended(factor, {1: columns}, {2: merged})
    assert found is not None and found.operands == found.results == (ROWS, columns, merged)


def test_a_tensor_is_not_held_in_two_ways() -> None:
    factor = rule().at_result(0, 0)
    assert factor is not None
    assert rule().extended(factor, {0: DimMapping(1, 6)}, {}) is None
    assert rule().extended(factor, {1: DimMapping(0, 4)}, {}) is None


def of(*shape: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def convolutions(x: Any, *ws: Any) -> Any:
    h = x
    for w in ws:
        h = jax.checkpoint(
            lambda h, w: jnp.tanh(
                lax.conv_general_dilated(h, w, (1,), [(1, 0)], dimension_numbers=("NWC", "WIO", "NWC"))
            )
        )(h, w)
    return (h**2).mean()


def layer(h: Any, w: Any, v: Any) -> Any:
    scores = jax.nn.softmax(h @ w @ jnp.swapaxes(h, 1, 2) / 64)
    h = jnp.tanh(h + scores @ h)
    return jnp.tanh(h + jnp.tanh(h @ v / 8) @ v.T / 8)


def transformer(x: Any, *ws: Any) -> Any:
    h = x
    for w, v in zip(ws[::2], ws[1::2], strict=True):
        h = jax.checkpoint(layer)(h, w, v)
    return (h**2).mean()


def narrow_layers(x: Any, *ws: Any) -> Any:
    h = x
    for w in ws:
        h = jax.checkpoint(lambda h, w: jnp.tanh(h @ w.astype(jnp.bfloat16)))(h, w)
    return (h.astype(jnp.float32) ** 2).mean()


def saved_products(x: Any, *ws: Any) -> Any:
    saving = jax.checkpoint(layer, policy=jax.checkpoint_policies.dots_with_no_batch_dims_saveable)
    h = x
    for w, v in zip(ws[::2], ws[1::2], strict=True):
        h = saving(h, w, v)
    return (h**2).mean()


def row_sums(x: Any, *ws: Any) -> Any:
    h, total = x, jnp.zeros(x.shape[0])
    for w in ws:
        h, total = jax.checkpoint(lambda h, t, w: (jnp.tanh(h @ w) * t[:, None], t + (h @ w).sum(1)))(h, total + 1, w)
    return (h**2).mean() + total.mean()


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "convolutions": (convolutions, (of(16, 300, 1), of(2, 1, 8), of(2, 8, 8), of(2, 8, 8))),
    "a transformer": (transformer, (of(16, 24, 8), *(of(8, 8), of(8, 24)) * 2)),
    "products that are saved": (saved_products, (of(16, 24, 8), *(of(8, 8), of(8, 24)) * 2)),
    "weights that are converted": (narrow_layers, (of(512, 16, dtype=jnp.bfloat16), *[of(16, 16)] * 3)),
    "batches as long as rows": (narrow_layers, (of(16, 16, dtype=jnp.bfloat16), *[of(16, 16)] * 3)),
    "sums of rows that are carried along": (row_sums, (of(512, 16), *[of(16, 16)] * 3)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_results_are_the_same(name: str) -> None:
    function, arguments = PROGRAMS[name]
    gradient = jax.grad(function, argnums=tuple(range(1, len(arguments))))
    text = str(jax.jit(gradient).lower(*arguments).compiler_ir("stablehlo"))
    assert "optimization_barrier" in text
    with new_context() as context:
        module = parse_module(name, text.encode(), context).module
        run_pipeline(module, DEFAULT_PASSES, Options(size_threshold=1024, split_size=512))
        tolerance = default_tolerance(np.dtype(jnp.bfloat16)) if "bf16" in text else None
        assert_equal_results(parse_module(name, text.encode(), context).module, module, tolerance=tolerance)


def test_layers_that_are_computed_again_are_one_loop() -> None:
    arguments = (of(16, 3000, 1), of(2, 1, 8), of(2, 8, 8), of(2, 8, 8), of(2, 8, 8))
    gradient = jax.grad(convolutions, argnums=(1, 2, 3, 4))
    text = str(jax.jit(gradient).lower(*arguments).compiler_ir("stablehlo"))
    with new_context() as context:
        module = parse_module("convolutions", text.encode(), context).module
        before = predict(module)
        run_pipeline(module, DEFAULT_PASSES, Options(size_threshold=400_000, split_size=200_000))
        names = [op.name for op in walk_functions(module.operation)]
        assert names.count("stablehlo.while") == 1
        assert names.count("stablehlo.optimization_barrier") == 4
        assert 4 * predict(module).temp < before.temp
