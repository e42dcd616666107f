"""One program for eight devices, and the meshes and shardings of its arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

Array = Any
DEVICES = 8


@dataclass(frozen=True)
class Program:
    """A function and the shapes, types and shardings of its arguments.

    gain: how many times less temporary memory each device should need at the least when it is split; 1 where it may go
    out as it came, 0 where it should. options: of jax.jit. alone: whether results are also compared with
    those of one device.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    gain: float = 1.0
    options: dict[str, Any] = field(default_factory=dict)
    alone: bool = False


def line(kind: AxisType = AxisType.Auto) -> Mesh:
    return jax.make_mesh((8,), ("d",), axis_types=(kind,))


def grid(rows: int = 2) -> Mesh:
    return jax.make_mesh((rows, 8 // rows), ("d", "m"), axis_types=(AxisType.Auto,) * 2)


def shuffled() -> Mesh:
    return Mesh(np.array(jax.devices())[[0, 2, 4, 6, 1, 3, 5, 7]].reshape(2, 4), ("d", "m"))


def spec(mesh: Mesh, shape: tuple[int, ...], *axes: str | tuple[str, ...] | None, dtype: Any = jnp.float32) -> Array:
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*axes)))
