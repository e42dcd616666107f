"""Training steps of a scan over layers whose weights are fully sharded: gathered in the body, as people write them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from .program import Array, Program, grid, line, spec

_fixed = partial(lax.with_sharding_constraint)
_Layer = Callable[[Array, Any], Array]


def _dense(x: Array, w: Array) -> Array:
    return jnp.tanh(x @ w)


def _wide(x: Array, weights: tuple[Array, Array]) -> Array:
    """Two products, of which the weights take more than the states between layers."""
    return x + jax.nn.gelu(x @ weights[0]) @ weights[1]


def _scaled(x: Array, weights: tuple[Array, Array]) -> Array:
    """A vector that is read twice, so that its gradient is two sums over the devices."""
    w, scale = weights
    return jnp.tanh((x * scale) @ w) * scale


def step(
    layer: _Layer, mesh: Mesh, batch: str, weights: Any, x: Array, *, constrains: bool = True, again: bool = False
) -> Any:
    """The weights after a step. batch: the axis of x.

    constrains: whether states are sharded by constraints. again: jax.checkpoint.
    """
    own = NamedSharding(mesh, P(None, mesh.axis_names[-1]))

    def body(x: Array, w: Any) -> tuple[Array, None]:
        x = layer(x, jax.tree.map(lambda each: _fixed(each, NamedSharding(mesh, P())), w))
        return (_fixed(x, NamedSharding(mesh, P(batch))) if constrains else x), None

    def loss(weights: Any, x: Array) -> Array:
        out, _ = lax.scan(jax.checkpoint(body) if again else body, x, weights)
        return (out.astype(jnp.float32) ** 2).mean()

    gradients = jax.grad(loss)(weights, x)
    return jax.tree.map(lambda w, d: _fixed(w - 0.1 * _fixed(d, own), own), weights, gradients)


def made(layers: int, rows: int, width: int, gain: float) -> dict[str, Program]:
    """The programs by name, at a size. gain: as in Program, of the plain one."""
    one, two = line(), grid(4)

    def of(mesh: Mesh, gain: float, dtype: Any = jnp.float32, **options: bool) -> Program:
        batch, cut = mesh.axis_names[0], mesh.axis_names[-1]
        weights = spec(mesh, (layers, width, width), None, cut, dtype=dtype)
        x = spec(mesh, (rows, width), batch, dtype=dtype)
        return Program(partial(step, _dense, mesh, batch, **options), (weights, x), gain, {"donate_argnums": 0})

    scaled = spec(one, (layers, width, width), None, "d"), spec(one, (layers, width), None, "d")
    wide = spec(one, (layers, width, 4 * width), None, "d"), spec(one, (layers, 4 * width, width), None, "d")
    return {
        "scan, fully sharded": of(one, gain),
        "scan, fully sharded, unconstrained": of(one, gain, constrains=False),
        "scan, fully sharded, checkpoint": of(one, gain / 2, again=True),
        # Less on jaxlib 0.12, which keeps the original's states in bf16.
        "scan, fully sharded, bfloat16": of(one, 0.8 * gain, jnp.bfloat16),
        "scan, fully sharded on a grid": of(two, gain),
        "scan, fully sharded, scaled": Program(
            partial(step, _scaled, one, "d"), (scaled, spec(one, (rows, width), "d")), gain, {"donate_argnums": 0}
        ),
        "scan, fully sharded, wide": Program(
            partial(step, _wide, one, "d"), (wide, spec(one, (rows // 4, width), "d")), gain / 2, {"donate_argnums": 0}
        ),
    }
