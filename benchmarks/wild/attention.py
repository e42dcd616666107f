"""Attention over long sequences, pairs of residues and latent images."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from .entry import Array, Entry, bf16, f32, i32, tiles, u32


def _heads(x: Array, weights: Array, heads: int) -> Array:
    """[..., n, d] by [d, 3 h] as three of [..., heads, n, h / heads]."""
    made = (x @ weights).reshape(*x.shape[:-1], 3, heads, -1)
    return jnp.moveaxis(made, (-3, -2), (0, -3))


def sequence_tagging(x: Array, weights: Array, last: Array, labels: Array, heads: int) -> Array:
    """One layer of self-attention and a tagger over it, trained.

    https://github.com/CyberZHG/keras-multi-head/issues/1
    Reported: up to 20,000 positions of width 1,024, 8 heads; shape [16, 20000, 20000]. Cause: scores of two sequences,
    25.6 GB, their softmax and gradient. By hand: attention of limited width was tried, which makes the same tensor.
    """
    queries, keys, values = _heads(x, weights, heads)
    scores = jax.nn.softmax(jnp.einsum("bhqd,bhkd->bhqk", queries, keys) / queries.shape[-1] ** 0.5)
    mixed = jnp.moveaxis(jnp.einsum("bhqk,bhkd->bhqd", scores, values), 1, 2).reshape(x.shape)
    logits = jax.nn.log_softmax(jax.nn.relu(mixed) @ last)
    return -jnp.take_along_axis(logits, labels[..., None] % last.shape[1], -1).mean()


def _sequence_tagging_by_hand(x: Array, weights: Array, last: Array, labels: Array, heads: int) -> Array:
    queries, keys, values = _heads(x, weights, heads)

    @jax.checkpoint
    def some(q: Array) -> Array:
        scores = jax.nn.softmax(jnp.einsum("qbhd,bhkd->qbhk", q, keys) / q.shape[-1] ** 0.5)
        return jnp.einsum("qbhk,bhkd->qbhd", scores, values)

    mixed = lax.map(some, tiles(jnp.moveaxis(queries, 2, 0), 250)).reshape(x.shape[1], x.shape[0], -1)
    logits = jax.nn.log_softmax(jax.nn.relu(jnp.moveaxis(mixed, 0, 1)) @ last)
    return -jnp.take_along_axis(logits, labels[..., None] % last.shape[1], -1).mean()


def large_batch_with_mask(key: Array, q: Array, k: Array, v: Array, lengths: Array) -> Array:
    """Attention with padding masked out and dropout on the weights.

    https://github.com/lucidrains/flash-attention-jax/issues/3
    Reported: sequences of 2,400, a batch of 1,000. Cause: scores of 184 GB for 8 heads, before the mask, the softmax
    and the dropout mask. By hand: another attention for flax that takes masks and dropout was asked for.
    """
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    inside = jnp.arange(k.shape[1])[None] < jnp.maximum(lengths, 1)[:, None]
    weights = jax.nn.softmax(jnp.where(inside[:, None, None], scores, -1e10))
    kept = jax.random.bernoulli(key, 0.9, weights.shape)
    return jnp.einsum("bhqk,bkhd->bqhd", jnp.where(kept, weights / 0.9, 0), v)


def relative_positions(x: Array, weights: Array, table: Array, heads: int) -> Array:
    """Self-attention with a bias that is looked up for the distance of each pair, in bf16.

    https://github.com/google-research/FLAN/issues/36
    Reported: batches of 64 sequences of 2,048, T5; scores of [64, heads, 2048, 2048]. Cause: 17 GB a layer in bf16 for
    32 heads. By hand: nobody answered whether gradients were accumulated.
    """
    queries, keys, values = _heads(x, weights, heads)
    count = jnp.arange(x.shape[1])
    far = count[None] - count[:, None]
    near = jnp.minimum(jnp.abs(far), 8 + jnp.log2(jnp.maximum(jnp.abs(far), 1) / 8).astype(jnp.int32))
    bucket = jnp.clip(near, 0, 15) + 16 * (far > 0)
    scores = jnp.einsum("bhqd,bhkd->bhqk", queries, keys) + jnp.moveaxis(table[bucket], -1, 0)
    mixed = jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores.astype(jnp.float32)).astype(x.dtype), values)
    return (mixed.astype(jnp.float32) ** 2).mean()


def triangle_around_a_node(pair: Array, mask: Array, weights: Array, bias: Array, gate: Array, heads: int) -> Array:
    """Attention along each row of a pair representation, with a bias from the third side, gated.

    https://github.com/google-deepmind/alphafold/issues/85
    Reported: 1,700 residues. Cause: a score for each triple of residues and head, 79 GB; the pairs themselves take 1.5.
    By hand: rows in batches of a few, mapped, which is what the authors did; or the sequence in two halves.
    """
    queries, keys, values = _heads(pair, weights, heads)
    side = jnp.einsum("qkc,ch->hqk", pair, bias)
    return _triangle(pair, queries, keys, values, mask, side, gate)


def _triangle(rows: Array, q: Array, k: Array, v: Array, mask: Array, side: Array, gate: Array) -> Array:
    scores = jnp.einsum("rhqd,rhkd->rhqk", q, k) / q.shape[-1] ** 0.5 + side
    weights = jax.nn.softmax(jnp.where(mask[:, None, None] > 0, scores, -1e9))
    mixed = jnp.moveaxis(jnp.einsum("rhqk,rhkd->rhqd", weights, v), 1, 2)
    return mixed.reshape(rows.shape) * jax.nn.sigmoid(rows @ gate)


def _triangle_by_hand(pair: Array, mask: Array, weights: Array, bias: Array, gate: Array, heads: int) -> Array:
    side = jnp.einsum("qkc,ch->hqk", pair, bias)

    def some(rows: tuple[Array, Array]) -> Array:
        queries, keys, values = _heads(rows[0], weights, heads)
        return _triangle(rows[0], queries, keys, values, rows[1], side, gate)

    return lax.map(some, (tiles(pair, 4), tiles(mask, 4))).reshape(pair.shape)


def outer_product_mean(alignment: Array, left: Array, right: Array, out: Array) -> Array:
    """What aligned sequences say of each pair of residues: the mean of outer products, projected.

    https://github.com/sokrypton/ColabFold/issues/8
    Reported: pairs of proteins of 600 to 700 residues, an allocation of 10.8 GB. Cause: [1400, 1400, 32, 32], 8 GB,
    before it is projected to 128 channels. By hand: batches of residues; other models, fewer sequences.
    """
    a, b = alignment @ left, alignment @ right
    return jnp.einsum("sic,sjd->ijcd", a, b).reshape(a.shape[1], b.shape[1], -1) @ out / alignment.shape[0]


def latent_image_attention(x: Array, scale: Array, kernel: Array, weights: Array, heads: int) -> Array:
    """A block of a denoising network: normalised groups, a convolution, then attention over all pixels.

    https://github.com/huggingface/diffusers/pull/2231
    Reported: higher batch counts and resolutions on a TPU; here 8 latents of 64 x 64. Cause: scores of pixels by
    pixels, 4.3 GB for 8 heads. By hand: attention in chunks of queries and keys, slower and with larger batches.
    """
    batch, height, width, channels = x.shape
    groups = x.reshape(batch, height, width, -1, 8)
    mean, var = groups.mean((1, 2, 4), keepdims=True), groups.var((1, 2, 4), keepdims=True)
    normal = jax.nn.silu(((groups - mean) * lax.rsqrt(var + 1e-5)).reshape(x.shape) * scale)
    seen = lax.conv_general_dilated(normal, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    queries, keys, values = _heads(seen.reshape(batch, -1, channels), weights, heads)
    scores = jax.nn.softmax(jnp.einsum("bhqd,bhkd->bhqk", queries, keys) / queries.shape[-1] ** 0.5)
    return x + jnp.moveaxis(jnp.einsum("bhqk,bhkd->bhqd", scores, values), 1, 2).reshape(x.shape)


ENTRIES = (
    Entry(
        sequence_tagging,
        (f32(2, 20_000, 1024), f32(1024, 3072), f32(1024, 4), i32(2, 20_000), 8),
        (f32(2, 100, 16), f32(16, 48), f32(16, 4), i32(2, 100), 4),
        (f32(2, 1000, 128), f32(128, 384), f32(128, 4), i32(2, 1000), 8),
        _sequence_tagging_by_hand,
        gradient=(1, 2),
    ),
    Entry(
        large_batch_with_mask,
        (u32(2), f32(1000, 2400, 8, 64), f32(1000, 2400, 8, 64), f32(1000, 2400, 8, 64), i32(1000)),
        (u32(2), f32(4, 64, 2, 8), f32(4, 64, 2, 8), f32(4, 64, 2, 8), i32(4)),
        (u32(2), f32(6, 600, 8, 32), f32(6, 600, 8, 32), f32(6, 600, 8, 32), i32(6)),
    ),
    Entry(
        relative_positions,
        (bf16(64, 2048, 2048), bf16(2048, 6144), bf16(32, 32), 32),
        (bf16(2, 80, 16), bf16(16, 48), bf16(32, 4), 4),
        (bf16(4, 512, 128), bf16(128, 384), bf16(32, 8), 8),
        gradient=(1, 2),
    ),
    Entry(
        triangle_around_a_node,
        (f32(1700, 1700, 128), f32(1700, 1700), f32(128, 384), f32(128, 4), f32(128, 128), 4),
        (f32(24, 24, 8), f32(24, 24), f32(8, 24), f32(8, 2), f32(8, 8), 2),
        (f32(200, 200, 32), f32(200, 200), f32(32, 96), f32(32, 4), f32(32, 32), 4),
        _triangle_by_hand,
    ),
    Entry(
        outer_product_mean,
        (f32(512, 1400, 256), f32(256, 32), f32(256, 32), f32(1024, 128)),
        (f32(8, 32, 8), f32(8, 8), f32(8, 8), f32(64, 16)),
        (f32(64, 160, 64), f32(64, 32), f32(64, 32), f32(1024, 64)),
    ),
    Entry(
        latent_image_attention,
        (f32(8, 64, 64, 320), f32(320), f32(3, 3, 320, 320), f32(320, 960), 8),
        (f32(2, 10, 10, 16), f32(16), f32(3, 3, 16, 16), f32(16, 48), 2),
        (f32(4, 32, 32, 128), f32(128), f32(3, 3, 128, 128), f32(128, 384), 8),
    ),
)
