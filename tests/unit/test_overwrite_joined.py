"""Results that are written over the joined tensor they are computed from: in a loop, executed before and after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.walk import walk_functions
from exla_opt.options import Options
from exla_opt.passes import normalise
from exla_opt.passes.tensor_splitter.overwrite_joined import overwrite_joined
from tests.execute import assert_equal_results

Array = Any
_ROWS, _COLUMNS = 1200, 32
_BIG = _ROWS * _COLUMNS * 4
_OPTIONS = Options(size_threshold=_BIG // 8, split_size=_BIG // 16)


def joined(x: Array) -> Array:
    a, b = jnp.split(x, 2)
    w = jnp.cos(jnp.arange(_COLUMNS * _COLUMNS * 1.0)).reshape(_COLUMNS, _COLUMNS)
    return jnp.concatenate([b @ w, a @ w.T])


def centred(x: Array) -> Array:
    d = joined(x)
    return d - d.mean(0)


def with_its_source(x: Array) -> Array:
    """Reads the argument, its rows' numbers and a mask by position as well."""
    d = joined(x)
    place = jnp.arange(_ROWS, dtype=jnp.float32)[:, None]
    kept = jnp.where(jnp.arange(_ROWS)[:, None] % 3 == 0, x, 0.5)
    return d * (d**2).sum(0) / 1e3 + (x - x.mean(0)) * kept + place * x.sum(1, keepdims=True)


def of_pads(x: Array) -> Array:
    def loss(x: Array) -> Array:
        return ((jnp.sin(x[:600]).T @ jnp.tanh(x[600:])) ** 2).sum()

    g = jax.grad(loss)(x)
    return g / (1 + (g**2).sum(0))


def along_columns(x: Array) -> Array:
    d = jnp.concatenate([x[:, 16:] @ x[:16, :16], x[:, :16] @ x[16:32, 16:]], 1)
    return d - d.max(1, keepdims=True)


_PROGRAMS = (centred, with_its_source, of_pads, along_columns)


def _module(function: Callable[[Array], Any]) -> ir.Module:
    module = ir.Module.parse(jax.jit(function).lower(jax.ShapeDtypeStruct((_ROWS, _COLUMNS), jnp.float32)).as_text())
    normalise.run(module, _OPTIONS)
    return module


@pytest.mark.parametrize("function", _PROGRAMS)
def test_a_result_is_written_over_what_it_is_computed_from(function: Callable[[Array], Array]) -> None:
    with new_context():
        module = _module(function)
        before = str(module)
        assert overwrite_joined(module, _OPTIONS)
        assert module.operation.verify()
        written = str(module)
        [loop] = [op for op in walk_functions(module.operation) if op.name == "stablehlo.while"]
        assert loop.results[1] in [
            op.operands[0] for op in walk_functions(module.operation) if op.name == "func.return"
        ]
    assert_equal_results(before, written)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (d := joined(x), d - d.mean(0)),  # both are returned
        lambda x: ((d := joined(x)) - d.mean(0), jnp.cumsum(d, 0)),  # read after it is overwritten
        lambda x: joined(x) * 2 + x,  # nothing else reads it
        lambda x: jnp.cumsum(d := joined(x), 0) - d.mean(0),  # not elementwise
        lambda x: (d := joined(x)).astype(jnp.bfloat16) - d.mean(0).astype(jnp.bfloat16),  # another buffer
        lambda x: (d := joined(x)) - joined(x * d.mean(0)),  # of two
        lambda x: (t := jnp.cos(x)) - t.mean(0),  # nothing is joined
    ],
    ids=["returned", "read later", "read once", "not elementwise", "another type", "two", "not joined"],
)
def test_other_results_stay(function: Callable[[Array], Any]) -> None:
    with new_context():
        module = _module(function)
        before = str(module)
        assert not overwrite_joined(module, _OPTIONS)
        assert str(module) == before


@pytest.mark.parametrize("subtrahend", ["%sums", "%turned"])
def test_a_broadcast_that_transposes_stays(subtrahend: str) -> None:
    """Its columns would be read from rows that are already overwritten. JAX writes no such broadcast."""
    square = "tensor<256x256xf32>"
    text = f"""
func.func public @main(%p: tensor<128x256xf32>, %q: tensor<128x256xf32>) -> {square} {{
  %d = stablehlo.concatenate %q, %p, dim = 0 : (tensor<128x256xf32>, tensor<128x256xf32>) -> {square}
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %sum = stablehlo.reduce(%d init: %zero) applies stablehlo.add across dimensions = [0]
    : ({square}, tensor<f32>) -> tensor<256xf32>
  %sums = stablehlo.broadcast_in_dim %sum, dims = [1] : (tensor<256xf32>) -> {square}
  %turned = stablehlo.broadcast_in_dim %d, dims = [1, 0] : ({square}) -> {square}
  %rest = stablehlo.subtract {"%d" if subtrahend == "%turned" else "%turned"}, %sums : {square}
  %result = stablehlo.subtract %rest, {subtrahend} : {square}
  return %result : {square}
}}"""
    options = Options(size_threshold=1 << 16, split_size=1 << 14)
    with new_context():
        module = ir.Module.parse(text)
        overwrite_joined(module, options)
        assert module.operation.verify()
        assert_equal_results(text, str(module))


def test_tiles_of_equal_lengths_only() -> None:
    """A number of rows without a divisor near the length of a tile."""

    def function(x: Array) -> Array:
        d = jnp.concatenate([x[:598] * 2, x[597:] * 3])
        return d - d.mean(0)

    with new_context():
        assert not overwrite_joined(_module(function), _OPTIONS)
