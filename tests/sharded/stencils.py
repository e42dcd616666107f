"""Programs that shift the rows of a sharded dimension: finite differences, rolls, next tokens, causal filters."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from .program import Program, grid, line, spec


def heat(u: Array) -> Array:
    """Steps of diffusion on a grid whose edges stay as they are."""
    for _ in range(3):
        inner = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]
        u = u.at[1:-1, 1:-1].add(0.1 * inner)
    return u


def padded_heat(u: Array) -> Array:
    """The same on a grid with zeros around it."""
    for _ in range(2):
        p = jnp.pad(u, 1)
        u = u + 0.1 * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * u)
    return u


def rolled(u: Array) -> Array:
    """On a grid without edges."""
    for _ in range(2):
        u = u + 0.1 * sum(jnp.roll(u, by, dim) - u for dim in (0, 1) for by in (1, -1))
    return u


def energy(u: Array) -> Array:
    """A sum of squared differences and of a wide intermediate tensor."""
    d = u[1:] - u[:-1]
    features = jnp.tanh(d[:, :, None] * jnp.linspace(0.5, 2.0, 32, dtype=u.dtype))
    return (features**2).sum()


def upwind(u: Array, v: Array) -> Array:
    """Differences in the direction of the flow, in a loop."""

    def step(u: Array, _: None) -> tuple[Array, None]:
        left = jnp.concatenate([u[:1], u[:-1]])
        right = jnp.concatenate([u[1:], u[-1:]])
        return u - 0.1 * jnp.where(v > 0, v * (u - left), v * (right - u)), None

    found, _ = lax.scan(step, u, None, length=4)
    return found


def next_tokens(w: Array, x: Array, tokens: Array) -> Array:
    """A loss of the next token whose sequence is sharded: the logits are cut, not the tokens."""
    logits = jnp.einsum("btd,dv->btv", x, w)[:, :-1]
    scores = jax.nn.log_softmax(logits)
    return -jnp.take_along_axis(scores, tokens[:, 1:, None], -1).mean()


def causal_filter(x: Array, k: Array) -> Array:
    """A filter of each channel over the four last steps of a sequence."""
    padded = jnp.pad(x, ((0, 0), (3, 0), (0, 0)))
    return jax.nn.silu(sum(padded[:, i : i + x.shape[1]] * k[i] for i in range(4)))


def causal_convolution(x: Array, k: Array) -> Array:
    """A convolution over a sequence that is padded at its start."""
    padded = jnp.pad(x, ((0, 0), (6, 0), (0, 0)))
    y = lax.conv_general_dilated(padded, k, (1,), "VALID", rhs_dilation=(2,), dimension_numbers=("NTC", "TIO", "NTC"))
    return jax.nn.silu(y)


def cut_convolutions(x: Array, k: Array) -> tuple[Array, ...]:
    """Convolutions whose pads and slices may not become a part of them: rows that are cut off do not come back."""

    def convolved(x: Array, low: int, high: int) -> Array:
        return lax.conv_general_dilated(x, k, (1,), [(low, high)], dimension_numbers=("NTC", "TIO", "NTC"))

    cut = lax.pad(x, jnp.float32(0), ((0, 0, 0), (-2, -2, 0), (0, 0, 0)))
    beyond = convolved(x, 3, x.shape[1] + 16)[:, x.shape[1] + 8 : x.shape[1] + 10]
    return (
        convolved(cut, 3, 3),
        convolved(x[:, 3:], 2, 0),
        beyond,
        convolved(jnp.pad(x, ((0, 0), (4, 0), (0, 0))), -2, 1),
    )


def cut_out(x: Array) -> tuple[Array, ...]:
    """Parts of all kinds: short and long, from the middle, from ends, joined with others and padded unevenly."""
    ends = jnp.concatenate([x[-3:], x[:3]])
    return ends, jnp.concatenate([ends, x * 2, x[:5]]), x[5:-2], jnp.pad(x[100:130], ((7, 0), (0, 0)))


def bits(x: Array) -> tuple[Array, ...]:
    """A roll of truth values and of integers."""
    on = x > 0.5
    return jnp.roll(on, 1, 0) ^ on, jnp.roll(jnp.int8(x * 10), -2, 0)


def padded_otherwise(x: Array) -> tuple[Array, ...]:
    """Along two sharded dimensions, with values that are no zeros, and away from one end."""
    one = lax.pad(x, jnp.float32(2.5), ((3, 1, 0), (1, 2, 0)))
    two = lax.pad(x, jnp.float32(-1.0), ((-2, 2, 0), (3, -3, 0)))
    return jnp.sin(one), two * x


def interleaved(x: Array) -> Array:
    """Rows of two tensors in turn, as upsampling writes them, and every second row of the next."""
    one = lax.pad(x, jnp.float32(0), ((0, 1, 1), (0, 0, 0)))
    two = lax.pad(2 * x, jnp.float32(0), ((1, 0, 1), (0, 0, 0)))
    return jnp.sin(one + two)[1::2]


def moved_update(x: Array, y: Array) -> Array:
    """Rows written at a known position, some of them in the middle of shards."""
    return lax.dynamic_update_slice(x, y, (37, 3)) * 2


def two_views(w: Array, x: Array, y: Array) -> Array:
    """A loss of two views of each row, whose embeddings are joined along the batch, and parted again."""
    z = jnp.tanh(jnp.concatenate([x, y]) @ w)
    first, second = jnp.split(z, 2)
    scores = jax.nn.log_softmax(first @ second.T)
    return -jnp.trace(scores) / len(x)


def guided(x: Array) -> Array:
    """Both halves of a batch at once, as where a sample is guided, and three uneven parts."""
    both = jnp.sin(jnp.concatenate([x, x + 1]))
    with_it, without = jnp.split(both, 2)
    return jnp.concatenate([with_it + 2 * (with_it - without), both[: len(x) // 2], both[-24:]])


def backwards(x: Array) -> Array:
    return x[::-1] * x + jnp.flip(x)


def cached(keys: Array, key: Array, at: Array) -> tuple[Array, Array]:
    """A token's key written into a cache whose positions are sharded, the scores, and a few rows around it."""
    at = at % (keys.shape[1] - 30)  # XLA's partitioner clamps no index
    keys = lax.dynamic_update_slice(keys, key, (jnp.int32(0), at, jnp.int32(0)))
    near = lax.dynamic_slice(keys, (jnp.int32(0), at - 3, jnp.int32(0)), (keys.shape[0], 7, keys.shape[2]))
    return keys, jax.nn.softmax(jnp.einsum("btd,bsd->bts", near, keys))


def written_in_turn(x: Array) -> Array:
    """Rows of a sharded carry, each step its own, some across the border of two shards."""

    def step(carry: Array, i: Array) -> tuple[Array, None]:
        return lax.dynamic_update_slice(carry, jnp.sin(i * x[:3, :5]), (37 * i, 2 * i)), None

    return lax.scan(step, x, jnp.arange(8))[0]


def running_windows(x: Array) -> tuple[Array, ...]:
    """Running sums and maxima as windows that all begin at the first row, as on a GPU."""
    rows = len(x)
    total = lax.reduce_window(x, 0.0, lax.add, (rows, 1), (1, 1), ((rows - 1, 0), (0, 0)))
    best = lax.reduce_window(
        jnp.int32(x * 100), jnp.int32(-(2**31)), lax.max, (rows, 1), (1, 1), ((rows - 1, 0), (0, 0))
    )
    return jnp.sin(total), best


def read_in_turn(x: Array) -> Array:
    """Columns of a sharded carry, which each step changes."""

    def step(carry: Array, i: Array) -> tuple[Array, None]:
        return carry + 0.1 * jnp.sin(lax.dynamic_slice_in_dim(carry, i, 1, 1)), None

    return lax.scan(step, x, jnp.arange(64))[0]


def made() -> dict[str, Program]:
    """All programs by name."""
    one, two = line(), grid()

    def on(*shape: int) -> Any:
        return spec(one, shape, "d")

    field = spec(two, (512, 256), "m", "d")
    sequence = spec(one, (2, 512, 32), None, "d")
    tokens = spec(one, (2, 512), None, "d", dtype=jnp.int32)
    return {
        "heat": Program(heat, (on(512, 256),), 1),
        "heat on a grid": Program(heat, (field,), 1),
        "heat with zeros around": Program(padded_heat, (field,), 1),
        "heat without edges": Program(rolled, (field,), 1),
        "heat, gradient": Program(jax.grad(lambda u: (heat(u) ** 2).sum()), (on(512, 256),), 1),
        "energy": Program(energy, (on(1024, 64),), 2),
        "energy, gradient": Program(jax.grad(energy), (on(1024, 64),), 1),
        "upwind": Program(upwind, (on(1024, 64), on(1024, 64)), 1),
        "upwind, gradient": Program(jax.grad(lambda u, v: (upwind(u, v) ** 2).sum()), (on(1024, 64), on(1024, 64)), 1),
        "next tokens": Program(jax.value_and_grad(next_tokens), (spec(one, (32, 500)), sequence, tokens), 2),
        "causal filter": Program(
            jax.grad(lambda x, k: (causal_filter(x, k) ** 2).sum(), (0, 1)), (sequence, spec(one, (4, 32))), 1
        ),
        "causal convolution": Program(
            jax.grad(lambda x, k: (causal_convolution(x, k) ** 2).sum(), (0, 1)), (sequence, spec(one, (4, 32, 32))), 1
        ),
        "cut convolutions": Program(cut_convolutions, (sequence, spec(one, (4, 32, 32))), 1),
        "parts of all kinds": Program(cut_out, (on(1000, 16),), 1),
        "bits": Program(bits, (on(1024, 32),), 1),
        "padded otherwise": Program(padded_otherwise, (field,), 1),
        "cached": Program(
            cached, (spec(two, (4, 512, 16), "d", "m"), spec(two, (4, 1, 16), "d"), spec(two, (), dtype=jnp.int32)), 1
        ),
        "cached, chunk": Program(
            cached, (spec(two, (4, 64, 16), "d", "m"), spec(two, (4, 24, 16), "d"), spec(two, (), dtype=jnp.int32)), 1
        ),
        "read in turn": Program(read_in_turn, (spec(one, (32, 64), None, "d"),), 1),
        "written in turn": Program(written_in_turn, (field,), 1),
        "running windows": Program(running_windows, (on(1024, 16),), 1),
        "two views": Program(jax.value_and_grad(two_views, (0, 1)), (spec(one, (64, 64)), on(512, 64), on(512, 64)), 1),
        "guided": Program(guided, (on(512, 64),), 1),
        "only element": Program(lambda x: jnp.broadcast_to(x[:1], (8, 16)) + x[-1], (on(48, 16),), 1),
        "backwards": Program(backwards, (on(512, 64),), 1),
        "interleaved": Program(interleaved, (on(1024, 32),), 1),
        "moved update": Program(moved_update, (field, spec(two, (400, 100))), 1),
    }
