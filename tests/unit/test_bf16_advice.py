"""Advice to keep tensors in bf16: its peak is that of a program which does so."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxlib.mlir import ir

from exla_opt.advice.bf16 import bf16_advice, keep_in_bf16
from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.memory.machine import CPU
from exla_opt.runtime.judge import judge_of
from exla_opt.sizes import parse_size
from tests.execute import random_arguments, run_module

LAYERS = 4


def layers(dtype: Any = jnp.float32, kept: Any = None) -> str:
    """The gradient of layers whose backward pass reads what is computed in `x @ first`. kept: in which type that is."""

    def loss(weights: Any, x: Any) -> Any:
        for first, second in weights:
            hidden = x @ first
            if kept is not None:
                hidden = jax.lax.optimization_barrier(hidden.astype(kept)).astype(dtype)
            x = x + jnp.sin(hidden) @ second
        return (x**2).mean()

    shape: Any = jax.ShapeDtypeStruct
    layer = (shape((64, 256), dtype), shape((256, 64), dtype))
    return jax.jit(jax.grad(loss)).lower([layer] * LAYERS, shape((2048, 64), dtype)).as_text(debug_info=True)


def parsed(text: str) -> ir.Module:
    return parse_module("x.mlir", text.encode(), new_context()).module


def test_the_peak_is_that_of_the_program_which_does_it() -> None:
    text, measure = layers(), judge_of("cpu").measure
    assert measure is not None
    peak = measure(text.encode()).peak
    advice = bf16_advice(parsed(text), CPU, measure, peak, peak // 100, str)
    found = re.fullmatch(
        rf"keep the {LAYERS} x 2048x256xf32 created at (\S+) in bf16 \(results lose precision\): peak (\S+), compiled",
        advice,
    )
    assert found is not None, advice
    assert re.search(r"test_bf16_advice.py:\d+:\d+$", found[1])
    own = measure(layers(kept=jnp.bfloat16).encode()).peak
    assert own < 0.9 * peak
    assert abs(parse_size(found[2]) - own) <= 0.01 * own


def test_what_saves_too_little_is_not_advised() -> None:
    text, measure = layers(), judge_of("cpu").measure
    assert measure is not None
    peak = measure(text.encode()).peak
    assert bf16_advice(parsed(text), CPU, measure, peak, peak // 2, str) == ""


def forward() -> str:
    """Nothing is kept: each layer reads the one before."""

    def run(weights: Any, x: Any) -> Any:
        for each in weights:
            x = jnp.sin(x @ each)
        return x

    shape: Any = jax.ShapeDtypeStruct
    return jax.jit(run).lower([shape((64, 64), jnp.float32)] * 4, shape((2048, 64), jnp.float32)).as_text()


def draw() -> str:
    """The polynomials of a normal draw read constants of its shape, which take no memory."""

    def run(key: Any) -> Any:
        x = jax.random.normal(key, (4000, 200))
        return (x - x.mean(0)).T @ (x - x.mean(0))

    return jax.jit(run).lower(jax.ShapeDtypeStruct((2,), jnp.uint32)).as_text()


@pytest.mark.parametrize("text", [forward(), layers(jnp.bfloat16), draw()])
def test_where_no_f32_is_kept_nothing_is_compiled(text: str) -> None:
    def measure(_: bytes) -> Any:
        raise AssertionError("compiled although nothing is kept in f32")

    assert bf16_advice(parsed(text), CPU, measure, 10**9, 1, str) == ""


def test_the_tensor_is_rounded_once_and_all_else_is_kept() -> None:
    text = """
    func.func public @main(%x: tensor<64x64xf32>) -> (tensor<64x64xf32>, tensor<64x64xf32>) {
      %0 = stablehlo.sine %x : tensor<64x64xf32>
      %1 = stablehlo.add %0, %x : tensor<64x64xf32>
      %2 = stablehlo.multiply %0, %0 : tensor<64x64xf32>
      return %1, %2 : tensor<64x64xf32>, tensor<64x64xf32>
    }"""
    module = parsed(text)
    keep_in_bf16(module.body.operations[0].regions[0].blocks[0].operations[0].results[0])
    module.operation.verify()
    [x] = random_arguments(text)
    first, second = run_module(module, [x])
    rounded = np.asarray(jnp.sin(x).astype(jnp.bfloat16).astype(jnp.float32))
    np.testing.assert_allclose(first, rounded + x, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(second, rounded**2, rtol=1e-5, atol=1e-6)
    assert np.abs(first - np.sin(x) - x).max() > 1e-4
