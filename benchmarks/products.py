"""Predicted and measured seconds of matrix products of few rows, columns or terms; prints a Markdown table.

    python -m benchmarks.products --half=fitted
    python -m benchmarks.products --half="held out"

A product of random sizes stands in a loop of four trips, each of which cuts its rows from a larger matrix, as loops
over slices do. A hash of its sizes puts it into one of two halves: the rule of `memory/seconds.py` was found by looking
at the first. What a machine reaches differs, so the predicted seconds are scaled to the median of the measured ones.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import statistics
import time
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.memory.machine import CPU
from exla_opt.memory.timeline import read_timeline
from exla_opt.options import Options
from exla_opt.pipeline import run_pipeline

from .ranks import rank_correlation

TRIPS = 4
HALVES = ("fitted", "held out")
SIDES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 2048, 4096, 16384, 50257)
FEWEST, MOST = 2 * 10**6, 4 * 10**9  # floating-point operations of one product
LARGEST = 2**27  # elements of a matrix

Sizes = tuple[int, int, int, int, str]


def main() -> None:
    """Print a row a product, and one of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=HALVES, default=HALVES[1], help="[held out]")
    parser.add_argument("--count", type=int, default=60, help="products [60]")
    parser.add_argument("--repeat", type=int, default=5, help="timed runs of each [5]")
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print("| batch | rows | columns | terms | type | measured, ms | predicted, ms |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    pairs = []
    for sizes in sizes_of(arguments.half, arguments.count):
        predicted, measured = seconds_of_product(sizes, arguments.repeat)
        print(f"| {' | '.join(map(str, sizes))} | {1e3 * measured:.3f} | {1e3 * predicted:.3f} |", flush=True)
        pairs.append((predicted, measured))
    print(f"\n{summary(pairs)}")


def sizes_of(half: str, count: int) -> Iterator[Sizes]:
    """Random sizes of one half: of batch, rows, columns, terms, and the type."""
    dice = random.Random(1)
    while count:
        batch, type_ = dice.choice((1, 1, 1, 8)), dice.choice(("float32", "float32", "float64"))
        rows, columns, terms = (dice.choice(SIDES) for _ in range(3))
        largest = batch * max(TRIPS * rows * terms, terms * columns, TRIPS * rows * columns)
        if not FEWEST <= 2 * batch * rows * columns * terms <= MOST or largest > LARGEST:
            continue
        sizes = (batch, rows, columns, terms, type_)
        if half == HALVES[hashlib.sha256(repr(sizes).encode()).digest()[0] % 2]:
            count -= 1
            yield sizes


def seconds_of_product(sizes: Sizes, repeat: int) -> tuple[float, float]:
    """The predicted and the measured seconds of the loop over one product."""
    batch, rows, columns, terms, type_ = sizes

    def loop(left: jax.Array, right: jax.Array) -> jax.Array:
        def trip(number: jax.Array, out: jax.Array) -> jax.Array:
            tile = jax.lax.dynamic_slice_in_dim(left, number * rows, rows, 1)
            return jax.lax.dynamic_update_slice_in_dim(out, tile @ right, number * rows, 1)

        made: jax.Array = jax.lax.fori_loop(0, TRIPS, trip, jnp.zeros((batch, TRIPS * rows, columns), type_))
        return made

    random_numbers = np.random.default_rng(0)
    left = jnp.asarray(random_numbers.normal(size=(batch, TRIPS * rows, terms)).astype(type_))
    right = jnp.asarray(random_numbers.normal(size=(batch, terms, columns)).astype(type_))
    module = parse_module("product", jax.jit(loop).lower(left, right).as_text().encode(), new_context()).module
    run_pipeline(module, ("normalise",), Options())
    predicted = read_timeline(module, CPU).seconds
    compiled = jax.jit(loop).lower(left, right).compile()
    compiled(left, right).block_until_ready()
    measured = []
    for _ in range(repeat):
        start = time.perf_counter()
        compiled(left, right).block_until_ready()
        measured.append(time.perf_counter() - start)
    return predicted, statistics.median(measured)


def summary(pairs: list[tuple[float, float]]) -> str:
    """How the predicted seconds agree with the measured ones, scaled to the same median."""
    ratios = sorted(measured / predicted for predicted, measured in pairs)
    middle = statistics.median(ratios)
    off = sorted(max(ratio / middle, middle / ratio) for ratio in ratios)
    return (
        f"{len(pairs)} products: rank correlation {rank_correlation(pairs):.2f}; measured over predicted "
        f"{middle:.2f}; off that by a factor of {statistics.median(off):.2f} in the median, "
        f"{off[int(0.9 * len(off))]:.2f} in nine of ten, {off[-1]:.2f} at most"
    )


if __name__ == "__main__":
    main()
