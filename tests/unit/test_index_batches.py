"""The batch of a gather, split in its indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.walk import inside_out
from exla_opt.ir.write import serialise
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.runtime.memory import measure_memory
from tests.execute import assert_equal_results

ROWS, BATCHES, FEATURES = 4096, 8, 64


def shuffled(x: Any) -> Any:
    """The rows of a tensor that is computed, in another order."""
    order = jax.random.permutation(jax.random.key(0), ROWS)
    return jnp.tanh(x + 1)[order]


def scanned(x: Any, weights: Any) -> Any:
    """Weights that are updated batch by batch, in an epoch over shuffled rows."""
    batches = x[jnp.argsort(x[:, 0])].reshape(BATCHES, -1, FEATURES)

    def step(weights: Any, batch: Any) -> Any:
        slopes = jax.grad(lambda weights: (jnp.tanh(batch @ weights) ** 2).mean())(weights)
        return weights - slopes, None

    return lax.scan(step, weights, batches)[0]


def module_of(function: Callable[..., Any], *shapes: tuple[int, ...]) -> ir.Module:
    arguments = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    text = str(jax.jit(function).lower(*arguments).compiler_ir("stablehlo"))
    return parse_module("program", text.encode(), new_context()).module


SPLIT: dict[str, Callable[..., Any]] = {
    "rows": lambda x: shuffled(x).reshape(BATCHES, -1, FEATURES),
    "twice": lambda x: shuffled(x).reshape(BATCHES, 2, -1, FEATURES),
    "numbers": lambda x: x[:, 0][jnp.argsort(x[:, 1])].reshape(BATCHES, -1),
    "pairs of indices": lambda x: x[jnp.argsort(x[:, 0]), jnp.argsort(x[:, 1]) % FEATURES].reshape(BATCHES, -1),
    "two dimensions of indices": lambda x: x[jnp.argsort(x[:, :4], 0)].reshape(BATCHES, -1, 4, FEATURES),
}
LEFT: dict[str, Callable[..., Any]] = {
    "merged": lambda x: x[jnp.argsort(x[:, :4], 0)].reshape(-1, FEATURES),
    "windows": lambda x: shuffled(x).reshape(ROWS, 2, -1),
    "across": lambda x: shuffled(x).reshape(BATCHES, -1, 2 * FEATURES),
    "columns": lambda x: x[:, jnp.argsort(x[0])].reshape(ROWS, 2, -1),
    "read again": lambda x: (lambda rows: (rows.reshape(BATCHES, -1, FEATURES), rows + 1))(shuffled(x)),
}


def ranks_of_indices(module: ir.Module) -> list[int]:
    return [ir.RankedTensorType(op.operands[1].type).rank for op in inside_out(module, "stablehlo.gather")]


@pytest.mark.parametrize("name", SPLIT)
def test_the_indices_are_split(name: str) -> None:
    before, after = (module_of(SPLIT[name], (ROWS, FEATURES)) for _ in range(2))
    run_pipeline(after, ("normalise",), Options())
    assert sum(ranks_of_indices(after)) > sum(ranks_of_indices(before))
    assert_equal_results(before, after)
    text = str(after)
    run_pipeline(after, ("normalise",), Options())
    assert str(after) == text


@pytest.mark.parametrize("name", LEFT)
def test_other_reshapes_stay(name: str) -> None:
    before, after = (module_of(LEFT[name], (ROWS, FEATURES)) for _ in range(2))
    run_pipeline(after, ("normalise",), Options())
    assert sum(ranks_of_indices(after)) <= sum(ranks_of_indices(before))
    assert_equal_results(before, after)


@pytest.mark.parametrize("parted", ["3x5x0", "3x4x0"])
def test_windows_without_elements(parted: str) -> None:
    text = f"""func.func @main(%x: tensor<30x8xf32>, %i: tensor<12x1xi32>) -> tensor<{parted}xf32> {{
      %rows = "stablehlo.gather"(%x, %i) <{{dimension_numbers = #stablehlo.gather<
        offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>,
        slice_sizes = array<i64: 1, 0>}}> : (tensor<30x8xf32>, tensor<12x1xi32>) -> tensor<12x0xf32>
      %parted = stablehlo.reshape %rows : (tensor<12x0xf32>) -> tensor<{parted}xf32>
      return %parted : tensor<{parted}xf32> }}"""
    before, after = (parse_module("program", text.encode(), new_context()).module for _ in range(2))
    run_pipeline(after, ("normalise",), Options())
    assert_equal_results(before, after)


def test_a_loop_over_shuffled_batches_reads_its_own_rows() -> None:
    shapes = (ROWS, FEATURES), (FEATURES, 1024)
    before, after = (module_of(scanned, *shapes) for _ in range(2))
    run_pipeline(after, DEFAULT_PASSES, Options(125_000, 125_000))
    assert measure_memory(serialise(after, "text")).temp < 1_000_000  # all rows take a megabyte
    assert_equal_results(before, after)
