"""The rule by which the results of a rewritten module equal those of the original.

Integers and booleans must be equal bit by bit. Floats must have NaN and infinity at the same places, and elsewhere

    |actual - expected| <= max(relative * largest, absolute)

where `largest` is the largest finite magnitude in the expected array. The errors of a reordered sum are proportional to
its terms, not to its value, so an element near zero in an array of large ones may be off by as much as its neighbours.
Both tolerances follow from the dtype (TOLERANCES); where a GPU rounded products of f32 to TF32 (see
`exla_opt.runtime.tf32`), f32 has those of f16. The absolute one is for results that are zero in exact arithmetic, such
as the gradient of a bias that a softmax cancels: their values are noise of a few roundings of numbers near one. Complex
numbers are compared by their parts, as twice as many floats.

Some programs amplify rounding: deep networks with random weights, long recurrences, cancellations. For those the
tolerance is measured: an error also passes if it is at most SPREADS times the change of the original's results when its
inputs are off by an ulp (`exla_opt.runtime.nudge`).

An element far below the largest may have an error of its own size. One that is 0 is missing, if it should be well above
the rounding of the largest and hardly moves when inputs are off by an ulp: its tile was never written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a float may be off: relative to the largest magnitude of the array, and at least absolutely."""

    relative: float
    absolute: float


# Results of the wide dtypes come from long sums and ill-conditioned solves, so the relative tolerance is many
# roundings; the absolute one is a hundredth of it. For the narrow ones it is little more than one rounding.
TOLERANCES: dict[str, Tolerance] = {
    "float64": Tolerance(1e-9, 1e-11),
    "float32": Tolerance(1e-4, 1e-6),
    "float16": Tolerance(2e-3, 2e-3),
    "bfloat16": Tolerance(2e-2, 2e-2),
}
_NARROW = Tolerance(0.1, 0.1)  # floats of 8 bits and fewer
# A rewritten program rounds at every step, not only at its inputs.
SPREADS = 4
# A number that a rounding of the inputs moves by less than this part of itself cannot round to zero.
_CERTAIN = 0.01


@dataclass(frozen=True, slots=True)
class Extreme:
    """A largest value and its index, None for an empty array."""

    value: float
    index: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """One result of two modules.

    dtype, shape: of the expected array.
    problem: why they differ, as a sentence; "" if they are equal.
    absolute: the largest |actual - expected|; of integers and booleans too.
    relative: the largest |actual - expected| / |expected|; infinite where only the expected element is zero.
    largest: the largest finite magnitude in the expected array, 0 when there is none.
    allowed: the largest absolute error that passes; 0 for integers and booleans.
    spread: how far inputs that are off by an ulp move the expected array; 0 if the dtype alone gives `allowed`.
    special_agree: whether NaN, +inf and -inf stand at the same places.
    all_nan: whether the expected array has elements and all are NaN.
    """

    dtype: str
    shape: tuple[int, ...]
    problem: str
    absolute: Extreme
    relative: Extreme
    largest: float
    allowed: float
    special_agree: bool
    all_nan: bool
    spread: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether the arrays are equal by the rule."""
        return not self.problem

    @property
    def required(self) -> float:
        """The smallest relative tolerance that passes without an absolute one; infinite if all should be zero."""
        error = self.absolute.value
        return 0.0 if error == 0 else error / self.largest if self.largest else np.inf


def default_tolerance(dtype: npt.DTypeLike, *, tf32: bool = False) -> Tolerance:
    """The tolerances of a float or complex dtype; zero for integers and booleans.

    tf32: whether products of f32 were rounded to TF32, which has the significand of f16.
    """
    kind = np.dtype(dtype)
    if kind.kind == "c":
        kind = np.empty(0, kind).real.dtype
    if is_exact(kind):
        return Tolerance(0.0, 0.0)
    return TOLERANCES.get("float16" if tf32 and kind.name == "float32" else kind.name, _NARROW)


def compare(expected: Array, actual: Array, tolerance: Tolerance | None = None, spread: float = 0.0) -> Comparison:
    """Compare two arrays by the rule above; `tolerance` replaces the dtype's own for floats, never for integers.

    spread: how far inputs that are off by an ulp move `expected`; 0 if not measured.
    """
    dtype, shape = expected.dtype, expected.shape
    if (actual.dtype, actual.shape) != (dtype, shape):
        problem = f"{actual.dtype.name}{list(actual.shape)} instead of {dtype.name}{list(shape)}"
        nothing = Extreme(np.inf, None)
        return Comparison(dtype.name, shape, problem, nothing, nothing, 0.0, 0.0, False, False)
    if is_exact(dtype):
        return _compare_exact(expected, actual)
    return _compare_floats(expected, actual, tolerance or default_tolerance(dtype), spread)


def is_exact(dtype: np.dtype[Any]) -> bool:
    """Whether arrays of this dtype must agree bit by bit: integers and booleans."""
    return dtype.kind in "iub" or dtype.name in ("int2", "int4", "uint2", "uint4")


def _compare_exact(expected: Array, actual: Array) -> Comparison:
    different = np.flatnonzero(expected.reshape(-1) != actual.reshape(-1))
    wanted, found = expected.reshape(-1)[different], actual.reshape(-1)[different]
    sizes = np.abs(wanted.astype(np.float64))
    # The figures are for display: float64 rounds large integers, but different ones are at least one apart.
    errors = np.maximum(np.abs(found.astype(np.float64) - wanted.astype(np.float64)), 1.0)
    problem = ""
    if different.size:
        index = _unravel(int(different[0]), expected.shape)
        problem = f"{different.size} of {expected.size} elements differ, first {_at(index)}:"
        problem += f" {found[0]} instead of {wanted[0]}"
    return Comparison(
        dtype=expected.dtype.name,
        shape=expected.shape,
        problem=problem,
        absolute=_extreme(errors, different, expected.shape),
        relative=_extreme(_quotient(errors, sizes), different, expected.shape),
        largest=float(np.abs(expected.astype(np.float64)).max(initial=0.0)),
        allowed=0.0,
        special_agree=True,
        all_nan=False,
    )


def _compare_floats(expected: Array, actual: Array, tolerance: Tolerance, spread: float) -> Comparison:
    wanted, found = parts_of(expected), parts_of(actual)
    finite = np.isfinite(wanted)
    ordinary = finite & np.isfinite(found)
    # Elsewhere only the same NaN or the same infinity is equal.
    special = ~ordinary & ~((wanted == found) | (np.isnan(wanted) & np.isnan(found)))
    largest = float(np.abs(wanted[finite]).max(initial=0.0))
    by_type = max(tolerance.relative * largest, tolerance.absolute)
    allowed = max(by_type, SPREADS * spread)
    where = np.flatnonzero(ordinary)
    with np.errstate(over="ignore"):  # the difference of two huge numbers may be infinite, which is large enough
        errors = np.abs(found[where] - wanted[where])
    per_element = 2 if expected.dtype.kind == "c" else 1
    positions = where // per_element
    absolute = _extreme(errors, positions, expected.shape)
    problem = ""
    if special.any():
        first = int(np.flatnonzero(special)[0])
        index = _unravel(first // per_element, expected.shape)
        problem = f"NaN or infinity disagree at {int(special.sum())} places, first {_at(index)}:"
        problem += f" {found[first]:g} instead of {wanted[first]:g}"
    elif not absolute.value <= allowed:
        problem = f"error {absolute.value:.3g} {_at(absolute.index)} is above the allowed {allowed:.3g}"
    return Comparison(
        dtype=expected.dtype.name,
        shape=expected.shape,
        problem=problem,
        absolute=absolute,
        relative=_extreme(_quotient(errors, np.abs(wanted[where])), positions, expected.shape),
        largest=largest,
        allowed=allowed,
        special_agree=not special.any(),
        all_nan=expected.size > 0 and bool(np.isnan(wanted).all()),
        spread=spread if allowed > by_type else 0.0,
    )


def parts_of(array: Array) -> npt.NDArray[np.float64]:
    """The elements in order as float64, which holds every other float exactly; a complex one as two."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype.kind == "c":
        flat = flat.view(flat.real.dtype)
    return flat.astype(np.float64)


def missing(expected: Array, gone: npt.NDArray[np.intp], moved: npt.NDArray[np.float64]) -> str:
    """Why zeros at the positions `gone` are wrong; "" if there are none or rounding explains them.

    moved: how far inputs that are off by an ulp move each number.
    """
    wanted = parts_of(expected)
    certain = gone[moved[gone] < _CERTAIN * np.abs(wanted[gone])]
    if not certain.size:
        return ""
    first = int(certain[0])
    index = _unravel(first // (2 if expected.dtype.kind == "c" else 1), expected.shape)
    what = "1 number is" if certain.size == 1 else f"{certain.size} numbers are"
    return f"{what} missing, first {_at(index)}: 0 instead of {wanted[first]:g}"


def _quotient(errors: npt.NDArray[np.float64], sizes: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(errors == 0, 0.0, errors / sizes)


def _extreme(values: npt.NDArray[np.float64], positions: npt.NDArray[np.intp], shape: tuple[int, ...]) -> Extreme:
    if not values.size:
        return Extreme(0.0, None)
    largest = int(values.argmax())
    return Extreme(float(values[largest]), _unravel(int(positions[largest]), shape))


def _unravel(position: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(index) for index in np.unravel_index(position, shape))


def _at(index: tuple[int, ...] | None) -> str:
    return f"at {list(index)}" if index else "at []"
