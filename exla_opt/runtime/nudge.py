"""How far rounding alone can move a program's results: it is run on inputs that differ by an ulp."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from exla_opt.runtime.compare import is_exact, parts_of
from exla_opt.runtime.inputs import Array

# So many runs; the largest difference of all counts.
_RUNS = 3


def measure_spreads(
    run: Callable[[Sequence[Array]], Sequence[Array]], arrays: Sequence[Array], results: Sequence[Array]
) -> list[float]:
    """For each result the largest difference that inputs make whose floats are each off by an ulp, up or down.

    run: the program's results. results: those of `arrays` themselves. Integers and booleans have a spread of 0, and
    numbers that are not finite in both count for nothing. Raises InputError when a run fails.
    """
    spreads = [0.0] * len(results)
    for seed in range(_RUNS):
        generator = np.random.default_rng(seed)
        nudged = run([nudge(array, generator) for array in arrays])
        distances = [_distance(one, other) for one, other in zip(results, nudged, strict=True)]
        spreads = [max(pair) for pair in zip(spreads, distances, strict=True)]
    return spreads


def nudge(array: Array, generator: np.random.Generator) -> Array:
    """The floats that stand next to those of the array, above or below by chance; anything else as it is."""
    if is_exact(array.dtype):
        return array
    if array.dtype.kind == "c":
        numbers = np.ascontiguousarray(array).reshape(-1)
        return nudge(numbers.view(numbers.real.dtype), generator).view(array.dtype).reshape(array.shape)
    ends = np.asarray([-np.inf, np.inf]).astype(array.dtype)
    towards = ends[generator.integers(0, 2, array.shape)]
    with np.errstate(all="ignore"):
        moved = np.nextafter(array, towards)
    return np.asarray(np.where(np.isfinite(moved), moved, array))


def _distance(one: Array, other: Array) -> float:
    if is_exact(one.dtype):
        return 0.0
    first, second = parts_of(one), parts_of(other)
    both = np.isfinite(first) & np.isfinite(second)
    with np.errstate(over="ignore"):
        return float(np.abs(first[both] - second[both]).max(initial=0.0))
