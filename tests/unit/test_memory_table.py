"""The big programs of docs/results.md, written out here: what XLA:CPU plans for them in slices, which must not grow.

Compiled, never run. The bounds are 1.03 times what was measured when they were written, those of `nearest_of_differences`
and `encoder` since both of XLA's ways are compiled: 139.5 and 230.7 without its library's fusions. A smaller figure is
welcome.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import export

from exla_opt import optimize
from exla_opt.runtime.memory import measure_memory
from tests.programs.samples import elbo, gradient, kernel_vector, neighbours, squared_distance

Array = Any
_HELD = 1.03


def nearest_of_products(x: Array, queries: Array) -> Array:
    """The nearest point of each query, by a matrix product."""
    return jnp.argmin(squared_distance(queries, x), axis=1)


def nearest_of_differences(x: Array, queries: Array) -> Array:
    """The nearest point of each query, by the differences of all pairs."""
    return jnp.argmin(jnp.sum((queries[:, None, :] - x[None, :, :]) ** 2, -1), axis=1)


def kernel_of_differences(x: Array, v: Array) -> Array:
    """A Gaussian kernel's matrix from the differences of all pairs, times a vector."""
    return jnp.exp(-0.5 * jnp.sum((x[:, None, :] - x[None, :, :]) ** 2, -1)) @ v


def encoder(x: Array, projections: Array, out: Array, wide: Array, narrow: Array) -> Array:
    """A transformer's layer: eight heads, a residual and two dense layers, normalised by rows."""
    batch, length, width = x.shape
    heads = jnp.einsum("bld,pdhk->pbhlk", x, projections.reshape(3, width, 8, width // 8))
    scores = jnp.einsum("bhqk,bhlk->bhql", heads[0], heads[1]) / jnp.sqrt(width / 8)
    mixed = jnp.einsum("bhql,bhlk->bqhk", jax.nn.softmax(scores), heads[2]).reshape(batch, length, width)
    y = x + mixed @ out
    y = (y - y.mean(-1, keepdims=True)) / jnp.sqrt(y.var(-1, keepdims=True) + 1e-5)
    return y + jax.nn.relu(y @ wide) @ narrow


_KERNEL = ((100_000, 8), (100_000,))
_IMAGES = ((60_000, 784), (10_000, 784))
_LAYER = ((8, 4096, 128), (3, 128, 128), (128, 128), (128, 512), (512, 128))
_PROCESS = ((100_000, 8), (100_000,), (2000, 8), (8,))
# Each with the shapes of its arguments, their type, and the megabytes of temp.
_CASES: dict[str, tuple[Callable[..., Array], tuple[tuple[int, ...], ...], str, float]] = {
    "kernel_of_differences": (kernel_of_differences, _KERNEL, "float32", 106.4),
    "kernel_vector": (kernel_vector, _KERNEL, "float32", 100.4),
    "nearest_of_differences": (nearest_of_differences, _IMAGES, "float32", 239.3),
    "nearest_of_products": (nearest_of_products, _IMAGES, "float32", 97.5),
    "neighbours": (neighbours, _IMAGES, "float32", 102.3),
    "encoder": (encoder, _LAYER, "float32", 295.7),
    "encoder_gradient": (gradient(encoder), _LAYER, "float32", 627.3),
    "elbo": (elbo, _PROCESS, "float64", 371.4),
    "elbo_gradient": (jax.grad(elbo, (0, 1, 2, 3)), _PROCESS, "float64", 655.0),
}


@pytest.mark.parametrize("name", _CASES)
def test_the_memory_of_a_big_program_does_not_grow(name: str) -> None:
    function, shapes, kind, megabytes = _CASES[name]
    with jax.enable_x64(kind == "float64"):
        arguments = [jax.ShapeDtypeStruct(shape, kind) for shape in shapes]
        module = export.export(jax.jit(function))(*arguments).mlir_module()
    smaller = optimize(module, size_threshold=100_000_000, split_size=100_000_000).program
    assert measure_memory(smaller).temp <= _HELD * megabytes * 1e6
