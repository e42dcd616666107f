"""Small programs of the kind that exla-opt is for, with arguments and the results that jax computes for them.

They stand for the exports of published libraries, which are too large to ship: a kernel matrix times a vector, nearest
neighbours by both forms of the distance, attention, and a sparse Gaussian process with its factorisations; with
gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.scipy.linalg import solve_triangular

Array = Any
# Where a checkout has larger samples next to it: modules, and their arguments and results as arg0, ..., out0, ...
FOLDER = Path(__file__).parents[2].parent / "shared" / "modules"


@dataclass(frozen=True, slots=True)
class Sample:
    """A module in any form, the arrays to run it on, and what comes out."""

    module: bytes
    arguments: tuple[np.ndarray, ...]
    results: tuple[np.ndarray, ...]


def squared_distance(x: Array, y: Array) -> Array:
    """All squared distances of the points x and y, as one matrix product: no tensor of three dimensions."""
    return jnp.sum(x**2, -1)[:, None] + jnp.sum(y**2, -1)[None, :] - 2 * x @ y.T


def kernel_vector(x: Array, v: Array) -> Array:
    """A Gaussian kernel's matrix, which is never needed, times a vector."""
    return jnp.exp(-0.5 * squared_distance(x, x)) @ v


def nearest(x: Array, queries: Array) -> Array:
    """The nearest point of each query, with its squared distance; the differences of all pairs are made."""
    distances = jnp.sum((queries[:, None, :] - x[None, :, :]) ** 2, -1)
    return jnp.argmin(distances, axis=1), jnp.min(distances, axis=1)


def neighbours(x: Array, queries: Array) -> Array:
    """The five nearest points of each query, by the expanded form of the distance."""
    return jax.lax.top_k(-squared_distance(queries, x), 5)


def attention(q: Array, k: Array, v: Array) -> Array:
    """Causal attention of several heads."""
    scores = jnp.einsum("hqd,hkd->hqk", q, k) / jnp.sqrt(q.shape[-1])
    scores = jnp.where(jnp.tri(scores.shape[1], dtype=bool), scores, -jnp.inf)
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores, axis=-1), v)


def elbo(x: Array, y: Array, inducing: Array, scales: Array) -> Array:
    """The lower bound of a sparse Gaussian process: factorisations of small matrices, solves with a long one."""

    def kernel(one: Array, other: Array) -> Array:
        return jnp.exp(-0.5 * squared_distance(one / scales, other / scales))

    noise, count = 0.1, len(inducing)
    inner = jnp.linalg.cholesky(kernel(inducing, inducing) + 1e-4 * jnp.eye(count))
    projected = solve_triangular(inner, kernel(inducing, x), lower=True) / jnp.sqrt(noise)
    factor = jnp.linalg.cholesky(jnp.eye(count) + projected @ projected.T)
    fitted = solve_triangular(factor, projected @ y, lower=True) / jnp.sqrt(noise)
    return (
        0.5 * fitted @ fitted
        - jnp.log(jnp.diag(factor)).sum()
        - 0.5 * y @ y / noise
        - 0.5 * len(x) / noise
        + 0.5 * jnp.sum(projected**2)
    )


def gradient(function: Callable[..., Array]) -> Callable[..., Array]:
    """The gradient of the sum of squares, by all arguments."""

    def differentiated(*arguments: Array) -> Array:
        numbers = tuple(range(len(arguments)))
        return jax.grad(lambda *given: jnp.sum(function(*given) ** 2), numbers)(*arguments)

    return differentiated


_POINTS, _HEADS = ((400, 5), (400,)), ((2, 160, 8), (2, 160, 8), (2, 160, 8))
_PROCESS = ((600, 3), (600,), (30, 3), (3,))
# Each with the shapes of its arguments and their type.
_FUNCTIONS: dict[str, tuple[Callable[..., Array], tuple[tuple[int, ...], ...], str]] = {
    "kernel_vector": (kernel_vector, _POINTS, "float32"),
    "kernel_vector_gradient": (gradient(kernel_vector), _POINTS, "float64"),
    "nearest": (nearest, ((300, 6), (200, 6)), "float32"),
    "neighbours": (neighbours, ((300, 6), (200, 6)), "float32"),
    "attention": (attention, _HEADS, "float32"),
    "attention_gradient": (gradient(attention), _HEADS, "float32"),
    "elbo": (elbo, _PROCESS, "float64"),
    "elbo_gradient": (jax.grad(elbo, (0, 1, 2, 3)), _PROCESS, "float64"),
}


@cache
def _exported(name: str) -> Sample:
    function, shapes, kind = _FUNCTIONS[name]
    generator = np.random.default_rng(0)
    arguments = tuple(generator.standard_normal(shape).astype(kind) for shape in shapes)
    if function in (elbo, _FUNCTIONS["elbo_gradient"][0]):
        arguments = (*arguments[:-1], np.array([0.8, 1.1, 1.7]))
    with jax.enable_x64(kind == "float64"):
        jitted = jax.jit(function)
        module = export.export(jitted)(*arguments).mlir_module()
        results = tuple(np.asarray(result) for result in jax.tree.leaves(jitted(*arguments)))
    return Sample(module.encode() if isinstance(module, str) else module, arguments, results)


def _stored(path: Path) -> Sample:
    with np.load(path.with_name(path.name.split(".mlir")[0] + ".npz")) as arrays:
        given, expected = (
            tuple(arrays[f"{prefix}{number}"] for number in range(sum(name.startswith(prefix) for name in arrays)))
            for prefix in ("arg", "out")
        )
    return Sample(path.read_bytes(), given, expected)


def read_sample(name: str) -> Sample:
    """The sample of a name in `NAMES` or, where they are at hand, `STORED`."""
    return _stored(STORED[name]) if name in STORED else _exported(name)


NAMES = tuple(_FUNCTIONS)
STORED = {
    path.name.split(".mlir")[0]: path
    for path in sorted(FOLDER.glob("*.mlir*"))
    if "_small_" in path.name or "_mid_" in path.name
}
SMALL_STORED = tuple(name for name in STORED if "_small_" in name)
