"""Tensors that are read together with their transposes: computed twice, in slices; executed before and after."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jaxlib.mlir import ir

from exla_opt.ir.attributes import boolean
from exla_opt.ir.build import shape_of
from exla_opt.ir.context import new_context
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import walk_functions
from exla_opt.memory.machine import CPU
from exla_opt.memory.peak import predict
from exla_opt.options import Options
from exla_opt.passes import normalise
from exla_opt.passes.tensor_splitter.mirror import mirror
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from tests.execute import assert_equal_results, calls_of

Array = Any
_N = 300
_OPTIONS = Options(size_threshold=50_000, split_size=20_000)
_BIG = _N * _N * 4


def squares(x: Array, y: Array) -> Array:
    return ((x[:, None] - y[None]) ** 2).sum(-1)


def kernel(x: Array, y: Array) -> Array:
    return jnp.exp(-squares(x, y))


def in_both_directions(k: Array) -> Array:
    return ((k + k.T - k * k.T) ** 2).sum(1)


def symmetric(x: Array, y: Array) -> Array:
    return in_both_directions(kernel(x, y))


def product(x: Array, y: Array) -> Array:
    return in_both_directions(jnp.tanh(x @ y.T))


def skew(x: Array, y: Array) -> Array:
    b = x @ y.T
    return jnp.tanh(b - b.T) @ y


def probabilities(x: Array, y: Array) -> Array:
    """The transpose divides its columns by the sums of the rows."""
    return in_both_directions(jax.nn.softmax(x @ y.T))


def of_the_nearest(x: Array, y: Array) -> Array:
    best, places = lax.top_k(-squares(x, y), 5)
    rows = jnp.arange(_N)[:, None]
    return in_both_directions(jnp.zeros((_N, _N)).at[rows, places].set(jnp.exp(best)))


def of_edges(x: Array, y: Array) -> Array:
    """Several edges add to one element."""
    rows, columns = (jnp.abs(jnp.round(v[:, :4] * 50)).astype(jnp.int32).reshape(-1) for v in (x, y))
    return in_both_directions(jnp.zeros((_N, _N)).at[rows, columns].add(y[:, :4].reshape(-1)))


def masked(x: Array, y: Array) -> Array:
    """By positions, and by a select of one predicate for all."""
    k = jnp.where(jnp.arange(_N)[:, None] > jnp.arange(_N) // 2, x @ y.T, 0.5)
    return in_both_directions(lax.select(x[0, 0] > 0, k, -k))


def in_a_batch(x: Array, y: Array) -> Array:
    a, b = (v.reshape(_N, 4, 2).swapaxes(0, 1) for v in (x, y))
    s = jnp.tanh(jnp.einsum("hid,hjd->hij", a, b))
    return ((s + s.swapaxes(1, 2)) ** 2).sum(2)


def cycled(x: Array, y: Array) -> Array:
    """Another order than a swap, and its inverse."""
    t = jnp.sin(x[:40, :1, None] * y[None, :40, :1] + x[None, None, :40, 0])
    return (t * t.transpose(1, 2, 0) + t.transpose(2, 0, 1)).sum((1, 2))


def of_batches(x: Array, y: Array) -> Array:
    """A scatter with two batching dimensions, which change places."""

    def one(places: Array, values: Array) -> Array:
        return jnp.zeros(300).at[places].add(values)

    a, b = (v[:288].reshape(16, 18, 8)[:, :16] for v in (x, y))
    k = jax.vmap(jax.vmap(one))(jnp.abs(jnp.round(a * 50)).astype(jnp.int32), b)
    return ((k + k.transpose(1, 0, 2) * k) ** 2).sum(2)


_PROGRAMS: dict[str, Callable[[Array, Array], Array]] = {
    each.__name__: each
    for each in (
        symmetric,
        product,
        skew,
        probabilities,
        of_the_nearest,
        of_edges,
        masked,
        in_a_batch,
        cycled,
        of_batches,
    )
}
_PROGRAMS["gradient"] = jax.grad(lambda x, y: jnp.log1p(kernel(x, y) + kernel(x, y).T).sum(), (0, 1))


def text_of(function: Callable[[Array, Array], Array]) -> str:
    points = jax.ShapeDtypeStruct((_N, 8), jnp.float32)
    return str(jax.jit(function).lower(points, points).as_text())


def split(text: str, options: Options = _OPTIONS) -> str:
    with new_context():
        module = ir.Module.parse(text)
        run_pipeline(module, DEFAULT_PASSES, options)
        return str(module)


def peak_of(text: str) -> int:
    with new_context():
        return predict(ir.Module.parse(text), CPU).temp


# Edges are not sorted by rows, so all of their tensor is written at once.
@pytest.mark.parametrize("name", [name for name in _PROGRAMS if name != "of_edges"])
def test_both_directions_are_computed_in_slices(name: str) -> None:
    text = text_of(_PROGRAMS[name])
    written = split(text)
    assert peak_of(written) < _BIG / 2
    assert_equal_results(text, written)
    assert split(written) == written


@pytest.mark.parametrize("name", _PROGRAMS)
def test_the_transpose_alone_is_the_same(name: str) -> None:
    """Without any split: the rules for transposes of ops."""
    text = text_of(_PROGRAMS[name])
    with new_context():
        module = ir.Module.parse(text)
        normalise.run(module, _OPTIONS)
        before = _transposes(module)
        assert mirror(module, _OPTIONS)
        assert module.operation.verify()
        assert _transposes(module) < before
        written = str(module)
    assert_equal_results(text, written)


def _transposes(module: ir.Module) -> int:
    """The number of transposes of big tensors that ops compute."""
    return sum(
        op.name == "stablehlo.transpose"
        and defining_op(op.operands[0]) is not None
        and math.prod(shape_of(op.results[0])) * 4 > _OPTIONS.size_threshold
        for op in walk_functions(module.operation)
    )


def scores(x: Array, y: Array) -> Array:
    return jnp.tanh(x @ y.T)


def compared_in_a_loop(k: Array) -> Array:
    def step(_: int, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        count, t = carry
        return count + (k == t).sum(1), jnp.sin(t)

    return lax.fori_loop(0, 3, step, ((k + k.T).sum(1).astype(jnp.int32), k.T))[0]


def compared_after_a_loop(x: Array, y: Array) -> Array:
    def step(carry: tuple[Array, Array], c: Array) -> tuple[tuple[Array, Array], Array]:
        k = scores(x, y * c)
        return (k[0], k.T[:, 0]), (k + k.T).sum(1)

    (row, column), sums = lax.scan(step, (y[0, :1].repeat(_N), y[0, :1].repeat(_N)), jnp.arange(3.0))
    return sums * (row == column)


def bits_in_pairs(x: Array, y: Array) -> Array:
    halves = (x[:, None, :2] * y[None, :, :2]).astype(jnp.float16)
    return lax.bitcast_convert_type(halves, jnp.uint32)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: (kernel(x, y) == kernel(x, y).T).sum(1),  # the two may round differently
        lambda x, y: kernel(x, y) @ y + kernel(x, y).T @ x,  # never at the same places
        lambda x, y: (k := jnp.cumsum(x @ y.T, 1)) + k.T,  # a transposed sum has no rule
        lambda x, y: ((k := scores(x, y)) > k.T).sum(1),  # never on the diagonal
        lambda x, y: jnp.sign((k := scores(x, y)) - k.T).sum(1),
        lambda x, y: jnp.argmax(jnp.stack([k := scores(x, y), k.T]), 0).sum(1) + (k + k.T).sum(1),
        lambda x, y: compared_in_a_loop(scores(x, y)),
        lambda x, y: compared_after_a_loop(x, y),
        lambda x, y: (k := bits_in_pairs(x, y)) | k.T,
        lambda x, y: (k := jnp.where(scores(x, y) == 0.5, x @ y.T, 1)) + k.T,  # each could decide otherwise
    ],
    ids=[
        "compared",
        "apart",
        "no rule",
        "ordered",
        "sign",
        "position",
        "compared in a loop",
        "compared after a loop",
        "pairs of bits",
        "a test in both",
    ],
)
def test_other_transposes_stay(function: Callable[[Array, Array], Array]) -> None:
    with new_context():
        module = ir.Module.parse(text_of(function))
        normalise.run(module, _OPTIONS)
        before = str(module)
        assert not mirror(module, _OPTIONS)
        assert str(module) == before


def test_a_scatter_by_columns_is_not_sorted() -> None:
    def function(x: Array, y: Array) -> Array:
        rows, columns = jnp.sort(jnp.round(x[:, 0] * 50)).astype(jnp.int32), jnp.round(x[:, 1] * 50).astype(jnp.int32)
        return in_both_directions(jnp.zeros((_N, _N)).at[rows, columns].add(y[:, 0], indices_are_sorted=True))

    with new_context():
        module = ir.Module.parse(text_of(function))
        normalise.run(module, _OPTIONS)
        assert mirror(module, _OPTIONS)
        scatters = [op for op in walk_functions(module.operation) if op.name == "stablehlo.scatter"]
        assert sorted(boolean(op, "indices_are_sorted") for op in scatters) == [False, True]


def _many(step: Callable[[Array, Array], tuple[Array, Array]], count: int) -> int:
    """How many calls the search for transposes makes among some steps."""

    def function(x: Array, y: Array) -> Array:
        k = jnp.cumsum(x @ y.T, 1)
        total = k
        for _ in range(count):
            k, total = step(k, total)
        return total + k.T

    with new_context():
        module = ir.Module.parse(text_of(function))
        return calls_of(lambda: mirror(module, _OPTIONS))


@pytest.mark.parametrize(
    "step",
    [lambda k, total: (k, jnp.sin(total) + k), lambda k, total: (g := jnp.tanh(k), total + g * g.T)],
    ids=["one read often", "many transposes"],
)
def test_the_search_grows_with_the_program(step: Callable[[Array, Array], tuple[Array, Array]]) -> None:
    assert _many(step, 160) < 5 * _many(step, 40)


def test_within_a_limit_nothing_is_computed_twice() -> None:
    text = text_of(skew)
    roomy = Options(size_threshold=50_000, split_size=20_000, memory_limit=4 * _BIG)
    tight = Options(size_threshold=50_000, split_size=20_000, memory_limit=_BIG)
    assert peak_of(split(text, tight)) < _BIG / 2 < _BIG < peak_of(split(text, roomy))


def test_what_stays_complete_anyway_is_not_turned() -> None:
    """A factor of a library, which exists as a whole."""

    def function(x: Array, y: Array) -> Array:
        factor = lax.linalg.cholesky(kernel(x, x) + jnp.eye(_N), symmetrize_input=False)
        return jnp.exp(factor) + jnp.exp(factor).T

    with new_context():
        module = ir.Module.parse(text_of(function))
        normalise.run(module, _OPTIONS)
        assert not mirror(module, _OPTIONS)
