"""Sums over the rows of wide tensors on a CPU: products with ones, with the same numbers."""

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
from exla_opt.pipeline import run_pipeline
from exla_opt.runtime.compare import compare
from tests.execute import assert_equal_results, random_arguments, run_module
from tests.programs.model import Program, export_program

Tensor = Any
WIDE = "40x17000xf32"


def rewrite(text: str, machine: Machine = CPU, reassociate: bool = True) -> str:
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        run_pipeline(module, ("normalise", "rce", "wide-sums"), Options(machine=machine, reassociate=reassociate))
        return serialise(module, "text").decode()


def bias_gradient(x: Tensor, bias: Tensor) -> Tensor:
    return jax.grad(lambda b: jnp.sin(x + b).sum())(bias)


def in_a_loop(x: Tensor) -> Tensor:
    return lax.fori_loop(0, 3, lambda i, total: total + (x * i).sum(0), jnp.zeros(x.shape[1]))


def over_two(x: Tensor) -> Tensor:
    return x.sum((0, 1))


def over_rows(x: Tensor) -> Tensor:
    return x.sum(0)


CASES = [
    (bias_gradient, f"{WIDE} 17000xf32"),
    (in_a_loop, WIDE),
    (over_two, "7x8x2x9000xf32"),
    (over_rows, "40x9000xf64"),
    (over_rows, "40x17000xbf16"),
]


@pytest.mark.parametrize(("function", "specs"), CASES, ids=lambda each: getattr(each, "__name__", ""))
def test_wide_sums_are_products_and_equal(function: Callable[..., Tensor], specs: str) -> None:
    before = export_program(Program("sum", function, specs))
    after = rewrite(before)
    assert "stablehlo.reduce(" in before and "stablehlo.reduce(" not in after
    assert "dot_general" in after
    assert rewrite(after) == after
    assert_equal_results(before, after)


@pytest.mark.parametrize(
    ("function", "specs"),
    [
        (lambda x: x.sum(0), "40x16384xf32"),
        (lambda x: x.sum(0), "32x17000xf32"),
        (lambda x: x.sum(1), WIDE),
        (lambda x: x.max(0), WIDE),
        (lambda x: x.sum(0), "40x17000xi32"),
        (lambda x: x.sum(1), "2x40x17000xf32"),
    ],
)
def test_other_sums_stay(function: Callable[..., Tensor], specs: str) -> None:
    assert "dot_general" not in rewrite(export_program(Program("sum", function, specs)))


def test_sums_stay_for_other_machines_and_without_reassociation() -> None:
    before = export_program(Program("sum", over_rows, "40x9000xf64"))
    assert "dot_general" not in rewrite(before, machine=GPU) + rewrite(before, reassociate=False)


def test_what_is_not_finite_stays_in_its_column() -> None:
    before = export_program(Program("sum", lambda x: x.sum(0), WIDE))
    [x] = random_arguments(before)
    x = np.array(x)
    x[3, 5], x[4, 6], x[5, 7], x[6, 7] = np.nan, np.inf, np.inf, -np.inf
    [expected], [actual] = (run_module(text, [x]) for text in (before, rewrite(before)))
    assert np.isnan(expected[[5, 7]]).all() and np.isinf(expected[6])
    assert compare(expected, actual).passed


def test_sum_of_f32_in_f64_stays() -> None:
    text = """func.func @main(%x: tensor<40x17000xf32>) -> tensor<17000xf64> {
      %zero = stablehlo.constant dense<0.0> : tensor<f64>
      %0 = stablehlo.reduce(%x init: %zero) across dimensions = [0]
        : (tensor<40x17000xf32>, tensor<f64>) -> tensor<17000xf64>
        reducer(%a: tensor<f64>, %b: tensor<f64>) {
          %1 = stablehlo.add %a, %b : tensor<f64>
          stablehlo.return %1 : tensor<f64>
        }
      return %0 : tensor<17000xf64>
    }"""
    assert "dot_general" not in rewrite(text)
