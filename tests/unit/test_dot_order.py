"""Products of two transposed matrices on a CPU: written as transposes of plain ones, with the same results."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations, product
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.memory.machine import CPU, GPU, Machine
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.runtime.memory import measure_memory
from tests.execute import assert_equal_results
from tests.programs.model import Program, export_program, gradient

Tensor = Any
BARRIER = "stablehlo.optimization_barrier"
SIZES = {"b": 2, "i": 8, "j": 6, "k": 40, "l": 2}


def rewrite(text: str, passes: tuple[str, ...] = ("normalise", "dot-order"), **options: Any) -> str:
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        run_pipeline(module, passes, Options(**options))
        return serialise(module, "text").decode()


def export(function: Callable[..., Any], *specs: str) -> str:
    return export_program(Program("case", function, " ".join(specs)))


def spec(letters: str, dtype: str = "f32") -> str:
    return f"{'x'.join(str(SIZES[letter]) for letter in letters)}x{dtype}"


def products(left: str, right: str, result: str) -> Callable[..., Any]:
    """An einsum as one dot_general, with its operands in this order, and its result transposed as asked for."""

    def function(a: Tensor, b: Tensor) -> Tensor:
        batch = [letter for letter in left if letter in right and letter in result]
        summed = [letter for letter in left if letter in right and letter not in result]
        numbers = [[tuple(side.index(letter) for letter in some) for side in (left, right)] for some in (summed, batch)]
        made = lax.dot_general(a, b, ((numbers[0][0], numbers[0][1]), (numbers[1][0], numbers[1][1])))
        own = [letter for side in (left, right) for letter in side if letter not in [*batch, *summed]]
        return made.transpose([[*batch, *own].index(letter) for letter in result])

    return function


ORDERS = [*product(permutations("bik"), permutations("bkj")), *product(permutations("ilk"), permutations("lkj"))]


@pytest.mark.parametrize(("left", "right"), [("".join(left), "".join(right)) for left, right in ORDERS])
def test_all_orders_of_the_dimensions(left: str, right: str) -> None:
    """What is rewritten is what lies transposed on both sides, whatever stands between."""
    batch = "b" if "b" in left else ""
    result = f"{batch}ij"
    text = export(products(left, right, result), spec(left), spec(right))
    after = rewrite(text)
    own, other = [letter for letter in left if letter in "il" and letter not in right], [*"j"]
    summed = [letter for letter in left if letter in right and letter not in result and SIZES[letter] > 1]
    is_first = max(map(left.index, summed)) < min(map(left.index, own))
    is_last = max(map(right.index, other)) < min(map(right.index, summed))
    assert (BARRIER in after) == (is_first and is_last)
    assert_equal_results(text, after)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k))
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v)


@pytest.mark.parametrize("function", [attention, gradient(attention)], ids=["value", "gradient"])
def test_attention_in_slices_takes_no_more_memory(function: Callable[..., Any]) -> None:
    text = export(function, *["1x512x2x16xf32"] * 3)
    options = {"size_threshold": 400_000, "split_size": 200_000}
    without = tuple(name for name in DEFAULT_PASSES if name != "dot-order")
    after, before = rewrite(text, DEFAULT_PASSES, **options), rewrite(text, without, **options)
    assert after.count(BARRIER) > before.count(BARRIER)
    assert_equal_results(text, after)
    assert measure_memory(after).temp <= 1.02 * measure_memory(before).temp


@pytest.mark.parametrize(
    ("dtype", "machine", "reassociate"),
    [("bf16", CPU, True), ("c64", CPU, True), ("f32", GPU, True), ("f32", CPU, False)],
)
def test_the_others_stay(dtype: str, machine: Machine, reassociate: bool) -> None:
    text = export(products("ki", "jk", "ij"), spec("ki", dtype), spec("jk", dtype))
    assert BARRIER not in rewrite(text, machine=machine, reassociate=reassociate)


def test_it_finds_nothing_in_what_it_wrote() -> None:
    once = rewrite(export(products("ki", "jk", "ij"), spec("ki"), spec("jk")))
    assert rewrite(once) == once


REFUSED = [
    *(("ki", "".join(right)) for right in permutations("kjl")),
    *(("bki", "".join(right)) for right in permutations("bkj")),
    *(("ik", "".join(right)) for right in permutations("kjl")),
]


def of_narrow(left: str, right: str, *, widened: bool) -> str:
    """A product of bf16 into f32, or of the same numbers in f32."""
    batch, summed = ([letter for letter in left if letter in right and letter in some] for some in ("b", "k"))
    (one, other), (first, second) = (
        [[side.index(letter) for letter in some] for side in (left, right)] for some in (summed, batch)
    )

    def function(a: Tensor, b: Tensor) -> Tensor:
        a, b = (each.astype(jnp.float32) if widened else each for each in (a, b))
        return lax.dot_general(a, b, ((one, other), (first, second)), preferred_element_type=jnp.float32)

    return export(function, spec(left, "bf16"), spec(right, "bf16"))


@pytest.mark.parametrize("reassociate", [True, False])
@pytest.mark.parametrize(("left", "right"), REFUSED)
def test_products_of_bf16_run_in_all_orders(left: str, right: str, reassociate: bool) -> None:
    """XLA:CPU refuses some of them: what is compared with is in f32."""
    after = rewrite(of_narrow(left, right, widened=False), ("normalise", "dot-order"), reassociate=reassociate)
    assert "xbf16>" in after.split("dot_general")[1]
    assert_equal_results(of_narrow(left, right, widened=True), after)
    assert rewrite(after, ("normalise", "dot-order"), reassociate=reassociate) == after


@pytest.mark.parametrize(("left", "right"), [("kib", "kjl"), ("ik", "kjl"), ("ki", "kj"), ("bki", "bkj")])
def test_products_of_bf16_that_run_stay(left: str, right: str) -> None:
    assert BARRIER not in rewrite(of_narrow(left, right, widened=False))


def test_products_of_bf16_without_dimensions_of_1_run_too() -> None:
    """With its batch of 1 the product runs; unit-dims takes the batch away, and it would not."""

    def looped(a: Tensor, b: Tensor) -> Tensor:
        def step(i: Tensor, sums: Tensor) -> Tensor:
            one, other = (x + i.astype(jnp.bfloat16) for x in (a, b))
            return sums + lax.dot_general(one, other, (((0,), (0,)), ((), ())), preferred_element_type=jnp.float32)

        return lax.fori_loop(0, 2, step, jnp.zeros((1, 8, 6, 2)))

    text = export(looped, "40x1x8xbf16", "40x6x2xbf16")
    assert "xbf16>" in rewrite(text, DEFAULT_PASSES)
    assert_equal_results(text, rewrite(text, DEFAULT_PASSES))
