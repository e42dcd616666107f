"""The comparison rule, case by case."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from exla_opt.runtime.compare import Extreme, Tolerance, compare, default_tolerance

FLOATS = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
EXACT = [np.bool_, np.int8, np.uint64, np.int64, ml_dtypes.int4, ml_dtypes.uint2]


@pytest.mark.parametrize("dtype", [*FLOATS, *EXACT, np.complex64])
def test_equal_arrays_pass_without_error(dtype: Any) -> None:
    array = np.array([[0, 1], [1, 0]]).astype(dtype)
    comparison = compare(array, array.copy())
    assert comparison.passed
    assert comparison.absolute.value == comparison.relative.value == comparison.required == 0
    assert comparison.shape == (2, 2)


@pytest.mark.parametrize("dtype", EXACT)
def test_integers_and_booleans_must_be_equal(dtype: Any) -> None:
    expected = np.array([[0, 1, 1], [0, 0, 1]]).astype(dtype)
    actual = expected.copy()
    actual[1, 0] = 1
    comparison = compare(expected, actual, Tolerance(10.0, 10.0))
    assert not comparison.passed
    assert comparison.absolute.index == (1, 0)
    assert comparison.absolute.value == 1
    assert "1 of 6 elements differ, first at [1, 0]" in comparison.problem


def test_integers_that_float64_cannot_tell_apart_differ() -> None:
    comparison = compare(np.array([2**62]), np.array([2**62 + 1]))
    assert not comparison.passed
    assert comparison.absolute.value == 1


@pytest.mark.parametrize("dtype", FLOATS[:4])
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_floats_may_be_off_by_the_tolerance_of_the_largest(dtype: Any, scale: float) -> None:
    allowed = default_tolerance(dtype).relative * scale
    expected = np.array([scale, 0.0]).astype(dtype)
    assert compare(expected, np.array([scale, 0.5 * allowed]).astype(dtype)).passed
    failed = compare(expected, np.array([scale, 2 * allowed]).astype(dtype))
    assert not failed.passed
    assert failed.absolute.index == (1,)
    assert failed.absolute.value == pytest.approx(2 * allowed, rel=0.01)
    assert failed.relative == Extreme(np.inf, (1,))
    assert failed.required == pytest.approx(2 * default_tolerance(dtype).relative, rel=0.01)


def test_the_largest_infinity_does_not_excuse_the_rest() -> None:
    expected = np.array([np.inf, 1.0], np.float32)
    assert not compare(expected, np.array([np.inf, 1.01], np.float32)).passed


def test_noise_around_zero_passes_and_small_numbers_are_still_compared() -> None:
    zero = np.zeros(3, np.float32)
    assert compare(zero, zero + np.float32(5e-7)).passed
    assert not compare(zero, zero + np.float32(5e-6)).passed
    small = np.full(3, 1e-4, np.float32)
    assert not compare(small, small * 1.1).passed


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("other", [np.nan, np.inf, -np.inf, 1.0])
@pytest.mark.parametrize("dtype", [np.float64, ml_dtypes.bfloat16, np.complex64])
def test_special_values_must_stand_at_the_same_places(value: float, other: float, dtype: Any) -> None:
    expected, actual = np.array([1.0, value]).astype(dtype), np.array([1.0, other]).astype(dtype)
    same = value == other or (np.isnan(value) and np.isnan(other))
    for comparison in (compare(expected, actual), compare(actual, expected)):
        assert comparison.passed == comparison.special_agree == same
        assert same or "first at [1]" in comparison.problem


def test_a_complex_number_counts_by_its_parts() -> None:
    expected = np.array([[1 + 1j, 1 + 1j]], np.complex64)
    assert compare(expected, expected + np.complex64(5e-5j)).passed
    failed = compare(expected, expected + np.array([[0, 1e-2j]], np.complex64))
    assert not failed.passed
    assert failed.absolute.index == (0, 1)
    hidden = np.array([[complex(1, np.nan), 1 + 1j]], np.complex64)
    assert not compare(expected, hidden).passed
    assert compare(hidden, hidden).passed


def test_narrow_floats_have_a_tolerance_of_a_tenth() -> None:
    expected = np.array([1.0], ml_dtypes.float8_e4m3fn)
    assert compare(expected, np.array([1.09]).astype(ml_dtypes.float8_e4m3fn)).allowed == pytest.approx(0.1)
    assert not compare(expected, np.array([1.25]).astype(ml_dtypes.float8_e4m3fn)).passed


def test_another_shape_or_dtype_is_a_problem() -> None:
    expected = np.zeros((2, 3), np.float32)
    assert compare(expected, np.zeros((3, 2), np.float32)).problem == "float32[3, 2] instead of float32[2, 3]"
    assert not compare(expected, np.zeros((2, 3))).passed


def test_empty_and_scalar_arrays() -> None:
    empty = compare(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32))
    assert empty.passed and not empty.all_nan and empty.absolute.index is None
    scalar = compare(np.array(1, np.float32), np.array(2, np.float32))
    assert not scalar.passed
    assert scalar.absolute.index == ()


def test_all_nan_is_told() -> None:
    assert compare(np.full(3, np.nan), np.full(3, np.nan)).all_nan
    assert not compare(np.array([np.nan, 1.0]), np.array([np.nan, 1.0])).all_nan


def test_a_difference_that_overflows_fails() -> None:
    assert not compare(np.array([1.5e308]), np.array([-1.5e308])).passed


def test_own_tolerances_replace_the_default() -> None:
    expected, actual = np.array([1.0]), np.array([1.1])
    assert not compare(expected, actual).passed
    assert compare(expected, actual, Tolerance(0.2, 0.0)).passed
    assert compare(expected, actual, Tolerance(0.0, 0.2)).passed
    assert not compare(expected, expected + 1e-15, Tolerance(0.0, 0.0)).passed
