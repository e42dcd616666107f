"""Gathers of rows of computed tensors: only those rows are computed, in slices; executed before and after."""

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
from exla_opt.ops.index_numbers import GATHER
from exla_opt.options import Options
from exla_opt.passes import normalise
from exla_opt.passes.tensor_splitter.rows import compute_rows, reads_rows
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from tests.execute import assert_equal_results

Array = Any
_Program = Callable[[Array, Array, Array], Array]
_N, _WIDTH = 400, 128
_OPTIONS = Options(size_threshold=50_000, split_size=20_000)
_BIG = _N * _WIDTH * 4


def normed(h: Array) -> Array:
    return h / jnp.sqrt((h * h).sum(1, keepdims=True) + 1)


def ordered(h: Array) -> Array:
    """Couples the columns of each row, so that only rows can be cut."""
    return jnp.sort(normed(h), 1)


def score(rows: Array) -> Array:
    return jax.nn.logsumexp(rows, -1)


def features(x: Array, w: Array, i: Array) -> Array:
    return score(ordered(jnp.tanh(x @ w))[i])


def factors(x: Array, w: Array, i: Array) -> Array:
    """A library's, one a row."""
    a = (x[:, :, None] * x[:, None, :]) + 9 * jnp.eye(8)
    factor = jnp.linalg.cholesky(a)[i]
    return (lax.linalg.triangular_solve(factor, a, left_side=True, lower=True) ** 2).sum((1, 2))


def of_columns(x: Array, w: Array, i: Array) -> Array:
    return jax.nn.logsumexp(ordered(x @ w).T[:, i], 0)


def in_pairs(x: Array, w: Array, i: Array) -> Array:
    """Several dimensions of indices."""
    return score(ordered(x @ w)[i.reshape(_N // 2, 2)])


def in_groups(x: Array, w: Array, i: Array) -> Array:
    """A row is four rows of what is computed."""
    h = ordered(x.reshape(4 * _N, 2) @ w[:2, :32]) * jnp.arange(4.0 * _N)[:, None]
    return score(jnp.tanh(h).reshape(_N, _WIDTH)[i])


def numbered(x: Array, w: Array, i: Array) -> Array:
    """By the numbers of the rows, and of the elements."""
    numbers = jnp.arange(_N * _WIDTH).reshape(_N, _WIDTH) % 77
    return score((ordered(x @ w) * jnp.arange(_N)[:, None] + numbers)[i])


def drawn(x: Array, w: Array, i: Array) -> Array:
    return score(ordered(x @ w + jax.random.normal(jax.random.PRNGKey(3), (_N, _WIDTH)))[i])


def in_steps(x: Array, w: Array, i: Array) -> Array:
    h = lax.fori_loop(0, 3, lambda step, h: jnp.sin(h) + h.mean(1, keepdims=True), x @ w)
    return score(h[i])


def of_gathered(x: Array, w: Array, i: Array) -> Array:
    """Rows of a table, which are gathered twice."""
    return score(ordered(jnp.exp(w.T[jnp.flip(i) % 7].repeat(16, 1)))[i])


def filled(x: Array, w: Array, i: Array) -> Array:
    return score(jnp.nan_to_num(ordered(x @ w).at[i].get(mode="fill")))


def two_gathers(x: Array, w: Array, i: Array) -> Array:
    h = ordered(x @ w)
    return score(h[i[: _N // 2]]) + score(h[i[_N // 2 :]])


def again_by_others(x: Array, w: Array, i: Array) -> Array:
    """Rows of gathered rows."""
    return score(ordered(jnp.exp(ordered(x @ w)[i] + 1))[jnp.flip(i)])


def resampled(x: Array, w: Array, i: Array) -> Array:
    """The positions depend on all rows, which are computed twice."""
    h = normed(x @ w)
    weights = jnp.cumsum(jax.nn.softmax((h**3).sum(1)))
    return score(h[jnp.searchsorted(weights, (jnp.arange(_N) + 0.5) / _N)])


_PROGRAMS: dict[str, _Program] = {
    each.__name__: each
    for each in (
        features,
        factors,
        of_columns,
        in_pairs,
        in_groups,
        numbered,
        drawn,
        in_steps,
        of_gathered,
        filled,
        two_gathers,
        again_by_others,
        resampled,
    )
}


def text_of(function: _Program) -> str:
    x, w, i = (
        jax.ShapeDtypeStruct(shape, kind)
        for shape, kind in (((_N, 8), jnp.float32), ((8, _WIDTH), jnp.float32), ((_N,), jnp.int32))
    )
    return str(jax.jit(function).lower(x, w, i).as_text())


def split(text: str, options: Options = _OPTIONS) -> str:
    with new_context():
        module = ir.Module.parse(text)
        run_pipeline(module, DEFAULT_PASSES, options)
        return str(module)


def peak_of(text: str) -> int:
    with new_context():
        return predict(ir.Module.parse(text), CPU).temp


@pytest.mark.parametrize("name", _PROGRAMS)
def test_the_rows_alone_are_the_same(name: str) -> None:
    """Without any split. Random indices are in and out of range."""
    text = text_of(_PROGRAMS[name])
    with new_context():
        module = ir.Module.parse(text)
        normalise.run(module, _OPTIONS)
        before = _big_operands(module)
        assert reads_rows(module, _OPTIONS)
        assert compute_rows(module, _OPTIONS)
        assert module.operation.verify()
        assert _big_operands(module) < before
        written = str(module)
    assert_equal_results(text, written)


def _big_operands(module: ir.Module) -> int:
    """The number of gathers of rows of big tensors that ops compute."""
    return sum(
        op.name == GATHER
        and defining_op(op.operands[0]) is not None
        and math.prod(shape_of(op.operands[0])) * 4 > _OPTIONS.size_threshold
        for op in walk_functions(module.operation)
    )


# What else reads the tensor in the last one is cut along its rows already.
@pytest.mark.parametrize("name", [name for name in _PROGRAMS if name != "resampled"])
def test_the_rows_are_computed_in_slices(name: str) -> None:
    text = text_of(_PROGRAMS[name])
    written = split(text)
    assert peak_of(written) < _BIG / 2
    assert_equal_results(text, written)
    assert split(written) == written


def cut(values: Array) -> Array:
    """Windows of two rows."""
    return lax.reduce_window(values, -jnp.inf, lax.max, (2, 1), (1, 1), "VALID")


def of_two_rows(h: Array, i: Array) -> Array:
    return jax.vmap(lambda at: lax.dynamic_slice(h, (at, 0), (2, _WIDTH)))(i)


def in_a_batch(h: Array, i: Array) -> Array:
    """Each half of the rows has its own indices."""
    return jax.vmap(lambda rows, at: rows[at])(h.reshape(2, _N // 2, _WIDTH), i.reshape(2, _N // 2))


def compared_in_a_loop(h: Array, i: Array) -> Array:
    def step(_: int, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        count, rows = carry
        return count + (h == rows).sum(1), jnp.sin(rows)

    return lax.fori_loop(0, 3, step, (jnp.zeros(_N, jnp.int32), h[i]))[0]


def chosen(h: Array, i: Array) -> Array:
    """Each computation of what is read twice could decide otherwise."""
    h = jnp.where(h == 0.5, h, 1 / h)
    return score(h[i]) + h.sum(1)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w, i: score(normed(x @ w)[jnp.concatenate([i, i])]),  # more arithmetic
        lambda x, w, i: score(jnp.cumsum(normed(x @ w), 0)[i]),
        lambda x, w, i: score(jnp.sort(normed(x @ w), 0)[i]),
        lambda x, w, i: score(cut(normed(x @ w))[i]),
        lambda x, w, i: score(jnp.flip(normed(x @ w), 0)[i]),
        lambda x, w, i: score(lax.rem(normed(x @ w), 1.0).reshape(-1)[i[:, None] + jnp.arange(9)]),
        lambda x, w, i: score(of_two_rows(normed(x @ w), i)),
        lambda x, w, i: score(in_a_batch(normed(x @ w), i)),
        lambda x, w, i: ((h := normed(x @ w))[i] == h).sum(1),
        lambda x, w, i: ((h := normed(x @ w))[i] > h).sum(1),
        lambda x, w, i: ((h := normed(x @ w))[i] > h[jnp.flip(i)]).sum(1),
        lambda x, w, i: ((h := normed(x @ w)[i])[:, None, :1] > h[None, :, :1]).sum(1),  # an index may occur twice
        lambda x, w, i: jnp.sign((h := normed(x @ w)[i])[:, None, :1] - h[None, :, :1]).sum(1),
        lambda x, w, i: jnp.argmax(normed(x @ w)[i], 0),
        lambda x, w, i: jnp.argsort(normed(x @ w)[i][:, 0]),
        lambda x, w, i: compared_in_a_loop(normed(x @ w), i),
        lambda x, w, i: chosen(normed(x @ w), i),
        lambda x, w, i: score((w.T.repeat(8, 0) * 2.0)[i[:300]].sum(1)),  # half of it is small
        lambda x, w, i: score(w.T[i % _WIDTH]),
    ],
    ids=[
        "more rows",
        "sum over rows",
        "sorted rows",
        "neighbours",
        "reversed",
        "single elements",
        "two rows",
        "batch",
        "compared",
        "ordered",
        "two gathers compared",
        "ordered among themselves",
        "sign of a difference",
        "position",
        "ranks",
        "compared in a loop",
        "a test in both",
        "small",
        "of an argument",
    ],
)
def test_other_gathers_stay(function: _Program) -> None:
    with new_context():
        module = ir.Module.parse(text_of(function))
        normalise.run(module, _OPTIONS)
        before = str(module)
        assert not reads_rows(module, _OPTIONS)
        assert not compute_rows(module, _OPTIONS)
        assert str(module) == before


def test_rows_of_sorted_indices_are_not_sorted() -> None:
    text = text_of(
        lambda x, w, i: score(jnp.exp(w.T.repeat(16, 1).at[jnp.sort(i)].get(indices_are_sorted=True))[jnp.flip(i)])
    )
    with new_context():
        module = ir.Module.parse(text)
        normalise.run(module, _OPTIONS)
        assert compute_rows(module, _OPTIONS)
        gathers = [op for op in walk_functions(module.operation) if op.name == GATHER]
        assert not any(boolean(op, "indices_are_sorted") for op in gathers)


def test_a_mask_of_the_rows_may_be_compared() -> None:
    """With a number that is no row of the same tensor."""
    text = text_of(lambda x, w, i: score(jnp.where((h := normed(x @ w)[i]) > 0.1, h, -h)))
    with new_context():
        module = ir.Module.parse(text)
        normalise.run(module, _OPTIONS)
        assert compute_rows(module, _OPTIONS)


def test_within_a_limit_nothing_is_changed() -> None:
    text = text_of(features)
    roomy = Options(size_threshold=50_000, split_size=20_000, memory_limit=4 * _BIG)
    tight = Options(size_threshold=50_000, split_size=20_000, memory_limit=_BIG)
    assert peak_of(split(text, tight)) < _BIG / 2 < _BIG < peak_of(split(text, roomy))


def test_what_takes_long_is_read_where_it_is_needed_elsewhere() -> None:
    """Only what follows the factors is computed for the gathered rows."""

    def function(x: Array, w: Array, i: Array) -> Array:
        factor = jnp.linalg.cholesky((x[:, :, None] * x[:, None, :]) + 9 * jnp.eye(8))
        return score(jnp.exp(factor.reshape(_N, 64))[i]) + factor.sum((1, 2))

    text = text_of(function)
    with new_context():
        module = ir.Module.parse(text)
        normalise.run(module, _OPTIONS)
        assert compute_rows(module, _OPTIONS)
        calls = [op for op in walk_functions(module.operation) if op.name == "stablehlo.custom_call"]
        assert len(calls) == 1
        written = str(module)
    assert_equal_results(text, written)
