"""Every pass alone, many orders of the passes, and the pipeline twice: equal results."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import permutations
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, PASSES, run_pipeline
from exla_opt.runtime.compare import compare
from tests.execute import random_arguments, run_module
from tests.programs.model import Program, export_program, gradient
from tests.programs.samples import NAMES, SMALL_STORED, read_sample

OPTIONS = Options(size_threshold=8_000, split_size=4_000)
REWRITES = tuple(name for name in PASSES if name != "normalise" and name in DEFAULT_PASSES)
# Where no loop stores anything, nothing is sorted, factored, pooled or ranked, no matrix is symmetric, no float is
# narrow, no row is wide, no exponent is constant and there is no memory limit, fourteen passes do nothing, in whatever
# order.
_IDLE = (
    *("loop-residuals", "late-sums", "blocked-cholesky", "symmetric-sums", "symmetric-products", "order-statistics"),
    "blocked-solve",
    *("pooling-gradients", "blocked-top-k"),
    *("half-powers", "joined-trips", "narrow-slices", "wide-sums", "recompute"),
)
# Those that find the same products wherever they stand are put at one place of each order of the others, at each in turn.
_ANYWHERE = ("reused-products", "dot-order")
WITHOUT_LOOPS = tuple(name for name in REWRITES if name not in (*_IDLE, *_ANYWHERE))
Tensor = Any


def kernel(x: Tensor, y: Tensor, v: Tensor) -> Tensor:
    squared = jnp.sum((x[:, None, :] - y[None, :, :]) ** 2, axis=-1)
    return jnp.exp(-0.5 * squared) @ v, (x @ y.T) @ v


def attention(x: Tensor, w: Tensor) -> Tensor:
    q, k, v = (jnp.reshape(x.reshape(-1, 16) @ each, (2, 30, 4, 4)).transpose(0, 2, 1, 3) for each in w)
    scores = jax.nn.softmax(jnp.einsum("bhqd,bhkd->bhqk", q, k) / 2, axis=-1)
    return jnp.einsum("bhqk,bhkd->bhqd", scores, v).transpose(0, 2, 1, 3).reshape(2, 30, 16)


PROGRAMS = [
    Program("kernel", gradient(kernel), "60x5xf32 50x5xf32 50xf32"),
    Program("attention", gradient(attention), "2x30x16xf32 3x16x16xf32"),
]


def rewrite(text: str, passes: tuple[str, ...]) -> str:
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        run_pipeline(module, passes, OPTIONS)
        return serialise(module, "text").decode()


def test_there_are_so_many_rewrites() -> None:
    assert len(REWRITES) == 24
    assert {*REWRITES, "normalise"} == set(DEFAULT_PASSES)


def _orders() -> Iterator[tuple[str, ...]]:
    """Every pair of passes both ways, for each order comes with its reverse, and nearly every triple."""
    some = random.Random(0).sample([*permutations(WITHOUT_LOOPS)], 24)
    for number, order in enumerate((*some, *(each[::-1] for each in some))):
        place = number % (len(order) + 1)
        yield *order[:place], *_ANYWHERE, *order[place:]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_many_orders_of_the_passes(program: Program) -> None:
    text = export_program(program)
    outputs = {rewrite(text, ("normalise", *order)) for order in _orders()}
    outputs |= {rewrite(text, ("normalise", name)) for name in REWRITES}
    once = rewrite(text, DEFAULT_PASSES)
    assert rewrite(once, DEFAULT_PASSES) == once
    given = random_arguments(text)
    expected = run_module(text, given)
    for output in (*sorted(outputs), once):
        for one, other in zip(expected, run_module(output, given), strict=True):
            comparison = compare(one, other)
            assert comparison.passed, comparison.problem


@pytest.mark.parametrize("name", [*NAMES, *SMALL_STORED])
def test_each_pass_alone_on_a_sample(name: str) -> None:
    sample = read_sample(name)
    passes_by_output: dict[str, list[str]] = {}  # a pass that finds nothing leaves what another leaves: run once
    for rewrite_name in REWRITES:
        with new_context() as context:
            module = parse_module(name, sample.module, context).module
            run_pipeline(module, ("normalise", rewrite_name), OPTIONS)
            passes_by_output.setdefault(serialise(module, "text").decode(), []).append(rewrite_name)
    for text, names in passes_by_output.items():
        results = run_module(text, list(sample.arguments))
        for number, (expected, actual) in enumerate(zip(sample.results, results, strict=True)):
            comparison = compare(expected, actual)
            assert comparison.passed, f"{names}, result {number}: {comparison.problem}"
