"""Programs in other types than float32: double, half, bytes, complex, integers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from .programs import Array, Field, Tree, bf16, f32, shape

FIELD = Field()

F64, F16, I8, C64 = jnp.float64, jnp.float16, jnp.int8, jnp.complex64


@FIELD.add(shape(F64, 4000, 8), shape(F64, 4000), wide=True)
def gp_hyperparameters_f64(x: Array, y: Array) -> Array:
    """Value and gradient of a likelihood with a rational quadratic kernel in double precision."""

    def likelihood(x: Array) -> Array:
        squares = ((x[:, None] - x[None]) ** 2).sum(-1)
        factor = jnp.linalg.cholesky((1 + squares / 3) ** -1.5 + 1e-4 * jnp.eye(4000))
        solved = jax.scipy.linalg.cho_solve((factor, True), y)
        return y @ solved + 2 * jnp.log(jnp.diagonal(factor)).sum()

    return jax.grad(likelihood)(x)


@FIELD.add(shape(F64, 5000, 5), shape(F64, 5000), wide=True)
def kernel_regression_f64(x: Array, y: Array) -> Array:
    """Nadaraya and Watson's leave-one-out error."""
    squares = (x**2).sum(1)[:, None] + (x**2).sum(1) - 2 * x @ x.T
    weights = jnp.exp(-squares) * (1 - jnp.eye(5000))
    return ((y - weights @ y / weights.sum(1)) ** 2).mean()


@FIELD.add(shape(F64, 1_000_000), shape(F64, 1_000_000), wide=True)
def compensated_statistics_f64(x: Array, y: Array) -> tuple[Array, ...]:
    """Moments and ranks of two long series."""
    ranks = jnp.argsort(jnp.argsort(x)).astype(F64)
    other = jnp.argsort(jnp.argsort(y)).astype(F64)
    return jnp.corrcoef(ranks, other)[0, 1], x.std(), jnp.cumsum(y * x)[-1]


@FIELD.add(shape(F64, 512, 512, 20), shape(F64, 512, 512, 20), wide=True)
def semi_implicit_step_f64(u: Array, v: Array) -> Array:
    """A tridiagonal solve in each column, by a scan down and a scan up."""

    def down(before: tuple[Array, Array], row: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        c = -0.5 / (2 + 0.5 * before[0])
        d = (row + 0.5 * before[1]) / (2 + 0.5 * before[0])
        return (c, d), (c, d)

    def up(after: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        x = row[1] - row[0] * after
        return x, x

    zero = jnp.zeros((512, 20))
    rows = lax.scan(down, (zero, zero), u + v)[1]
    return lax.scan(up, zero, rows, reverse=True)[1]


@FIELD.add(shape(F16, 64, 1024, 1024), shape(F16, 1024))
def layer_norm_f16(x: Array, scale: Array) -> Array:
    """Layer normalisation in half precision with sums in single."""
    wide = x.astype(jnp.float32)
    mean = wide.mean(-1, keepdims=True)
    variance = ((wide - mean) ** 2).mean(-1, keepdims=True)
    return ((wide - mean) * lax.rsqrt(variance + 1e-5)).astype(F16) * scale


@FIELD.add(bf16(16384, 2048), bf16(2048, 8192), bf16(2048, 8192), bf16(8192, 2048))
def gated_feed_forward_bf16(x: Array, gate: Array, up: Array, down: Array) -> Array:
    """A gated layer in bfloat16."""
    return (jax.nn.silu(x @ gate) * (x @ up)) @ down


@FIELD.add((bf16(1024, 4096), bf16(4096, 1024)), bf16(8192, 1024))
def feed_forward_bf16_gradient(parameters: Tree, x: Array) -> Tree:
    """Its gradient with a normalisation before and a loss in float32."""

    def loss(parameters: Tree) -> Array:
        up, down = parameters
        normal = x * lax.rsqrt((x.astype(jnp.float32) ** 2).mean(-1, keepdims=True)).astype(jnp.bfloat16)
        return ((x + jax.nn.gelu(normal @ up) @ down).astype(jnp.float32) ** 2).mean()

    return jax.grad(loss)(parameters)


@FIELD.add(shape(I8, 8192, 4096), shape(I8, 4096, 8192), f32(8192), f32(8192))
def quantised_product(x: Array, weights: Array, rows: Array, columns: Array) -> Array:
    """A product of bytes summed in int32, scaled and quantised again."""
    product = lax.dot(x, weights, preferred_element_type=jnp.int32).astype(jnp.float32)
    real = product * rows[:, None] * columns
    most = jnp.abs(real).max(1, keepdims=True)
    return jnp.round(real / most * 127).astype(I8)


@FIELD.add(bf16(32, 4096), shape(I8, 4096, 11008), shape(jnp.bfloat16, 32, 11008))
def weights_in_bytes(x: Array, weights: Array, scales: Array) -> Array:
    """Activations times weights that are widened in groups of 128 rows."""
    wide = weights.reshape(32, 128, 11008).astype(jnp.bfloat16) * scales[:, None]
    return x @ wide.reshape(4096, 11008)


@FIELD.add(shape(C64, 64, 512, 512), shape(C64, 8, 512, 512))
def coil_sensitivity_images(k: Array, coils: Array) -> Array:
    """Images of magnetic resonance: back to space, combined over coils, phases kept."""
    images = jnp.fft.ifft2(k.reshape(8, 8, 512, 512))
    combined = (images * coils.conj()).sum(1) / (jnp.abs(coils) ** 2).sum(0)
    return jnp.stack([jnp.abs(combined), jnp.angle(combined)])


@FIELD.add(shape(C64, 2**24))
def quantum_circuit(state: Array) -> Array:
    """Gates on each of 24 qubits, then the chance of each first qubit."""
    gate = jnp.array([[1, 1], [1, -1]], C64) / jnp.sqrt(2.0)
    for qubit in range(0, 24, 3):
        state = state.reshape(2**qubit, 2, -1)
        state = jnp.einsum("ab,ibj->iaj", gate, state)
        state = state * jnp.exp(1j * jnp.arange(2)[:, None] * 0.3)
    return (jnp.abs(state.reshape(2, -1)) ** 2).sum(1)


@FIELD.add(shape(jnp.int32, 200, 50000))
def edit_distance_bits(x: Array) -> Array:
    """Differences of all pairs of integer sequences."""
    return (x[:, None] != x[None]).sum(-1)


@FIELD.add(shape(jnp.bool_, 3000, 3000), shape(jnp.bool_, 3000, 3000))
def jaccard_of_sets(a: Array, b: Array) -> Array:
    """Overlaps of sets held as booleans."""
    both = a.astype(jnp.float32) @ b.astype(jnp.float32).T
    either = a.sum(1)[:, None] + b.sum(1) - both
    return (both / jnp.maximum(either, 1)).max(1)


@FIELD.add(shape(jnp.uint32, 4_000_000), shape(jnp.uint32, 1_000_000))
def hash_join(keys: Array, probes: Array) -> tuple[Array, Array]:
    """Keys mixed and sorted, probes looked up."""

    def mix(x: Array) -> Array:
        x = (x ^ (x >> 16)) * jnp.uint32(0x45D9F3B)
        return x ^ (x >> 13)

    ordered, places = lax.sort((mix(keys), jnp.arange(4_000_000, dtype=jnp.uint32)), num_keys=1)
    found = jnp.searchsorted(ordered, mix(probes))
    return places[found], ordered[found] == mix(probes)
