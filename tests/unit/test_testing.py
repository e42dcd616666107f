"""Assertions on memory."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import exla_opt
from exla_opt.testing import assert_fits, peak_memory

SPECS = [jax.ShapeDtypeStruct((1000, 8), jnp.float32)] * 3
MATRIX = 4 * 1000 * 1000
IN_AND_OUT = 4 * 4 * 1000 * 8


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return jax.nn.softmax(q @ k.T, axis=-1) @ v


def test_the_peak_counts_arguments_results_and_temporaries() -> None:
    assert MATRIX + IN_AND_OUT < peak_memory(attention, *SPECS) < 3 * MATRIX
    assert peak_memory(jax.jit(attention), *SPECS) == peak_memory(attention, *SPECS)
    split = exla_opt.jit(attention, size_threshold="100KB")
    assert peak_memory(split, *SPECS) < MATRIX / 4


def test_what_is_donated_counts_once() -> None:
    def double(x: jax.Array) -> jax.Array:
        return 2 * x

    given = jax.ShapeDtypeStruct((1000,), jnp.float32)
    assert peak_memory(double, given) == 8000
    assert peak_memory(jax.jit(double, donate_argnums=0), given) == 4000


def test_what_fits_passes_and_what_does_not_names_the_line() -> None:
    assert_fits(attention, SPECS, 4 * MATRIX)
    with pytest.raises(AssertionError) as raised:
        assert_fits(attention, SPECS, "1MB")
    first, *tensors, help = str(raised.value).splitlines()
    assert first.startswith("attention needs ") and first.endswith(" more than 1MB")
    assert any("test_testing.py:18" in line for line in tensors), tensors
    assert help == 'help: exla_opt.jit(attention, memory_limit="1MB") computes it in slices'
    assert_fits(exla_opt.jit(attention, memory_limit="1MB"), SPECS, "1MB")


def test_keyword_arguments_and_unknown_targets() -> None:
    assert_fits(lambda x, *, y: x + y, [SPECS[0]], "1MB", named={"y": SPECS[0]})
    with pytest.raises(exla_opt.InputError, match="no such target"):
        peak_memory(attention, *SPECS, target="vax")


def test_one_array_is_no_tuple_of_arguments() -> None:
    with pytest.raises(TypeError, match=r"tuple or list, not ArrayImpl: give \(x,\)"):
        assert_fits(jnp.sin, jnp.ones((3, 4)), "1MB")  # type: ignore[arg-type]
