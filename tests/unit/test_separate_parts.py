"""Parts of one tensor that are needed together: computed separately, in slices; executed before and after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jaxlib.mlir import ir

from exla_opt.budget import order
from exla_opt.budget.fit import Fit, fit
from exla_opt.ir.context import new_context
from exla_opt.ir.walk import walk_functions
from exla_opt.memory.machine import CPU
from exla_opt.memory.peak import predict
from exla_opt.options import Options
from exla_opt.passes import normalise
from exla_opt.passes.tensor_splitter.separate_parts import reads_parts, separate_parts
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from tests.execute import assert_equal_results, calls_of

Array = Any
_ROWS, _COLUMNS = 2400, 48
_BIG = _ROWS * _COLUMNS * 4
_OPTIONS = Options(size_threshold=_BIG // 8, split_size=_BIG // 32)


def standard(x: Array) -> Array:
    return (x - x.mean(0)) / (x.std(0) + 1e-3)


def halves(x: Array) -> tuple[Array, Array]:
    a, b = jnp.split(x, 2)
    return a, b


def correlation(x: Array) -> Array:
    a, b = halves(standard(x))
    return ((a.T @ b / len(a) - jnp.eye(_COLUMNS)) ** 2).sum()


def sliced_first(x: Array) -> Array:
    """The gradient adds pads, where that of a split joins."""
    mean, deviation = x.mean(0), x.std(0) + 1e-3
    a, b = (x[:1200] - mean) / deviation, (x[1200:] - mean) / deviation
    return ((a.T @ b / len(a)) ** 2).sum()


def variance_and_distance(x: Array) -> Array:
    a, b = halves(x)
    distance = ((a - b) ** 2).mean()
    a, b = a - a.mean(0), b - b.mean(0)
    return distance + sum(((part.T @ part / len(part)) ** 2).sum() for part in (a, b)) / _COLUMNS


def four_parts(x: Array) -> Array:
    a, b, c, d = jnp.split(standard(x), 4)
    return ((a.T @ b - c.T @ d) ** 2).mean() / len(a) ** 2 + ((a * c - b * d) ** 2).mean()


def unequal_parts(x: Array) -> Array:
    """A part that no other meets, and rows that nothing reads."""
    t = standard(x)
    a, b, c = t[:900], t[900:1800], t[1900:]
    return jnp.tanh(a.T @ b / len(a)).sum() + (c**2).sum()


def network(x: Array) -> Array:
    """Products of the halves: each computes its own, not both."""
    weights = jnp.cos(jnp.arange(_COLUMNS * 64.0)).reshape(_COLUMNS, 64)
    a, b = halves(jax.nn.relu(jnp.tanh(x @ weights) @ weights.T))
    return ((a.T @ b / len(a)) ** 2).sum()


def normalised(x: Array) -> Array:
    """Small tensors that have the rows too."""
    a, b = halves(x / jnp.linalg.norm(x, axis=1, keepdims=True))
    return ((a.T @ b) ** 2).sum()


def joined_views(x: Array) -> Array:
    """Halves that were joined first."""
    a, b = halves(jnp.sin(jnp.concatenate([x[:1200] * 2, x[1200:] + 1])))
    return ((a.T @ b / len(a)) ** 2).sum()


def columns(x: Array) -> Array:
    """Halves along the other dimension, transposed on the way."""
    a, b = halves(jnp.sin(x.T).reshape(_COLUMNS, 4, -1))
    return ((a * b) ** 2).sum() + ((a - b).sum(0) ** 2).mean()


def joined_columns(x: Array) -> Array:
    """What is joined along another dimension than the halves is computed for each half."""
    t = jnp.concatenate([jnp.sin(x)[:, None], jnp.cos(x)[:, None]], 1).sum(1)
    a, b = halves(t + jnp.tanh(t))
    return ((a.T @ b) ** 2).sum()


def two_results(x: Array) -> Array:
    """An op of two results."""
    a, b = halves(jnp.tanh(x))
    least, other = lax.sort((jnp.sin(a), jnp.cos(a)), dimension=1, num_keys=1)
    return ((joined := jnp.concatenate([b * 2, least + jnp.sin(a)])) - joined.sum(0)).sum(0) + other.sum(0)


_PROGRAMS: dict[str, Callable[[Array], Array]] = {
    each.__name__: each
    for each in (
        correlation,
        sliced_first,
        variance_and_distance,
        four_parts,
        unequal_parts,
        network,
        normalised,
        joined_views,
        columns,
        joined_columns,
    )
}
_ALL = _PROGRAMS | {f"{name}_gradient": jax.grad(each) for name, each in _PROGRAMS.items()}
_ALL |= {"two_results": two_results}
# Those whose parts must be separate to be split. Without, they take two fifths of the tensor or more.
_SMALLER = (
    "four_parts",
    "unequal_parts",
    "network",
    "joined_views",
    "correlation_gradient",
    "sliced_first_gradient",
    "variance_and_distance_gradient",
    "four_parts_gradient",
    "unequal_parts_gradient",
    "normalised_gradient",
)
# Those that read parts of an argument alone, and join nothing.
_AS_THEY_ARE = ("sliced_first", "variance_and_distance")


def text_of(function: Callable[[Array], Array]) -> str:
    return str(jax.jit(function).lower(jax.ShapeDtypeStruct((_ROWS, _COLUMNS), jnp.float32)).as_text())


def split(text: str, options: Options = _OPTIONS) -> str:
    with new_context():
        module = ir.Module.parse(text)
        run_pipeline(module, DEFAULT_PASSES, options)
        return str(module)


def temp_of(text: str) -> int:
    with new_context():
        return predict(ir.Module.parse(text), CPU).temp


def _normalised(text: str) -> ir.Module:
    module = ir.Module.parse(text)
    normalise.run(module, _OPTIONS)
    return module


@pytest.mark.parametrize("name", _SMALLER)
def test_parts_that_meet_are_computed_in_slices(name: str) -> None:
    text = text_of(_ALL[name])
    written = split(text)
    assert temp_of(written) < _BIG / 5 < _BIG / 2 < temp_of(text)
    assert_equal_results(text, written)


@pytest.mark.parametrize("name", _ALL)
def test_separate_parts_are_the_same(name: str) -> None:
    """Without any split."""
    text = text_of(_ALL[name])
    with new_context():
        module = _normalised(text)
        assert reads_parts(module, _OPTIONS)
        assert separate_parts(module, _OPTIONS) == (name not in _AS_THEY_ARE)
        assert module.operation.verify()
        written = str(module)
    assert_equal_results(text, written)


@pytest.mark.parametrize("name", ["correlation_gradient", "network_gradient", "four_parts_gradient"])
def test_no_product_is_computed_twice(name: str) -> None:
    """Not even a product of all rows, of which both halves are read: each half is computed once."""
    with new_context():
        module = _normalised(text_of(_ALL[name]))
        before = _multiplications(module)
        assert separate_parts(module, _OPTIONS)
        assert _multiplications(module) == before


def _multiplications(module: ir.Module) -> int:
    total = 0
    for op in walk_functions(module.operation):
        if op.name == "stablehlo.dot_general":
            left, right, result = (
                list(ir.RankedTensorType(value.type).shape) for value in (*op.operands, op.results[0])
            )
            total += round(float(jnp.sqrt(jnp.prod(jnp.array(left + right + result, float)))))
    return total


def test_halves_that_were_joined_are_read_where_they_come_from() -> None:
    with new_context():
        module = _normalised(text_of(joined_views))
        assert separate_parts(module, _OPTIONS)
        assert all(op.name != "stablehlo.concatenate" for op in walk_functions(module.operation))


def compared(x: Array) -> Array:
    """Where the elements are equal to the largest of their column."""
    t = standard(x)
    a, b = halves(jnp.where(t == t.max(0), 0.0, t))
    return ((a.T @ b) ** 2).sum()


def ordered(x: Array) -> Array:
    a, b = halves(jnp.sin(x))
    return jnp.where(a > b, a, 0).sum(0) + (a * b).sum(0)


def of_a_library(x: Array) -> Array:
    """What nothing computes row by row is read as it is."""
    a, b = halves(jnp.cumsum(x, 0))
    return ((a.T @ b) ** 2).sum()


@pytest.mark.parametrize(
    "function",
    [compared, jax.grad(compared), ordered, of_a_library],
    ids=["compared", "compared in a gradient", "ordered", "no rule"],
)
def test_other_parts_stay(function: Callable[[Array], Array]) -> None:
    with new_context():
        module = _normalised(text_of(function))
        before = str(module)
        assert reads_parts(module, _OPTIONS)
        assert not separate_parts(module, _OPTIONS)
        assert str(module) == before


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (t := jnp.sin(x))[1:] - t[:-1],  # a finite difference
        lambda x: (t := jnp.sin(x))[:1500].T @ t[900:],  # they overlap
        lambda x: jnp.roll(jnp.sin(x), 1, 0),  # one of them is a single row
        lambda x: (t := jnp.sin(x))[0::2].T @ t[1::2],  # the same rows of pairs
        lambda x: jnp.sin(x)[:1200].T @ x[1200:],  # of two tensors
    ],
    ids=["differences", "overlapping", "roll", "every other", "two tensors"],
)
def test_other_slices_are_no_parts(function: Callable[[Array], Array]) -> None:
    with new_context():
        assert not reads_parts(_normalised(text_of(function)), _OPTIONS)


def test_a_tensor_that_others_read_complete_stays() -> None:
    """The product of all rows is computed once, for all of its readers."""

    def function(x: Array) -> Array:
        t = x @ jnp.cos(jnp.arange(_COLUMNS * 64.0)).reshape(_COLUMNS, 64)
        a, b = halves(t)
        return jnp.cumsum(t, 0), a.T @ b

    with new_context():
        module = _normalised(text_of(function))
        before = _multiplications(module)
        separate_parts(module, _OPTIONS)
        assert _multiplications(module) == before


def test_within_a_limit_nothing_is_computed_twice() -> None:
    text = text_of(_ALL["correlation_gradient"])
    roomy = Options(size_threshold=_BIG // 8, split_size=_BIG // 32, memory_limit=8 * _BIG)
    tight = Options(size_threshold=_BIG // 8, split_size=_BIG // 32, memory_limit=2 * _BIG + _BIG // 3)
    assert temp_of(split(text, tight)) < _BIG / 3 < temp_of(split(text, roomy))


def _many(count: int) -> int:
    """How many calls the search makes for the halves of some tensors, each computed from the last."""

    def function(x: Array) -> Array:
        total = jnp.zeros((_COLUMNS, _COLUMNS))
        for _ in range(count):
            a, b = halves(jnp.sin(x))
            total += a.T @ b
            x = lax.concatenate([b * 2, a * 3], 0)
        return total

    with new_context():
        module = _normalised(text_of(function))
        return calls_of(lambda: separate_parts(module, _OPTIONS))


def test_the_search_grows_with_the_program() -> None:
    assert _many(80) < 5 * _many(20)


def test_a_large_module_is_planned_twice_only_where_nothing_else_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "_VERY_LARGE", 0)
    monkeypatch.setattr(order, "try_nested", lambda search, sizes, **_: iter(()))
    with new_context():
        module = _normalised(text_of(jax.grad(correlation)))
        memory = predict(module, CPU)
        tried: list[Options] = []

        def fit_in(limit: int) -> tuple[Fit, list[bool]]:
            tried.clear()
            found = fit(module, DEFAULT_PASSES, Options(), limit, tried=lambda way, _: tried.append(way))
            return found, [way.separates_parts for way in tried if way.split_size is not None]

        tight, separates = fit_in(memory.peak - memory.temp // 2)
        assert tight.fits and tight.options.separates_parts
        assert separates[:4] == [False, False, False, True]
        loose, separates = fit_in(memory.peak - memory.temp // 6)
        assert loose.fits and True not in separates
