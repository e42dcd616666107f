"""The largest elements of long rows out of few blocks: the same bits and the same places as all of the row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.walk import inside_out
from exla_opt.ir.write import serialise
from exla_opt.memory.machine import CPU, GPU, Machine
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from tests.execute import assert_equal_results, random_arguments, run_module
from tests.programs.model import Program, export_program

Tensor = Any
PASSES = ("normalise", "blocked-top-k", "normalise")
OPTIONS = Options()
DTYPES = ("f32", "f64", "bf16", "f16", "i32", "i8", "u8")
SHAPES = [("3x2560", 5), ("2x2x2003", 4), ("5000", 3), ("1x2000", 1)]


def rewrite(text: str, options: Options = OPTIONS, passes: Sequence[str] = PASSES) -> str:
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        run_pipeline(module, passes, options)
        return serialise(module, "text").decode()


def tops(text: str) -> int:
    with new_context() as context:
        return sum(1 for _ in inside_out(parse_module("<program>", text.encode(), context).module, "chlo.top_k"))


def largest(specs: str, count: int) -> str:
    with jax.enable_x64("f64" in specs):
        return export_program(Program("largest", lambda x: lax.top_k(x, count), specs))


def rows(kind: str, shape: Sequence[int], dtype: Any) -> Any:
    rng = np.random.default_rng(0)
    numbers = rng.standard_normal(shape) * 10
    if kind == "equal":
        numbers = np.round(numbers / 8)
    if kind == "zeros":
        numbers = rng.choice([0.0, -0.0, -1.0], shape)
    if kind == "special" and jnp.issubdtype(dtype, jnp.floating):
        special = [np.inf, -np.inf, np.copysign(np.nan, 1), np.copysign(np.nan, -1), 1.0]
        numbers = rng.choice(special, shape, p=[0.0005, 0.3, 0.0005, 0.3, 0.399])
    return numbers.astype(dtype)


@pytest.mark.parametrize("kind", ["spread", "equal", "zeros", "special"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "count"), SHAPES)
def test_the_same_bits_at_the_same_places(shape: str, count: int, dtype: str, kind: str) -> None:
    before = largest(f"{shape}x{dtype}", count)
    after = rewrite(before)
    assert tops(after) == 2
    [argument] = random_arguments(before)
    x = rows(kind, argument.shape, argument.dtype)
    for one, other in zip(run_module(before, [x]), run_module(after, [x]), strict=True):
        assert np.array_equal(one.view(np.uint8), other.view(np.uint8))


@pytest.mark.parametrize(
    ("specs", "count", "machine"),
    [
        ("3x2560xf32", 5, GPU),
        ("3x2560xf32", 6, CPU),
        ("64x1000xf32", 1, CPU),
        ("0x4096xf32", 1, CPU),
        ("3x2560xf32", 0, CPU),
    ],
    ids=["another machine", "many are wanted", "short rows", "no rows", "none are wanted"],
)
def test_others_stay(specs: str, count: int, machine: Machine) -> None:
    assert tops(rewrite(largest(specs, count), Options(machine=machine))) == 1


def test_a_second_run_changes_nothing() -> None:
    once = rewrite(largest("3x1000000xf32", 4))
    assert rewrite(once) == once


def neighbours(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return lax.top_k(-((x[:, None] - y[None]) ** 2).sum(-1), 5)


def test_neighbours_in_slices() -> None:
    before = export_program(Program("neighbours", neighbours, "60x3xf32 3000x3xf32"))
    after = rewrite(before, Options(size_threshold=200_000, split_size=100_000), DEFAULT_PASSES)
    assert "stablehlo.while" in after and tops(after) == 2
    assert_equal_results(before, after)
