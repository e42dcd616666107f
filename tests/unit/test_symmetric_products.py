"""Products of symmetric and of other matrices with few columns, as JAX programs: rewritten, and executed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from exla_opt.ir import build
from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.walk import walk_functions
from exla_opt.ir.write import serialise
from exla_opt.memory.machine import CPU, GPU, Machine
from exla_opt.options import Options
from exla_opt.passes.symmetric_products.cover import covers
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.runtime.compare import compare
from exla_opt.runtime.compile import compile_program, run_program
from tests.execute import assert_equal_results, random_arguments
from tests.programs.model import Program, export_program

Tensor = Any
Function = Callable[..., Any]
N = 601
THRESHOLD, SLICE = 400_000, 100_000
BEFORE = ("normalise", "rce", "euclidean-distance", "matrix-chain-order", "reused-products", "symmetric-sums")


def rewrite(
    text: str,
    passes: tuple[str, ...] = (*BEFORE, "symmetric-products"),
    *,
    threshold: int = THRESHOLD,
    machine: Machine = CPU,
    reassociate: bool = True,
) -> tuple[str, int]:
    """The module after the passes, and how many matrices symmetric-products has taken."""
    options = Options(size_threshold=threshold, split_size=SLICE, machine=machine, reassociate=reassociate)
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        remarks = run_pipeline(module, passes, options).remarks
        return serialise(module, "text").decode(), sum(each.code == "EX014" for each in remarks)


def export(function: Function, *specs: str) -> str:
    return export_program(Program("case", function, " ".join(specs)))


def largest(text: str) -> int:
    """The elements of the largest tensor that an op of a module makes."""
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        return max(prod(build.shape_of(value)) for op in walk_functions(module.operation) for value in op.results)


def differences(x: Tensor) -> Tensor:
    return x[:, None] - x[None, :]


def distance(x: Tensor) -> Tensor:
    return jnp.sqrt(jnp.maximum(jnp.sum(differences(x) ** 2, -1), 1e-6))


def multiplied_out(x: Tensor) -> Tensor:
    norms = jnp.sum(x * x, axis=1)
    return jnp.maximum(norms[:, None] - 2 * x @ x.T + norms[None, :], 0)


def cosines(x: Tensor) -> Tensor:
    norms = jnp.linalg.norm(x, axis=1)
    return x @ x.T / (norms[:, None] * norms[None, :])


# Of points x of N x 14 and weights v of N.
KERNELS: dict[str, Function] = {
    "gauss": lambda x, v: jnp.exp(-jnp.sum(differences(x) ** 2, -1) / 2),
    "multiplied out": lambda x, v: jnp.exp(-0.5 * multiplied_out(x)),
    "matern": lambda x, v: (1 + distance(x)) * jnp.exp(-distance(x)),
    "l1": lambda x, v: jnp.exp(-jnp.sum(jnp.abs(differences(x)), -1)),
    "polynomial": lambda x, v: (x @ x.T + 1) ** 3,
    "cosine": lambda x, v: jnp.exp(cosines(x)),
    "weighted": lambda x, v: jnp.outer(v, v) * jnp.exp(-multiplied_out(x)),
    "without the diagonal": lambda x, v: jnp.where(jnp.eye(N, dtype=bool), 0, jnp.exp(-multiplied_out(x))),
    "with noise": lambda x, v: jnp.exp(-multiplied_out(x)) + 0.5 * jnp.eye(N),
    "places": lambda x, v: jnp.exp(-jnp.abs(differences(jnp.arange(N).astype(v.dtype))) / 9) * jnp.cos(differences(v)),
    "largest": lambda x, v: jnp.tanh(jnp.maximum(v[:, None], v[None, :])) * jnp.exp(-multiplied_out(x)),
    "ratio": lambda x, v: 1 / (1 + jnp.log1p(multiplied_out(x))),
}
OTHERS: dict[str, Function] = {
    "two sets": lambda x, v: jnp.exp(-jnp.sum((x[:, None] - x[None, ::-1]) ** 2, -1) / 2),
    "triangle": lambda x, v: jnp.tril(jnp.exp(-multiplied_out(x))),
    "weights of the rows": lambda x, v: jnp.exp(-multiplied_out(x)) * v[:, None],
    "odd": lambda x, v: jnp.tanh(differences(v)) * jnp.exp(-multiplied_out(x)),
    "rows of places": lambda x, v: jnp.exp(-multiplied_out(x)) * jnp.arange(N)[:, None],
}
# What is made of a matrix k and of columns b of N x 2.
READERS: dict[str, Function] = {
    "vector": lambda k, b: k @ b[:, 0],
    "vector from the left": lambda k, b: b[:, 1] @ k,
    "columns": lambda k, b: k @ b,
    "columns from the left": lambda k, b: b.T @ k,
    "turned": lambda k, b: jnp.einsum("ij,ci->cj", k, b.T),
    "blocks": lambda k, b: jnp.einsum("ij,cdj->icd", k, b.T[:, None]),
    "sum": lambda k, b: k.sum(0),
    "sum of all": lambda k, b: k.sum(),
    "two products": lambda k, b: (k @ b[:, 0], jnp.sin(b[:, 1] @ k)),
    "product and sum": lambda k, b: k @ b[:, 0] / k.sum(1),
}
POINTS, WEIGHTS, COLUMNS = f"{N}x14xf32", f"{N}xf32", f"{N}x2xf32"


def case(kernel: Function, reader: Function) -> Function:
    return lambda x, v, b: reader(kernel(x, v), b)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_half_of_a_symmetric_matrix_is_made(name: str, dtype: str) -> None:
    specs = (f"{N}x14x{dtype}", f"{N}x{dtype}", f"{N}x2x{dtype}")
    before = export(case(KERNELS[name], READERS["vector"]), *specs)
    after, taken = rewrite(before)
    assert taken == 1
    assert largest(before) >= N * N
    assert largest(after) * int(dtype[1:]) // 8 <= THRESHOLD
    assert_equal_results(before, after)
    assert not rewrite(after)[1]


@pytest.mark.parametrize("name", READERS)
def test_readers(name: str) -> None:
    before = export(case(KERNELS["gauss"], READERS[name]), POINTS, WEIGHTS, COLUMNS)
    after, taken = rewrite(before)
    assert taken == 1
    assert largest(after) * 4 <= THRESHOLD
    assert_equal_results(before, after)


@pytest.mark.parametrize("size", [500, 512, 599, 640, 1000])
def test_sizes(size: int) -> None:
    before = export(lambda x, v: jnp.exp(-multiplied_out(x)) @ v, f"{size}x14xf32", f"{size}xf32")
    after, taken = rewrite(before)
    assert taken == 1
    assert_equal_results(before, after)


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_not_symmetric_stays(name: str) -> None:
    assert not rewrite(export(case(OTHERS[name], READERS["vector"]), POINTS, WEIGHTS, COLUMNS))[1]


def read_elsewhere(x: Tensor, v: Tensor, b: Tensor) -> Tensor:
    k = KERNELS["gauss"](x, v)
    return k @ v, k.max(1)


def distances_read_elsewhere(x: Tensor, v: Tensor, b: Tensor) -> Tensor:
    squares = multiplied_out(x)
    return jnp.exp(-squares) @ v, squares.max(1)


def one_after_the_other(x: Tensor, v: Tensor, b: Tensor) -> Tensor:
    k = KERNELS["gauss"](x, v)
    return k @ (k @ v)


def returned(x: Tensor, v: Tensor, b: Tensor) -> Tensor:
    k = KERNELS["gauss"](x, v)
    return k, k @ v


def many_columns(x: Tensor, v: Tensor, b: Tensor) -> Tensor:
    return KERNELS["gauss"](x, v) @ jnp.tile(b, (1, 40))


def quick_to_make(x: Tensor, v: Tensor, b: Tensor) -> Tensor:
    return jnp.maximum(v[:, None], v[None, :]) @ v


def unknown_op(x: Tensor, v: Tensor, b: Tensor) -> Tensor:
    return jnp.sort(KERNELS["gauss"](x, v), axis=1) @ v


def made_before_the_loop(x: Tensor, v: Tensor, b: Tensor) -> Tensor:
    k = KERNELS["gauss"](x, v)
    return lax.fori_loop(0, 3, lambda _, w: jnp.tanh(k @ w), v)


@pytest.mark.parametrize(
    "function",
    [
        read_elsewhere,
        distances_read_elsewhere,
        one_after_the_other,
        returned,
        many_columns,
        quick_to_make,
        unknown_op,
        made_before_the_loop,
    ],
)
def test_other_products_stay(function: Function) -> None:
    assert not rewrite(export(function, POINTS, WEIGHTS, COLUMNS))[1]


@pytest.mark.parametrize(("width", "taken"), [(14, 1), (30, 1), (50, 0)])
def test_points_that_would_take_too_much_memory_twice(width: int, taken: int) -> None:
    before = export(lambda x, v: jnp.tanh(x @ x.T) @ v, f"{N}x{width}xf32", WEIGHTS)
    after, found = rewrite(before)
    assert found == taken
    assert_equal_results(before, after)


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_narrow_floats_stay(dtype: str) -> None:
    function = case(KERNELS["gauss"], READERS["vector"])
    assert not rewrite(export(function, f"{N}x14x{dtype}", f"{N}x{dtype}", f"{N}x2x{dtype}"))[1]


def test_small_matrices_other_machines_and_the_order_of_sums() -> None:
    before = export(case(KERNELS["gauss"], READERS["vector"]), POINTS, WEIGHTS, COLUMNS)
    assert rewrite(before, threshold=4 * N * N - 1)[1]
    assert not rewrite(before, threshold=4 * N * N)[1]
    assert not rewrite(before, machine=GPU)[1]
    assert not rewrite(before, reassociate=False)[1]


def test_sum_over_no_dimension_stays() -> None:
    text = """func.func @main(%x: tensor<601x14xf32>) -> tensor<601x601xf32> {
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %0 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [1]
        : (tensor<601x14xf32>, tensor<601x14xf32>) -> tensor<601x601xf32>
      %1 = stablehlo.exponential %0 : tensor<601x601xf32>
      %2 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = []
        : (tensor<601x601xf32>, tensor<f32>) -> tensor<601x601xf32>
      return %2 : tensor<601x601xf32>
    }"""
    assert not rewrite(text, ("symmetric-products",))[1]
    summed = text.replace("= []", "= [1]").replace(
        "tensor<f32>) -> tensor<601x601xf32>", "tensor<f32>) -> tensor<601xf32>"
    )
    summed = summed.replace("return %2 : tensor<601x601xf32>", "return %2 : tensor<601xf32>")
    summed = summed.replace(
        "(%x: tensor<601x14xf32>) -> tensor<601x601xf32>", "(%x: tensor<601x14xf32>) -> tensor<601xf32>"
    )
    assert rewrite(summed, ("symmetric-products",))[1]


def test_in_a_loop_of_the_program() -> None:
    def function(x: Tensor, v: Tensor) -> Tensor:
        def step(i: Tensor, w: Tensor) -> Tensor:
            return jnp.tanh(jnp.exp(-multiplied_out(x)) @ w / 9 + i)

        return lax.fori_loop(0, 3, step, v)

    before = export(function, POINTS, WEIGHTS)
    after, taken = rewrite(before)
    assert taken == 1 and after.count("stablehlo.while") == 2
    assert_equal_results(before, after)
    assert_equal_results(before, rewrite(before, DEFAULT_PASSES)[0])


def test_one_matrix_of_products_with_another() -> None:
    def function(x: Tensor, v: Tensor) -> Tensor:
        y = jnp.exp(-multiplied_out(x)) @ v
        return jnp.exp(-multiplied_out(jnp.stack([y, v], 1))) @ y

    before = export(function, POINTS, WEIGHTS)
    after, taken = rewrite(before)
    assert taken == 2 and largest(after) * 4 <= THRESHOLD
    assert_equal_results(before, after)


def test_what_is_not_finite_stays_where_it_was() -> None:
    """The last rows stand twice in a cover of 601 indices."""
    before = export(lambda x, v: (multiplied_out(x) + jnp.exp(x @ x.T)) @ v, POINTS, WEIGHTS)
    after, taken = rewrite(before)
    assert taken == 1
    programs = [compile_program(text) for text in (before, after)]
    for row, number, weight in product((0, 300, N - 1), (np.inf, np.nan, 30.0), (0.0, 1.0, np.inf)):
        x, v = map(np.array, random_arguments(before))
        x[row], v[:] = number, np.abs(v)
        v[N - 1] = weight
        [expected], [actual] = (run_program(program, [x, v]) for program in programs)
        assert compare(expected, actual).passed, (row, number, weight)


def test_gradients_still_fit() -> None:
    def function(x: Tensor, v: Tensor) -> Tensor:
        return v @ (KERNELS["gauss"](x, v) @ v)

    before = export(jax.value_and_grad(function), POINTS, WEIGHTS)
    after = rewrite(before, DEFAULT_PASSES)[0]
    assert largest(after) * 4 <= THRESHOLD
    assert_equal_results(before, after)


@pytest.mark.parametrize("size", [64, 100, 601, 6000, 100_003])
def test_covers_have_every_pair_in_one_tile(size: int) -> None:
    found = list(covers(size, 10**6, size))
    assert found
    assert [cover for cover in found if cover.columns <= size // 4] == list(covers(size, 10**6, size // 4))
    for cover in found:
        assert cover.ring % cover.rows == 0 and cover.blocks % 2 == 1
        assert 0 <= cover.twice < cover.blocks and cover.tile <= 10**6
        assert cover.beyond < size
    for cover in (cover for cover in found if cover.ring < 1000):
        count = np.zeros((cover.ring, cover.ring), int)
        for block, chunk in product(range(cover.blocks), range(cover.chunks)):
            row = block * cover.rows
            columns = (np.arange(cover.columns) + row + chunk * cover.columns) % cover.ring
            own = np.arange(cover.columns) + chunk * cover.columns < cover.rows
            for index in range(row, row + cover.rows):
                count[index, columns] += 1
                count[columns[~own], index] += 1
        assert (count == 1).all()
