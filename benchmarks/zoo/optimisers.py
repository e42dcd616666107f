"""Optimisers over many parameters, with and without donated arguments."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax

from .programs import Array, Example, Field, Tree, bf16, f32, shape

FIELD = Field()

PARAMETERS = {
    "table": f32(32000, 1024),
    "layers": [{"in": f32(1024, 4096), "out": f32(4096, 1024), "shift": f32(1024)} for _ in range(6)],
}


def updated(optimiser: optax.GradientTransformation, parameters: Tree, donate: bool = False) -> Example:
    """One update of parameters from given gradients."""
    state = jax.eval_shape(optimiser.init, parameters)

    def step(parameters: Tree, state: Tree, slopes: Tree) -> tuple[Tree, Tree]:
        updates, state = optimiser.update(slopes, state, parameters)
        return optax.apply_updates(parameters, updates), state

    return jax.jit(step, donate_argnums=(0, 1) if donate else ()), (parameters, state, parameters)


@FIELD.make
def adam_clipped_by_global_norm() -> Example:
    """Adam with weight decay after a clip of the global norm."""
    return updated(optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3)), PARAMETERS)


@FIELD.make
def adam_donated() -> Example:
    """Adam in the buffers of its arguments."""
    return updated(optax.adam(1e-3), PARAMETERS, donate=True)


@FIELD.make
def adafactor_update() -> Example:
    """Factored second moments."""
    return updated(optax.adafactor(1e-3), PARAMETERS)


@FIELD.make
def lamb_update() -> Example:
    """A trust ratio for each array."""
    return updated(optax.lamb(1e-3), PARAMETERS)


@FIELD.make
def lion_donated() -> Example:
    """Signs of moments in bfloat16, in the buffers of the arguments."""
    return updated(optax.lion(1e-4, mu_dtype=jnp.bfloat16), PARAMETERS, donate=True)


@FIELD.add(f32(4096, 4096), f32(4096, 4096), f32(4096, 4096))
def muon_orthogonalised(weights: Array, moment: Array, slope: Array) -> tuple[Array, Array]:
    """A moment made orthogonal by five iterations in bfloat16."""
    moment = 0.95 * moment + slope
    x = (moment / (jnp.linalg.norm(moment) + 1e-7)).astype(jnp.bfloat16)
    for _ in range(5):
        square = x @ x.T
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return weights - 0.02 * x.astype(jnp.float32), moment


@FIELD.add(f32(2000, 1500), f32(2000, 2000), f32(1500, 1500), f32(2000, 1500))
def shampoo_update(weights: Array, left: Array, right: Array, slope: Array) -> tuple[Array, ...]:
    """Preconditioners and their inverse roots by Newton's iteration."""

    def inverse_root(matrix: Array) -> Array:
        size = jnp.linalg.norm(matrix)
        y, z = matrix / size, jnp.eye(len(matrix))
        for _ in range(6):
            middle = 1.5 * jnp.eye(len(matrix)) - 0.5 * z @ y
            y, z = y @ middle, middle @ z
        return z / jnp.sqrt(size)

    left, right = left + slope @ slope.T, right + slope.T @ slope
    return weights - 0.1 * inverse_root(left) @ slope @ inverse_root(right), left, right


@FIELD.make
def masters_and_moving_average() -> Example:
    """Weights in bfloat16 with masters in float32, and an average that follows them."""

    def step(half: Tree, masters: Tree, average: Tree, slopes: Tree) -> tuple[Tree, ...]:
        masters = jax.tree.map(lambda m, s: m - 0.1 * s.astype(jnp.float32), masters, slopes)
        average = jax.tree.map(lambda a, m: 0.999 * a + 0.001 * m, average, masters)
        return jax.tree.map(lambda m, h: m.astype(h.dtype), masters, half), masters, average

    narrow = [bf16(4096, 4096)] * 4
    wide = [f32(4096, 4096)] * 4
    return jax.jit(step, donate_argnums=(1, 2)), (narrow, wide, wide, narrow)


@FIELD.add(f32(2_000_000), f32(20, 2_000_000), f32(20, 2_000_000))
def limited_memory_direction(slope: Array, steps: Array, changes: Array) -> Array:
    """The two loops of L-BFGS over twenty pairs."""
    products = 1 / (steps * changes).sum(1)

    def first(q: Array, each: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        a = each[2] * (each[0] @ q)
        return q - a * each[1], a

    def second(r: Array, each: tuple[Array, Array, Array, Array]) -> tuple[Array, None]:
        return r + each[0] * (each[3] - each[2] * (each[1] @ r)), None

    q, weights = jax.lax.scan(first, slope, (steps, changes, products), reverse=True)
    return jax.lax.scan(second, q * 0.1, (steps, changes, products, weights))[0]


@FIELD.make
def donated_ring_buffer() -> Example:
    """A replay memory that takes new rows in place and gives a batch."""

    def step(memory: Array, rows: Array, place: Array, chosen: Array) -> tuple[Array, Array]:
        memory = jax.lax.dynamic_update_slice(memory, rows, (place, 0))
        return memory, memory[chosen].mean(0)

    index = shape(jnp.int32)
    shapes = (f32(500_000, 64), f32(1000, 64), index, shape(jnp.int32, 100_000))
    return jax.jit(step, donate_argnums=0), shapes
