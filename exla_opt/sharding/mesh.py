"""Meshes of devices, and which part of a tensor each device has; as plain values, without IR.

The words are Shardy's: a mesh has axes, a dimension of a tensor is cut along a list of axes, the first of which is the
major one. A sub-axis is a part of an axis: of `size` places, each of which `pre` others come before.
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
    """A mesh axis, or a part of one. size: places along it. pre: into how many parts it is cut before."""

    name: str
    size: int
    pre: int = 1


Axes = tuple[Axis, ...]
# The axes of every dimension of a tensor; none for one that every device has all of.
Sharding = tuple[Axes, ...]


@dataclass(frozen=True, slots=True)
class Mesh:
    """name: its symbol in the module, or `mesh<...>` of one that has none. axes: (name, size), the major one first.
    devices: by place in the mesh.
    """

    name: str
    axes: tuple[tuple[str, int], ...]
    devices: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many devices there are."""
        return len(self.devices)

    def axis(self, name: str, pre: int | None = None, size: int | None = None) -> Axis:
        """An axis by its name, or a part of it. Raises KeyError for a name that the mesh lacks."""
        return Axis(name, dict(self.axes)[name] if size is None else size, pre or 1)

    def read_axes(self, text: str) -> Axes:
        """The axes in a text of Shardy's: `{"d", "m":(1)2}`."""
        return tuple(
            self.axis(name, int(pre) if pre else None, int(size) if size else None)
            for name, pre, size in _AXIS.findall(text)
        )

    def read_lists(self, text: str) -> list[Axes]:
        """The lists of axes in a text of Shardy's: `[{}, {"d"}]`."""
        return [self.read_axes(part) for part in _LIST.findall(text)]

    def index(self, place: int, axes: Axes) -> int:
        """Which part the device at a place of the mesh has of what is cut along these axes."""
        found = 0
        for axis in axes:
            found = found * axis.size + self._along(place, axis)
        return found

    def indices(self, axes: Axes) -> tuple[int, ...]:
        """The part of every device, by the number that the device has in the program."""
        parts = {device: self.index(place, axes) for place, device in enumerate(self.devices)}
        return tuple(parts[device] for device in range(self.count))

    def groups(self, axes: Axes) -> list[list[int]]:
        """The devices that differ in their part along these axes alone, each group in the order of the parts."""
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
        """The coordinate along an axis without what some parts of it say."""
        coordinate = self._coordinate(place, name)
        digits, before = [], 1
        for axis in sorted(cut, key=lambda each: each.pre):
            digits += [coordinate // (size // axis.pre) % (axis.pre // before)]
            before = axis.pre * axis.size
        return [*digits, coordinate % (size // before)]


def parts(axes: Axes) -> int:
    """Into how many parts these axes cut a dimension."""
    return prod(axis.size for axis in axes)


def local_shape(shape: Sequence[int], sharding: Sharding) -> list[int]:
    """The shape of the part that one device has. Raises ValueError where a dimension does not divide."""
    found = []
    for size, axes in zip(shape, sharding, strict=True):
        if size % parts(axes):
            raise ValueError(f"a dimension of {size} is cut into {parts(axes)} parts")
        found.append(size // parts(axes))
    return found


def is_replicated(sharding: Sharding) -> bool:
    """Whether every device has all of the tensor."""
    return not any(sharding)
