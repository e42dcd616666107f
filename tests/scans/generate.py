"""Random functions with scans, and what is exported of their derivatives. Made of a seed and a number alone."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.scans.ops import OPS, Array, Context

_KINDS = ("gradient", "gradient", "gradient", "value and gradient", "product with the Hessian")


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a loop is made of.

    choices, sources: the ops of a step, and the places in its pool of what each of them reads. stacked: the places of
    what every step returns. second: how a second loop reads that. prepared: what is made of the inputs beforehand.
    """

    rows: int
    width: int
    steps: int
    choices: tuple[int, ...]
    sources: tuple[tuple[int, int], ...]
    stacked: tuple[int, ...]
    second: str
    kind: str
    reverse: bool
    unroll: int
    checkpointed: bool
    mapped: bool
    prepared: str


@dataclass(frozen=True, slots=True)
class Program:
    """One module: its text, the arrays to run it on, the threshold in bytes that it is split with."""

    recipe: Recipe
    text: str
    arrays: tuple[np.ndarray[Any, Any], ...]
    threshold: int


def _recipe(rng: Random) -> Recipe:
    count = rng.randint(2, 6)
    return Recipe(
        rows=rng.choice((8, 16, 33)),
        width=rng.choice((8, 16)),
        steps=rng.choice((1, 3, 12, 32, 45)),
        choices=tuple(rng.randrange(len(OPS)) for _ in range(count)),
        sources=tuple((rng.randrange(place + 2), rng.randrange(place + 2)) for place in range(count)),
        stacked=tuple(rng.randrange(count + 2) for _ in range(rng.randint(0, 2))),
        second=rng.choice(("none", "none", "forwards", "backwards")),
        kind=rng.choice(_KINDS),
        reverse=rng.random() < 0.3,
        unroll=rng.choice((1, 1, 1, 2)),
        checkpointed=rng.random() < 0.15,
        mapped=rng.random() < 0.2,
        prepared=rng.choice(("no", "no", "elementwise", "one for all", "product")),
    )


def _loss(recipe: Recipe, parameters: Any, start: Array, inputs: Array, flags: Array, key: Array) -> Array:
    weights, vector = parameters
    if recipe.prepared == "elementwise":
        inputs = jnp.sin(inputs) * vector
    elif recipe.prepared == "one for all":
        inputs = jnp.broadcast_to(jnp.tanh(inputs[0]) * vector, inputs.shape)
    elif recipe.prepared == "product":
        inputs = jnp.tanh(inputs) @ weights / np.sqrt(recipe.width)

    def step(carry: Any, now: Any) -> Any:
        h, total = carry
        x, number, flag = now
        context = Context(weights / np.sqrt(recipe.width), vector, number, key, flag)
        pool = [h, x]
        for choice, (one, other) in zip(recipe.choices, recipe.sources, strict=True):
            pool.append(OPS[choice](pool[one], pool[other], context))
        return (jnp.tanh(pool[-1]), total + jnp.cos(pool[-1]).sum(0)), tuple(pool[each] for each in recipe.stacked)

    body = jax.checkpoint(step) if recipe.checkpointed else step
    given = (inputs, jnp.arange(recipe.steps), flags)
    start_of_all = (start, jnp.zeros(recipe.width))
    (h, total), ys = lax.scan(body, start_of_all, given, reverse=recipe.reverse, unroll=recipe.unroll)
    result = (h * h).mean() + (total * total).mean() / recipe.steps
    if not ys or recipe.second == "none":
        return result + sum((jnp.sin(y) * 0.1).mean() for y in ys)
    backwards = recipe.second == "backwards"
    last, _ = lax.scan(lambda s, y: (jnp.tanh(s * 0.9 + sum(y)), None), h, ys, reverse=backwards)
    return result + last.sum() / recipe.rows


def _wanted(recipe: Recipe, parameters: Any, *rest: Array) -> Any:
    def gradient(parameters: Any, *rest: Array) -> Any:
        return jax.grad(lambda *arguments: _loss(recipe, *arguments, *rest[2:]), (0, 1, 2))(parameters, *rest[:2])

    if recipe.kind == "gradient":
        return gradient(parameters, *rest)
    if recipe.kind == "value and gradient":
        return _loss(recipe, parameters, *rest), gradient(parameters, *rest)
    return jax.jvp(lambda p: gradient(p, *rest)[0], (parameters,), (parameters,))[1]


def generate(seed: int, number: int) -> Program:
    """The program of this number: the same each time, for the same jax."""
    rng, numbers = Random(f"{seed} {number}"), np.random.default_rng([seed, number])
    recipe = _recipe(rng)
    rows, width, steps = recipe.rows, recipe.width, recipe.steps
    batch = (3,) if recipe.mapped else ()
    arrays = (
        numbers.standard_normal((width, width), np.float32),
        numbers.standard_normal(width, np.float32),
        numbers.standard_normal((*batch, rows, width), np.float32),
        numbers.standard_normal((*batch, steps, rows, width), np.float32),
        numbers.random(steps) < 0.5,
        np.asarray(numbers.integers(0, 2**32, 2), np.uint32),
    )

    def program(weights: Array, vector: Array, *rest: Array) -> Any:
        def wanted(*arguments: Any) -> Any:
            return _wanted(recipe, *arguments)

        return (jax.vmap(wanted, (None, 0, 0, None, None)) if recipe.mapped else wanted)((weights, vector), *rest)

    types = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in arrays]
    text = str(jax.jit(program, keep_unused=True).lower(*types).as_text())
    return Program(recipe, text, arrays, rng.choice((1000, 4000, 16_000)))
