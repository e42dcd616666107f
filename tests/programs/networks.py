"""Attention, whole networks and their training steps, convolutions, losses over large vocabularies."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tests.programs.model import Program, both, gradient

Array = Any


def attention(q: Array, k: Array, v: Array) -> Array:
    return jax.nn.softmax(q @ k.T) @ v


def causal_attention(q: Array, k: Array, v: Array) -> Array:
    scores = q @ k.T
    rows = lax.broadcasted_iota(jnp.int32, scores.shape, 0)
    columns = lax.broadcasted_iota(jnp.int32, scores.shape, 1)
    return jax.nn.softmax(jnp.where(rows >= columns, scores, -1e30)) @ v


def masked_attention(q: Array, k: Array, v: Array, mask: Array) -> Array:
    return jax.nn.softmax(jnp.where(mask, q @ k.T, -jnp.inf), where=mask) @ v


def relative_attention(q: Array, k: Array, v: Array, bias: Array) -> Array:
    scores = q @ k.T
    offset = jnp.arange(scores.shape[0])[:, None] - jnp.arange(scores.shape[1])[None]
    return jax.nn.softmax(scores + bias[jnp.clip(offset, -8, 8) + 8]) @ v


def layer_norm(x: Array) -> Array:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5)


def multi_head(x: Array, wqkv: Array, wo: Array) -> Array:
    q, k, v = jnp.einsum("bld,dshe->sbhle", layer_norm(x), wqkv)
    weights = jax.nn.softmax(jnp.einsum("bhqe,bhke->bhqk", q, k))
    return jnp.einsum("bqhe,hed->bqd", jnp.einsum("bhqk,bhke->bqhe", weights, v), wo)


def multi_head_merged(x: Array, wqkv: Array, wo: Array) -> Array:
    """Heads merged and split by reshapes, as most libraries write it."""
    batch, length, width = x.shape
    heads = 4
    q, k, v = jnp.split(layer_norm(x) @ wqkv / width**0.5, 3, axis=-1)
    q, k, v = (t.reshape(batch, length, heads, -1).transpose(0, 2, 1, 3) for t in (q, k, v))
    weights = jax.nn.softmax(q @ k.transpose(0, 1, 3, 2))
    return (weights @ v).transpose(0, 2, 1, 3).reshape(batch, length, -1) @ wo


def mlp(x: Array, w1: Array, w2: Array) -> Array:
    return jax.nn.gelu(layer_norm(x) @ w1) @ w2


def transformer(x: Array, wqkv: Array, wo: Array, w1: Array, w2: Array) -> Array:
    for _ in range(2):
        x = x + multi_head(x, wqkv, wo)
        x = x + mlp(x, w1, w2)
    return x


def transformer_scan(x: Array, wqkv: Array, wo: Array, w1: Array, w2: Array) -> Array:
    def layer(x: Array, weights: Any) -> Any:
        a, b, c, d = weights
        x = x + multi_head(x, a, b)
        return x + mlp(x, c, d), None

    return lax.scan(layer, x, (wqkv, wo, w1, w2))[0]


def transformer_scan_of_small_weights(x: Array, *weights: Array) -> Array:
    """Scores in the hundreds make a softmax whose gradient shows every rounding of them, in slices or not."""
    return transformer_scan(x, *(0.3 * each for each in weights))


def many_layers(x: Array, w1: Array, w2: Array) -> Array:
    for _ in range(6):
        x = x + mlp(x, w1, w2)
    return x


def cross_entropy(h: Array, w: Array, labels: Array) -> Array:
    logits = jax.nn.log_softmax(h @ w)
    return -jnp.take_along_axis(logits, abs(labels)[..., None], -1).mean()


def cross_entropy_one_hot(h: Array, w: Array, labels: Array) -> Array:
    logits = jax.nn.log_softmax(h @ w)
    return -(jax.nn.one_hot(abs(labels), w.shape[1]) * logits).sum(-1).mean()


def next_token(h: Array, w: Array, tokens: Array) -> Array:
    logits = (h @ w)[:, :-1]
    return cross_entropy_of(logits, abs(tokens[:, 1:]))


def cross_entropy_of(logits: Array, labels: Array) -> Array:
    picked = jnp.take_along_axis(logits, labels[..., None], -1)[..., 0]
    return (jax.nn.logsumexp(logits, axis=-1) - picked).mean()


def language_model(tokens: Array, table: Array, w: Array) -> Array:
    x = table[abs(tokens)]
    x = x + jnp.tanh(x @ w)
    logits = x @ table.T
    return cross_entropy_of(logits[:, :-1], abs(tokens[:, 1:]))


def embedding_sum(tokens: Array, table: Array, w: Array) -> Array:
    return jnp.tanh(table[abs(tokens)] @ w).sum((0, 2))


def embedding_step(table: Array, tokens: Array, w: Array) -> Array:
    """The gradient's norm is asked before the step: its scatter is cut along the words, once for each of both."""
    slope = jax.grad(lambda table: (embedding_sum(tokens, table, w) ** 2).sum())(table)
    return table - 0.1 * slope / jnp.sqrt((slope**2).sum())


def convolution(x: Array, w: Array) -> Array:
    y = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return jnp.tanh(y).sum((1, 2))


def convolution_of_one_image(x: Array, w: Array) -> Array:
    y = lax.conv_general_dilated(x, w, (2, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return jnp.tanh(y).sum((1, 2))


def two_convolutions(x: Array, w: Array, u: Array) -> Array:
    numbers = ("NHWC", "HWIO", "NHWC")
    y = jax.nn.relu(lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers))
    y = lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    y = lax.conv_general_dilated(y, u, (1, 1), "SAME", dimension_numbers=numbers)
    return jax.nn.relu(y).mean((1, 2))


def batch_norm(x: Array, w: Array) -> Array:
    y = x @ w
    y = (y - y.mean(0)) * lax.rsqrt(y.var(0) + 1e-5)
    return jax.nn.relu(y).sum(1)


def contrastive(a: Array, b: Array) -> Array:
    scores = a @ b.T
    return (jax.nn.logsumexp(scores, 1) + jax.nn.logsumexp(scores, 0) - 2 * (a * b).sum(1)).mean()


def mixture_of_experts(x: Array, gate: Array, w1: Array, w2: Array) -> Array:
    weights = jax.nn.softmax(x @ gate)
    hidden = jax.nn.relu(jnp.einsum("nd,edf->nef", x, w1))
    return jnp.einsum("nef,efd,ne->nd", hidden, w2, weights)


def graph_layer(x: Array, senders: Array, receivers: Array, w: Array) -> Array:
    messages = jnp.tanh(x[abs(senders)] @ w)
    return jax.ops.segment_sum(messages, abs(receivers), x.shape[0])


QKV = "500x16xf32 400x16xf32 400x16xf32"
BLOCK = "4x128x16xf32 16x3x2x8xf32 2x8x16xf32 16x64xf32 64x16xf32"
STACK = "4x128x16xf32 3x16x3x2x8xf32 3x2x8x16xf32 3x16x64xf32 3x64x16xf32"
PROGRAMS: list[Program] = [
    *both("attention", attention, QKV),
    *both("causal_attention", causal_attention, QKV),
    *both("masked_attention", masked_attention, QKV + " 500x400xi1"),
    *both("relative_attention", relative_attention, QKV.replace("f32", "f64") + " 17xf64"),
    *both("multi_head", multi_head, "2x200x16xf32 16x3x4x8xf32 4x8x16xf32"),
    *both("multi_head_merged", multi_head_merged, "2x200x16xf32 16x96xf32 32x16xf32"),
    *both("transformer", transformer, BLOCK, 0.25),
    Program("transformer_scan", transformer_scan, STACK, 0.25),
    Program("transformer_scan_gradient", gradient(transformer_scan_of_small_weights), STACK, 0.1),
    *both("many_layers", many_layers, "1024x16xf32 16x64xf32 64x16xf32"),
    *both("cross_entropy", cross_entropy, "256x16xf32 16x501xf32 256xi32"),
    *both("cross_entropy_one_hot", cross_entropy_one_hot, "256x16xf32 16x501xf32 256xi32"),
    *both("next_token", next_token, "4x65x16xf32 16x501xf32 4x65xi32"),
    *both("next_token_batch_1", next_token, "1x257x16xf32 16x501xf32 1x257xi32"),
    *both("language_model", language_model, "4x64xi32 501x16xf32 16x16xf32"),
    Program("embedding_step", embedding_step, "8000x32xf32 4x10xi32 32x32xf32", 0.3, donated=(0,)),
    *both("embedding_sum", embedding_sum, "64x50xi32 300x16xf32 16x100xf32"),
    *both("convolution", convolution, "16x20x20x4xf32 3x3x4x32xf32"),
    *both("convolution_of_one_image", convolution_of_one_image, "1x121x70x4xf32 5x3x4x32xf32"),
    *both("two_convolutions", two_convolutions, "16x16x16x3xf32 3x3x3x16xf32 3x3x16x8xf32"),
    *both("batch_norm", batch_norm, "1024x8xf32 8x128xf32"),
    *both("contrastive", contrastive, "400x16xf32 400x16xf32"),
    *both("mixture_of_experts", mixture_of_experts, "400x16xf32 16x8xf32 8x16x32xf32 8x32x16xf32"),
    *both("graph_layer", graph_layer, "100x16xf32 2000xi32 2000xi32 16x64xf32"),
]
