"""Gradients of attention and its like, as JAX writes them: rewritten, counted and executed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.walk import walk_functions
from exla_opt.ir.write import serialise
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.runtime.memory import measure_memory
from tests.execute import assert_equal_results, random_arguments, run_module
from tests.programs.model import Program, export_program, gradient

Tensor = Any
Function = Callable[..., Any]
LENGTH, WIDTH = 64, 8
OPTIONS = Options(size_threshold=16_000, split_size=16_000)
BEFORE = DEFAULT_PASSES[: DEFAULT_PASSES.index("reused-products")]
OF_HEADS = f"2x{LENGTH}x3x{WIDTH}"


def rewrite(text: str, options: Options = OPTIONS) -> tuple[str, str, list[str]]:
    """The module before the pass and behind it, and the codes of what it said."""
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        run_pipeline(module, BEFORE, options)
        before = serialise(module, "text").decode()
        remarks = run_pipeline(module, ["reused-products"], options).remarks
        return before, serialise(module, "text").decode(), [remark.code for remark in remarks]


def sums_of_rows(text: str) -> int:
    """How many sums read a tensor with a row for each query and a column for each key."""
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        return sum(
            op.name == "stablehlo.reduce"
            and any(list(value.type.shape).count(LENGTH) >= 2 for value in op.operands)
            and "stablehlo.add" in {each.operation.name for each in op.regions[0].blocks[0].operations}
            for op in walk_functions(module.operation)
        )


def export(function: Function, *specs: str) -> str:
    return export_program(Program("case", function, " ".join(specs)))


def attend(
    scores: Function = lambda scores: scores,
    weights: Function = lambda weights: weights,
    softmax: Function | None = None,
) -> Function:
    """Attention, with something done to the scores or to the weights."""
    normalised = softmax or jax.nn.softmax

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        products = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(jnp.asarray(WIDTH, q.dtype))
        return jnp.einsum("bhqk,bkhd->bqhd", weights(normalised(scores(products))), v)

    return attention


def causal(scores: Tensor) -> Tensor:
    return jnp.where(jnp.tril(jnp.ones((LENGTH, LENGTH), bool)), scores, -1e9)


def drop(weights: Tensor) -> Tensor:
    kept = jax.random.bernoulli(jax.random.key(0), 0.9, weights.shape)
    return jnp.where(kept, weights / 0.9, 0)


def drop_by_factor(weights: Tensor) -> Tensor:
    kept = jax.random.bernoulli(jax.random.key(0), 0.9, weights.shape)
    return weights * (kept.astype(weights.dtype) / jnp.asarray(0.9, weights.dtype))


def in_single(scores: Tensor) -> Tensor:
    return jax.nn.softmax(scores.astype(jnp.float32)).astype(scores.dtype)


def by_hand(scores: Tensor) -> Tensor:
    powers = jnp.exp(scores - jax.lax.stop_gradient(scores.max(-1, keepdims=True)))
    return powers / powers.sum(-1, keepdims=True)


def by_jax(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)


def several_queries(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Three heads of queries read one of keys and values."""
    return jax.nn.dot_product_attention(q, k[:, :, :1], v[:, :, :1])


def layers(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Two layers, with a matrix behind each."""
    mix = jnp.tanh(v[0, :3, :, 0])
    for _ in range(2):
        q = q + jnp.tanh(jnp.einsum("bqhd,hg->bqgd", attend()(q, k, v), mix))
    return q


REWRITTEN: dict[str, Function] = {
    "plain": attend(),
    "causal": attend(causal),
    "dropout": attend(causal, drop),
    "dropout by a factor": attend(causal, drop_by_factor),
    "in f32": attend(softmax=in_single),
    "by hand": attend(softmax=by_hand),
    "through jax.nn": by_jax,
    "several queries": several_queries,
    "layers": layers,
}


# Those whose softmax is f32 whatever they are given.
MIXED = ("in f32", "through jax.nn", "several queries")


@pytest.mark.parametrize("name", REWRITTEN)
def test_the_sum_of_a_row_is_read_off_the_product(name: str) -> None:
    text = export(gradient(REWRITTEN[name]), *[f"{OF_HEADS}xf32"] * 3)
    before, after, codes = rewrite(text)
    assert codes == ["EX012"] * (2 if name == "layers" else 1)
    assert sums_of_rows(after) == sums_of_rows(before) - len(codes)
    assert_equal_results(text, after)


@pytest.mark.parametrize("name", [name for name in REWRITTEN if name not in MIXED])
def test_narrow_floats_are_no_further_from_the_truth(name: str) -> None:
    wide, narrow = (export(gradient(REWRITTEN[name]), *[f"{OF_HEADS}x{dtype}"] * 3) for dtype in ("f32", "bf16"))
    before, after, codes = rewrite(narrow)
    assert set(codes) == {"EX012"}
    for seed in range(3):
        arrays = random_arguments(narrow, seed)
        true = run_module(wide, [array.astype(np.float32) for array in arrays])
        errors = [
            [
                np.abs(one.astype(np.float32) - other).mean()
                for one, other in zip(run_module(text, arrays), true, strict=True)
            ]
            for text in (before, after)
        ]
        assert sum(errors[1]) <= 1.1 * sum(errors[0])


@pytest.mark.parametrize("name", MIXED)
def test_a_sum_of_more_digits_stays(name: str) -> None:
    """In f32, over products that are rounded to bf16."""
    text = export(gradient(REWRITTEN[name]), *[f"{OF_HEADS}xbf16"] * 3)
    assert rewrite(text)[2] == ["EX502"]


def test_arithmetic_in_f16_stays() -> None:
    """The square of the sum of a row overflows, where the sum does not."""
    text = export(gradient(attend()), *[f"{OF_HEADS}xf16"] * 3)
    assert rewrite(text)[2] == ["EX502"]


def test_an_order_that_must_stay_stays() -> None:
    text = export(gradient(attend()), *[f"{OF_HEADS}xf32"] * 3)
    assert rewrite(text, replace(OPTIONS, reassociate=False))[2] == ["EX310"]


def test_a_product_is_not_kept_for_this_alone() -> None:
    """The matrix behind attention is no argument of the gradient: nobody reads attention's output on the way back."""

    def loss(q: Tensor, k: Tensor, v: Tensor, mix: Tensor) -> Tensor:
        return jnp.sum(jnp.tanh(jnp.einsum("bqhd,hdf->bqf", attend()(q, k, v), mix)))

    specs = *[f"{OF_HEADS}xf32"] * 3, f"3x{WIDTH}x40xf32"
    assert rewrite(export(jax.grad(loss, argnums=(0, 1, 2)), *specs))[2] == []
    before, after, codes = rewrite(export(jax.grad(loss, argnums=(0, 1, 2, 3)), *specs))
    assert codes == ["EX012"]
    assert_equal_results(before, after)


def other_values(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Two softmaxes, each of which is multiplied by the values of the other's gradient."""
    one, other = (jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", each, k)) for each in (q, -q))
    product = jnp.einsum("bhqk,bkhd->bqhd", one, v)
    gradient_of_other = jnp.einsum("bqhd,bkhd->bhqk", product, v)
    return jnp.sum(other * gradient_of_other, -1)


def a_row_for_each_key(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k))
    product = jnp.einsum("bhqk,bkhd->bqhd", weights, v)
    return jnp.sum(weights * jnp.einsum("bqhd,bkhd->bhqk", product, v), -2)


def a_mask_behind(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k))
    product = jnp.einsum("bhqk,bkhd->bqhd", weights, v)
    terms = weights * jnp.einsum("bqhd,bkhd->bhqk", product, v)
    return jnp.sum(jnp.where(jnp.tril(jnp.ones((LENGTH, LENGTH), bool)), terms, 0), -1)


def a_longer_sum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The products are as long as the rows."""
    v = jnp.tile(v, LENGTH // WIDTH)
    weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k))
    product = jnp.einsum("bhqk,bkhd->bqhd", weights, v)
    return jnp.sum(weights * jnp.einsum("bqhd,bkhd->bhqk", jnp.sin(product), v), -1)


@pytest.mark.parametrize("function", [other_values, a_row_for_each_key, a_mask_behind, a_longer_sum])
def test_what_no_product_holds_stays(function: Function) -> None:
    assert rewrite(export(function, *[f"{OF_HEADS}xf32"] * 3))[2] == []


@pytest.mark.parametrize(("divisor", "codes"), [(2.0, ["EX012"]), (1e-310, [])])
def test_no_float_holds_the_inverse_of_the_least(divisor: float, codes: list[str]) -> None:
    def both(p: Tensor, q: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        weights = p / jnp.float64(divisor)
        return weights @ v, jnp.sum(weights * jnp.einsum("qd,kd->qk", q, v), -1)

    with new_context() as context:
        module = parse_module("<program>", export(both, "64x128xf64", "64x8xf64", "128x8xf64").encode(), context).module
        assert [remark.code for remark in run_pipeline(module, ["reused-products"], OPTIONS).remarks] == codes


def test_it_is_as_exact_in_slices_and_takes_no_more_memory() -> None:
    text = export(gradient(attend(weights=drop)), *["2x256x2x16xf32"] * 3)
    options = replace(OPTIONS, size_threshold=200_000, split_size=100_000)
    temps = []
    for passes in (DEFAULT_PASSES, [each for each in DEFAULT_PASSES if each != "reused-products"]):
        with new_context() as context:
            module = parse_module("<program>", text.encode(), context).module
            run_pipeline(module, passes, options)
            assert_equal_results(text, module)
            temps.append(measure_memory(serialise(module, "bytecode")).temp)
    assert temps[0] <= 1.02 * temps[1]


def _outer(a: Any, b: Any) -> Any:
    return lax.dot_general(a, b, (((1,), (1,)), ((), ())))


OUTER: dict[str, Function] = {
    "in the dot": lambda p, a, b: ((p * a) @ b, (p * _outer(a, b)).sum(1), p),
    "in a divisor": lambda p, a, b: (p @ b, (p / a * _outer(a, b)).sum(1), p),
    "in both": lambda p, a, b: ((p * a * a) @ b, (p * a * _outer(a, b)).sum(1), p),
}


@pytest.mark.parametrize("name", OUTER)
def test_what_the_product_has_taken_in_is_not_multiplied_with_again(name: str) -> None:
    """sum_j p[i,j] (a b')[i,j] is that of p[i,j] a[i] b[j], which is there, a[i] and all."""
    text = export(lambda p, *others: OUTER[name](jnp.cos(p), *others), "64x64xf32", "64x1xf32", "64x1xf32")
    options = Options(size_threshold=4_000, split_size=4_000)
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        run_pipeline(module, ["normalise", "rce", "reused-products"], options)
        assert_equal_results(text, serialise(module, "text").decode())
