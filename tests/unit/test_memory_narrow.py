"""The predicted memory of floats that XLA:CPU widens, and of what a scatter has written, against what it plans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from tests.predictions import cpu_memories

ROWS, COLUMNS, UPDATED = 20_000, 64, 800
NEAR = 0.05


def of(*shape: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def table(dtype: Any = jnp.float32) -> tuple[Any, ...]:
    """A table, the rows of it that are updated, and the updates."""
    return of(ROWS, COLUMNS, dtype=dtype), of(UPDATED, dtype=jnp.int32), of(UPDATED, COLUMNS, dtype=dtype)


def add(t: Any, i: Any, u: Any) -> Any:
    return t.at[i].add(u)


def add_step_by_step(start: Any, i: Any, u: Any) -> Any:
    return lax.fori_loop(0, 4, lambda k, t: add(t, i + k, u), start)


def gradient_of_rows(t: Any, i: Any, y: Any) -> Any:
    return jax.grad(lambda t: (t[i].astype(jnp.float32).sum(1) * y).sum())(t)


def turned_halves(t: Any, c: Any, s: Any) -> Any:
    a, b = jnp.split(t, 2, 1)
    return t * c + jnp.concatenate([-b, a], 1) * s


def joined_in_a_loop(t: Any) -> Any:
    return lax.map(lambda r: jnp.concatenate([r, jnp.sin(r)], 1)[:, ::-1].max(1), t)


BF16, F16, F8 = jnp.bfloat16, jnp.float16, jnp.float8_e4m3fn
WIDE = of(4000, 1000, dtype=BF16)
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "bf16 added": (add, table(BF16)),
    "bf16 added in place": (jax.jit(add, donate_argnums=0), table(BF16)),
    "bf16 only written": (lambda t, i, u: t.at[i].set(u), table(BF16)),
    "bf16, the larger": (lambda t, i, u: t.at[i].max(u), table(BF16)),
    "bf16 at places that differ": (lambda t, i, u: t.at[i].add(u, unique_indices=True), table(BF16)),
    "bf16 added to zeros": (lambda t, i, u: add(jnp.zeros_like(t), i, u), table(BF16)),
    "bf16 added twice": (lambda t, i, u: add(add(t, i, u), i + 1, u), table(BF16)),
    "bf16 added and read as f32": (lambda t, i, u: jnp.sin(add(t, i, u).astype(jnp.float32)), table(BF16)),
    "bf16 added and summed": (lambda t, i, u: add(t, i, u).sum(0), table(BF16)),
    "bf16 added in a loop": (add_step_by_step, table(BF16)),
    "a gradient in bf16": (gradient_of_rows, (*table(BF16)[:2], of(UPDATED))),
    "a step along a gradient in bf16": (
        lambda t, i, y: t - BF16(0.1) * gradient_of_rows(t, i, y),
        (*table(BF16)[:2], of(UPDATED)),
    ),
    "bf16 at one place": (lambda t, i, u: t.at[i[0]].add(u[0]), table(BF16)),
    "f16 added": (add, table(F16)),
    "f16 added in a loop": (add_step_by_step, table(F16)),
    "f8 added": (add, table(F8)),
    "f8 only written": (lambda t, i, u: t.at[i].set(u), table(F8)),
    "int16 added": (add, table(jnp.int16)),
    "elementwise behind a scatter": (lambda t, i, u: jnp.sin(add(2 * t, i, u)).sum(0), table()),
    "a product of two scatters": (lambda t, i, u: (add(2 * t, i, u) * add(3 * t, i + 1, u)).sum(0), table()),
    "a sort behind a scatter": (lambda t, i, u: jnp.sort(add(2 * t, i, u), axis=0).sum(0), table()),
    "an update behind a scatter": (
        lambda t, i, u: jnp.sin(lax.dynamic_update_slice(add(2 * t, i, u), u, (i[0], 0))).sum(0),
        table(),
    ),
    "elementwise behind a scatter, returned": (lambda t, i, u: jnp.sin(add(2 * t, i, u)), table()),
    "elementwise behind a scatter in a loop": (
        lambda t, i, u: lax.map(lambda k: jnp.sin(add(t * k, i, u)).sum(0), jnp.arange(4.0)),
        table(),
    ),
    "bf16 sorted": (lambda t: jnp.sort(t, axis=1), (WIDE,)),
    "bf16 sorted, and its places": (lambda t: jnp.argsort(t, axis=1), (WIDE,)),
    "bf16 sorted with others": (lambda t: lax.sort((t, 2 * t), dimension=1, num_keys=1)[1], (WIDE,)),
    "f8 sorted": (lambda t: jnp.sort(t, axis=1), (of(4000, 1000, dtype=F8),)),
    "the largest of int32": (lambda t: lax.top_k(t, 8), (of(4000, 1000, dtype=jnp.int32),)),
    "products of int8 that stay int8": (
        lambda a, b: a @ b,
        (of(4000, 1000, dtype=jnp.int8), of(1000, 64, dtype=jnp.int8)),
    ),
    "a convolution of int16": (
        lambda a, b: lax.conv(a, b, (1, 1), "SAME"),
        (of(8, 32, 64, 64, dtype=jnp.int16), of(64, 32, 3, 3, dtype=jnp.int16)),
    ),
    "f16 sorted": (lambda t: jnp.sort(t, axis=1), (of(4000, 1000, dtype=F16),)),
    "bf16 summed up": (lambda t: jnp.cumsum(jnp.sin(t), axis=0).sum(1), (WIDE,)),
    "the median of bf16": (lambda t: jnp.median(t, axis=1), (WIDE,)),
    "windows of bf16": (lambda t: lax.reduce_window(t, BF16(0), lax.add, (1, 4), (1, 1), "SAME"), (WIDE,)),
    "bf16 joined": (lambda t: jnp.concatenate([t, jnp.sin(t)], 1)[:, ::-1], (WIDE,)),
    "bf16 rolled": (lambda t: jnp.roll(t, 3, 1) + t, (WIDE,)),
    "halves of bf16 turned": (turned_halves, (WIDE, WIDE, WIDE)),
    "a scan of bf16": (lambda t: lax.scan(lambda c, r: (c * r, c + r), t[0], t), (WIDE,)),
    "bf16 joined in a loop": (joined_in_a_loop, (of(4, 1000, 1000, dtype=BF16),)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    memory, true = cpu_memories(name, *PROGRAMS[name])
    assert not memory.unknown
    assert abs(memory.temp - true.temp) <= NEAR * true.peak + 4096, (memory.temp, true.temp)
