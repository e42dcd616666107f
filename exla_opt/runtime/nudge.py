"""Measures how far rounding alone can move a program's results: runs it on inputs that differ by an ulp."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from exla_opt.runtime.compare import is_exact, parts_of
from exla_opt.runtime.inputs import Array

# The number of runs; the largest difference counts.
_RUNS = 3


def measure_spreads(
    run: Callable[[Sequence[Array]], Sequence[Array]], arrays: Sequence[Array], results: Sequence[Array]
) -> list[npt.NDArray[np.float64]]:
    """For each number of each result, the largest difference between runs on inputs whose floats are off by an ulp.

    run: runs the program. results: those for `arrays` themselves. Numbers are ordered as in `parts_of`. The spread is 0
    for integers and booleans, and for numbers that are not finite in both. Raises InputError when a run fails.
    """
    spreads = [np.zeros(parts_of(result).size) for result in results]
    for seed in range(_RUNS):
        generator = np.random.default_rng(seed)
        nudged = run([nudge(array, generator) for array in arrays])
        for spread, one, other in zip(spreads, results, nudged, strict=True):
            np.maximum(spread, _distances(one, other), out=spread)
    return spreads


def nudge(array: Array, generator: np.random.Generator) -> Array:
    """Replace each float by its neighbour, above or below at random; other arrays are returned unchanged."""
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


def _distances(one: Array, other: Array) -> npt.NDArray[np.float64]:
    first, second = parts_of(one), parts_of(other)
    with np.errstate(over="ignore", invalid="ignore"):
        apart = np.abs(first - second)
    known = np.isfinite(first) & np.isfinite(second)
    return np.where(known & (not is_exact(one.dtype)), apart, 0.0)
