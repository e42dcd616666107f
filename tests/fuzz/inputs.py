"""The arrays that a generated program is run on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from exla_opt.runtime.inputs import Array, ArrayType
from tests.fuzz import dtypes
from tests.fuzz.builder import Argument

# What stands for 0, 1, 2, ... among special numbers, each once in so many elements.
_SPECIAL = (np.nan, np.inf, -np.inf, -0.0)
_RARE = 12


def make_inputs(arguments: Sequence[Argument], types: Sequence[ArrayType], seed: str, *, special: bool) -> list[Array]:
    """One array for each argument of the kind that the program was written for, the same for the same seed.

    special: whether NaN, infinities and -0.0 are among the floats.
    """
    generator = np.random.default_rng(list(seed.encode()))
    return [_filled(generator, a, t, special) for a, t in zip(arguments, types, strict=True)]


def _filled(generator: np.random.Generator, argument: Argument, kind: ArrayType, special: bool) -> Array:
    dtype, shape = argument.value.dtype, kind.shape
    if dtype == "i1":
        return generator.integers(0, 2, shape).astype(kind.dtype)
    unsigned = dtypes.is_unsigned(dtype)
    if argument.kind == "indices":
        top = min(argument.high + 2, int(dtypes.exact_limit(dtype)) - 1)
        return generator.integers(0 if unsigned else -2, top, shape).astype(kind.dtype)
    if argument.kind == "bits" and dtypes.bits_of(dtype) >= 8:
        width = np.dtype(f"uint{dtypes.bits_of(dtype)}")
        bits: Array = generator.integers(0, np.iinfo(width).max, shape, width, endpoint=True)
        return bits.astype(kind.dtype)  # those of the largest wrap round
    if argument.kind == "normal":
        return _floats(generator, kind, special, generator.standard_normal((2, *shape)).clip(-4, 4))
    whole: npt.NDArray[np.float64] = generator.integers(0 if unsigned else -3, 4, (2, *shape)).astype(np.float64)
    if dtypes.is_inexact(dtype):
        return _floats(generator, kind, special, whole)
    return np.asarray(whole[0], np.int64).astype(kind.dtype)


def _floats(generator: np.random.Generator, kind: ArrayType, special: bool, drawn: npt.NDArray[np.float64]) -> Array:
    if kind.dtype.kind == "c":
        return np.asarray(drawn[0] + 1j * drawn[1]).astype(kind.dtype)
    numbers = drawn[0]
    if special:
        which = generator.integers(0, len(_SPECIAL) * _RARE, kind.shape)
        numbers = np.select([which == i for i in range(len(_SPECIAL))], _SPECIAL, numbers)
    return np.asarray(numbers).astype(kind.dtype)


def with_floats(array: Array, floats: str) -> Array:
    """The same numbers with floats as f64 or f32, complex ones of two such; integers as they are."""
    if array.dtype.kind == "c":
        return array.astype({"f64": np.complex128, "f32": np.complex64}[floats])
    if array.dtype.kind in "iub" or "int" in array.dtype.name:
        return array
    return array.astype({"f64": np.float64, "f32": np.float32}[floats])


def nudged(array: Array, narrow: np.dtype[Any], generator: np.random.Generator) -> Array:
    """A wide array with every number off by up to four roundings of the narrow type; integers as they are."""
    if array.dtype.kind not in "fc":
        return array
    return array * (1 + 4 * rounding(narrow) * generator.uniform(-1, 1, array.shape))


def rounding(dtype: np.dtype[Any]) -> float:
    """Half the distance from one to the next number of this type."""
    return float(ml_dtypes.finfo(_real(dtype)).eps) / 2  # type: ignore[no-untyped-call]


def smallest_normal(dtype: np.dtype[Any]) -> float:
    """The smallest number of this type that keeps all its digits: what is smaller, XLA:CPU may take for zero."""
    return float(ml_dtypes.finfo(_real(dtype)).smallest_normal)  # type: ignore[no-untyped-call]


def _real(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.empty(0, dtype).real.dtype if dtype.kind == "c" else dtype
