"""The predicted memory, idiom by idiom, against what XLA:CPU plans for programs of one line of JAX."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.memory.peak import predict
from exla_opt.runtime.memory import measure_memory
from tests.predictions import cpu_memories

SIZE = 320


def of(*shape: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


MATRIX, VECTOR, LONG, KEY = of(SIZE, SIZE), of(SIZE), of(SIZE * SIZE), of(2, dtype=jnp.uint32)
NARROW = of(SIZE, SIZE, dtype=jnp.bfloat16)
IMAGES, KERNEL = of(8, 32, 32, 16), of(3, 3, 16, 16)
last = ("NHWC", "HWIO", "NHWC")
convolve = partial(lax.conv_general_dilated, window_strides=(1, 1), padding="SAME", dimension_numbers=last)
convolve_first = partial(lax.conv_general_dilated, window_strides=(1, 1), padding="SAME")


def crosswise(i: Any, s: Any) -> Any:
    return jnp.sin(s[0]) + s[1], jnp.cos(s[1]) * s[0]


def hue(x: Any) -> Any:
    most, least = x.max(-1), x.min(-1)
    return jnp.stack(
        [jnp.where(most == least, 0, (x[..., 0] - x[..., 1]) / (most - least)), (most - least) / most, most], -1
    )


@partial(jax.jit, donate_argnums=(0, 1))
def clip(a: Any, b: Any) -> Any:
    norm = jnp.sqrt((a**2).sum() + (b**2).sum())
    return a * jnp.minimum(1, 1 / norm), b * jnp.minimum(1, 1 / norm)


@partial(jax.jit, donate_argnums=0)
def written_anew(a: Any, b: Any) -> Any:
    def body(i: Any, new: Any) -> Any:
        row = lax.dynamic_slice(a, (i, 0), (1, SIZE))
        return lax.dynamic_update_slice(new, row - jnp.sin(row @ b), (i, 0))

    return lax.fori_loop(0, SIZE, body, jnp.zeros_like(a))


@partial(jax.jit, donate_argnums=0)
def updated_by_a_product(a: Any, b: Any) -> Any:
    return a - jnp.tanh(a @ b) @ b


@partial(jax.jit, donate_argnums=0)
def updated_row_by_row(a: Any, b: Any) -> Any:
    def body(i: Any, a: Any) -> Any:
        return lax.dynamic_update_slice(a, 2 * lax.dynamic_slice(a, (i, 0), (1, SIZE)) @ b, (i, 0))

    return lax.fori_loop(0, SIZE, body, a)


def deep(*weights: Any) -> Any:
    x = weights[-1]
    for each in weights[:-1]:
        x = jnp.tanh(x @ each)
    return (x**2).sum()


def pooled(x: Any) -> Any:
    return lax.reduce_window(jnp.tanh(x), -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def step(factor: float, s: Any, row: Any) -> Any:
    return (s * factor + row, s * factor + row)


def scans(a: Any) -> Any:
    """Several scans over the same rows, each followed by a sum."""
    factors = (0.5, 0.7, 0.9)
    return sum(lax.scan(partial(step, c), jnp.zeros(SIZE), a)[1].sum() for c in factors)


def layers(w: Any, x: Any) -> Any:
    layer = jax.checkpoint(lambda x: jnp.tanh(jnp.tanh(x @ w) @ w))
    return layer(layer(x)).sum()


def stencil(_: int, x: Any) -> Any:
    return x.at[1:-1, 1:-1].set(0.25 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]))


# Each idiom by name: the function and its arguments. The figure is XLA's own, taken when the test runs.
IDIOMS: dict[str, tuple[Callable[..., Any], tuple[jax.ShapeDtypeStruct, ...]]] = {
    "fft": (lambda a: jnp.abs(jnp.fft.fft(a)).sum(1), (MATRIX,)),
    "fft of the first dimension": (lambda a: jnp.abs(jnp.fft.fft(a, axis=0)).sum(1), (MATRIX,)),
    "sort of rows": (lambda a: jnp.sort(a @ a, axis=1)[:, :1], (MATRIX,)),
    "argsort": (lambda a: jnp.argsort(a @ a, axis=1).sum(1), (MATRIX,)),
    "top_k": (lambda a: lax.top_k(a, 5), (MATRIX,)),
    "scatter": (lambda a, i: jnp.zeros(SIZE).at[i].add(a), (LONG, of(SIZE * SIZE, dtype=jnp.int32))),
    "columns scattered": (
        lambda a, i: jnp.zeros((SIZE, SIZE)).at[:, i].add(a @ a),
        (MATRIX, of(SIZE, dtype=jnp.int32)),
    ),
    "columns computed and scattered": (
        lambda a, i: jnp.zeros((SIZE, SIZE)).at[:, i].add(jnp.tanh(a)),
        (MATRIX, of(SIZE, dtype=jnp.int32)),
    ),
    "columns of a loop scattered": (
        lambda a, i: jnp.zeros((SIZE, SIZE)).at[:, i].add(lax.fori_loop(0, 9, lambda _, x: jnp.sin(x), a)),
        (MATRIX, of(SIZE, dtype=jnp.int32)),
    ),
    "gather": (lambda a, i: (jnp.tanh(a[i]) @ a).sum(1), (MATRIX, of(SIZE, dtype=jnp.int32))),
    "rows gathered, scaled and scattered": (
        lambda a, i, v: jax.ops.segment_sum(a[i] * v[:, None] / jnp.linalg.norm(a[i], axis=1)[:, None], i, SIZE),
        (of(SIZE, 16), of(10000, dtype=jnp.int32), of(10000)),
    ),
    "qr": (jnp.linalg.qr, (MATRIX,)),
    "eigh": (jnp.linalg.eigh, (MATRIX,)),
    "lu": (jax.scipy.linalg.lu_factor, (MATRIX,)),
    "solve": (jnp.linalg.solve, (MATRIX, MATRIX)),
    "cholesky": (jnp.linalg.cholesky, (MATRIX,)),
    "triangular solve": (partial(jax.scipy.linalg.solve_triangular, lower=True), (MATRIX, MATRIX)),
    "random numbers": (lambda key: jax.random.normal(key, (SIZE, SIZE)).sum(1), (KEY,)),
    "random numbers that are a result": (lambda key: jax.random.normal(key, (SIZE, SIZE)), (KEY,)),
    "convolution": (lambda x, k: jnp.tanh(convolve(x, k)).sum((1, 2)), (IMAGES, KERNEL)),
    "convolution with channels first": (
        lambda x, k: jnp.tanh(convolve_first(x, k)).sum((2, 3)),
        (of(8, 16, 32, 32), of(16, 16, 3, 3)),
    ),
    "convolution at one place": (lambda x, k: jnp.tanh(convolve(x, k)).sum((1, 2)), (IMAGES, of(1, 1, 16, 16))),
    "convolutions at one place, joined": (
        lambda x, a, b, k: jnp.concatenate([jnp.tanh(convolve(x, a)), convolve(jnp.tanh(convolve(x, b)), k)], -1),
        (IMAGES, of(1, 1, 16, 8), of(1, 1, 16, 12), of(3, 3, 12, 16)),
    ),
    "convolution of one channel": (partial(jnp.convolve, mode="same"), (LONG, of(11))),
    "gradient of a convolution": (jax.grad(lambda k, x: jnp.tanh(convolve(x, k)).sum(), (0, 1)), (KERNEL, IMAGES)),
    "pooling": (lambda x: pooled(x).sum((1, 2)), (IMAGES,)),
    "gradient of pooling": (jax.grad(lambda x: pooled(x).sum()), (IMAGES,)),
    "cumulative sum": (jnp.cumsum, (LONG,)),
    "cumulative sum of rows": (lambda a: jnp.cumsum(a[:, :310], 1) @ a[:310], (MATRIX,)),
    "a sum of what is put together": (lambda a: jnp.stack([a * i for i in range(4)]).std(0), (MATRIX,)),
    "a sum of what is padded with its edges": (lambda a: jnp.pad(a, 5, mode="edge").sum(1), (MATRIX,)),
    "several scans": (scans, (MATRIX,)),
    "a loop that carries two tensors crosswise": (
        lambda a, b: lax.fori_loop(0, 9, lambda i, s: (jnp.sin(s[0]) + s[1], jnp.cos(s[1]) * s[0]), (a, b))[0].sum(1),
        (MATRIX, MATRIX),
    ),
    "a loop that updates its carry from its slices": (
        lambda a: lax.fori_loop(0, 9, stencil, a),
        (MATRIX,),
    ),
    "what every trip would repeat": (
        lambda a, b: lax.fori_loop(0, 9, lambda i, x: x @ jnp.exp(a), b),
        (MATRIX, MATRIX),
    ),
    "a branch": (
        lambda a, b: lax.cond(a[0, 0] > 0, lambda: jnp.sort(a @ b, 1), lambda: jnp.tanh(a) @ b @ b).sum(1),
        (MATRIX, MATRIX),
    ),
    "contracted dimensions in another order": (
        lambda a, b: jnp.einsum("ijk,kjl->il", a, b),
        (of(50, 50, 50), of(50, 50, 50)),
    ),
    "a checkpoint": (jax.grad(layers), (MATRIX, MATRIX)),
    "int8 products": (
        lambda a, b: lax.dot(a, b, preferred_element_type=jnp.int32).sum(1),
        (of(SIZE, SIZE, dtype=jnp.int8),) * 2,
    ),
    "bfloat16 products of one matrix": (lambda a, b: ((a @ b) @ a) @ b, (NARROW, NARROW)),
    "bfloat16 products with two readers": (
        lambda a, b: (lambda c: (jnp.exp(c) @ b) * (jnp.sin(c) @ b))(a @ b),
        (NARROW, NARROW),
    ),
    "bfloat16 products read as float32": (
        lambda a, b: jax.nn.softmax((a @ b).astype(jnp.float32)) @ b.astype(jnp.float32)[:, :1],
        (NARROW, NARROW),
    ),
    "bfloat16 sums with two readers": (
        lambda a, b: (lambda c: (jnp.exp(c) * a, jnp.sin(c).T * b))(a + b),
        (NARROW, NARROW),
    ),
    "bfloat16 maxima": (lambda a: jnp.tanh(a).max(1), (NARROW,)),
    "bfloat16 convolution": (
        lambda x, k: jnp.tanh(convolve(x, k)),
        (of(8, 32, 32, 16, dtype=jnp.bfloat16), of(3, 3, 16, 32, dtype=jnp.bfloat16)),
    ),
    "products without a sum": (
        lambda a, b: jnp.tanh(jnp.einsum("bi,bj->bij", a, b) + jnp.einsum("bi,bj->bij", b, a)) @ jnp.ones((32, 2)),
        (of(SIZE, 32), of(SIZE, 32)),
    ),
    "a product of a turned matrix and a long vector": (
        lambda a, b: jnp.tanh(a.T @ b),
        (of(4096, 50), of(4096)),
    ),
    "a product of a turned matrix and a short vector": (
        lambda a, b: jnp.tanh(a.T @ b),
        (of(4095, 50), of(4095)),
    ),
    "products of rows": (
        lambda a, b: jnp.tanh(jnp.einsum("bi,bi->b", jnp.exp(a), b)),
        (of(SIZE * 32, 10), of(SIZE * 32, 10)),
    ),
    "products of reshaped rows": (
        lambda a, b: jnp.tanh(
            lax.dot_general(jnp.sin(a).reshape(SIZE, 4, 80), b.reshape(SIZE, 4, 80), (((1, 2), (1, 2)), ((0,), (0,))))
        ),
        (LONG, LONG),
    ),
    "nine tensors stacked": (lambda a: jnp.stack([a * i for i in range(9)]).std(0), (MATRIX,)),
    "the least of short sums": (
        lambda a, b: jnp.argmin(jnp.abs(a[:, None] - b[None]).sum(-1), 1),
        (of(500, 6), of(400, 6)),
    ),
    "short sums of what is chosen": (
        lambda a, b: jnp.argmin(jnp.where(a[:, None] < b[None], a[:, None] * b[None], 1).sum(-1), 1),
        (of(500, 6), of(400, 6)),
    ),
    "short products": (lambda a, b: jnp.argmin((a[:, None] - b[None]).prod(-1), 1), (of(500, 6), of(400, 6))),
    "rows put together that are short": (
        lambda a, b: jnp.tanh(jnp.concatenate([a * 2, b + 1], 1)) @ jnp.ones((120, 2)),
        (of(1000, 60), of(1000, 60)),
    ),
    "rows put together that are long": (
        lambda a, b: jnp.tanh(jnp.concatenate([a * 2, b + 1], 1)) @ jnp.ones((140, 2)),
        (of(1000, 70), of(1000, 70)),
    ),
    "two reductions that three parts read": (hue, (of(SIZE, SIZE, 3),)),
    "maxima of what is negated": (
        lambda x, c: jax.nn.softmax(-((x[:, None] - c) ** 2).sum(-1), 1).T @ x,
        (of(5000, 8), of(40, 8)),
    ),
    "gradient of means over windows": (
        jax.grad(
            lambda x: jnp.tanh(lax.reduce_window(jnp.sin(x), 0.0, lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")).sum()
        ),
        (IMAGES,),
    ),
    "sums of squares and what is donated": (clip, (MATRIX, MATRIX)),
    "a donated matrix that a loop reads to the end": (written_anew, (MATRIX, MATRIX)),
    "a donated matrix that is updated by a product with it": (updated_by_a_product, (MATRIX, MATRIX)),
    "a donated matrix in which a loop updates rows": (updated_row_by_row, (MATRIX, MATRIX)),
    "a result made of what a loop stacks": (
        lambda a: lax.scan(lambda h, t: (0.9 * h + 0.1 * t,) * 2, jnp.zeros(SIZE), a)[1] - a,
        (MATRIX,),
    ),
    "gradients of many layers, in whose buffers the activations wait": (
        jax.grad(deep, tuple(range(20))),
        (MATRIX,) * 21,
    ),
    "a loop's result that nobody reads": (
        lambda a, b: jnp.tanh(lax.fori_loop(0, 9, crosswise, (a, b))[0] @ a) @ b[:, :1],
        (MATRIX, MATRIX),
    ),
    "a loop that keeps nothing": (
        lambda key: lax.while_loop(
            lambda s: (s[1] < 0).any(),
            lambda s: (s[0] + 1, jnp.where(s[1] < 0, jax.random.normal(s[0], (SIZE, SIZE)), s[1])),
            (key, -jnp.ones((SIZE, SIZE))),
        )[1],
        (KEY,),
    ),
    "a loop with carries that only lead to themselves": (partial(jax.scipy.special.gammainc, 2.5), (LONG,)),
    "a carry that is not needed in the middle of a trip": (
        lambda a, b: lax.fori_loop(
            0, 9, lambda i, s: (0.5 * (s[0] + jnp.linalg.inv(s[1])), 0.5 * (s[1] + jnp.linalg.inv(s[0]))), (a, b)
        )[0],
        (MATRIX, MATRIX),
    ),
    "two loops that convert one matrix": (
        lambda a, b: lax.fori_loop(0, 5, lambda i, x: jnp.tanh(x @ a), b) @ lax.fori_loop(0, 5, lambda i, x: x @ a, b),
        (NARROW, NARROW),
    ),
    "complex products": (lambda a, b: jnp.abs(lax.complex(a, b) @ lax.complex(b, a)).sum(1), (MATRIX, MATRIX)),
}


# In parts of the peak.
NEAR = 0.05
# The rules are those of XLA as of jaxlib 0.10. jax 0.12 writes the gradient of tanh as (1 + t)(1 - t), where the model
# holds one matrix of eight too many; its XLA writes short rows once more, and drops every carry that leads nowhere.
_NEWER = {
    "a checkpoint": 0.13,
    "rows put together that are short": 0.34,
    "a loop with carries that only lead to themselves": 0.9,
}
# With the library's kernels XLA writes what is stacked, and once more what was put together of it. A constant that such
# a kernel takes up changes the order: of both orders the model takes the larger, here two vectors of 23 too many.
_LIBRARY = {
    "a sum of what is put together": 0.35,
    "nine tensors stacked": 0.32,
    "a loop with carries that only lead to themselves": 0.09,
}
EXCEPTIONS: dict[str, float] = _LIBRARY if version("jax").startswith("0.10.") else _LIBRARY | _NEWER


@pytest.mark.parametrize("name", IDIOMS)
def test_idiom(name: str) -> None:
    memory, true = cpu_memories(name, *IDIOMS[name])
    assert not memory.unknown
    assert (memory.arguments, memory.results) == (true.arguments, true.results)
    assert abs(memory.temp - true.temp) <= EXCEPTIONS.get(name, NEAR) * true.peak + 4096, (memory.temp, true.temp)


NUMBERS = """
func.func @main(%x: tensor<320x320xf32>) -> tensor<320x320xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %most = stablehlo.constant dense<5> : tensor<i32>
  %half = stablehlo.constant dense<0.5> : tensor<f32>
  %r:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<320x320xf32>
  cond { %p = stablehlo.compare LT, %i, %most : (tensor<i32>, tensor<i32>) -> tensor<i1> stablehlo.return %p : tensor<i1> }
  do {
    %halves = stablehlo.broadcast_in_dim %half, dims = [] : (tensor<f32>) -> tensor<320x320xf32>
    %s:2 = stablehlo.while(%j = %zero, %b = %a) : tensor<i32>, tensor<320x320xf32>
    cond { %q = stablehlo.compare LT, %j, %i : (tensor<i32>, tensor<i32>) -> tensor<i1> stablehlo.return %q : tensor<i1> }
    do {
      %c = stablehlo.cosine %b : tensor<320x320xf32>
      %d = stablehlo.multiply %c, %halves : tensor<320x320xf32>
      %k = stablehlo.add %j, %one : tensor<i32>
      stablehlo.return %k, %d : tensor<i32>, tensor<320x320xf32>
    }
    %m = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %m, %s#1 : tensor<i32>, tensor<320x320xf32>
  }
  return %r#1 : tensor<320x320xf32>
}
"""


def test_a_number_of_the_program_is_repeated_in_the_innermost_loop_that_reads_it() -> None:
    # Its broadcast stands between two loops, and the number outside of both.
    with new_context() as context:
        predicted = predict(parse_module("numbers", NUMBERS.encode(), context).module)
    planned = measure_memory(NUMBERS)
    assert predicted.temp < 0.1 * 4 * SIZE * SIZE
    assert planned.temp < 0.1 * 4 * SIZE * SIZE
