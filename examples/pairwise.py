"""Sums over all pairs of points as a user writes them in JAX: small inputs, small results, huge tensors between.

`python examples/pairwise.py DIRECTORY [POINTS]` writes the four kernels and their gradients as StableHLO modules.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp

POINTS = 4096
WIDTH = 3


def gravity(places: jax.Array, masses: jax.Array) -> jax.Array:
    """The acceleration of every body by all others: places (n, 3) and masses (n,) to (n, 3)."""
    apart = places[None, :, :] - places[:, None, :]
    squared = jnp.sum(apart**2, axis=-1) + 1e-2
    return jnp.sum((masses[None, :] * squared**-1.5)[:, :, None] * apart, axis=1)


def biot_savart(places: jax.Array, sources: jax.Array, currents: jax.Array) -> jax.Array:
    """The magnetic field of current elements: places (n, 3), sources and currents (m, 3) to (n, 3)."""
    apart = places[:, None, :] - sources[None, :, :]
    squared = jnp.sum(apart**2, axis=-1, keepdims=True) + 1e-2
    return jnp.sum(jnp.cross(currents[None, :, :], apart) * squared**-1.5, axis=1)


def rbf_sum(places: jax.Array, centres: jax.Array, weights: jax.Array) -> jax.Array:
    """A sum of Gaussians: places (n, 3), centres (m, 3) and weights (m,) to (n,)."""
    squared = jnp.sum((places[:, None, :] - centres[None, :, :]) ** 2, axis=-1)
    return jnp.exp(-0.5 * squared) @ weights


def nearest(places: jax.Array, centres: jax.Array) -> jax.Array:
    """The squared distance to the nearest centre: places (n, 3) and centres (m, 3) to (n,)."""
    return jnp.min(jnp.sum((places[:, None, :] - centres[None, :, :]) ** 2, axis=-1), axis=1)


def product_sum(rows: jax.Array, columns: jax.Array, weights: jax.Array) -> jax.Array:
    """A sum over a product of repeated tensors: (n, d), (m, d) and (d,) to one number."""
    return jnp.sum(rows[:, None, :] * columns[None, :, :] * weights)


def gradient(function: Callable[..., jax.Array], count: int) -> Callable[..., tuple[jax.Array, ...]]:
    """The gradient of the sum of the results, by all `count` arguments."""
    return jax.grad(lambda *arguments: jnp.sum(function(*arguments)), argnums=tuple(range(count)))


def kernels(points: int) -> dict[str, tuple[Callable[..., jax.Array], list[tuple[int, ...]]]]:
    """The four kernels by name, with the shapes of their arguments."""
    places, row = (points, WIDTH), (points,)
    return {
        "gravity": (gravity, [places, row]),
        "biot_savart": (biot_savart, [places, places, places]),
        "rbf_sum": (rbf_sum, [places, places, row]),
        "nearest": (nearest, [places, places]),
    }


def export(directory: Path, points: int = POINTS) -> list[Path]:
    """Write every kernel and its gradient to `directory`; return the paths."""
    paths = []
    for name, (function, shapes) in kernels(points).items():
        arguments = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
        for suffix, each in (("", function), ("_gradient", gradient(function, len(shapes)))):
            paths.append(directory / f"{name}{suffix}_{points}.mlir")
            paths[-1].write_text(jax.jit(each).lower(*arguments).as_text())
    return paths


def main() -> None:
    """Export the modules."""
    directory = Path(sys.argv[1])
    for path in export(directory, int(sys.argv[2]) if len(sys.argv) > 2 else POINTS):
        print(path)


if __name__ == "__main__":
    main()
