"""Losses over big vocabularies and over all pairs of a batch."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from .entry import Array, Entry, bf16, f32, i32, tiles, u32


def vocabulary_tiling(hidden: Array, table: Array, labels: Array) -> Array:
    """The last layer of a language model and its cross entropy, labels as one-hot rows.

    https://github.com/AI-Hypercomputer/maxtext/pull/2242
    Reported: vocabularies of 256,000 (Gemma) and long contexts; here 8,192 tokens. Cause: the logits, their softmax
    and their gradient, tokens x vocabulary each. By hand: a scan over tiles of tokens, differentiated tile by tile.
    """
    logits = hidden @ table.T
    picked = jax.nn.one_hot(labels, table.shape[0], dtype=logits.dtype) * jax.nn.log_softmax(logits)
    return -picked.sum() / labels.shape[0]


def _vocabulary_tiling_by_hand(hidden: Array, table: Array, labels: Array) -> Array:
    @jax.checkpoint
    def step(total: Array, tile: tuple[Array, Array]) -> tuple[Array, None]:
        logits = tile[0] @ table.T
        at_label = jnp.take_along_axis(logits, tile[1][:, None] % table.shape[0], 1)[:, 0]
        inside = (tile[1] >= 0) & (tile[1] < table.shape[0])
        return total + jnp.where(inside, jax.nn.logsumexp(logits, 1) - at_label, 0).sum(), None

    total = lax.scan(step, jnp.float32(0), (tiles(hidden, 512), tiles(labels, 512)))[0]
    return total / labels.shape[0]


def million_tokens_vocabulary(hidden: Array, table: Array, labels: Array) -> Array:
    """Cross entropy with a penalty on the log normaliser, labels picked by counting rows.

    https://github.com/HomebrewML/Olmax/pull/25
    Reported: a vocabulary of 1,048,576; here 4,096 tokens of width 1,024 in bf16. Cause: logits of 8.6 GB and their
    gradient. By hand: a loop over chunks of tokens, scanned, for JAX would keep every chunk of an unrolled one.
    """
    logits = (hidden @ table.T).astype(jnp.float32)
    normaliser = jax.nn.logsumexp(logits, -1)
    at_label = logits[jnp.arange(labels.shape[0]), labels]
    return (normaliser - at_label + 1e-4 * normaliser**2).mean()


def speech_and_text_metrics(hidden: Array, table: Array, labels: Array) -> tuple[Array, Array]:
    """Most likely tokens and the loss, without a gradient.

    https://github.com/apple/axlearn/pull/1236
    Reported: 16,384 positions, 153,000 tokens: 9.6 GB of logits in a forward pass. Cause: both are made of the whole
    matrix, and each needs one number a position. By hand: a scan over 512 positions at a time.
    """
    logits = hidden @ table.T
    losses = -jnp.take_along_axis(jax.nn.log_softmax(logits), jnp.maximum(labels, 0)[:, None], 1)[:, 0]
    live = labels >= 0
    return logits.argmax(-1), jnp.where(live, losses, 0).sum() / jnp.maximum(live.sum(), 1)


def _speech_and_text_metrics_by_hand(hidden: Array, table: Array, labels: Array) -> tuple[Array, Array]:
    def tile(given: tuple[Array, Array]) -> tuple[Array, Array]:
        logits = given[0] @ table.T
        at_label = jnp.take_along_axis(logits, jnp.maximum(given[1], 0)[:, None], 1)[:, 0]
        losses = jax.nn.logsumexp(logits, -1) - at_label
        return logits.argmax(-1), jnp.where(given[1] >= 0, losses, 0).sum()

    ids, losses = lax.map(tile, (tiles(hidden, 512), tiles(labels, 512)))
    return ids.reshape(-1), losses.sum() / jnp.maximum((labels >= 0).sum(), 1)


def translation_with_dropout(key: Array, states: Array, weights: Array, labels: Array) -> Array:
    """The output layer of a translator, with dropout on its input; time x batch x vocabulary.

    https://github.com/google/seq2seq/issues/301
    Reported: shape [59, 128, 195370] on 11 GB. Cause: the logits of all steps at once, 5.9 GB, and their gradient.
    By hand: a tenth of the data, a smaller vocabulary, and later a sampled softmax.
    """
    kept = jax.random.bernoulli(key, 0.8, states.shape)
    logits = jnp.einsum("tbh,hv->tbv", jnp.where(kept, states / 0.8, 0), weights)
    losses = -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None] % weights.shape[1], -1)[..., 0]
    return jnp.where(labels > 0, losses, 0).sum() / labels.shape[1]


def smoothed_labels(hidden: Array, weights: Array, labels: Array) -> Array:
    """Cross entropy against smoothed labels, which are as large as the logits.

    https://github.com/OpenNMT/OpenNMT-tf/issues/257
    Reported: vocabularies of 60,000 and more, 650,000 wished for; here batches of 3,072 tokens. Cause: logits, smoothed
    labels and gradient, 8 GB each. By hand: smaller vocabularies or smaller batches.
    """
    size = weights.shape[1]
    smooth = jax.nn.one_hot(labels, size) * 0.9 + 0.1 / size
    return -(smooth * jax.nn.log_softmax(hidden @ weights)).sum(-1).mean()


def both_ways_contrastive(sounds: Array, texts: Array, scale: Array) -> Array:
    """Matching pairs of a batch against all others, over rows and over columns.

    https://github.com/cfoster0/CLAP/issues/10
    Reported: batches of 32,768 pairs. Cause: logits of 4.3 GB, two softmaxes and their gradients. By hand: embeddings
    are kept, the loss of a slice of one side against all of the other is differentiated, slice by slice.
    """
    sounds = sounds / jnp.linalg.norm(sounds, axis=-1, keepdims=True)
    texts = texts / jnp.linalg.norm(texts, axis=-1, keepdims=True)
    logits = jnp.exp(scale) * sounds @ texts.T
    count = jnp.arange(logits.shape[0])
    rows, columns = jax.nn.log_softmax(logits, 1)[count, count], jax.nn.log_softmax(logits, 0)[count, count]
    return -(rows.mean() + columns.mean()) / 2


def all_triplets(points: Array, labels: Array, margin: float = 0.2) -> Array:
    """The hinge of every triplet of anchor, positive and negative, averaged over those above zero.

    https://github.com/huggingface/sentence-transformers/pull/4029
    Reported: a tensor of batch x batch x batch; batches of 1,800 were the aim of those who mine faces. Cause: 23 GB,
    and a mask as large, before invalid triplets go. By hand: valid pairs first, then each against its negatives.
    """
    squares = (points**2).sum(1)
    far = jnp.sqrt(jnp.maximum(squares[:, None] + squares[None] - 2 * points @ points.T, 1e-6))
    same = labels[:, None] == labels[None]
    valid = (same & ~jnp.eye(len(labels), dtype=bool))[:, :, None] & ~same[:, None, :]
    hinge = jnp.where(valid, jnp.maximum(far[:, :, None] - far[:, None, :] + margin, 0), 0)
    return hinge.sum() / ((hinge > 1e-16).sum() + 1e-16)


def alignment_states_to_labels(states: Array, labels: Array, vocabulary: int) -> Array:
    """The log probability of each label at each step, from those of the states of an alignment.

    https://github.com/tensorflow/tensorflow/issues/59383
    Reported: an allocation of 48 GiB, then the process is killed. Cause: states x one-hot labels, step x batch x state
    x label, in logs, before a logsumexp over states. By hand: nothing; the thread went stale.
    """
    hot = jnp.where(jax.nn.one_hot(labels, vocabulary) > 0, 0.0, -1e30)
    return jax.nn.logsumexp(states[..., None] + hot[None], axis=2)


ENTRIES = (
    Entry(
        vocabulary_tiling,
        (f32(8192, 2048), f32(256_128, 2048), i32(8192)),
        (f32(64, 16), f32(512, 16), i32(64)),
        (f32(1024, 128), f32(16_384, 128), i32(1024)),
        _vocabulary_tiling_by_hand,
        gradient=(0, 1),
    ),
    Entry(
        million_tokens_vocabulary,
        (bf16(4096, 1024), bf16(1_048_576, 1024), i32(4096)),
        (bf16(32, 16), bf16(1024, 16), i32(32)),
        (bf16(512, 64), bf16(32_768, 64), i32(512)),
        gradient=(0, 1),
    ),
    Entry(
        speech_and_text_metrics,
        (f32(16_384, 1024), f32(153_600, 1024), i32(16_384)),
        (f32(64, 16), f32(512, 16), i32(64)),
        (f32(1024, 128), f32(16_384, 128), i32(1024)),
        _speech_and_text_metrics_by_hand,
    ),
    Entry(
        translation_with_dropout,
        (u32(2), f32(59, 128, 256), f32(256, 195_370), i32(59, 128)),
        (u32(2), f32(6, 16, 16), f32(16, 400), i32(6, 16)),
        (u32(2), f32(30, 32, 128), f32(128, 12_000), i32(30, 32)),
        gradient=(1, 2),
    ),
    Entry(
        smoothed_labels,
        (f32(3072, 512), f32(512, 650_000), i32(3072)),
        (f32(48, 16), f32(16, 700), i32(48)),
        (f32(768, 128), f32(128, 16_000), i32(768)),
        gradient=(0, 1),
    ),
    Entry(
        both_ways_contrastive,
        (f32(32_768, 512), f32(32_768, 512), f32()),
        (f32(192, 16), f32(192, 16), f32()),
        (f32(3072, 64), f32(3072, 64), f32()),
        gradient=(0, 1, 2),
    ),
    Entry(
        all_triplets,
        (f32(1800, 128), i32(1800)),
        (f32(40, 8), i32(40)),
        (f32(256, 64), i32(256)),
        gradient=(0,),
    ),
    Entry(
        alignment_states_to_labels,
        (f32(1024, 32, 64), i32(32, 64), 6144),
        (f32(40, 8, 16), i32(8, 16), 100),
        (f32(128, 8, 32), i32(8, 32), 2000),
    ),
)
