"""Meshes of devices, and the shard of a tensor on each device; as plain values, without IR.

The terms are Shardy's: a mesh has axes, and a dimension of a tensor is sharded along a list of axes, the major one
first. A sub-axis is a part of an axis: it has `size` positions, and `pre` is the number of parts of the axis before it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

# `"d"` or `"d":(2)4`, as Shardy prints an axis.
_AXIS = re.compile(r'"((?:[^"\\]|\\.)*)"(?::\((\d+)\)(\d+))?')
_LIST = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class Axis:
    """A mesh axis, or a sub-axis. size: positions along it. pre: the number of parts that it subdivides."""

    name: str
    size: int
    pre: int = 1


Axes = tuple[Axis, ...]
# The axes of every dimension of a tensor; empty if the tensor is replicated.
Sharding = tuple[Axes, ...]


@dataclass(frozen=True, slots=True)
class Mesh:
    """name: its symbol in the module, or `mesh<...>` if it has none. axes: (name, size), the major one first.
    devices: by position in the mesh.
    """

    name: str
    axes: tuple[tuple[str, int], ...]
    devices: tuple[int, ...]

    @property
    def count(self) -> int:
        """The number of devices."""
        return len(self.devices)

    def axis(self, name: str, pre: int | None = None, size: int | None = None) -> Axis:
        """An axis by its name, or a sub-axis. Raises KeyError for a name that the mesh lacks."""
        return Axis(name, dict(self.axes)[name] if size is None else size, pre or 1)

    def read_axes(self, text: str) -> Axes:
        """The axes in Shardy's notation: `{"d", "m":(1)2}`."""
        return tuple(
            self.axis(name, int(pre) if pre else None, int(size) if size else None)
            for name, pre, size in _AXIS.findall(text)
        )

    def read_lists(self, text: str) -> list[Axes]:
        """The lists of axes in Shardy's notation: `[{}, {"d"}]`."""
        return [self.read_axes(part) for part in _LIST.findall(text)]

    def index(self, place: int, axes: Axes) -> int:
        """The index along these axes of the shard on the device at a position of the mesh."""
        found = 0
        for axis in axes:
            found = found * axis.size + self._along(place, axis)
        return found

    def indices(self, axes: Axes) -> tuple[int, ...]:
        """The shard index of every device, by the device's number in the program."""
        parts = {device: self.index(place, axes) for place, device in enumerate(self.devices)}
        return tuple(parts[device] for device in range(self.count))

    def groups(self, axes: Axes) -> list[list[int]]:
        """The groups of devices that differ only in position along these axes, each in the order of the shards."""
        found: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        for place, device in enumerate(self.devices):
            rest = tuple(
                number
                for name, size in self.axes
                for number in self._others(place, name, size, [axis for axis in axes if axis.name == name])
            )
            found.setdefault(rest, []).append((self.index(place, axes), device))
        return [[device for _, device in sorted(group)] for group in found.values()]

    def _coordinate(self, place: int, name: str) -> int:
        after = 1
        for other, size in reversed(self.axes):
            if other == name:
                return place // after % size
            after *= size
        raise KeyError(name)

    def _along(self, place: int, axis: Axis) -> int:
        size = dict(self.axes)[axis.name]
        return self._coordinate(place, axis.name) // (size // (axis.pre * axis.size)) % axis.size

    def _others(self, place: int, name: str, size: int, cut: Sequence[Axis]) -> list[int]:
        """The coordinate along an axis, without the digits of these sub-axes."""
        coordinate = self._coordinate(place, name)
        digits, before = [], 1
        for axis in sorted(cut, key=lambda each: each.pre):
            digits += [coordinate // (size // axis.pre) % (axis.pre // before)]
            before = axis.pre * axis.size
        return [*digits, coordinate % (size // before)]


def parts(axes: Axes) -> int:
    """The number of shards along these axes."""
    return prod(axis.size for axis in axes)


def local_shape(shape: Sequence[int], sharding: Sharding) -> list[int]:
    """The shape of a local shard. Raises ValueError if a dimension is not divisible."""
    found = []
    for size, axes in zip(shape, sharding, strict=True):
        if size % parts(axes):
            raise ValueError(f"a dimension of {size} is cut into {parts(axes)} parts")
        found.append(size // parts(axes))
    return found


def is_replicated(sharding: Sharding) -> bool:
    """Whether every device has the entire tensor."""
    return not any(sharding)
