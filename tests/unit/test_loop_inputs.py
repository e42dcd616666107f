"""What a scan reads of all steps, and what is reduced of all that it stacks: made and reduced in its steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.memory.peak import predict
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.remarks import Kind
from exla_opt.runtime.compare import default_tolerance
from tests.execute import assert_equal_results

OPTIONS = Options(size_threshold=2000, split_size=500)
ALONE = ("normalise", "rce", "loop-residuals", "normalise")
STEPS = 40
BF16 = jnp.bfloat16
Function = Callable[..., Any]


def of(*shape: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def scanned(xs: Any, start: Any, reverse: bool = False) -> Any:
    """A scan over xs that stacks its states."""

    def step(h: Any, x: Any) -> tuple[Any, Any]:
        h = jnp.tanh(h + x)
        return h, h * x

    return lax.scan(step, start, xs, reverse=reverse)


def one_matrix(x: Any, m: Any) -> Any:
    """Every step is given the same matrix, as in a hidden Markov model."""

    def step(a: Any, now: Any) -> tuple[Any, None]:
        seen, matrix = now
        return jax.nn.logsumexp(a[:, None] + matrix, axis=0) + seen, None

    matrices = jnp.broadcast_to(jax.nn.log_softmax(m), (x.shape[0], *m.shape))
    return lax.scan(step, x[0], (x, matrices))[0]


def one_matrix_gradient(x: Any, m: Any) -> Any:
    """The gradient of all matrices, which is only summed up."""

    def loss(matrices: Any) -> Any:
        def step(a: Any, now: Any) -> tuple[Any, None]:
            seen, matrix = now
            return jax.nn.logsumexp(a[:, None] + matrix, axis=0) + seen, None

        return lax.scan(step, x[0], (x, matrices))[0].sum()

    return jax.grad(loss)(jnp.broadcast_to(jax.nn.log_softmax(m), (x.shape[0], *m.shape))).sum(0)


def in_two_loops(x: Any, h: Any) -> Any:
    xs = jnp.cos(x) * 2
    one, two = scanned(xs, h)[0], scanned(xs, h + 1, reverse=True)[0]
    return one - two


def asked_in_two_loops(x: Any, h: Any) -> Any:
    """Both loops compare what they read: computed twice, it might not be the same."""
    xs = jnp.exp(jnp.sin(x))
    most = lax.scan(lambda m, row: (jnp.maximum(m, row), None), h, xs)[0]
    return lax.scan(lambda n, row: (n + (row == most), None), h, xs)[0]


def read_twice(x: Any, h: Any) -> Any:
    xs = jnp.exp(x)
    return lax.fori_loop(0, 2 * STEPS, lambda i, h: jnp.tanh(h + xs[i // 2]), h)


def in_an_inner_loop(x: Any, h: Any) -> Any:
    xs = jnp.exp(x)
    inner = lambda i, h: lax.fori_loop(0, 3, lambda j, h: jnp.tanh(h + xs[i]), h)  # noqa: E731
    return lax.fori_loop(0, STEPS, inner, h)


def in_a_loop_that_runs_again(x: Any, h: Any) -> Any:
    xs = jnp.exp(x)
    return lax.fori_loop(0, 3, lambda i, h: lax.scan(lambda h, row: (jnp.tanh(h + row), None), h, xs)[0], h)


def with_a_temporary(x: Any, h: Any) -> Any:
    """The sorted inputs would have to stay in the place of what is made of them."""
    return scanned(jnp.tanh(jnp.sort(x, 0)), h)[0]


def of_many_terms(x: Any, y: Any, h: Any) -> Any:
    """Costs of all pairs, term by term, as short sums of squares are written."""
    return scanned(sum((x[:, None, k] - y[None, :, k]) ** 2 for k in range(16)), h)[0]


def in_a_square(x: Any, h: Any) -> Any:
    """What is repeated and what is sliced are made of one tensor."""
    a = jnp.cos(x)
    b = jnp.broadcast_to(a, (STEPS, STEPS, STEPS))
    return lax.scan(lambda h, now: (jnp.tanh(h + now[0] + now[1].sum(0)), None), h, (jnp.sin(a), b))[0]


def moved_in_two_loops(x: Any, h: Any) -> Any:
    xs = x.reshape(STEPS, 64)[::-1]
    return scanned(xs, h)[0] - scanned(xs, h + 1, reverse=True)[0]


def clamped(xs: Any, h: Any) -> Any:
    """The last trips read the last step: another one, where a slice stands between."""
    return lax.fori_loop(0, STEPS + 20, lambda i, h: jnp.tanh(h + lax.dynamic_index_in_dim(xs, i, 0, False)), h)


def always_one_step(xs: Any, h: Any) -> Any:
    def step(_: Any, h: Any) -> Any:
        return jnp.tanh(h + lax.dynamic_index_in_dim(xs, jnp.minimum(7, 9), 0, False))

    return lax.fori_loop(0, STEPS, step, h)


def chained(x: Any, h: Any) -> Any:
    """Each value is used twice: it is computed once all the same."""
    for _ in range(12):
        x = jnp.sin(x) * 1.01 + jnp.cos(x)
    return scanned(x, h)[0]


def compared_with_the_last(x: Any, h: Any) -> Any:
    xs = jnp.cos(x) * 3 + 1
    return lax.scan(lambda c, row: ((row, c[1] + (row == c[0])), None), (h, h), xs)[0][1]


def in_a_window(xs: Any, h: Any) -> Any:
    return lax.fori_loop(1, STEPS, lambda i, h: jnp.tanh(h + xs[i] - xs[i - 1]), h)


def distances(x: Any, y: Any) -> Any:
    return ((x[:, None] - y[None]) ** 2).sum(-1)


def kept_boxes(x: Any, h: Any) -> Any:
    """A loop for each of several matrices, as JAX batches it: the first dimension is not that of the steps."""
    costs = distances(x, x)
    return lax.fori_loop(0, STEPS, lambda i, h: jnp.where(h[i] > 0, jnp.tanh(h + costs[i]), h), h)


def of_columns(x: Any, h: Any) -> Any:
    return lax.fori_loop(0, STEPS, lambda i, h: jnp.tanh(h + x[:, i]), h)


def by_rows_and_columns(x: Any, h: Any) -> Any:
    costs = jnp.cos(distances(x, x))
    return lax.fori_loop(0, STEPS, lambda i, h: jnp.tanh(h + costs[i] - costs[:, i]), h)


# The codes of the remarks, or none where the program is left alone.
INPUTS: dict[str, tuple[Function, tuple[Any, ...], str]] = {
    "one matrix for all steps": (one_matrix, (of(STEPS, 8), of(8, 8)), "EX006"),
    "the gradient of one matrix for all steps": (one_matrix_gradient, (of(STEPS, 8), of(8, 8)), "EX007"),
    "elementwise": (lambda x, y, h: scanned(jnp.cos(x) * y + 3, h)[0], (of(STEPS, 64),) * 2 + (of(64),), "EX006"),
    "backwards": (lambda x, h: scanned(jnp.cos(x), h, reverse=True)[0], (of(STEPS, 64), of(64)), "EX006"),
    "shifted": (lambda x, h: scanned(jnp.cos(x)[1:], h)[0], (of(STEPS + 1, 64), of(64)), "EX006"),
    "turned around": (lambda x, h: scanned(jnp.cos(x)[::-1], h)[0], (of(STEPS, 64), of(64)), "EX006"),
    "of many terms": (of_many_terms, (of(STEPS, 16), of(64, 16), of(64)), "EX006"),
    "converted": (lambda x, h: scanned(x.astype(jnp.float32), h)[0], (of(STEPS, 64, dtype=BF16), of(64)), "EX006"),
    "rows repeated": (
        lambda x, h: scanned(jnp.broadcast_to(x[:, :, None], (STEPS, 6, 4)), h)[0],
        (of(STEPS, 6), of(6, 4)),
        "EX006",
    ),
    "repeated and sliced": (in_a_square, (of(STEPS, STEPS), of(STEPS)), "EX006"),
    "a step and a loop": (
        lambda x, h: (lambda xs: scanned(xs, h)[0] + xs[3])(jnp.cos(x)),
        (of(STEPS, 64), of(64)),
        "",
    ),
    "two loops": (in_two_loops, (of(STEPS, 64), of(64)), ""),
    "two loops that ask": (asked_in_two_loops, (of(STEPS, 64), of(64)), ""),
    "each step twice": (read_twice, (of(STEPS, 64), of(64)), ""),
    "an inner loop": (in_an_inner_loop, (of(STEPS, 64), of(64)), ""),
    "a loop that runs again": (in_a_loop_that_runs_again, (of(STEPS, 64), of(64)), ""),
    "counted": (
        lambda x, h: scanned(jnp.arange(STEPS * 64.0).reshape(STEPS, 64) + x, h)[0],
        (of(STEPS, 64), of(64)),
        "",
    ),
    "read whole as well": (lambda x, h: scanned(jnp.cos(x), h)[0] + jnp.cos(x).sum(0), (of(STEPS, 64), of(64)), ""),
    "two loops that only move": (moved_in_two_loops, (of(STEPS, 8, 8), of(64)), "EX006"),
    "small steps": (lambda x, h: scanned(jnp.cos(x), h)[0], (of(4 * STEPS, 16), of(16)), ""),
    "clamped": (lambda x, h: clamped(jnp.cos(x[:STEPS]), h), (of(STEPS + 20, 64), of(64)), ""),
    "the same step always": (lambda x, h: always_one_step(jnp.cos(x), h), (of(STEPS, 64), of(64)), ""),
    "a chain": (chained, (of(STEPS, 64), of(64)), "EX006"),
    "what was before": (compared_with_the_last, (of(STEPS, 64), of(64)), ""),
    "a window": (lambda x, h: in_a_window(jnp.cos(x) * 3 + 1, h), (of(STEPS, 64), of(64)), ""),
    "of a temporary": (with_a_temporary, (of(STEPS, 64), of(64)), ""),
    "distances": (lambda x, y, h: scanned(distances(x, y), h)[0], (of(STEPS, 8), of(64, 8), of(64)), "EX006"),
    "distances of each batch": (
        jax.vmap(lambda x, y, h: scanned(distances(x, y), h)[0]),
        (of(3, STEPS, 8), of(3, 64, 8), of(3, 64)),
        "EX006",
    ),
    "a loop of each batch": (jax.vmap(kept_boxes), (of(3, STEPS, 8), of(3, STEPS)), "EX006"),
    "columns": (lambda x, h: of_columns(jnp.cos(x), h), (of(64, STEPS), of(64)), "EX006"),
    "rows and columns": (by_rows_and_columns, (of(STEPS, 8), of(STEPS)), ""),
    "reduced over steps": (lambda x, h: scanned(jnp.cos(x).sum(0), h)[0], (of(8, STEPS, 64), of(64)), "EX006"),
    "a small layer": (
        lambda x, w, h: scanned(jnp.tanh(x @ w), h)[0],
        (of(STEPS, 128, 8), of(8, 64), of(128, 64)),
        "EX006",
    ),
}


def stacked(f: Function, **how: Any) -> Function:
    """A function of what a scan stacks, and of its inputs."""
    return lambda x, h: f(scanned(x, h, **how)[1], x)


def pair(x: Any, h: Any) -> Any:
    def step(h: Any, row: Any) -> tuple[Any, Any]:
        h = jnp.tanh(h + row)
        return h, (h, jnp.sin(row))

    one, two = lax.scan(step, h, x)[1]
    return (one * two).sum(0)


def weighted_by_the_end(x: Any, h: Any) -> Any:
    last, ys = scanned(x, h)
    return (ys * last).sum(0)


def written_at_one_place(x: Any, h: Any) -> Any:
    def step(i: Any, carried: Any) -> Any:
        h, ys = carried
        h = jnp.tanh(h + x[i])
        return h, lax.dynamic_update_index_in_dim(ys, h, jnp.minimum(7, 9), 0)

    return lax.fori_loop(0, STEPS, step, (h, x))[1].sum(0)


def rounded(x: Any, h: Any) -> Any:
    return lax.scan(lambda h, row: ((h + row) / 2, (h * row).astype(BF16)), h, x)[1]


def from_a_number(x: Any, h: Any) -> Any:
    """What is started from counts more than once in a maximum, without a difference; not so in a sum."""
    start = x[0, 0]
    return lax.reduce(scanned(x, h)[1], start, lax.max, (0,))


ROWS = (of(STEPS, 16), of(16))
MATRICES = (of(STEPS, 4, 6), of(4, 6))
SUMS: dict[str, tuple[Function, tuple[Any, ...], str]] = {
    "sum": (stacked(lambda ys, x: ys.sum(0)), ROWS, "EX007"),
    "mean of squares": (stacked(lambda ys, x: (ys**2).mean()), ROWS, "EX007"),
    "largest": (stacked(lambda ys, x: ys.max(0)), ROWS, "EX007"),
    "least of all": (stacked(lambda ys, x: ys.min()), ROWS, "EX007"),
    "product": (stacked(lambda ys, x: (1 + ys / 9).prod(0)), ROWS, "EX007"),
    "whether any": (stacked(lambda ys, x: (ys > 0.5).any(0)), ROWS, "EX007"),
    "how many": (stacked(lambda ys, x: (ys > 0).sum(0)), ROWS, "EX007"),
    "weighted": (stacked(lambda ys, x: (ys * jnp.exp(x)).sum(0)), ROWS, ""),
    "weighted by an argument": (stacked(lambda ys, x: (ys * x).sum(0)), ROWS, "EX007"),
    "backwards": (stacked(lambda ys, x: (ys * x).sum(0), reverse=True), ROWS, "EX007"),
    "two of one": (stacked(lambda ys, x: (ys.sum(0), (ys + 1).max(0))), ROWS, "EX007"),
    "over more dimensions": (stacked(lambda ys, x: ys.sum((0, 2))), MATRICES, "EX007"),
    "turned": (stacked(lambda ys, x: ys.transpose(0, 2, 1).sum(0)), MATRICES, "EX007"),
    "from a number": (from_a_number, ROWS, "EX007"),
    "two stacks": (pair, ROWS, "EX007"),
    "bfloat16": (lambda x, h: rounded(x, h).sum(0), (of(STEPS, 40), of(40)), "EX007"),
    "all bfloat16": (lambda x, h: rounded(x, h).sum(), (of(STEPS, 40), of(40)), "EX007"),
    "integers": (
        lambda x, h: lax.scan(lambda h, row: (h + row, h * row), h, x)[1].sum(0),
        (of(STEPS, 16, dtype=jnp.int32), of(16, dtype=jnp.int32)),
        "EX007",
    ),
    "in a branch": (
        stacked(lambda ys, x: lax.cond(x[0, 0] > 0, lambda: ys.sum(0), lambda: ys[0])),
        ROWS,
        "",
    ),
    "asked about": (stacked(lambda ys, x: (ys[3] * 2 + 1 == (ys * 2 + 1).max(0)).sum()), ROWS, ""),
    "of many steps": (stacked(lambda ys, x: ys.sum(0)), (of(1000, 16), of(16)), "EX007"),
    "always at one place": (written_at_one_place, ROWS, ""),
    "weighted by the end": (weighted_by_the_end, ROWS, ""),
    "not over steps": (stacked(lambda ys, x: ys.sum(1)), ROWS, ""),
    "returned as well": (stacked(lambda ys, x: (ys, ys.sum(0))), ROWS, ""),
    "variance": (stacked(lambda ys, x: ys.var(0)), ROWS, ""),
    "some steps": (stacked(lambda ys, x: ys[3:].sum(0)), ROWS, ""),
    "the place of the largest": (stacked(lambda ys, x: ys.argmax(0)), ROWS, ""),
}


@pytest.mark.parametrize("name", [*INPUTS, *(f"reduced: {name}" for name in SUMS)])
@pytest.mark.parametrize("passes", [ALONE, DEFAULT_PASSES], ids=["alone", "all"])
def test_the_results_are_the_same(name: str, passes: tuple[str, ...]) -> None:
    function, arguments, code = (INPUTS | {f"reduced: {each}": entry for each, entry in SUMS.items()})[name]
    text = str(jax.jit(function).lower(*arguments).compiler_ir("stablehlo"))
    with new_context() as context:
        module = parse_module(name, text.encode(), context).module
        before = predict(module).peak
        remarks = run_pipeline(module, passes, OPTIONS).remarks
        codes = {each.code for each in remarks if each.kind is Kind.PASSED and each.pass_name == "loop-residuals"}
        assert code in codes if code else codes <= {"EX005"}
        tolerance = default_tolerance(np.dtype(BF16)) if "bf16" in text else None
        assert_equal_results(parse_module(name, text.encode(), context).module, module, tolerance=tolerance)
        assert not code or predict(module).peak < before
        again = parse_module(name, serialise(module, "text"), context).module
        second = run_pipeline(again, ALONE, OPTIONS).remarks
        assert not any(each.kind is Kind.PASSED and each.pass_name == "loop-residuals" for each in second)


def test_no_reassociate_keeps_the_order_of_sums() -> None:
    for name, expected in (("sum", set()), ("product", set()), ("largest", {"EX007"}), ("integers", {"EX007"})):
        function, arguments, _ = SUMS[name]
        text = str(jax.jit(function).lower(*arguments).compiler_ir("stablehlo"))
        with new_context() as context:
            module = parse_module(name, text.encode(), context).module
            options = Options(size_threshold=2000, split_size=500, reassociate=False)
            remarks = run_pipeline(module, ALONE, options).remarks
            assert {each.code for each in remarks if each.kind is Kind.PASSED} == expected, name
