"""Powers with exponents that are multiples of a half: products of roots and reciprocals, for all floats there are."""

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
from exla_opt.memory.machine import CPU, GPU, Machine
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.runtime.memory import measure_memory
from tests.execute import assert_equal_results, run_module
from tests.programs.model import Program, export_program, gradient

Tensor = Any
POWER = "stablehlo.power"
EXPONENTS = [number / 2 for number in range(-8, 9) if number]
# Besides these: numbers whose powers are of all magnitudes.
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, -2.5, 3e-39, 3e38, 2e-26, 5e25]


def rewrite(text: str, passes: tuple[str, ...] = ("normalise", "half-powers"), **options: Any) -> str:
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        run_pipeline(module, passes, Options(**options))
        return serialise(module, "text").decode()


def export(function: Callable[..., Any], specs: str) -> str:
    return export_program(Program("case", function, specs))


def constant_power(exponent: float) -> Callable[[Tensor], Tensor]:
    return lambda x: lax.pow(x, jnp.full_like(x, exponent))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("exponent", EXPONENTS)
def test_every_number_to_every_exponent(exponent: float, dtype: str) -> None:
    """Those of integers of all numbers, those of halves of absolute values."""
    power = constant_power(exponent)
    function = power if exponent.is_integer() else lambda x: power(jnp.abs(x))
    magnitudes = 10.0 ** np.linspace(-44, 38, 500 - len(SPECIAL) // 2)
    numbers = np.concatenate([SPECIAL, magnitudes, -magnitudes]).astype(np.float64 if dtype == "f64" else np.float32)
    text = export(function, f"{numbers.size}x{dtype}")
    after = rewrite(text)
    assert POWER in text and POWER not in after
    [expected], [found] = run_module(text, [numbers]), run_module(after, [numbers])
    limits = np.finfo(np.float64 if dtype == "f64" else np.float32)
    smallest = 2 * float(limits.tiny)
    # A subnormal number may count as zero, and one that comes out may be zero.
    normal = (numbers == 0) | ~(np.abs(numbers) < smallest)
    np.testing.assert_allclose(found[normal], expected[normal], rtol=16 * float(limits.eps), atol=smallest)
    zeros = normal & (expected == 0)
    np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(expected[zeros]))


POSITIVE: dict[str, Callable[[Tensor], Tensor]] = {
    "a sum of squares": lambda x: (x * x).sum(1),
    "distances": lambda x: ((x[:, None] - x[None]) ** 2).sum(-1) + 0.1,
    "exponentials": lambda x: 1 + jnp.exp(x) / 3,
    "sizes": lambda x: jnp.abs(x)[1:3].T.reshape(-1)[::-1],
    "a floor": lambda x: jnp.maximum(x, 0.25),
    "roots": lambda x: jnp.sqrt(x * x + 1),
    "joined": lambda x: jnp.concatenate([jnp.abs(x), jnp.exp(x)]),
    "the largest": lambda x: jnp.abs(x).sum() * jax.nn.sigmoid(x),
}
OTHERS: dict[str, Callable[[Tensor], Tensor]] = {
    "an argument": lambda x: x,
    "a difference": lambda x: x * x - 1,
    "a product": lambda x: x * x[::-1],
    "what may be -0": lambda x: jnp.maximum(x, 0),
    "a negative term": lambda x: jnp.abs(x) + -2.0,
    "a sum": lambda x: x.sum(0),
    "joined": lambda x: jnp.concatenate([jnp.abs(x), x]),
}


@pytest.mark.parametrize("name", POSITIVE)
def test_what_is_known_to_be_positive(name: str) -> None:
    text = export(lambda x: constant_power(-1.5)(POSITIVE[name](x)), "6x5xf32")
    after = rewrite(text)
    assert POWER in text and POWER not in after
    assert_equal_results(text, after)


@pytest.mark.parametrize("name", OTHERS)
def test_what_may_be_negative_stays(name: str) -> None:
    assert POWER in rewrite(export(lambda x: constant_power(-1.5)(OTHERS[name](x)), "6x5xf32"))
    assert POWER not in rewrite(export(lambda x: constant_power(-3.0)(OTHERS[name](x)), "6x5xf32"))


@pytest.mark.parametrize(("exponent", "is_rewritten"), [(-0.5, True), (2.5, True), (0.3, False), (5.5, False)])
def test_the_exponent_of_a_derivative(exponent: float, is_rewritten: bool) -> None:
    """It is written as a difference of two constants."""
    text = export(jax.grad(lambda x: constant_power(exponent)(x * x + 1).sum()), "64xf32")
    after = rewrite(text, ("normalise", "rce", "half-powers"))
    assert "stablehlo.subtract" in text and POWER in text
    assert (POWER not in after) == is_rewritten
    assert_equal_results(text, after)


@pytest.mark.parametrize("exponent", [0.25, 1 / 3, 4.5, -5.0, 1e30])
def test_other_exponents_stay(exponent: float) -> None:
    assert POWER in rewrite(export(lambda x: constant_power(exponent)(jnp.abs(x)), "64xf32"))


def test_exponents_that_differ_stay() -> None:
    assert POWER in rewrite(export(lambda x: jnp.abs(x) ** jnp.arange(1.0, 65.0), "64xf32"))


@pytest.mark.parametrize(
    ("dtype", "machine", "reassociate"),
    [("bf16", CPU, True), ("c64", CPU, True), ("f32", GPU, True), ("f32", CPU, False)],
)
def test_other_types_and_machines_stay(dtype: str, machine: Machine, reassociate: bool) -> None:
    text = export(constant_power(3.0), f"64x{dtype}")
    assert POWER in rewrite(text, machine=machine, reassociate=reassociate)


def plummer(x: Tensor) -> Tensor:
    """The potential energy of bodies, and what pulls each."""
    apart = x[:, None] - x[None]
    return ((apart**2).sum(-1) + 0.1) ** -0.5, (apart * (((apart**2).sum(-1) + 0.1) ** -1.5)[..., None]).sum(1)


def matern(x: Tensor) -> Tensor:
    return ((1 + jnp.abs(x[:, None] - x[None]).sum(-1)) ** 2.5).sum(1)


@pytest.mark.parametrize(
    "function", [lambda x: plummer(x)[1], matern, gradient(plummer), gradient(matern)], ids=["f", "g", "df", "dg"]
)
def test_programs_take_no_more_memory(function: Callable[..., Any]) -> None:
    text = export(function, "400x3xf32")
    options = {"size_threshold": 200_000, "split_size": 100_000}
    without = tuple(name for name in DEFAULT_PASSES if name != "half-powers")
    after, before = rewrite(text, DEFAULT_PASSES, **options), rewrite(text, without, **options)
    assert after.count(POWER) < before.count(POWER)
    assert_equal_results(text, after)
    assert measure_memory(after).temp <= 1.02 * measure_memory(before).temp


def test_what_would_be_written_for_it_stays() -> None:
    """A sum that makes the elements of one kernel is written where two ops read it."""
    text = export(lambda x: plummer(x)[1], "400x3xf32")
    without, after = rewrite(text, ("normalise", "rce")), rewrite(text, ("normalise", "rce", "half-powers"))
    assert POWER in after
    assert measure_memory(after).temp <= measure_memory(without).temp


def test_it_finds_nothing_in_what_it_wrote() -> None:
    once = rewrite(export(constant_power(-4.0), "64xf32"))
    assert rewrite(once) == once
