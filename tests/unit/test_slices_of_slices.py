"""Tiles of a slice of a table: read from the table at once, not across all that the slice leaves out."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.runtime.compile import compile_program, run_program
from exla_opt.runtime.memory import measure_memory
from tests.execute import assert_equal_results
from tests.programs.model import Program, export_program

Tensor = Any


def rewrite(text: str) -> str:
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        run_pipeline(module, DEFAULT_PASSES, Options(size_threshold=50_000))
        return serialise(module, "text").decode()


def of_one_layer(table: Tensor, layer: Tensor) -> Tensor:
    """All pairs of the rows of one layer: the tiles of its rows are tiles of the table's."""
    rows = lax.dynamic_slice(table, (layer, 0, 0), (1, 256, 64))[0]
    return jnp.sum(jnp.exp(rows[:, None, :] - rows[None, :, :]), (1, 2)) + jnp.sum(rows**2, 1)


def of_a_part(table: Tensor, start: Tensor) -> Tensor:
    """A slice that begins anywhere along the dimension that the tiles cut: their starts add up."""
    rows = lax.dynamic_slice(table, (2, start, 0), (1, 200, 64))[0]
    return jnp.sum(jnp.exp(rows[:, None, :] - rows[None, :, :]), (1, 2)) + jnp.sum(rows**2, 1)


def of_a_slice(table: Tensor, start: Tensor) -> Tensor:
    """A slice of a slice along the same dimension: two indices, each of them clamped for itself."""
    some = lax.dynamic_slice(table, (start, start, 0), (2, 220, 64))
    rows = lax.dynamic_slice(some, (start, start, 0), (1, 200, 64))[0]
    return jnp.sum(jnp.exp(rows[:, None, :] - rows[None, :, :]), (1, 2)) + jnp.sum(rows**2, 1)


@pytest.mark.parametrize("function", [of_one_layer, of_a_part, of_a_slice], ids=lambda each: each.__name__)
@pytest.mark.parametrize("index", ["i32", "i64"])
def test_a_tile_of_a_slice_is_cut_from_the_table(function: Any, index: str) -> None:
    text = export_program(Program("case", function, f"7x256x64xf32 {index}"))
    after = rewrite(text)
    assert "stablehlo.while" in after
    assert_equal_results(text, after)


@pytest.mark.parametrize(("inner", "outer", "start"), [("i32", "u32", -2), ("u32", "i32", 3 * 10**9)])
def test_starts_of_other_types_are_clamped_as_they_are(inner: str, outer: str, start: int) -> None:
    """-2 as an unsigned number, or 3e9 as a signed one, would be clamped to the other end."""

    def function(table: Tensor, first: Tensor) -> Tensor:
        some = lax.dynamic_slice(table, (first, *[first * 0] * 3), (1, 9, 256, 64))
        zero = jnp.zeros((), jnp.uint32 if outer == "u32" else jnp.int32)
        rows = lax.dynamic_slice(some, (zero, zero + 3, zero, zero), (1, 1, 256, 64))[0, 0]
        return jnp.sum(jnp.exp(rows[:, None, :] - rows[None, :, :]), (1, 2)) + jnp.sum(rows**2, 1)

    kind = jnp.int32 if inner == "i32" else jnp.uint32
    rng = np.random.default_rng(0)
    inputs = [rng.random((7, 9, 256, 64), np.float32), np.asarray(start, kind)]
    text = export_program(Program("case", function, f"7x9x256x64xf32 {inner}"))
    before, after = (compile_program(each) for each in (text.encode(), rewrite(text).encode()))
    for one, other in zip(run_program(before, inputs), run_program(after, inputs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_a_table_that_is_computed_in_tiles_stays_in_tiles() -> None:
    """Along a dimension of which a slice takes a part, the table could not be cut any more."""

    def function(x: Tensor, index: Tensor) -> Tensor:
        table = jnp.sin(jnp.cumsum(x, 0))
        some = lax.dynamic_slice(table, (index, 0, 0), (1, 256, 64))
        rows = lax.dynamic_slice(some, (0, index, 0), (1, 200, 64))[0]
        return jnp.sum(jnp.exp(rows[:, None, :] - rows[None, :, :]), (1, 2))

    text = export_program(Program("case", function, "256x256x64xf32 i32"))
    assert measure_memory(rewrite(text)).temp < 200_000


def test_no_part_of_the_other_layers_is_read() -> None:
    after = rewrite(export_program(Program("case", of_one_layer, "7x256x64xf32 i32")))
    sliced = [line for line in after.splitlines() if "stablehlo.dynamic_slice" in line]
    assert sliced
    assert not any("-> tensor<7x" in line for line in sliced), sliced
