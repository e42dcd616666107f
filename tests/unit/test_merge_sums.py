"""Sums of weights that a network uses more than once: one carry in the loops, with equal results and less memory."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import export

from exla_opt.ir import build
from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.types import Types
from exla_opt.ir.write import serialise
from exla_opt.options import Options
from exla_opt.passes.algebra.merged_sums import merge_sums
from exla_opt.passes.tensor_splitter import driver
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.runtime.memory import measure_memory
from tests.execute import assert_equal_results

ROWS, WIDE, DEEP = 4096, 512, 256
WEIGHTS = (WIDE, DEEP)
BYTES = 4 * WIDE * DEEP


def tied(w: Any, x: Any) -> Any:
    """What comes back through the same weights: all columns of a row are needed at once, so rows are cut."""
    return jnp.tanh(jnp.tanh(x @ w) @ w.T)


def there_and_back(w: Any, x: Any, y: Any) -> Any:
    return jax.grad(lambda w: ((tied(w, x) - y) ** 2).sum())(w)


def two_views(w: Any, x: Any, y: Any) -> Any:
    return jax.grad(lambda w: (tied(w, x) * tied(w, y)).sum())(w)


def apart(w: Any, x: Any, y: Any) -> Any:
    return jax.grad(lambda w: (tied(w, x) ** 2).sum() - jnp.cos(tied(w, jnp.cos(y))).sum())(w)


def a_slope(w: Any, x: Any, y: Any) -> Any:
    def loss(w: Any) -> Any:
        slope = jax.grad(lambda x: tied(w, x).sum())(x)
        return jnp.sqrt((slope**2).sum(1) + 1).sum() + tied(w, y).sum()

    return jax.grad(loss)(w)


def rows_left_over(w: Any, x: Any, y: Any) -> Any:
    return two_views(w, x[:-7], y[:-7])


def also_read_alone(w: Any, x: Any, y: Any) -> Any:
    first, second = jax.grad(lambda w, v: (tied(w, x) * tied(v, y)).sum(), (0, 1))(w, w)
    return first + second, first


MERGED: dict[str, Callable[..., Any]] = {
    "there and back": there_and_back,
    "two views": two_views,
    "apart": apart,
    "a slope": a_slope,
    "rows left over": rows_left_over,
}


def exported(function: Callable[..., Any]) -> str:
    shapes = [jax.ShapeDtypeStruct(sizes, "float32") for sizes in (WEIGHTS, (ROWS, WIDE), (ROWS, WIDE))]
    return str(export.export(jax.jit(function), platforms=["cpu"])(*shapes).mlir_module())


def split(text: str) -> str:
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        run_pipeline(module, DEFAULT_PASSES, Options(size_threshold=2**18, split_size=2**18))
        return serialise(module, "text").decode()


def sums_carried(text: str, *kinds: tuple[int, ...]) -> list[int]:
    """For each outer loop, how many tensors of some sizes it carries: of the weights', if not given."""
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        main = module.body.operations[0].operation.regions[0].blocks[0]
        loops = [view.operation for view in main.operations if view.operation.name == "stablehlo.while"]
        kinds = kinds or (WEIGHTS, WEIGHTS[::-1])
        return [sum(tuple(build.shape_of(result)) in kinds for result in loop.results) for loop in loops]


@pytest.mark.parametrize("name", MERGED)
def test_the_gradients_of_shared_weights_are_one_sum(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = exported(MERGED[name])
    after = split(before)
    assert_equal_results(before, after)
    monkeypatch.setattr(driver, "merge_sums", lambda *_: False)
    unmerged = split(before)
    assert sum(sums_carried(after)) < sum(sums_carried(unmerged))
    assert measure_memory(after).temp <= measure_memory(unmerged).temp - BYTES // 2


def test_a_sum_that_is_read_alone_stays() -> None:
    before = exported(also_read_alone)
    after = split(before)
    assert max(sums_carried(after)) == 2
    assert_equal_results(before, after)


TRANSPOSED = """
func.func @main(%x: tensor<4x4x4xf32>, %y: tensor<4x4x4xf32>) -> tensor<4x4x4xf32> {{
  %start = stablehlo.constant dense<0> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<4x4x4xf32>
  %loop:3 = stablehlo.while(%i = %start, %a = %zeros, %b = %zeros) : tensor<i32>, tensor<4x4x4xf32>, tensor<4x4x4xf32>
    attributes {{tile}}
    cond {{
      %end = stablehlo.constant dense<3> : tensor<i32>
      %go = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    }} do {{
      %one = stablehlo.constant dense<1> : tensor<i32>
      %next = stablehlo.add %i, %one : tensor<i32>
      %a_next = stablehlo.add %a, %x : tensor<4x4x4xf32>
      %b_next = stablehlo.add %b, %y : tensor<4x4x4xf32>
      stablehlo.return %next, %a_next, %b_next : tensor<i32>, tensor<4x4x4xf32>, tensor<4x4x4xf32>
    }}
  %left = stablehlo.transpose %loop#1, dims = [1, 0, 2] : (tensor<4x4x4xf32>) -> tensor<4x4x4xf32>
  %right = stablehlo.transpose %loop#2, dims = {} : (tensor<4x4x4xf32>) -> tensor<4x4x4xf32>
  %sum = stablehlo.add %left, %right : tensor<4x4x4xf32>
  return %sum : tensor<4x4x4xf32>
}}
"""


@pytest.mark.parametrize("dims", list(permutations(range(3))))
def test_only_sums_that_are_transposed_alike_are_merged(dims: tuple[int, ...]) -> None:
    before = TRANSPOSED.format(list(dims))
    for length in range(20):  # the answer must not depend on where objects are in memory
        held = [object() for _ in range(length)]
        with new_context() as context:
            module = parse_module("<program>", before.encode(), context).module
            block = module.body.operations[0].operation.regions[0].blocks[0]
            assert merge_sums(block, "tile", Types(), 0) == (dims == (1, 0, 2)), len(held)
            after = serialise(module, "text").decode()
    assert sums_carried(after, (4, 4, 4)) == [1 if dims == (1, 0, 2) else 2]
    assert_equal_results(before, after)


def test_small_sums_that_are_big_together_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bias of a position, which all layers add, is smaller than the threshold, and the sums of all layers are not."""
    batch, rows, columns, layers = 64, 128, 256, 6

    def biased(bias: Any, x: Any, w: Any) -> Any:
        for _ in range(layers):
            x = jnp.tanh((x + bias) @ w / 16)
        return (x**2).sum()

    kinds = [
        jax.ShapeDtypeStruct(shape, "float32") for shape in ((rows, columns), (batch, rows, columns), (columns,) * 2)
    ]
    before = str(export.export(jax.jit(jax.grad(biased)), platforms=["cpu"])(*kinds).mlir_module())
    after = split(before)
    assert_equal_results(before, after)
    assert max(sums_carried(after, (rows, columns))) == 2  # that of the first layer is multiplied by its weights
    monkeypatch.setattr(driver, "merge_sums", lambda *_: False)
    assert max(sums_carried(split(before), (rows, columns))) == layers


def test_an_addition_with_an_attribute_of_another_dialect_keeps_it() -> None:
    named = TRANSPOSED.replace(
        "%left, %right : tensor", '%left, %right {{mhlo.frontend_attributes = {{a = "b"}}}} : tensor'
    )
    with new_context() as context:
        module = parse_module("<program>", named.format([1, 0, 2]).encode(), context).module
        block = module.body.operations[0].operation.regions[0].blocks[0]
        assert not merge_sums(block, "tile", Types(), 0)
        assert "mhlo.frontend_attributes" in serialise(module, "text").decode()
