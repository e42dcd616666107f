"""Products of two transposed matrices on a CPU: written as transposes of plain ones, with the same results."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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


def of_narrow(left: str, right: str, *, widened: bool, types: tuple[str, str, str] = ("bf16", "bf16", "f32")) -> str:
    """A product of narrow numbers into wide ones, or of the same numbers in the type of the result."""
    batch, summed = ([letter for letter in left if letter in right and letter in some] for some in ("b", "k"))
    (one, other), (first, second) = (
        [[side.index(letter) for letter in some] for side in (left, right)] for some in (summed, batch)
    )

    def function(a: Tensor, b: Tensor) -> Tensor:
        a, b = (each.astype(wide) if widened else each for each in (a, b))
        return lax.dot_general(a, b, ((one, other), (first, second)), preferred_element_type=wide)

    wide = jnp.dtype({"f32": "float32", "i32": "int32", "i8": "int8"}[types[2]])
    return export(function, spec(left, types[0]), spec(right, types[1]))


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


def transposed(r: Tensor) -> Tensor:
    return r.T


def flat_and_transposed(r: Tensor) -> Tensor:
    return r.reshape(4, -1).T


def broadcast(r: Tensor) -> Tensor:
    return lax.broadcast_in_dim(r, (r.shape[1], 3, r.shape[0]), (2, 0))


def multiplied(r: Tensor) -> Tensor:
    return lax.dot_general(r, jnp.ones((r.shape[0], 5, 4)), (((0,), (0,)), ((), ())))


def scattered(r: Tensor) -> Tensor:
    return jnp.zeros((r.shape[0], 9)).at[:, jnp.arange(r.shape[1]) % 9].add(r)


def added_up(r: Tensor) -> Tensor:
    return jnp.cumsum(r, 0)


@pytest.mark.parametrize("use", [transposed, flat_and_transposed, broadcast, multiplied, scattered, added_up])
@pytest.mark.parametrize("left", ["24x40", "6x4x40"])
def test_products_of_bf16_whose_result_is_transposed_run(left: str, use: Callable[..., Any]) -> None:
    """By the module or by XLA, which swaps the operands then, and would not run the product."""

    def function(a: Tensor, b: Tensor, dtype: Any = jnp.bfloat16) -> Tensor:
        one, other = a.astype(dtype), b.astype(dtype)
        made = lax.dot_general(one, other, (((one.ndim - 1,), (0,)), ((), ())), preferred_element_type=jnp.float32)
        return use(made.reshape(24, 16))

    specs = [f"{left}xbf16", "40x16xbf16"]
    passes = ("normalise", "dot-order")
    after = rewrite(export(function, *specs), passes, reassociate=False)
    assert "xbf16>" in after.split("dot_general")[1] and after.count(BARRIER) == 1
    assert_equal_results(export(partial(function, dtype=jnp.float32), *specs), after)
    assert rewrite(after, passes, reassociate=False) == after


LEFT: list[Callable[..., Any]] = [
    lambda x: jnp.maximum(x.T, x.dtype.type(0.1)),
    lambda x: jnp.where(x.T > 0, x.T, x.dtype.type(0)),
    lambda x: jnp.stack([x, x]).transpose(2, 0, 1).max(1),
    lambda x: lax.broadcast_in_dim(x, (24, 40), (1, 0)),
    lambda x: x.reshape(24, 40)[:, jnp.arange(40) * 7 % 40],
    lambda x: jnp.pad(x[:, :20], ((0, 0), (2, 2))).T,
]


@pytest.mark.parametrize("make", LEFT, ids=["elementwise", "select", "reduce", "broadcast", "gather", "pad"])
@pytest.mark.parametrize(("left", "right"), [("ik", "kj"), ("ik", "kjl"), ("ilk", "kj")])
def test_products_of_bf16_of_what_was_transposed_run(make: Callable[..., Any], left: str, right: str) -> None:
    sizes = {"ik": (24, 40), "ilk": (4, 6, 40), "kj": (40, 16), "kjl": (40, 4, 4)}

    def function(a: Tensor, b: Tensor, dtype: Any = jnp.bfloat16) -> Tensor:
        one, other = make(a.astype(dtype)).reshape(sizes[left]), b.astype(dtype).reshape(sizes[right])
        numbers = (((one.ndim - 1,), (0,)), ((), ()))
        return lax.dot_general(one, other, numbers, preferred_element_type=jnp.float32)

    specs = ("40x24xbf16", "40x16xbf16")
    passes = ("normalise", "dot-order")
    after = rewrite(export(function, *specs), passes, reassociate=False)
    assert "xbf16>" in after.split("dot_general")[1] and BARRIER in after
    assert_equal_results(export(partial(function, dtype=jnp.float32), *specs), after)
    assert rewrite(after, passes, reassociate=False) == after


def test_products_of_bf16_whose_result_is_read_as_it_is_stay() -> None:
    def function(a: Tensor, b: Tensor) -> Tensor:
        made = lax.dot_general(a, b, (((2,), (0,)), ((), ())), preferred_element_type=jnp.float32)
        return jnp.exp(made.reshape(24, 16)).T, made + 1, made[:3]

    text = export(function, "6x4x40xbf16", "40x16xbf16")
    assert BARRIER not in rewrite(text)
    assert_equal_results(text, rewrite(text))


def test_a_product_of_bf16_whose_operand_was_flat_runs() -> None:
    """XLA computes the product of two matrices in f32; reshape-sinker takes the reshape away, and it would not."""

    def function(a: Tensor, b: Tensor) -> Tensor:
        one, other = jnp.maximum(a, a.dtype.type(0.1)), jnp.maximum(b, b.dtype.type(0.1))
        made = lax.dot_general(one.reshape(4, 640), other, (((0,), (0,)), ((), ())), preferred_element_type=jnp.float32)
        return made.T

    text = export(function, "4x40x16xbf16", "4x3xbf16")
    after = rewrite(text, DEFAULT_PASSES)
    assert "tensor<4x40x16xbf16>, tensor<4x3xbf16>)" in after
    assert_equal_results(text, after)


def with_left(text: str, left: str, old: str, new: str) -> str:
    """The module with another type of the left operand: jax converts operands of different types first."""
    return text.replace(f"tensor<{spec(left, old)}>", f"tensor<{spec(left, new)}>")


@pytest.mark.parametrize(("left", "right"), [("ki", "kjl"), ("ki", "jlk"), ("bki", "jkb"), ("ki", "kj"), ("ik", "kjl")])
def test_products_of_bytes_with_a_sign_and_without_compile(left: str, right: str) -> None:
    """As those of bf16; XLA:CPU refuses the module when it compiles it."""
    types = ("i8", "i8", "i32")
    text = with_left(of_narrow(left, right, widened=False, types=types), left, "i8", "ui8")
    after = rewrite(text, reassociate=False)
    assert (BARRIER in after) == ((left, right) in [("ki", "kjl"), ("ki", "jlk"), ("bki", "jkb")])
    assert_equal_results(with_left(of_narrow(left, right, widened=True, types=types), left, "i8", "ui8"), after)


OF_MATRICES = [("ik", "kj"), ("ki", "jk"), ("k", "kj"), ("ik", "k"), ("bik", "bkj")]
OF_MORE = [("ilk", "kj"), ("ikl", "kj"), ("ik", "kjl"), ("ibk", "bjk")]


@pytest.mark.parametrize("other", ["i4", "ui4", "i8"])
@pytest.mark.parametrize("result", ["i32", "i8"])
@pytest.mark.parametrize(("left", "right"), [*OF_MATRICES, *OF_MORE])
def test_products_of_types_narrower_than_a_byte_compile(left: str, right: str, other: str, result: str) -> None:
    """XLA:CPU refuses them if it need not transpose or reshape the operands first, and takes the others as they are."""
    types = ("i4", "i4", result)
    text = with_left(of_narrow(left, right, widened=False, types=types), left, "i4", other)
    after = rewrite(text)
    product = after.split("dot_general")[1].partition(":")[2].partition("\n")[0]
    assert ("i4>" in product) == ((left, right) in OF_MORE)
    assert_equal_results(with_left(of_narrow(left, right, widened=True, types=types), left, "i4", other), after)
    assert rewrite(text, machine=GPU) == rewrite(text, ("normalise",))


def test_a_product_of_narrow_numbers_in_their_own_type_stays() -> None:
    def function(a: Tensor, b: Tensor) -> Tensor:
        return lax.dot(a, b, preferred_element_type=jnp.int4)

    text = export(function, spec("ik", "i4"), spec("kj", "i4"))
    assert rewrite(text) == rewrite(text, ("normalise",))
    assert_equal_results(text, rewrite(text))


def test_a_layer_of_narrow_numbers_in_tiles_compiles() -> None:
    """Of three dimensions the product compiles; in a tile it is one of matrices."""

    def layer(x: Tensor, w: Tensor) -> Tensor:
        made = lax.dot_general(x, w, (((2,), (0,)), ((), ())), preferred_element_type=jnp.int32)
        return jnp.tanh(made.astype(jnp.float32)).sum(-1)

    text = export(layer, "8x128x16xi4", "16x64xi4")
    after = rewrite(text, DEFAULT_PASSES, size_threshold=100_000, split_size=32_000)
    assert "stablehlo.while" in after and measure_memory(after).temp < measure_memory(text).temp / 4
    assert_equal_results(text, after)
