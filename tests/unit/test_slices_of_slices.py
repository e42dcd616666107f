"""Tiles of a slice of a table: read from the table at once, not across all that the slice leaves out."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest
from jax import lax

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
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


def test_no_part_of_the_other_layers_is_read() -> None:
    after = rewrite(export_program(Program("case", of_one_layer, "7x256x64xf32 i32")))
    sliced = [line for line in after.splitlines() if "stablehlo.dynamic_slice" in line]
    assert sliced
    assert not any("-> tensor<7x" in line for line in sliced), sliced
