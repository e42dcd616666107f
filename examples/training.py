"""A training loop under a memory limit: a small transformer with dropout, scanned layers, optax and donated state.

    python examples/training.py --memory-limit=400MB

Trains the same way with `jax.jit` and with `exla_opt.jit`, and prints the losses and the memory of both. Needs optax.
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import exla_opt

LAYERS, HEADS, WIDTH, WORDS, DROPPED = 4, 4, 64, 256, 0.1


class State(NamedTuple):
    """What a step reads and writes: parameters, what the optimiser keeps, and the key of the next dropout."""

    parameters: Any
    moments: Any
    key: jax.Array


def start(optimiser: optax.GradientTransformation) -> State:
    """Random parameters: an embedding, and the layers' one above the other."""
    first, second, third, key = jax.random.split(jax.random.key(0), 4)
    parameters = {
        "words": 0.02 * jax.random.normal(first, (WORDS, WIDTH)),
        "mix": jax.random.normal(second, (LAYERS, WIDTH, 4 * WIDTH)) / WIDTH**0.5,
        "feed": jax.random.normal(third, (LAYERS, WIDTH, WIDTH)) / WIDTH**0.5,
    }
    return State(parameters, optimiser.init(parameters), key)


def drop(key: jax.Array, x: jax.Array) -> jax.Array:
    """Dropout."""
    return jnp.where(jax.random.bernoulli(key, 1 - DROPPED, x.shape), x / (1 - DROPPED), 0)


def layer(x: jax.Array, given: tuple[dict[str, jax.Array], jax.Array]) -> tuple[jax.Array, None]:
    """Attention and a dense layer, each with dropout."""
    weights, key = given
    mixing, feeding = jax.random.split(key)
    batch, length, _ = x.shape
    q, k, v, gate = jnp.split((x @ weights["mix"]).reshape(batch, length, HEADS, -1), 4, axis=-1)
    scores = jnp.einsum("bqhw,bkhw->bhqk", q, k) / q.shape[-1] ** 0.5
    seen = drop(mixing, jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -jnp.inf)))
    mixed = jnp.einsum("bhqk,bkhw->bqhw", seen, v) * jax.nn.sigmoid(gate)
    x = x + mixed.reshape(batch, length, -1)
    return x + drop(feeding, jax.nn.gelu(x @ weights["feed"])), None


def loss(parameters: Any, key: jax.Array, text: jax.Array) -> jax.Array:
    """Cross entropy of the next word."""
    x = parameters["words"][text[:, :-1]]
    layers = {name: parameters[name] for name in ("mix", "feed")}
    x, _ = jax.lax.scan(layer, x, (layers, jax.random.split(key, LAYERS)))
    logits = x @ parameters["words"].T
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, text[:, 1:]))


def main() -> None:
    """Train twice, and print."""
    parser = argparse.ArgumentParser(description="Trains a small transformer with jax.jit and with exla_opt.jit.")
    parser.add_argument("--memory-limit", default="400MB", help="[%(default)s]")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=1024, help="words of a text [%(default)s]")
    parser.add_argument("--steps", type=int, default=3)
    given = parser.parse_args()
    optimiser = optax.adam(1e-3)

    def step(state: State, text: jax.Array) -> tuple[State, jax.Array]:
        used, key = jax.random.split(state.key)
        found, gradients = jax.value_and_grad(loss)(state.parameters, used, text)
        updates, moments = optimiser.update(gradients, state.moments)
        return State(optax.apply_updates(state.parameters, updates), moments, key), found

    rng = np.random.default_rng(0)
    texts = [jnp.asarray(rng.integers(WORDS, size=(given.batch, given.length))) for _ in range(given.steps)]
    for name, jitted in {
        "jax.jit": jax.jit(step, donate_argnums=0),
        "exla_opt.jit": exla_opt.jit(step, memory_limit=given.memory_limit, donate_argnums=0),
    }.items():
        state, losses = start(optimiser), []
        memory = jitted.lower(state, texts[0]).compile().memory_analysis()
        for text in texts:
            state, found = jitted(state, text)
            losses.append(f"{found:.4f}")
        print(f"{name:13} temporaries {memory.temp_size_in_bytes / 1e6:7.1f} MB, losses {' '.join(losses)}")


if __name__ == "__main__":
    main()
