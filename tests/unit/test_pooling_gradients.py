"""The gradient of max pooling without a scatter: the same elements are chosen, and the same numbers added up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from tests.execute import assert_equal_results, random_arguments, run_module
from tests.programs.model import Program, export_program

Tensor = Any
OP = "stablehlo.select_and_scatter"
PASSES = ("normalise", "pooling-gradients", "normalise")


def rewrite(text: str, machine: Machine = CPU, reassociate: bool = True, passes: Sequence[str] = PASSES) -> str:
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        run_pipeline(module, passes, Options(machine=machine, reassociate=reassociate))
        return serialise(module, "text").decode()


def pooled(
    *window: int, strides: Sequence[int] = (), padding: str = "VALID", least: bool = False
) -> Callable[..., Tensor]:
    """The gradient of what windows choose, weighted by their places."""

    def gradient(x: Tensor) -> Tensor:
        start: Any
        start, op = (np.inf, lax.min) if least else (-np.inf, lax.max)
        start = np.array(start, x.dtype)  # no tracer: jax then knows it as a maximum

        def loss(x: Tensor) -> Tensor:
            y = lax.reduce_window(x, start, op, window, strides or window, padding)
            return (y * jnp.sin(jnp.arange(y.size, dtype=x.dtype)).reshape(y.shape)).sum()

        return jax.grad(loss)(x)

    return gradient


CASES = {
    "disjoint": (pooled(1, 2, 2, 1), "3x8x6x5xf32"),
    "overlapping": (pooled(1, 3, 3, 1, strides=(1, 2, 2, 1)), "2x9x11x4xf32"),
    "padded": (pooled(1, 3, 3, 1, strides=(1, 2, 2, 1), padding="SAME"), "2x8x7x4xf32"),
    "apart": (pooled(1, 2, strides=(1, 3)), "4x12xf32"),
    "remainder": (pooled(2, 3), "5x10xf32"),
    "dense": (pooled(3, 3, strides=(1, 1), padding="SAME"), "6x7xf64"),
    "channels first": (pooled(1, 1, 2, 2), "2x3x4x6xf32"),
    "least": (pooled(1, 3, 1, strides=(1, 2, 1), least=True), "2x9x3xf32"),
    "narrow": (pooled(1, 3, 1, strides=(1, 2, 1)), "2x9x3xbf16"),
    "three dimensions": (pooled(2, 2, 2, 1), "4x6x8x2xf32"),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_equal_without_a_scatter(name: str) -> None:
    function, specs = CASES[name]
    before = export_program(Program(name, function, specs))
    after = rewrite(before)
    assert OP in before and OP not in after
    assert rewrite(after) == after
    assert_equal_results(before, after)
    equal = [np.round(argument) for argument in random_arguments(before)]  # many elements of a window are the largest
    for one, other in zip(run_module(before, equal), run_module(after, equal), strict=True):
        np.testing.assert_allclose(
            np.float64(one), np.float64(other), rtol=1e-2 if name == "narrow" else 1e-5, atol=1e-6
        )


def scattered(
    kind: str = "9x4xf32",
    source: str = "5x4xf32",
    window: str = "3, 1",
    strides: str = "2, 1",
    padding: str = "[[1, 1], [0, 0]]",
    init: str = "0.0",
    scatter: str = "add",
) -> str:
    scalar = f"tensor<{kind.rpartition('x')[2]}>"
    return f"""
      func.func public @main(%x: tensor<{kind}>, %y: tensor<{source}>) -> tensor<{kind}> {{
        %zero = stablehlo.constant dense<{init}> : {scalar}
        %0 = "stablehlo.select_and_scatter"(%x, %y, %zero) ({{
        ^bb0(%a: {scalar}, %b: {scalar}):
          %1 = stablehlo.compare GE, %a, %b : ({scalar}, {scalar}) -> tensor<i1>
          stablehlo.return %1 : tensor<i1>
        }}, {{
        ^bb0(%a: {scalar}, %b: {scalar}):
          %1 = stablehlo.{scatter} %a, %b : {scalar}
          stablehlo.return %1 : {scalar}
        }}) {{window_dimensions = array<i64: {window}>, window_strides = array<i64: {strides}>,
             padding = dense<{padding}> : tensor<2x2xi64>}} : (tensor<{kind}>, tensor<{source}>, {scalar}) -> tensor<{kind}>
        return %0 : tensor<{kind}>
      }}"""


@pytest.mark.parametrize(
    ("kind", "source", "window", "strides", "padding"),
    [
        ("9x4xf32", "5x4xf32", "3, 1", "2, 1", "[[1, 1], [0, 0]]"),
        ("9x4xf32", "6x2xf32", "3, 3", "2, 2", "[[2, 2], [0, 1]]"),
        ("6x4xf32", "5x4xf32", "2, 1", "2, 1", "[[2, 2], [0, 0]]"),  # the first and the last window have padding alone
        ("6x4xi32", "3x4xi32", "3, 1", "2, 1", "[[0, 1], [0, 0]]"),
    ],
)
@pytest.mark.parametrize("fill", [None, -np.inf])
def test_padding_is_never_chosen(
    kind: str, source: str, window: str, strides: str, padding: str, fill: float | None
) -> None:
    zero = "0" if "i32" in kind else "0.0"
    before = scattered(kind, source, window, strides, padding, init=zero)
    after = rewrite(before)
    assert OP not in after
    arguments = random_arguments(before)
    if fill is not None and "f32" in kind:
        arguments[0][1:7] = fill  # not even where all that is inside is the smallest number there is
    [one], [other] = run_module(before, arguments), run_module(after, arguments)
    np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (scattered(), {"machine": GPU}),
        (scattered(), {"reassociate": False}),
        (scattered(init="1.0"), {}),
        (scattered(scatter="maximum"), {}),
        (scattered("130x4xf32", "2x4xf32", "65, 1", "65, 1", "[[0, 0], [0, 0]]"), {}),
        (scattered("9x40xf32", "9x4xf32", "1, 10", "1, 10", "[[0, 0], [0, 0]]"), {}),
        (scattered("0x4xf32", "0x4xf32", "1, 2", "1, 1", "[[0, 0], [0, 1]]"), {}),
        (scattered("3x4xf32", "3x0xf32", "1, 5", "1, 1", "[[0, 0], [0, 0]]"), {}),
    ],
    ids=[
        "another machine",
        "no reassociation",
        "not from zero",
        "no sum",
        "a long window",
        "long strides",
        "nothing",
        "no window",
    ],
)
def test_others_stay(text: str, options: dict[str, Any]) -> None:
    assert OP in rewrite(text, **options)


def test_disjoint_windows_add_nothing_up() -> None:
    text = scattered(strides="3, 1", source="3x4xf32", padding="[[0, 0], [0, 0]]")
    assert OP not in rewrite(text, reassociate=False)


def normalised(x: Tensor, scale: Tensor) -> Tensor:
    """Several readers of the gradient of pooling, into which XLA would fuse its sum."""

    def loss(x: Tensor, scale: Tensor) -> Tensor:
        y = jax.nn.relu((x - x.mean((0, 1, 2))) * lax.rsqrt(x.var((0, 1, 2)) + 1e-3) * scale)
        return (lax.reduce_window(y, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME") ** 2).sum()

    return jax.grad(loss, (0, 1))(x, scale)


def test_memory_is_that_of_what_is_pooled() -> None:
    before = export_program(Program("normalised", normalised, "8x64x64x32xf32 32xf32"))
    passes = [name for name in DEFAULT_PASSES if name != "tensor-splitter"]
    after = rewrite(before, passes=passes)
    value = 8 * 64 * 64 * 32 * 4
    found = [measure_memory(text).temp / value for text in (before, after)]
    assert found[0] > 8 and found[1] < 4.5, found
