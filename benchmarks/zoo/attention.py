"""Attention in its variants, forward and backward."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from .programs import KEY, Array, Field, Tree, bf16, f32, i32

FIELD = Field()


def attend(q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
    """Softmax attention of (batch, length, heads, width)."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(q.shape[-1]).astype(q.dtype)
    if mask is not None:
        scores = jnp.where(mask, scores, jnp.finfo(scores.dtype).min)
    weights = jax.nn.softmax(scores.astype(jnp.float32), axis=-1).astype(q.dtype)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v)


@FIELD.add(bf16(4, 2048, 16, 64), bf16(4, 2048, 16, 64), bf16(4, 2048, 16, 64))
def causal_bf16_gradient(q: Array, k: Array, v: Array) -> tuple[Array, ...]:
    """The gradient of causal attention in bfloat16."""
    mask = jnp.tril(jnp.ones((2048, 2048), bool))
    return jax.grad(lambda q, k, v: attend(q, k, v, mask).astype(jnp.float32).sum(), argnums=(0, 1, 2))(q, k, v)


@FIELD.add(f32(2, 4096, 8, 64), f32(2, 4096, 64), f32(2, 4096, 64))
def multi_query(q: Array, k: Array, v: Array) -> Array:
    """All heads read the same keys and values."""
    scores = jnp.einsum("bqhd,bkd->bhqk", q, k) / 8.0
    return jnp.einsum("bhqk,bkd->bqhd", jax.nn.softmax(scores, axis=-1), v)


@FIELD.add(f32(2, 2048, 16, 64), f32(2, 2048, 4, 64), f32(2, 2048, 4, 64))
def grouped_query_gradient(q: Array, k: Array, v: Array) -> tuple[Array, ...]:
    """Keys repeated for the heads of a group; the gradient."""

    def loss(q: Array, k: Array, v: Array) -> Array:
        return (attend(q, jnp.repeat(k, 4, axis=2), jnp.repeat(v, 4, axis=2)) ** 2).mean()

    return jax.grad(loss, argnums=(0, 1, 2))(q, k, v)


@FIELD.add(f32(8, 300, 8, 64), f32(8, 6000, 8, 64), f32(8, 6000, 8, 64), i32(8))
def cross_with_lengths(q: Array, k: Array, v: Array, lengths: Array) -> Array:
    """A few queries over long padded contexts."""
    mask = jnp.arange(6000) < lengths[:, None]
    return attend(q, k, v, mask[:, None, None])


@FIELD.add(f32(4, 8192, 8, 64), f32(4, 8192, 8, 64), f32(4, 8192, 8, 64))
def linear_attention(q: Array, k: Array, v: Array) -> Array:
    """Attention without a softmax, by way of the product of keys and values."""
    q, k = jax.nn.elu(q) + 1, jax.nn.elu(k) + 1
    state = jnp.einsum("bkhd,bkhe->bhde", k, v)
    normal = jnp.einsum("bqhd,bhd->bqh", q, k.sum(1))
    return jnp.einsum("bqhd,bhde->bqhe", q, state) / normal[..., None]


@FIELD.add(f32(2, 2048, 8, 64), f32(2, 2048, 8, 64), f32(2, 2048, 8, 64))
def causal_linear_by_scan(q: Array, k: Array, v: Array) -> Array:
    """Causal linear attention, one position after the other, with its gradient in q."""

    def loss(q: Array) -> Array:
        def body(state: Array, each: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            state = state + jnp.einsum("bhd,bhe->bhde", each[1], each[2])
            return state, jnp.einsum("bhd,bhde->bhe", each[0], state)

        first = [jnp.moveaxis(x, 1, 0) for x in (jax.nn.relu(q), k, v)]
        return (lax.scan(body, jnp.zeros((2, 8, 64, 64)), tuple(first))[1] ** 2).sum()

    return jax.grad(loss)(q)


@FIELD.add(f32(1, 4096, 12, 64), f32(1, 4096, 12, 64), f32(1, 4096, 12, 64))
def sliding_window_by_mask(q: Array, k: Array, v: Array) -> Array:
    """Each position sees the 256 before it; the rest is masked."""
    place = jnp.arange(4096)
    distance = place[:, None] - place[None]
    return attend(q, k, v, (distance >= 0) & (distance < 256))


@FIELD.add(f32(2, 16384, 4, 64), f32(2, 16384, 4, 64), f32(2, 16384, 4, 64))
def sliding_window_by_blocks(q: Array, k: Array, v: Array) -> Array:
    """Blocks of 256 that see themselves and the block before."""
    q, k, v = (x.reshape(2, 64, 256, 4, 64) for x in (q, k, v))
    k, v = (jnp.concatenate([jnp.roll(x, 1, axis=1), x], axis=2) for x in (k, v))
    scores = jnp.einsum("bnqhd,bnkhd->bnhqk", q, k) / 8
    out = jnp.einsum("bnhqk,bnkhd->bnqhd", jax.nn.softmax(scores, axis=-1), v)
    return out.reshape(2, 16384, 4, 64)


@FIELD.add(f32(4, 1024, 12, 64), f32(4, 1024, 12, 64), f32(4, 1024, 12, 64), KEY)
def dropout_on_weights_gradient(q: Array, k: Array, v: Array, key: Array) -> tuple[Array, ...]:
    """Attention with a tenth of its weights dropped; the gradient."""

    def loss(q: Array, k: Array, v: Array) -> Array:
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / 8
        weights = jax.nn.softmax(scores, axis=-1)
        keep = jax.random.bernoulli(key, 0.9, weights.shape)
        weights = jnp.where(keep, weights / 0.9, 0.0)
        return (jnp.einsum("bhqk,bkhd->bqhd", weights, v) ** 2).sum()

    return jax.grad(loss, argnums=(0, 1, 2))(q, k, v)


@FIELD.add(f32(8, 1024, 8, 64), f32(8, 1024, 8, 64), f32(8, 1024, 8, 64), f32(32, 8))
def relative_positions(q: Array, k: Array, v: Array, table: Array) -> Array:
    """Attention with a learnt bias for each bucket of distances."""
    distance = jnp.abs(jnp.arange(1024)[:, None] - jnp.arange(1024)[None])
    bucket = jnp.minimum(jnp.log2(distance + 1.0) * 3, 31).astype(jnp.int32)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / 8 + table[bucket].transpose(2, 0, 1)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), v)


@FIELD.add(f32(2, 2048, 16, 64), f32(2, 2048, 16, 64), f32(2, 2048, 16, 64))
def rotary_and_soft_cap(q: Array, k: Array, v: Array) -> Array:
    """Rotated queries and keys, and scores bent by tanh."""
    angles = jnp.arange(2048)[:, None] * 10000 ** (-jnp.arange(32) / 32.0)
    cos, sin = jnp.cos(angles)[None, :, None], jnp.sin(angles)[None, :, None]

    def rotate(x: Array) -> Array:
        left, right = jnp.split(x, 2, axis=-1)
        return jnp.concatenate([left * cos - right * sin, left * sin + right * cos], axis=-1)

    scores = 30 * jnp.tanh(jnp.einsum("bqhd,bkhd->bhqk", rotate(q), rotate(k)) / 240)
    scores = jnp.where(jnp.tril(jnp.ones((2048, 2048), bool)), scores, -1e30)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), v)


@FIELD.add(bf16(8, 1, 32, 128), bf16(8, 8192, 8, 128), bf16(8, 8192, 8, 128), bf16(8, 1, 8, 128), i32())
def decode_with_cache(q: Array, keys: Array, values: Array, new: Array, place: Array) -> tuple[Array, ...]:
    """One token of a decoder: the cache is updated, then read by all heads."""
    keys = lax.dynamic_update_slice(keys, new, (0, place, 0, 0))
    values = lax.dynamic_update_slice(values, new * 2, (0, place, 0, 0))
    scores = jnp.einsum("bqhgd,bkhd->bhgqk", q.reshape(8, 1, 8, 4, 128), keys).astype(jnp.float32)
    scores = jnp.where(jnp.arange(8192) <= place, scores / 11.3, -jnp.inf)
    out = jnp.einsum("bhgqk,bkhd->bqhgd", jax.nn.softmax(scores, axis=-1).astype(jnp.bfloat16), values)
    return out.reshape(8, 1, 32, 128), keys, values


@FIELD.add(f32(4, 4096, 8, 32), f32(4, 4096, 8, 32), f32(4, 4096, 8, 32))
def jax_nn_dot_product_attention(q: Array, k: Array, v: Array) -> Array:
    """Attention as jax itself writes it."""
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)


@FIELD.add(f32(2, 4096, 8, 64), f32(2, 4096, 8, 64), f32(2, 4096, 8, 64))
def online_softmax_by_scan(q: Array, k: Array, v: Array) -> Array:
    """Attention over blocks of 512 keys with a running maximum and sum."""

    def body(state: tuple[Array, Array, Array], block: tuple[Array, Array]) -> tuple[tuple[Array, ...], None]:
        most, total, out = state
        scores = jnp.einsum("bqhd,bkhd->bqhk", q, block[0]) / 8
        new = jnp.maximum(most, scores.max(-1))
        weights = jnp.exp(scores - new[..., None])
        fade = jnp.exp(most - new)
        out = out * fade[..., None] + jnp.einsum("bqhk,bkhd->bqhd", weights, block[1])
        return (new, total * fade + weights.sum(-1), out), None

    blocks = tuple(jnp.moveaxis(x.reshape(2, 8, 512, 8, 64), 1, 0) for x in (k, v))
    start = (jnp.full((2, 4096, 8), -1e30), jnp.zeros((2, 4096, 8)), jnp.zeros_like(q))
    (_, total, out), _ = lax.scan(body, start, blocks)
    return out / total[..., None]


@FIELD.add(f32(4, 1024, 512), (f32(512, 1536), f32(512, 512), f32(512), f32(512)))
def block_with_remat_gradient(x: Array, parameters: Tree) -> Tree:
    """An attention block whose scores are computed again on the way back."""

    @jax.checkpoint
    def block(parameters: Tree, x: Array) -> Array:
        into, out, scale, shift = parameters
        normal = (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * scale + shift
        q, k, v = jnp.split((normal @ into).reshape(4, 1024, 8, 192), 3, axis=-1)
        return x + attend(q, k, v).reshape(4, 1024, 512) @ out

    return jax.grad(lambda p: (block(p, block(p, x)) ** 2).mean())(parameters)


@FIELD.add(f32(6, 128, 128, 64), (f32(64, 64), f32(64, 64), f32(64, 64), f32(64, 4)))
def triangle_attention(pairs: Array, parameters: Tree) -> Array:
    """Attention along the rows of a pair representation, biased by the pairs."""
    wq, wk, wv, wb = parameters
    q, k, v = (jnp.reshape(pairs @ w, (6, 128, 128, 4, 16)) for w in (wq, wk, wv))
    bias = jnp.einsum("bjkh->bhjk", pairs @ wb)
    scores = jnp.einsum("bijhd,bikhd->bihjk", q, k) / 4 + bias[:, None]
    out = jnp.einsum("bihjk,bikhd->bijhd", jax.nn.softmax(scores, axis=-1), v)
    return out.reshape(6, 128, 128, 64)
