"""Ops in loops on a CPU, written without their dimensions of size 1: the same results, to the bit without products."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations, product
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.walk import inside_out
from exla_opt.ir.write import serialise
from exla_opt.memory.machine import GPU
from exla_opt.ops.pointwise import STABLEHLO_POINTWISE
from exla_opt.options import Options
from exla_opt.pipeline import run_pipeline
from tests.execute import assert_equal_results, random_arguments, run_module
from tests.programs.model import Program, export_program

Tensor = Any
Function = Callable[..., Any]
# All others are 1: b, a batch, and o, a dimension of one operand.
SIZES = {"i": 8, "j": 6, "k": 20}
OPS = ("stablehlo.dot_general", "stablehlo.reduce", "stablehlo.broadcast_in_dim", "stablehlo.transpose")


def in_a_loop(function: Function) -> Function:
    """The function of arguments that every trip adds the counter to, so that nothing leaves the loop."""

    def looped(*arguments: Tensor) -> Tensor:
        def step(i: Tensor, sums: Tensor) -> Tensor:
            return sums + function(*(argument + i.astype(argument.dtype) for argument in arguments))

        first = function(*arguments)
        return lax.fori_loop(1, 3, step, jnp.zeros(first.shape, first.dtype))

    return looped


def after_passes(text: str, passes: tuple[str, ...] = ("unit-dims",), options: Options | None = None) -> str:
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        run_pipeline(module, passes, options or Options())
        return serialise(module, "text").decode()


def rewritten(function: Function, *specs: str) -> tuple[str, str]:
    """The function in a loop, before and after the pass; without products, both compute the same bits."""
    text = export_program(Program("case", in_a_loop(function), " ".join(specs)))
    before = after_passes(text, ("normalise",))
    after = after_passes(before)
    assert_equal_results(before, after)
    if "dot_general" in before:
        return before, after
    arguments = random_arguments(text)
    for one, other in zip(run_module(before, arguments), run_module(after, arguments), strict=True):
        np.testing.assert_array_equal(one, other)
    return before, after


def units_in_loops(text: str, names: tuple[str, ...] = OPS) -> int:
    """How many ops of these names in loops have a dimension of 1 in an operand or result, and more than one element."""
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        loops = list(inside_out(module, "stablehlo.while"))
        inside = [op for op in inside_out(module, *names) if any(_contains(loop, op) for loop in loops)]
        shapes = [[value.type.shape for value in (*op.operands, *op.results)] for op in inside]
        return sum(any(1 in shape for shape in some) and prod(some[-1]) > 1 for some in shapes)


def _contains(loop: Any, op: Any) -> bool:
    outer = op.parent
    while outer is not None and outer != loop:
        outer = outer.parent
    return outer is not None


def spec(letters: str) -> str:
    return "x".join(str(SIZES.get(letter, 1)) for letter in letters) + "xf32"


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("".join(left), "".join(right))
        for sides in (("bik", "bjk"), ("iok", "jk"), ("ik", "jok"))
        for left, right in product(*(permutations(side) for side in sides))
    ],
)
def test_products_in_all_orders_of_their_dimensions(left: str, right: str) -> None:
    result = "".join(letter for letter in "bij" if letter in left + right)
    equation = f"{left},{right}->{result}" if "b" in left else f"{left},{right}->ijo"
    before, after = rewritten(lambda x, y: jnp.einsum(equation, x, y), spec(left), spec(right))
    assert units_in_loops(before) and not units_in_loops(after)


def test_several_products_keep_their_batch() -> None:
    _, after = rewritten(lambda x, y: jnp.einsum("aibk,aobjk->abij", x, y[:, :, 0:1]), "3x8x1x20xf32", "3x1x1x6x20xf32")
    assert "batching_dims = [0] x [0]" in after and not units_in_loops(after, ("stablehlo.dot_general",))


def test_products_with_vectors_stay() -> None:
    _, after = rewritten(lambda x, y: jnp.einsum("bik,bk->bi", x, y), "1x8x20xf32", "1x20xf32")
    assert "batching_dims" in after


def test_a_second_run_finds_no_reshape_before_a_product_with_a_vector() -> None:
    def row_times_matrix(x: Tensor, y: Tensor) -> Tensor:
        return jnp.einsum("ik,jk->ij", jnp.sin(x), y)

    _, after = rewritten(row_times_matrix, "1x20xf32", "6x20xf32")
    assert "(tensor<20xf32>, tensor<6x20xf32>)" in after
    assert after_passes(after, ("reshape-sinker", "unit-dims")) == after


@pytest.mark.parametrize(
    ("equation", "specs"),
    [
        ("ai,bj->abij", ("1x20xf32", "1x6xf32")),
        ("ai,bj->abij", ("1x20xf32", "6x3xf32")),
        ("abi,bj->abij", ("1x8x20xf32", "8x6xf32")),
    ],
)
def test_a_second_run_finds_no_reshape_before_an_outer_product(equation: str, specs: tuple[str, str]) -> None:
    _, after = rewritten(lambda x, y: jnp.einsum(equation, jnp.sin(x), y), *specs)
    assert after_passes(after, ("reshape-sinker", "unit-dims")) == after


@pytest.mark.parametrize(
    ("moved", "before"),
    [
        ("reshape %x : (tensor<{0}>) -> tensor<{1}>", "1x20000"),
        ("transpose %x, dims = [1, 0] : (tensor<{0}>) -> tensor<{1}>", "20000x1"),
    ],
)
def test_numbers_that_are_broadcast_stay_so_where_they_are(moved: str, before: str) -> None:
    """As constants they would be stored; and a second run would find them elsewhere."""
    kind, after_it = f"{before}xf32", "20000xf32" if "reshape" in moved else "1x20000xf32"
    text = f"""
func.func @main(%x: tensor<{kind}>) -> tensor<{after_it}> {{
  %two = stablehlo.constant dense<2.0> : tensor<f32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %start = stablehlo.constant dense<0.0> : tensor<{after_it}>
  %many = stablehlo.broadcast_in_dim %two, dims = [] : (tensor<f32>) -> tensor<{after_it}>
  %r:2 = stablehlo.while(%i = %zero, %c = %start) : tensor<i32>, tensor<{after_it}>
    cond {{
      %go = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    }} do {{
      %one = stablehlo.constant dense<1> : tensor<i32>
      %row = stablehlo.{moved.format(kind, after_it)}
      %p = stablehlo.multiply %row, %many : tensor<{after_it}>
      %sum = stablehlo.add %c, %p : tensor<{after_it}>
      %next = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %next, %sum : tensor<i32>, tensor<{after_it}>
    }}
  return %r#1 : tensor<{after_it}>
}}
"""
    options = Options(size_threshold=64_000)
    after = after_passes(text, ("reshape-sinker",), options)
    outside, _ = after.split("stablehlo.while")
    assert f"(tensor<f32>) -> tensor<{kind}>" in outside
    assert after_passes(after, ("reshape-sinker",), options) == after
    assert_equal_results(text, after)


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "i32"])
@pytest.mark.parametrize("axis", [0, 1, 2, (0, 1), (0, 2), (1, 2)])
def test_sums_and_maxima(axis: int | tuple[int, ...], dtype: str) -> None:
    def both(x: Tensor) -> Tensor:
        return x.sum(axis, keepdims=True) + x.max(axis, keepdims=True) * x

    before, after = rewritten(both, f"1x40x30x{dtype}")
    assert units_in_loops(before) and not units_in_loops(after, OPS[2:])


def elementwise(x: Tensor, y: Tensor) -> Tensor:
    complexes = lax.complex(x, y)
    chosen = jnp.where(x[0, 0, 0] > 0, jnp.clip(x, -0.5, 0.5), lax.clamp(y - 1, x, y + 1))
    whole = lax.bitcast_convert_type(x, jnp.uint32) >> 3
    return jnp.where(x > y, jnp.real(complexes * complexes), chosen) + whole.astype(jnp.float32) * 1e-9


def test_elementwise_ops_of_all_types() -> None:
    before, after = rewritten(elementwise, "8x1x30xf32", "8x1x30xf32")
    names = tuple(STABLEHLO_POINTWISE)
    assert units_in_loops(before, names) > units_in_loops(after, names) == 1  # the sum that the loop carries


def test_softmax_and_its_transpose() -> None:
    def rows(x: Tensor, y: Tensor) -> Tensor:
        weights = jnp.exp(x - x.max(-1, keepdims=True))
        return jnp.swapaxes(jnp.einsum("bqk,kbd->bqd", weights / weights.sum(-1, keepdims=True), y), 1, 2)

    _, after = rewritten(rows, "1x8x20xf32", "20x1x6xf32")
    assert not units_in_loops(after, (*OPS, "stablehlo.exponential", "stablehlo.divide"))


def shared_keys(keys: Tensor, queries: Tensor) -> Tensor:
    scores = jnp.einsum("btd,bshd->bhst", keys, queries) / 8
    return jnp.maximum(scores, 0).max(-1, keepdims=True) * scores


@pytest.mark.parametrize(("batch", "dims"), [(1, "[1] x [1]"), (3, "[2] x [2]")])
def test_products_whose_transpose_is_read_are_turned(batch: int, dims: str) -> None:
    """JAX multiplies keys with queries here, and transposes the product after the division."""
    _, after = rewritten(shared_keys, f"{batch}x20x6xf32", f"{batch}x8x1x6xf32")
    assert "stablehlo.transpose" not in after and f"contracting_dims = {dims}" in after


def test_plain_products_are_not_turned() -> None:
    _, after = rewritten(lambda x, y: jnp.einsum("bik,bkj->bij", x, y).swapaxes(1, 2) + 1, "1x8x20xf32", "1x20x6xf32")
    assert "stablehlo.transpose" in after and "contracting_dims = [1] x [0]" in after


def test_a_transpose_of_several_readers_stays() -> None:
    def twice(x: Tensor, y: Tensor) -> Tensor:
        product = jnp.einsum("bik,bjk->bij", x, y)
        return jnp.sin(product.swapaxes(1, 2)).sum(1) * jnp.cos(product).sum(2)

    _, after = rewritten(twice, "1x8x20xf32", "1x6x20xf32")
    assert "stablehlo.transpose" in after


def test_ops_next_to_convolutions_keep_their_batch() -> None:
    def layer(x: Tensor, w: Tensor) -> Tensor:
        return jnp.maximum(lax.conv(x + 1, w, (1, 1), "SAME"), 0).sum((2, 3), keepdims=True) * x

    before, after = rewritten(layer, "1x4x9x9xf32", "4x4x3x3xf32")
    assert before == after


UPDATED = """
func.func @main(%a: tensor<1x8x6xf32>, %b: tensor<1x8x6xf32>) -> tensor<1x8x6xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %start = stablehlo.constant dense<0.0> : tensor<1x8x6xf32>
  %r:2 = stablehlo.while(%i = %zero, %c = %start) : tensor<i32>, tensor<1x8x6xf32>
    cond {
      %go = stablehlo.compare LT, %i, %one : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %less = stablehlo.subtract %c, %a : tensor<1x8x6xf32>
      %p = stablehlo.multiply %a, %b : tensor<1x8x6xf32>
      %q = stablehlo.sine %p : tensor<1x8x6xf32>
      %more = stablehlo.add %less, %q : tensor<1x8x6xf32>
      %next = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %next, %more : tensor<i32>, tensor<1x8x6xf32>
    }
  return %r#1 : tensor<1x8x6xf32>
}
"""


def test_updates_of_a_carry_keep_its_shape() -> None:
    """XLA:CPU would copy the carry in every trip, in 4 times the time; what does not depend on it is rewritten."""
    after = after_passes(UPDATED)
    shapes = {
        name: next(line for line in after.splitlines() if f"stablehlo.{name} " in line)
        .rpartition(" : ")[2]
        .split(" loc")[0]
        for name in ("subtract", "multiply", "sine", "add")
    }
    whole, squeezed = "tensor<1x8x6xf32>", "tensor<8x6xf32>"
    assert shapes == {"subtract": whole, "multiply": squeezed, "sine": squeezed, "add": whole}
    assert_equal_results(UPDATED, after)


TRANSPOSED = """
func.func @main(%x: tensor<3x8x5xf32>, %y: tensor<3x6x5xf32>) -> tensor<3x6x8xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %start = stablehlo.constant dense<0.0> : tensor<3x6x8xf32>
  OUTSIDE
  %r:2 = stablehlo.while(%i = %zero, %c = %start) : tensor<i32>, tensor<3x6x8xf32>
    cond {
      %go = stablehlo.compare LT, %i, %one : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      INSIDE
      %t = stablehlo.transpose %p, dims = [0, 2, 1] : (tensor<3x8x6xf32>) -> tensor<3x6x8xf32>
      %more = stablehlo.add %c, %t : tensor<3x6x8xf32>
      %next = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %next, %more : tensor<i32>, tensor<3x6x8xf32>
    }
  return %r#1 : tensor<3x6x8xf32>
}
"""
PRODUCT = "%p = stablehlo.dot_general %x, %y, batching_dims = [0] x [0], contracting_dims = [2] x [2] ATTRIBUTES"
PRODUCT += " : (tensor<3x8x5xf32>, tensor<3x6x5xf32>) -> tensor<3x8x6xf32>"


@pytest.mark.parametrize(
    ("inside", "attributes", "is_turned"),
    [(True, "", True), (False, "", False), (True, '{mhlo.frontend_attributes = {name = "p"}}', False)],
    ids=["in the loop", "before the loop", "with an attribute of another dialect"],
)
def test_only_plain_products_of_the_same_block_are_turned(inside: bool, attributes: str, is_turned: bool) -> None:
    """A product before the loop would be computed in each trip; attributes may speak of the dimensions."""
    product = PRODUCT.replace("ATTRIBUTES", attributes)
    text = TRANSPOSED.replace("INSIDE" if inside else "OUTSIDE", product)
    text = text.replace("OUTSIDE" if inside else "INSIDE", "")
    after = after_passes(text)
    assert ("stablehlo.transpose" not in after) == is_turned
    assert_equal_results(text, after)


def test_one_element_stays() -> None:
    before, after = rewritten(lambda x: jnp.sin(x[:1, :1]), "4x4xf32")
    assert before == after


ATTENTION = export_program(
    Program("case", in_a_loop(lambda x, y: jnp.einsum("bik,bjk->bij", x, y)), "1x8x20xf32 1x6x20xf32")
)
OUTSIDE = export_program(Program("case", lambda x, y: jnp.einsum("bik,bjk->bij", x, y), "1x8x20xf32 1x6x20xf32"))


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (OUTSIDE, Options()),
        (ATTENTION, Options(machine=GPU)),
        (ATTENTION, Options(reassociate=False)),
    ],
    ids=["outside of loops", "on a GPU", "without reassociation"],
)
def test_nothing_is_done(text: str, options: Options) -> None:
    assert after_passes(text, ("unit-dims",), options) == after_passes(text, ())
