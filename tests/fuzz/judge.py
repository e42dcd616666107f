"""Whether rewritten results are right: to the bit where every order of evaluation gives the same, else by error.

A result that depends on the order of a sum may be off by the error of the original against a float64 run, four times
over, or by a few roundings of its largest element. Where the original happened to be exact, inputs that are off by a
rounding, and ops that are, show how far the result may be off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from exla_opt.runtime.inputs import Array
from tests.fuzz.inputs import rounding, smallest_normal

# Roundings of the largest element that are always allowed: of float64, for which there is no wider run, of float32, of
# types of 16 bits, of narrower ones.
_ALLOWED = ((1e-12, 10_000), (1e-6, 32), (1e-2, 8), (1.0, 4))
_TIMES_ORIGINAL = 4
_TIMES_NUDGED = 4
# Smallest normal numbers that the parts of a product may lose, in whatever order they are multiplied.
_LOST = 8


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong, "" when nothing is, and whether the errors had to be measured to decide."""

    problem: str
    measured: bool = False


def parts(array: Array) -> npt.NDArray[np.float64]:
    """The elements in order as float64; a complex one as two."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype.kind == "c":
        flat = flat.view(flat.real.dtype)
    return flat.astype(np.float64)


def nan_in_both(expected: Array, actual: Array) -> tuple[Array, Array]:
    """Both floats with NaN where either is infinite or NaN; anything else as it is."""
    if (expected.dtype, expected.shape) != (actual.dtype, actual.shape) or expected.dtype.kind in "iub":
        return expected, actual
    if "int" in expected.dtype.name:
        return expected, actual
    both = np.isfinite(expected) & np.isfinite(actual)
    nothing = np.full_like(expected, np.nan)
    return np.where(both, expected, nothing), np.where(both, actual, nothing)


def judge_exact(expected: Array, actual: Array, *, swaps: bool) -> str:
    """What is wrong with a result that must be equal, "" if it is. swaps: as in `_special`."""
    if (expected.dtype, expected.shape) != (actual.dtype, actual.shape):
        return f"{actual.dtype}{actual.shape} instead of {expected.dtype}{expected.shape}"
    if expected.dtype.kind in "iub" or "int" in expected.dtype.name:
        different = expected.reshape(-1) != actual.reshape(-1)
        return _first(different, expected.reshape(-1), actual.reshape(-1)) if different.any() else ""
    one, other = parts(expected), parts(actual)
    different = ~((one == other) | (np.isnan(one) & np.isnan(other)))
    if swaps:
        different &= np.isfinite(one) | np.isfinite(other)
    return _first(different, one, other) if different.any() else ""


def _first(different: npt.NDArray[np.bool_], one: Array, other: Array) -> str:
    at = int(np.flatnonzero(different)[0])
    return f"{int(different.sum())} of {different.size} differ, first number {at}: {other[at]} instead of {one[at]}"


def judge_rounded(
    expected: Array,
    actual: Array,
    exact: Callable[[], Array | None],
    nudged: Callable[[], Iterable[Array]],
    *,
    swaps: bool,
) -> Verdict:
    """Whether a rounded result is no worse than the original.

    exact: the float64 result, None when there is none. nudged: float64 results of inputs, or of ops, that are off by a
    rounding: as many are asked for as are needed.
    swaps: whether an infinity and NaN may take each other's place.
    """
    if (expected.dtype, expected.shape) != (actual.dtype, actual.shape):
        return Verdict(f"{actual.dtype}{actual.shape} instead of {expected.dtype}{expected.shape}")
    one, other = parts(expected), parts(actual)
    if problem := _special(one, other, swaps):
        return Verdict(problem)
    ordinary = np.isfinite(one) & np.isfinite(other)
    largest = float(np.abs(one[ordinary]).max(initial=0.0))
    unit = rounding(expected.dtype)
    floor = next(count for most, count in _ALLOWED if unit < most) * unit * largest
    if unit < 1e-6:  # narrower floats are computed in wider ones, and keep what is below
        floor = max(floor, _LOST * smallest_normal(expected.dtype))
    away = float(np.abs(one[ordinary] - other[ordinary]).max(initial=0.0))
    if away <= floor:
        return Verdict("")
    wide = exact()
    if wide is None:
        return Verdict("" if away <= 1e-3 * max(largest, 1.0) or unit > 1e-6 else f"off by {away:g} of {largest:g}")
    truth = parts(wide)
    ordinary &= np.isfinite(truth)
    before, after = (float(np.abs(truth[ordinary] - v[ordinary]).max(initial=0.0)) for v in (one, other))
    if after <= max(_TIMES_ORIGINAL * before, floor):
        return Verdict("", True)
    spread = 0.0
    for array in nudged():
        spread = max(spread, float(np.nan_to_num(np.abs(truth[ordinary] - parts(array)[ordinary])).max(initial=0.0)))
        if after <= _TIMES_NUDGED * spread:
            return Verdict("", True)
    return Verdict(
        f"error {after:.3g} against float64, that of the original is {before:.3g} "
        f"(largest {largest:.3g}, of nudged inputs {spread:.3g})",
        True,
    )


def _special(one: npt.NDArray[np.float64], other: npt.NDArray[np.float64], swaps: bool) -> str:
    """Whether NaN and infinities stand at other places. swaps: whether they may take each other's place."""
    finite = np.isfinite(one) & np.isfinite(other)
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    if swaps:
        same |= ~np.isfinite(one) & ~np.isfinite(other)
    different = ~finite & ~same
    return "NaN or infinity: " + _first(different, one, other) if different.any() else ""
