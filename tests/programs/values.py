"""Every element type, odd values, constants of the program, and unusual shapes."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.programs.model import Program, both

Array = Any
XY = "401x5xf32 307x5xf32"


def big(x: Array, y: Array) -> Array:
    return jnp.exp(0.1 * (x @ y.T))


def any_kernel(x: Array, y: Array) -> Any:
    k = x @ y.T
    return k.sum(0), k @ y, k.T @ x


def elementwise_types(x: Array, y: Array) -> Any:
    k = x[:, None] * y[None]
    return k.max(0), k.min(1), (k > 1).sum(0), (k + 1).sum()


def narrow_elements(x: Array, y: Array) -> Any:
    """Nothing that overflows a float of 8 bits or that JAX cannot do with integers of 4."""
    k = x[:, None] * y[None]
    return k.max(0), k.min(1), k.astype(jnp.int32).sum(0), (k.astype(jnp.float32) - 1).sum()


def logic(x: Array, y: Array) -> Any:
    k = x[:, None] ^ y[None]
    return k.all(0), k.any(1), k.sum(0), (k & x[:, None]).sum(1)


def complex_kernel(x: Array, y: Array) -> Any:
    k = 1 / (x[:, None] - y[None] + 2j)
    return k.sum(1), jnp.abs(k).max(0), k @ y


def narrow(x: Array, y: Array) -> Any:
    k = jnp.exp((x @ y.T) * 0.1)
    return k.sum(0), k.T @ x, k.max(1), jnp.logaddexp(k, 1).mean()


def odd_values(x: Array, y: Array) -> Any:
    """NaN, infinities and -0.0 in and out."""
    x = x.at[3, 0].set(jnp.nan).at[4, 0].set(jnp.inf).at[5, 0].set(-jnp.inf).at[6, 0].set(-0.0)
    y = y.at[7, 0].set(0.0)
    k = x[:, 0, None] * y[None, :, 0]
    column = jnp.sort(k, 1)
    signs = jnp.copysign(1.0, k)
    return (
        k.sum(1),
        k.max(1),
        k.min(1),
        k.argmax(0),
        k.argmin(1),
        column[:, 3],
        column[:, -2],
        signs.sum(1),
        signs.sum(0),
    )


def special_functions(x: Array, y: Array) -> Array:
    k = jnp.tanh(x @ y.T) * 0.9
    one = lax.erf_inv(k) + lax.erf(k) + lax.erfc(k)
    two = lax.digamma(k + 2) + lax.lgamma(k + 2) + lax.bessel_i1e(k)
    three = lax.asin(k) + lax.acos(k) + lax.sinh(k) + lax.square(k) + lax.atanh(k) + lax.tan(k)
    return (one + two + three).sum(1)


def captured_constant(x: Array) -> Array:
    table = np.random.default_rng(0).standard_normal((300, 257)).astype(np.float32)
    return jnp.exp(x[:, None] * table).sum(0)


def captured_points(x: Array) -> Array:
    points = np.random.default_rng(0).standard_normal((257, 4)).astype(np.float32)
    return big(x, points).max(1)


def ones_and_zeros(x: Array) -> Array:
    return (jnp.ones((400, 300)) * x[:, None] + jnp.zeros((400, 300))).max(1)


def big_sum(x: Array, y: Array) -> Array:
    return big(x, y).sum(1)


PROGRAMS: list[Program] = [
    *[
        Program(f"any_kernel_{dtype}", any_kernel, f"403x6x{dtype} 307x6x{dtype}")
        for dtype in "f64 f32 f16 bf16 c64 c128 i8 i32 i64 u8".split()
    ],
    *[
        Program(f"elementwise_{dtype}", elementwise_types, f"403x{dtype} 307x{dtype}")
        for dtype in "f64 f16 bf16 i8 i32 i64 u8".split()
    ],
    *[Program(f"elementwise_{dtype}", narrow_elements, f"603x{dtype} 407x{dtype}") for dtype in "f8 f8e5 i4".split()],
    Program("logic_i1", logic, "603xi1 407xi1"),
    Program("logic_i32", logic, "403xi32 307xi32"),
    *both("complex_kernel", complex_kernel, "300xc64 257xc64"),
    *both("narrow_bf16", narrow, "403x16xbf16 307x16xbf16"),
    *both("narrow_f16", narrow, "403x16xf16 307x16xf16"),
    Program("odd_values", odd_values, XY),
    *both("special_functions", special_functions, "200x4xf32 157x4xf32"),
    *both("captured_constant", captured_constant, "300xf32"),
    *both("captured_points", captured_points, "400x4xf32"),
    *both("ones_and_zeros", ones_and_zeros, "400xf32"),
    Program("prime_rows", big_sum, "997x3xf32 127x3xf32"),
    Program("one_row", big_sum, "1x3xf32 60013x3xf32"),
    Program("one_column", lambda x, y: jnp.tanh(big(x, y)).sum(0), "60013x3xf32 1x3xf32"),
    Program("unit_dims", lambda x, y: big(x[:, 0, :], y[0])[None, :, :, None].sum((2, 3)), "400x1x3xf32 1x300x3xf32"),
    Program("empty", big_sum, "0x3xf32 300x3xf32", 1.0),
    Program("empty_beside", lambda x, y, z: (big(x, y).sum(1), z.sum(1)), "400x3xf32 300x3xf32 5x0xf32"),
]
