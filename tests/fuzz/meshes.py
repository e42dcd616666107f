"""Random meshes of devices, and how tensors are spread over them, as jax writes it for Shardy."""

from __future__ import annotations

import random
from collections.abc import Sequence

from exla_opt.sharding.mesh import Axis, Mesh, Sharding, local_shape, parts

_SHAPES = ((8,), (8,), (2, 4), (2, 4), (4, 2), (2, 2, 2), (1, 8), (8, 1), (2, 1, 4))


def drawn_mesh(rng: random.Random) -> Mesh:
    """Eight devices along one to three axes, at times in another order."""
    shape = rng.choice(_SHAPES)
    devices = list(range(8))
    if rng.random() < 0.2:
        rng.shuffle(devices)
    return Mesh("mesh", tuple(zip("dme", shape, strict=False)), tuple(devices))


def axes_of(mesh: Mesh) -> list[Axis]:
    """All axes of a mesh."""
    return [mesh.axis(name) for name, _ in mesh.axes]


def drawn_sharding(
    rng: random.Random, axes: Sequence[Axis], shape: Sequence[int], *, evenly: bool = True, least: float = 0.3
) -> Sharding:
    """Each axis along some dimension or none. evenly: only where it divides what is left. least: how often none."""
    found: list[tuple[Axis, ...]] = [()] * len(shape)
    for axis in rng.sample(list(axes), len(axes)):
        dims = [dim for dim, size in enumerate(shape) if not evenly or not size % parts((*found[dim], axis))]
        if dims and rng.random() > least:
            dim = rng.choice(dims)
            found[dim] = (*found[dim], axis)
    return tuple(found)


def whole_shape(shape: Sequence[int], sharding: Sharding) -> tuple[int, ...]:
    """The shape of a tensor whose parts have `shape`."""
    return tuple(size * parts(axes) for size, axes in zip(shape, sharding, strict=True))


def part_shape(shape: Sequence[int], sharding: Sharding) -> tuple[int, ...]:
    """The shape of the part of one device."""
    return tuple(local_shape(shape, sharding))


def spelled(sharding: Sharding, *, more: Sequence[bool] = ()) -> str:
    """A sharding as text: `<@mesh, [{"d"}, {}]>`. more: the dimensions that may be cut further."""
    opened = more or [False] * len(sharding)
    dims = [
        "{" + ", ".join([f'"{axis.name}"' for axis in axes] + ["?"] * free) + "}"
        for axes, free in zip(sharding, opened, strict=True)
    ]
    return f"<@mesh, [{', '.join(dims)}]>"


def module_around(body: str, mesh: Mesh) -> str:
    """A module for the devices of a mesh with these functions."""
    axes = ", ".join(f'"{name}"={size}' for name, size in mesh.axes)
    order = "" if mesh.devices == tuple(range(mesh.count)) else f", device_ids={list(mesh.devices)}"
    head = f"module @m attributes {{mhlo.num_partitions = {mesh.count} : i32, mhlo.num_replicas = 1 : i32}} {{\n"
    return f"{head}sdy.mesh @mesh = <[{axes}]{order}>\n{body}}}\n"
