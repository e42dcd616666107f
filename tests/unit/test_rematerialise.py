"""Big tensors that loops of the program read: which are computed in the loop's body, for its tiles to split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import export, lax

from exla_opt.ir import build
from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.walk import walk_functions
from exla_opt.ir.write import serialise
from exla_opt.memory.machine import CPU, GPU, Machine, machine_of
from exla_opt.memory.peak import predict
from exla_opt.ops.comparisons import asks_about, asks_across
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from tests.execute import assert_equal_results
from tests.programs.kernels import eigen_power

ROWS = 512


def sorted_sums(x: Any, y: Any, start: Any) -> Any:
    costs = jnp.exp(-jnp.abs(x[:, None] - y))
    return lax.fori_loop(0, 3, lambda _, u: jnp.sort(jnp.sort(costs + u[0], 0), 1)[0] + u, start)


def assert_no_matrix_is_left(before: str, slices: int, passes: Sequence[str]) -> None:
    """Assert that passes with slices of so many to a matrix of ROWS x ROWS keep the results, and no such matrix."""
    largest = 4 * ROWS * ROWS
    with new_context() as context:
        module = parse_module("<program>", before.encode(), context).module
        run_pipeline(module, passes, Options(size_threshold=largest // slices, split_size=largest // slices))
        assert predict(module, CPU).peak < largest
        after = serialise(module, "text").decode()
    assert_equal_results(before, after)


def test_a_tensor_is_moved_once_the_body_that_reads_it_is_cut() -> None:
    points = (jax.ShapeDtypeStruct((ROWS,), jnp.float32),) * 3
    before = export.export(jax.jit(sorted_sums))(*points).mlir_module()
    # The matrix stays if a move that leads to no split at first is not tried again in a later round.
    assert_no_matrix_is_left(before, 4, ("normalise", "tensor-splitter", "normalise"))


@pytest.mark.parametrize("machine", [CPU, GPU, machine_of("tpu:v5e")], ids=lambda machine: machine.kind)
def test_a_matrix_that_leaves_the_cache_is_computed_again_for_products_with_vectors(machine: Machine) -> None:
    """On a CPU it takes 3.2 times the arithmetic of the products, which wait for the matrix on every machine."""
    points = jax.ShapeDtypeStruct((5000, 4), jnp.float32)
    before = export.export(jax.jit(eigen_power))(points).mlir_module()
    with new_context() as context:
        module = parse_module("<program>", before.encode(), context).module
        run_pipeline(module, DEFAULT_PASSES, Options(size_threshold=4_000_000, split_size=2_000_000, machine=machine))
        assert "5000x5000x" not in serialise(module, "text").decode()


def repeated_product(x: Any) -> Any:
    matrix = jnp.tanh(x[:, None] * x[None])
    return lax.fori_loop(0, 3, lambda _, v: matrix @ v, x)


def test_a_product_may_be_the_next_carry() -> None:
    before = export.export(jax.jit(repeated_product))(jax.ShapeDtypeStruct((ROWS,), jnp.float32)).mlir_module()
    assert_no_matrix_is_left(before, 8, ("normalise", "tensor-splitter", "normalise"))


def sampled(x: Any, data: Any, weights: Any, keys: Any) -> Any:
    """Every step draws proposals, and weighs the data for each of them."""

    def likelihood(x: Any) -> Any:
        return -jax.nn.softplus(-weights * (x @ data.T)).sum(1)

    def step(state: Any, key: Any) -> Any:
        x, known = state
        place = jnp.argsort(known)
        x, known = x[place], known[place]
        proposed = 0.9 * x + 0.1 * jax.random.normal(key, x.shape)
        found = likelihood(proposed)
        return (jnp.where((found > known)[:, None], proposed, x), jnp.where(found > known, found, known)), None

    return lax.scan(step, (x, likelihood(x)), keys)[0]


def test_a_tensor_that_tiles_compute_in_their_kernels_is_not_kept() -> None:
    """The weights of all rows, which are broadcast before the loop: its tiles broadcast them again."""
    shapes = [jax.ShapeDtypeStruct(each, jnp.float32) for each in ((ROWS, 8), (ROWS, 8), (ROWS,))]
    keys = jax.ShapeDtypeStruct((3, 2), jnp.uint32)
    before = export.export(jax.jit(sampled))(*shapes, keys).mlir_module()
    assert_no_matrix_is_left(before, 10, DEFAULT_PASSES)


def projected_descent(x: Any, w: Any) -> Any:
    """Each step compares numbers of its own copy of the matrix, and so does the program after it."""
    scaled = x * 0.1

    def objective(w: Any) -> Any:
        return jnp.maximum(scaled @ w, 0).mean()

    def projected(v: Any) -> Any:
        falling = jnp.sort(v)[::-1]
        bound = (jnp.cumsum(falling) - 1) / jnp.arange(1, len(v) + 1)
        return jnp.maximum(v - bound[jnp.sum(falling > bound) - 1], 0)

    w = lax.fori_loop(0, 3, lambda _, w: projected(w - 0.1 * jax.grad(objective)(w)), w)
    return w, objective(w)


def test_a_matrix_is_moved_if_tests_compare_numbers_of_one_copy() -> None:
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((8 * ROWS, ROWS // 8), (ROWS // 8,))]
    text = str(export.export(jax.jit(projected_descent), platforms=["cpu"])(*shapes).mlir_module())
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        run_pipeline(module, DEFAULT_PASSES, Options(size_threshold=2**16, split_size=2**16))
        assert predict(module, CPU).temp < 2**20 / 4, "a quarter of the matrix"
        after = serialise(module, "text").decode()
    assert_equal_results(text, after)


def largest_of_a_loop(x: Any, start: Any) -> Any:
    matrix = jnp.exp(x @ x.T) / jnp.abs(x[:, :1])
    largest = lax.fori_loop(0, 3, lambda _, m: jnp.maximum(m, (matrix * 1.0).max(0)), start)
    return jnp.where(matrix == largest, 1.0, 0.0).sum(1), largest


def largest_before_a_loop(x: Any, start: Any) -> Any:
    matrix = jnp.exp(x @ x.T) / jnp.abs(x[:, :1])
    largest = matrix.max(0)
    return lax.fori_loop(0, 3, lambda _, m: m + jnp.where(matrix == largest, 1.0, 0.0).sum(1), start)


def largest_carried(x: Any, start: Any) -> Any:
    """The first step compares with what was selected before the loop, by way of another array."""
    matrix = jnp.exp(x @ x.T) / jnp.abs(x[:, :1])

    def step(_: Any, state: Any) -> Any:
        m, total = state
        return matrix.max(0), total + jnp.where(matrix - m == 0, 1.0, 0.0).sum(1)

    return lax.fori_loop(0, 3, step, (jnp.zeros(ROWS).at[:].set(matrix.max(0)), start))


def largest_doubled(x: Any, start: Any) -> Any:
    """The first step compares with what the loop starts from; the next ones carry nothing of the matrix."""
    matrix = jnp.exp(x @ x.T) / jnp.abs(x[:, :1])

    def step(_: Any, state: Any) -> Any:
        m, total = state
        return m * 2, total + jnp.where(matrix == m, 1.0, 0.0).sum(1)

    return lax.fori_loop(0, 3, step, (matrix.max(0), start))[1]


@pytest.mark.parametrize("function", [largest_of_a_loop, largest_before_a_loop, largest_carried, largest_doubled])
def test_a_matrix_is_not_moved_if_a_test_compares_numbers_of_two_copies(function: Any) -> None:
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((ROWS, 37), (ROWS,))]
    text = str(export.export(jax.jit(function), platforms=["cpu"])(*shapes).mlir_module())
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        run_pipeline(module, ("normalise",), Options())
        matrices = [
            op.results[0]
            for op in walk_functions(module.operation)
            if op.name == "stablehlo.divide" and build.shape_of(op.results[0]) == [ROWS, ROWS]
        ]
        assert matrices and all(asks_across(matrix, matrix.owner.operation.block) for matrix in matrices)
        assert all(asks_about(matrix, matrix.owner.operation.block) for matrix in matrices)


TOKENS, HEADS, WIDTH = 96, 4, 128


def attention_with_biases(x: Any, tables: Sequence[Any], rows: Any, weights: Any) -> Any:
    """Layers of attention, each with a bias for every pair of tokens, from a small table of its own."""
    for table in tables:
        heads = x.reshape(-1, TOKENS, HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3)
        logits = heads @ heads.transpose(0, 1, 3, 2) + table[rows].transpose(2, 0, 1)
        mixed = (jax.nn.softmax(logits, -1) @ heads).transpose(0, 2, 1, 3)
        x = jnp.tanh(mixed.reshape(x.shape) @ weights)
    return x


def attention_in_slices(layers: int, size: int) -> tuple[str, str, int]:
    """The program, what slices of `size` bytes make of it, and its temporary memory in bytes, predicted."""
    shapes = [(8, TOKENS, WIDTH), *[(200, HEADS)] * layers, (TOKENS, TOKENS), (WIDTH, WIDTH)]
    x, *tables, rows, weights = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)
    rows = jax.ShapeDtypeStruct(rows.shape, jnp.int32)
    before = export.export(jax.jit(attention_with_biases))(x, tables, rows, weights).mlir_module()
    with new_context() as context:
        module = parse_module("<program>", before.encode(), context).module
        run_pipeline(module, DEFAULT_PASSES, Options(size_threshold=size, split_size=size))
        return before, serialise(module, "text").decode(), predict(module, CPU).temp


def test_biases_are_computed_in_the_loop_over_the_batch_that_reads_them() -> None:
    """A plan of their own, over the heads, does not replace the loop over the batch, in which all layers fit."""
    before, after, temp = attention_in_slices(layers=4, size=100_000)
    assert temp < 6 * 100_000
    assert f"tensor<{TOKENS}x{TOKENS}x{HEADS}xf32>" not in after
    assert_equal_results(before, after)


def test_biases_of_a_few_slices_in_all_are_computed_once() -> None:
    before, after, _ = attention_in_slices(layers=2, size=100_000)
    gathers = [line for line in after.splitlines() if "stablehlo.gather" in line]
    assert len(gathers) == 2 and all(f"-> tensor<{TOKENS}x{TOKENS}x{HEADS}xf32>" in line for line in gathers)
    assert_equal_results(before, after)
