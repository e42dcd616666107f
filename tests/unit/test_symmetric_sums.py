"""Sums of symmetric and of other matrices along both dimensions, as JAX programs: rewritten, counted and executed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.walk import walk_functions
from exla_opt.ir.write import serialise
from exla_opt.memory.machine import CPU, GPU, Machine
from exla_opt.options import Options
from exla_opt.pipeline import run_pipeline
from tests.execute import assert_equal_results, calls_of
from tests.programs.model import Program, export_program

Tensor = Any
Function = Callable[..., Any]
N = 96
BYTES = N * N * 2 - 1


def rewrite(
    text: str, passes: str = "normalise,rce,symmetric-sums", machine: Machine = CPU, reassociate: bool = True
) -> tuple[str, list[str]]:
    """The module after the passes, and what symmetric-sums said."""
    options = Options(size_threshold=BYTES, machine=machine, reassociate=reassociate)
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        remarks = run_pipeline(module, passes.split(","), options).remarks
        return serialise(module, "text").decode(), [each.message for each in remarks if each.code == "EX011"]


def big_sums(text: str) -> int:
    """How many dots and sums over a matrix of N x N, or more, a module has."""
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        return sum(
            op.name in ("stablehlo.reduce", "stablehlo.dot_general")
            and any(value.type.rank >= 2 and list(value.type.shape)[:2] == [N, N] for value in op.operands)
            for op in walk_functions(module.operation)
        )


def export(function: Function, *specs: str) -> str:
    return export_program(Program("case", function, " ".join(specs)))


def differences(x: Tensor) -> Tensor:
    return x[:, None] - x[None, :]


def squares(x: Tensor) -> Tensor:
    return sum(differences(x[:, k]) ** 2 for k in range(x.shape[1]))


def multiplied_out(x: Tensor) -> Tensor:
    norms = jnp.sum(x * x, axis=1)
    return norms[:, None] - 2 * (x @ x.T) + norms[None, :]


def rows(x: Tensor) -> Tensor:
    return x.sum(1)


# Of points x of N x 3 and weights v of N: a matrix that is symmetric.
SYMMETRIC: dict[str, Function] = {
    "gauss": lambda x, v: jnp.exp(-squares(x) / 2),
    "weighted": lambda x, v: jnp.exp(-squares(x)) * v[:, None] * v[None, :],
    "scaled on one side": lambda x, v: jnp.outer(3 * v, v) * jnp.exp(-squares(x)),
    "multiplied out": lambda x, v: jnp.exp(-jnp.maximum(multiplied_out(x), 0)),
    "products": lambda x, v: jnp.tanh(x @ x.T),
    "turned products": lambda x, v: jnp.tanh(jnp.einsum("ki,kj->ij", x.T, x.T) / 2),
    "distances": lambda x, v: jnp.abs(differences(v)) + jnp.cos(differences(v)),
    "periodic": lambda x, v: jnp.exp(-(jnp.sin(differences(v)) ** 2)),
    "without the diagonal": lambda x, v: jnp.where(jnp.eye(N, dtype=bool), 0, 1 / (1 + squares(x))),
    "largest": lambda x, v: jnp.maximum(v[:, None], v[None, :]) - jnp.minimum(v[None, :], v[:, None]),
    "of sums": lambda x, v: jnp.sin(rows(x)[:, None] + rows(x)[None, :]) / (1 + jnp.abs(differences(v))),
    "terms": lambda x, v: ((v[:, None] + 0.5) + v[None, :]) * 3,
    "powers": lambda x, v: jnp.power(differences(v), 2.0),
    "places": lambda x, v: jnp.exp(-jnp.abs(differences(jnp.arange(N))).astype(jnp.float32)) * jnp.outer(v, v),
    "both ways": lambda x, v: jnp.tanh(jnp.outer(v, v)) @ jnp.tanh(jnp.outer(v, v)),
    "odd times odd": lambda x, v: jnp.tanh(differences(v)) * differences(v),
}
ANTISYMMETRIC: dict[str, Function] = {
    "differences": lambda x, v: differences(v),
    "odd": lambda x, v: jnp.tanh(differences(v) / 3),
    "forces": lambda x, v: -differences(v) * jnp.exp(-squares(x)),
    "quotients": lambda x, v: differences(v) / (1 + squares(x)),
}
OTHER: dict[str, Function] = {
    "of the rows": lambda x, v: v[:, None] * jnp.ones((1, N)),
    "weights of the rows": lambda x, v: jnp.exp(-squares(x)) * v[:, None],
    "two weights": lambda x, v: jnp.outer(v, rows(x)),
    "exponential of differences": lambda x, v: jnp.exp(differences(v)),
    "differences and others": lambda x, v: differences(v) + jnp.exp(-squares(x)),
    "triangle": lambda x, v: jnp.triu(jnp.exp(-squares(x))),
    "below": lambda x, v: jnp.where(jnp.arange(N)[:, None] < jnp.arange(N)[None, :], jnp.outer(v, v), 0.0),
    "quotient": lambda x, v: v[:, None] / (1 + jnp.abs(v[None, :])),
    "by differences": lambda x, v: 1 / (differences(v) + 1000 * jnp.eye(N)),
    "turned": lambda x, v: jnp.outer(v, v[::-1]),
    "shifted": lambda x, v: jnp.exp(-((v[:, None] - jnp.roll(v, 1)[None, :]) ** 2)),
    "powers": lambda x, v: jnp.power(jnp.abs(v)[:, None] + 1, v[None, :]),
    "chosen": lambda x, v: jnp.where(v[:, None] > 0, jnp.outer(v, v), 0.0),
    "places": lambda x, v: jnp.outer(v, v) * jnp.arange(N)[:, None],
    "square root of products": lambda x, v: jnp.tanh(x @ jnp.flip(x, 1).T),
    "a constant": lambda x, v: jnp.asarray([[float((3 * i + j) % 7) for i in range(N)] for j in range(N)]) + 0 * v[0],
}
POINTS, WEIGHTS, COLUMNS = f"{N}x3xf32", f"{N}xf32", f"{N}x2xf32"


def both_sums(matrix: Function) -> Function:
    return lambda x, v, b: (matrix(x, v).sum(0), matrix(x, v).sum(1))


def both_dots(matrix: Function) -> Function:
    def function(x: Tensor, v: Tensor, b: Tensor) -> Tensor:
        w = matrix(x, v)
        return jnp.einsum("ij,jk->ik", w, b), jnp.einsum("ij,ik->jk", w, b)

    return function


@pytest.mark.parametrize("sums", [both_sums, both_dots])
@pytest.mark.parametrize("name", [*SYMMETRIC, *(f"anti {name}" for name in ANTISYMMETRIC)])
def test_a_symmetric_matrix_is_summed_once(name: str, sums: Callable[[Function], Function]) -> None:
    anti = name.startswith("anti ")
    matrix = ANTISYMMETRIC[name.removeprefix("anti ")] if anti else SYMMETRIC[name]
    before = export(sums(matrix), POINTS, WEIGHTS, COLUMNS)
    after, remarks = rewrite(before)
    assert remarks == [f"not summed again: an earlier sum is {'its negative' if anti else 'the same'}"]
    assert big_sums(after) == big_sums(rewrite(before, "normalise,rce")[0]) - 1
    assert_equal_results(before, after)
    assert not rewrite(before, reassociate=False)[1]
    assert not rewrite(after)[1]


@pytest.mark.parametrize("sums", [both_sums, both_dots])
@pytest.mark.parametrize("name", OTHER)
def test_what_is_not_symmetric_stays(name: str, sums: Callable[[Function], Function]) -> None:
    before = export(sums(OTHER[name]), POINTS, WEIGHTS, COLUMNS)
    assert not rewrite(before)[1]


def other_factors(x: Tensor, v: Tensor, b: Tensor) -> Tensor:
    w = SYMMETRIC["gauss"](x, v)
    return jnp.einsum("ij,jk->ik", w, b), jnp.einsum("ij,ik->jk", w, b[::-1])


def one_side_weighted(x: Tensor, v: Tensor, b: Tensor) -> Tensor:
    w = SYMMETRIC["gauss"](x, v) * v[:, None]
    return w.sum(1), w.sum(0)


def two_sets(x: Tensor, v: Tensor, b: Tensor) -> Tensor:
    w = jnp.tanh(x @ (2 * x + 1).T)
    return w.sum(1), w.sum(0)


def largest(x: Tensor, v: Tensor, b: Tensor) -> Tensor:
    w = SYMMETRIC["gauss"](x, v)
    return w.max(1), w.max(0)


def small(x: Tensor, v: Tensor, b: Tensor) -> Tensor:
    w = jnp.outer(v[:9], v[:9])
    return w.sum(1), w.sum(0)


@pytest.mark.parametrize("function", [other_factors, one_side_weighted, two_sets, largest, small])
def test_other_sums_stay(function: Function) -> None:
    assert not rewrite(export(function, POINTS, WEIGHTS, COLUMNS))[1]


def test_two_matrices_of_which_one_is_the_other_turned() -> None:
    def function(x: Tensor, v: Tensor) -> Tensor:
        return jnp.exp(v[:, None] - x[None, :]).sum(1), jnp.exp(v[None, :] - x[:, None]).sum(0)

    before = export(function, WEIGHTS, WEIGHTS)
    after, remarks = rewrite(before)
    assert len(remarks) == 1 and big_sums(after) == 1
    assert_equal_results(before, after)


def test_the_batches_of_a_symmetric_matrix() -> None:
    def function(x: Tensor, b: Tensor) -> Tensor:
        w = jnp.exp(-((x[:, :, None] - x[:, None, :]) ** 2))
        return jnp.einsum("nij,njk->nik", w, b), jnp.einsum("nij,nik->njk", w, b), w.sum(0)

    before = export(function, f"3x{N}xf32", f"3x{N}x2xf32")
    after, remarks = rewrite(before)
    assert len(remarks) == 1
    assert_equal_results(before, after)


@pytest.mark.parametrize(("dtype", "once"), [("f64", True), ("i32", True), ("bf16", False), ("f16", False)])
def test_factors_change_places_where_they_round_little(dtype: str, once: bool) -> None:
    def function(v: Tensor) -> Tensor:
        w = (3 * v)[:, None] * v[None, :]
        return w.sum(1), w.sum(0)

    before = export(function, f"{N}x{dtype}")
    after, remarks = rewrite(before)
    assert bool(remarks) is once
    assert_equal_results(before, after)


def kernel(x: Tensor, y: Tensor, v: Tensor) -> Tensor:
    return v @ jnp.exp(-jnp.sum((x[:, None] - y[None]) ** 2, -1) / 2) @ v


def laplace(x: Tensor, y: Tensor, v: Tensor) -> Tensor:
    return v @ jnp.exp(-jnp.sqrt(jnp.sum((x[:, None] - y[None]) ** 2, -1) + 1e-6)) @ v


def scalar_products(x: Tensor, y: Tensor, v: Tensor) -> Tensor:
    return 0.3 * (v @ jnp.tanh(x @ y.T) @ v)


DISTANCES = "normalise,rce,euclidean-distance,matrix-chain-order"


@pytest.mark.parametrize("machine", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("width", [3, 20])
@pytest.mark.parametrize("function", [kernel, laplace, scalar_products])
def test_gradients_by_the_points_of_a_kernel(function: Function, width: int, machine: Machine) -> None:
    def of_one_set(x: Tensor, v: Tensor) -> Tensor:
        return function(x, x, v)

    before = export(jax.value_and_grad(of_one_set), f"{N}x{width}xf32", WEIGHTS)
    multiplied_out = rewrite(before, DISTANCES, machine)[0]
    after, remarks = rewrite(multiplied_out, machine=machine)
    assert remarks
    assert_equal_results(multiplied_out, after)
    of_two = export(jax.grad(function, (0, 1)), f"{N}x{width}xf32", f"{N}x{width}xf32", WEIGHTS)
    assert not rewrite(of_two, f"{DISTANCES},symmetric-sums", machine)[1]


def test_the_work_grows_as_the_chain() -> None:
    def calls(length: int) -> int:
        def function(v: Tensor) -> Tensor:
            w = jnp.outer(v, v)
            for _ in range(length):
                w = jnp.tanh(w * w + 1) * v[:, None] * v[None, :] + w
            return w.sum(1), w.sum(0)

        text = export(function, WEIGHTS)
        assert rewrite(text)[1]
        return calls_of(lambda: rewrite(text))

    assert calls(400) <= 4.5 * calls(100)
