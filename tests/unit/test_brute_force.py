"""The search for a limit against brute force: random small programs, rewritten with all thresholds and slices of a grid.

What the search takes is held against all of them, by prediction: it fits where one of them does, and none that fits is
clearly faster. Where none fits, it needs about the least, and takes no time for the last few bytes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jaxlib.mlir import ir

from exla_opt.budget.attempt import Attempt
from exla_opt.budget.fit import fit, unsplit_options
from exla_opt.budget.search import Search
from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.memory.timeline import read_timeline
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES
from tests.shared_searches import shared_searches

DIMS = (512, 1024, 1536, 2048, 3072, 6144)
# Powers of four, from what hardly a trip is worth to what a cache holds.
SIZES = tuple(4**power for power in range(8, 12))
# Limits as parts of the temporary memory.
PARTS = (0.3, 0.03, 0.006)
# A program is clearly faster that takes less than the time over this, and clearly smaller in the same way.
CLEARLY = 1.25
# Programs whose grid takes about a second: chains, softmax, sorts and scans, with and without gradients.
SEEDS = (2, 3, 5, 15)

Matrix = Any


def _mapped(x: Matrix, rng: random.Random) -> Matrix:
    return rng.choice((jnp.exp, jnp.sin, jnp.tanh))(x)


def _normalised(x: Matrix, rng: random.Random) -> Matrix:
    return jax.nn.softmax(x, axis=1) if rng.random() < 0.5 else x / (x**2).sum(0)


def _product(x: Matrix, rng: random.Random) -> Matrix:
    return jnp.exp(-(x @ x.T)) @ x


def _in_order(x: Matrix, rng: random.Random) -> Matrix:
    return rng.choice((jnp.sort, jnp.cumsum))(x, axis=rng.choice((0, 1)))


STEPS: tuple[Callable[[Matrix, random.Random], Matrix], ...] = (
    _mapped,
    _mapped,
    _normalised,
    _product,
    _in_order,
    lambda x, rng: x.T,
)


def random_module(seed: int) -> ir.Module:
    """A few steps on a matrix of all pairs, each on one of the last two matrices; sums of them are returned."""
    rng = random.Random(seed)
    rows, columns = rng.sample(DIMS, 2)
    features, steps = rng.choice((4, 64)), rng.randint(2, 4)

    def function(a: Matrix, b: Matrix) -> tuple[Matrix, ...]:
        drawn = random.Random(seed)
        matrices = [a @ b.T if drawn.random() < 0.5 else jnp.tanh(a[:, :1] - b[:, 0])]
        for _ in range(steps):
            matrices.append(drawn.choice(STEPS)(drawn.choice(matrices[-2:]), drawn))
        return matrices[-1].sum(0), (drawn.choice(matrices) ** 2).sum(1)

    def gradient(a: Matrix, b: Matrix) -> Matrix:
        return jax.grad(lambda a, b: sum((each**2).sum() for each in function(a, b)), (0, 1))(a, b)

    arguments = [jax.ShapeDtypeStruct((size, features), jnp.float32) for size in (rows, columns)]
    lowered = jax.jit(gradient if rng.random() < 0.4 else function).lower(*arguments)
    return parse_module(f"seed {seed}", str(lowered.compiler_ir("stablehlo")).encode(), new_context()).module


def enumerated(search: Search, unsplit: Attempt) -> list[Attempt]:
    """The program as it came, and with all pairs of sizes: thresholds are those that divide its tensors, and the sizes."""
    tensors = {tensor.bytes - 1 for tensor in read_timeline(unsplit.module).tensors}
    thresholds = sorted(size for size in tensors | set(SIZES) if SIZES[0] <= size < unsplit.largest)
    pairs = [(threshold, size) for threshold in thresholds for size in SIZES if size <= threshold]
    return [unsplit, *(search.attempt(Options(threshold, size)) for threshold, size in pairs)]


def assert_about_the_best(options: Options, peak: int, seconds: float, limit: int, others: Sequence[Attempt]) -> None:
    """Nothing that fits is clearly faster; where nothing fits, nothing needs clearly less, or as little and half the time."""
    within = [other for other in others if other.peak <= limit]
    if within:
        assert peak <= limit, f"missed by {options}; met with {within[0].options}"
        best = min(within, key=lambda other: other.seconds)
        assert seconds <= CLEARLY * best.seconds, f"{options} is slower than {best.options}"
    elif peak > limit:
        assert peak <= CLEARLY * min(other.peak for other in others)
        assert all(seconds <= 2 * other.seconds for other in others if other.peak <= 1.05 * peak)


@pytest.fixture(autouse=True, scope="module")
def shared() -> Iterator[None]:
    with shared_searches():
        yield


@pytest.mark.parametrize("seed", SEEDS)
def test_no_sizes_of_a_grid_are_better(seed: int) -> None:
    search = Search(random_module(seed), DEFAULT_PASSES, Options(), 1, None, False, None)
    unsplit = search.attempt(unsplit_options(Options()))
    others = enumerated(search, unsplit)
    held = unsplit.predicted.peak - unsplit.predicted.temp
    for part in PARTS:
        limit = held + int(part * unsplit.predicted.temp)
        found = fit(random_module(seed), DEFAULT_PASSES, Options(), limit, verify_each=False)
        assert_about_the_best(found.options, found.peak, found.seconds, limit, others)
        if part == PARTS[0]:  # recomputed on top of each that does not fit
            over = [replace(other.options, memory_limit=limit) for other in others if other.peak > limit]
            again = [*others, *map(search.attempt, over)]
            assert_about_the_best(found.options, found.peak, found.seconds, limit, again)
