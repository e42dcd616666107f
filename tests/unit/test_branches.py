"""What a branch stores for a later one on the same index, as the gradients of conditionals do, computed there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.types import Types
from exla_opt.ir.walk import inside_out
from exla_opt.ir.write import serialise
from exla_opt.memory.peak import predict
from exla_opt.options import Options
from exla_opt.passes.tensor_splitter.branches import recompute_in_branches, stores_for_branches
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.runtime.compare import compare
from exla_opt.runtime.compile import compile_program, run_program
from tests.execute import interpret

Tensor = Any
Function = Callable[..., Any]

ROWS, WIDTH = 96, 16
OPTIONS = Options(size_threshold=3_000, split_size=1_500)
WHICH = (np.array(0, np.int32), np.array(1, np.int32))


def normalised(h: Tensor) -> Tensor:
    return (h - h.mean(0)) / jnp.sqrt(h.var(0) + 1e-5)


def trained_or_not(which: Tensor, x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """A norm over the batch in one branch: no loop over the batch can cut both cases."""

    def loss(a: Tensor, b: Tensor) -> Tensor:
        branches = [lambda x: jax.nn.gelu(normalised(x @ a)) @ b, lambda x: jnp.tanh(x @ a) @ b]
        return (lax.switch(which, branches, x) ** 2).mean()

    return jax.grad(loss, (0, 1))(a, b)


def by_a_truth(which: Tensor, x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    def loss(a: Tensor) -> Tensor:
        return lax.cond(which > 0, lambda x: jnp.sin(normalised(x @ a)) @ b, lambda x: x, x).sum()

    return jax.grad(loss)(a)


def in_every_step(which: Tensor, x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    def loss(a: Tensor) -> Tensor:
        def step(h: Tensor, _: None) -> Any:
            branches = [lambda h: jnp.tanh(normalised(h @ a)) @ b, lambda h: 0.5 * h]
            return lax.switch(which, branches, h), None

        return lax.scan(step, x, None, length=3)[0].sum()

    return jax.grad(loss)(a)


def one_after_the_other(which: Tensor, x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    def loss(a: Tensor, b: Tensor) -> Tensor:
        h = x
        for scale in (1.0, 0.5, 0.25):
            h = h + lax.switch(which, [lambda h, s=scale: jnp.sin(normalised(s * h @ a)) @ b, jnp.cos], h)
        return (h**2).sum()

    return jax.grad(loss, (0, 1))(a, b)


def largest(which: Tensor, x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The first case asks which elements are the largest; the answers are stored, and their number is not."""

    def loss(a: Tensor) -> Tensor:
        return lax.switch(which, [lambda x: (x @ a).max(0) @ b, lambda x: (x @ a).min(0) @ b], x).sum()

    return jax.grad(loss)(a)


TAKEN = [trained_or_not, by_a_truth, in_every_step, one_after_the_other]


def returned(which: Tensor, x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """What the first case stores is a result of the program."""
    one = lax.switch(which, [lambda x: jnp.tanh(x @ a), lambda x: jnp.sin(x @ a)], x)
    return one, lax.switch(which, [lambda y: y @ b, lambda y: (y * y) @ b], one)


def on_another_index(which: Tensor, x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    one = lax.switch(which, [lambda x: jnp.tanh(x @ a), lambda x: jnp.sin(x @ a)], x)
    return lax.switch(1 - which, [lambda y: y @ b, lambda y: (y * y) @ b], one)


def compared(which: Tensor, x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The later branch asks which elements are the largest, by equality."""
    one = lax.switch(which, [lambda x: jnp.tanh(x @ a), lambda x: jnp.sin(x @ a)], x)
    return lax.switch(which, [lambda: (one == one.max(0)).sum(0), lambda: jnp.int32(one[0])])


def compared_afterwards(which: Tensor, x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """What a later branch selects is compared with what the first one did."""
    branches = [lambda x: (p := jnp.tanh(x @ a), p.max(0)), lambda x: (p := jnp.sin(x @ a), p.max(0))]
    p, largest = lax.switch(which, branches, x)
    again = lax.switch(which, [lambda: p.max(0), lambda: p.max(0) * 1.0])
    return again == largest


LEFT = [returned, on_another_index, compared, compared_afterwards]


def exported(function: Function) -> tuple[str, list[Any]]:
    rng = np.random.default_rng(7)
    shapes = ((ROWS, WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH))
    arrays = [rng.standard_normal(shape).astype(np.float32) * 0.3 for shape in shapes]
    return str(jax.export.export(jax.jit(function))(WHICH[0], *arrays).mlir_module()), arrays


def normalised_module(text: str) -> ir.Module:
    module = ir.Module.parse(text)
    run_pipeline(module, ("normalise", "loop-residuals", "normalise"), OPTIONS)
    return module


def stored(module: ir.Module) -> int:
    """The bytes that all cases return."""
    types = Types()
    cases = inside_out(module, "stablehlo.case", "stablehlo.if")
    return sum(types.of(result).bytes for case in cases for result in case.results)


@pytest.mark.parametrize("function", TAKEN, ids=lambda each: each.__name__)
def test_later_branches_compute_what_they_read(function: Function) -> None:
    text, arrays = exported(function)
    with new_context():
        module = normalised_module(text)
        before, plain = stored(module), serialise(module, "text").decode()
        assert stores_for_branches(module, OPTIONS) and recompute_in_branches(module, OPTIONS)
        assert module.operation.verify()
        assert stored(module) < 0.7 * before
        rewritten = serialise(module, "text").decode()
        assert not recompute_in_branches(module, OPTIONS), "a second run changes it"
    for which in WHICH:
        for one, other in zip(interpret(plain, [which, *arrays]), interpret(rewritten, [which, *arrays]), strict=True):
            assert one.tobytes() == other.tobytes(), "the same ops on the same numbers give the same bits"


@pytest.mark.parametrize("function", TAKEN, ids=lambda each: each.__name__)
def test_loops_then_cut_the_branches(function: Function) -> None:
    text, arrays = exported(function)
    with new_context() as context:
        module = ir.Module.parse(text, context)
        before = predict(module, OPTIONS.machine)
        run_pipeline(module, DEFAULT_PASSES, OPTIONS)
        after = predict(module, OPTIONS.machine)
        rewritten = serialise(module, "text").decode()
    assert after.temp * 2 < before.temp
    for which in WHICH:
        expected, found = (run_program(compile_program(each), [which, *arrays]) for each in (text, rewritten))
        for one, other in zip(expected, found, strict=True):
            comparison = compare(one, other)
            assert comparison.passed, comparison.problem


@pytest.mark.parametrize("function", LEFT, ids=lambda each: each.__name__)
def test_other_results_stay(function: Function) -> None:
    text, _ = exported(function)
    with new_context():
        module = normalised_module(text)
        before = serialise(module, "text")
        assert not recompute_in_branches(module, OPTIONS)
        assert serialise(module, "text") == before


def of_a_product(which: Tensor, x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """What the product is computed from is as large, and nothing else keeps it."""
    h = jnp.sin(x)
    square = a[:, :WIDTH]
    branches = [
        lambda h: (p := h @ square, jnp.tanh(p), jnp.sin(p), p.mean(0)),
        lambda h: (p := square[0] + h, jnp.cos(p), jnp.exp(p), p.mean(0)),
    ]
    p, y, z, mean = lax.switch(which, branches, h)
    return lax.switch(which, [lambda: p * y * z - mean, lambda: p + y + z * mean])


def stored_and_read(function: Function) -> tuple[list[str], set[str]]:
    """The types that the first case still returns, and the ops of the first branch of the later one."""
    text, _ = exported(function)
    with new_context():
        module = normalised_module(text)
        assert recompute_in_branches(module, OPTIONS)
        first, later = inside_out(module, "stablehlo.case")
        names = {view.operation.name for view in later.regions[0].blocks[0].operations}
        return [str(result.type) for result in first.results], names


def test_products_and_small_results_are_stored() -> None:
    kinds, names = stored_and_read(of_a_product)
    assert kinds == [f"tensor<{ROWS}x{WIDTH}xf32>", f"tensor<{WIDTH}xf32>"]
    assert {"stablehlo.tanh", "stablehlo.sine"} <= names
    assert not {"stablehlo.dot_general", "stablehlo.reduce"} & names


def of_the_largest(which: Tensor, x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The answers are returned, with what is computed from them."""

    def marks(p: Tensor) -> tuple[Tensor, Tensor]:
        found = jnp.where(p == p.max(0), 1.0, 0.0)
        return found, jnp.sin(found)

    y, z = lax.switch(which, [lambda x: marks(x @ a), lambda x: marks(jnp.cos(x @ a))], x)
    return lax.switch(which, [lambda: (y * z) @ b, lambda: (y + z) @ b])


def test_no_test_for_equality_is_repeated() -> None:
    kinds, names = stored_and_read(of_the_largest)
    assert kinds == [f"tensor<{ROWS}x{4 * WIDTH}xf32>"]
    assert "stablehlo.sine" in names and "stablehlo.compare" not in names


BRANCHES = """
func.func @main(%k: tensor<i32>, %x: tensor<40x30xf32>) -> tensor<40x30xf32> {{
  %r = "stablehlo.case"(%k) ({{
    %s = stablehlo.sine %x : tensor<40x30xf32>
    stablehlo.return %s : tensor<40x30xf32>
  }}, {{
    %c = stablehlo.cosine %x : tensor<40x30xf32>
    stablehlo.return %c : tensor<40x30xf32>
  }}) : (tensor<i32>) -> tensor<40x30xf32>
  %y = "stablehlo.case"(%k) ({{
    %a = stablehlo.add %r, %r : tensor<40x30xf32>
    stablehlo.return %a : tensor<40x30xf32>
  }}, {{
    %b = stablehlo.multiply %r, %r : tensor<40x30xf32>
    stablehlo.return %b : tensor<40x30xf32>
  }}{third}) : (tensor<i32>) -> tensor<40x30xf32>
  return %y : tensor<40x30xf32>
}}
"""


@pytest.mark.parametrize("third", ["", ", {\n stablehlo.return %x : tensor<40x30xf32>\n}"], ids=["alike", "more"])
def test_an_index_out_of_range_runs_the_last_branch(third: str) -> None:
    """With as many branches, both cases run the same; a case of more branches may run another."""
    text = BRANCHES.format(third=third)
    options = Options(size_threshold=4000)
    with new_context():
        module = ir.Module.parse(text)
        assert recompute_in_branches(module, options) == (not third)
        rewritten = serialise(module, "text").decode()
    x = np.linspace(0, 3, 1200, dtype=np.float32).reshape(40, 30)
    for number in (-1, 0, 1, 2, 7):
        arrays = [np.array(number, np.int32), x]
        assert interpret(text, arrays)[0].tobytes() == interpret(rewritten, arrays)[0].tobytes()
