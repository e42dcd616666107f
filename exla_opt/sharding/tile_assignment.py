"""Shardings in the notation of GSPMD, the older partitioner, and their common axes; without IR.

    {devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}

splits a matrix into 4 x 1 shards, each on 2 devices. The devices are numbered along [2,4], and read in the order of the
transpose. GSPMD names no axes: here an axis is a run of equally spaced devices.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np

from .mesh import Axis, Mesh, Sharding, parts

_TILES = re.compile(
    r"\{devices=\[(?P<tiles>[\d,]+)\](?:<=\[(?P<counted>[\d,]+)\](?:T\((?P<order>[\d,]+)\))?|(?P<listed>[\d,]+))"
    r"(?P<last> last_tile_dim_replicate| last_tile_dims=\{(?P<kinds>[a-z, ]+)\})?\}"
)
_KINDS = ("manual", "replicated")


class NoAxes(Exception):
    """A sharding that mesh axes cannot express; the message is a clause that names it."""


@dataclass(frozen=True, slots=True)
class Run:
    """`size` devices with numbers `stride` apart."""

    size: int
    stride: int


@dataclass(frozen=True, slots=True)
class Tiles:
    """A parsed GSPMD sharding. tiles: the number of shards of each dimension.

    groups: tiles, manual and kept (the numbers of shards that are manual, and of copies) in the order in which the
    devices are read. runs: the devices in that order, the outermost run first. is_manual: all of it is manual.
    """

    tiles: tuple[int, ...] = ()
    groups: tuple[tuple[str, int], ...] = ()
    runs: tuple[Run, ...] = ()
    is_manual: bool = False

    def rank_is(self, rank: int) -> bool:
        """Whether the sharding fits a tensor of this rank."""
        return not self.groups or len(self.tiles) == rank


def read_tiles(text: str) -> Tiles:
    """Parse a sharding. Raises NoAxes for a single device, and for devices in no regular order."""
    if text == "{replicated}":
        return Tiles()
    if text == "{manual}":
        return Tiles(is_manual=True)
    found = _TILES.fullmatch(text)
    if found is None:
        raise NoAxes(f"a sharding is {text}")
    sizes = _numbers(found["tiles"])
    kinds = [] if not found["last"] else (found["kinds"] or "replicated").split(", ")
    if any(kind not in _KINDS for kind in kinds):
        raise NoAxes(f"a sharding is {text}")
    rank = len(sizes) - len(kinds)
    groups = [("tile", size) for size in sizes[:rank]] + list(zip(kinds, sizes[rank:], strict=True))
    return Tiles(tuple(sizes[:rank]), tuple(groups), _runs(_devices(found), text))


def common_mesh(name: str, count: int, shardings: Iterable[Tiles]) -> Mesh:
    """The mesh of `count` devices with the coarsest axes that express all shardings. Raises NoAxes."""
    known = list(shardings)
    strides = {1, count}
    for tiles in known:
        if prod(run.size for run in tiles.runs) not in (1, count):
            raise NoAxes("a sharding names other devices than those of the module")
        for run in tiles.runs:
            strides |= {run.stride, run.stride * run.size}
    before = 0
    while before != len(strides):
        before = len(strides)
        _check_chain(strides)
        for tiles in known:
            strides |= _ends_of_groups(tiles, sorted(strides))
    ends = sorted(strides)
    sizes = [above // below for below, above in pairwise(ends)]
    axes = tuple((f"axis_{place}", size) for place, size in enumerate(reversed(sizes)))
    return Mesh(name, axes or (("axis_0", 1),), tuple(range(count)))


def axes_of(tiles: Tiles, rank: int, mesh: Mesh) -> tuple[Sharding, frozenset[str]]:
    """The axes of every dimension in a mesh from `common_mesh`, and the manual ones."""
    if tiles.is_manual:
        return ((),) * rank, frozenset(name for name, _ in mesh.axes)
    if not tiles.groups:
        return ((),) * rank, frozenset()
    strides, stride = {}, 1
    for name, size in reversed(mesh.axes):
        strides[stride] = Axis(name, size)
        stride *= size
    left = [strides[end] for end, _ in _split(tiles, [*strides, stride]) if end in strides]
    found: list[tuple[Axis, ...]] = []
    manual: set[str] = set()
    for kind, size in tiles.groups:
        own: list[Axis] = []
        while parts(tuple(own)) < size:
            own.append(left.pop(0))
        if kind == "tile":
            found.append(tuple(own))
        elif kind == "manual":
            manual |= {axis.name for axis in own}
    return tuple(found), frozenset(manual)


def spelled(sharding: Sharding, mesh: Mesh) -> str:
    """A sharding over a mesh in GSPMD's notation; each device keeps its shard."""
    sizes = [parts(axes) for axes in sharding]
    kept = mesh.count // prod(sizes)
    if kept == mesh.count:
        return "{replicated}"
    own = [tuple(mesh.index(place, axes) for axes in sharding) for place in range(mesh.count)]
    order = sorted(range(mesh.count), key=lambda place: (own[place], place))
    devices = [mesh.devices[place] for place in order]
    tiles = ",".join(map(str, sizes + [kept] * (kept > 1)))
    return f"{{devices=[{tiles}]{_listed(devices)}{' last_tile_dim_replicate' * (kept > 1)}}}"


def _listed(devices: Sequence[int]) -> str:
    try:
        runs = _runs(devices, "")
    except NoAxes:
        return ",".join(map(str, devices))
    counted = sorted(runs, key=lambda run: run.stride, reverse=True)
    order = [counted.index(run) for run in runs]
    turned = f"T({','.join(map(str, order))})" if order != sorted(order) else ""
    return f"<=[{','.join(str(run.size) for run in counted)}]{turned}"


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _devices(found: re.Match[str]) -> list[int]:
    if found["listed"]:
        return _numbers(found["listed"])
    counted = _numbers(found["counted"])
    order = _numbers(found["order"]) if found["order"] else list(range(len(counted)))
    return [int(number) for number in np.arange(prod(counted)).reshape(counted).transpose(order).ravel()]


def _runs(devices: Sequence[int], text: str) -> tuple[Run, ...]:
    """The runs in a list of devices, the outermost first. Raises NoAxes if there are none."""
    left = np.asarray(devices)
    found: list[Run] = []
    while len(left) > 1:
        stride = int(left[1] - left[0])
        steps = left - left[0] != stride * np.arange(len(left))
        size = int(steps.argmax()) if steps.any() else len(left)
        if stride < 1 or len(left) % size:
            raise NoAxes(f"the devices of {text} are in no regular order")
        found.append(Run(size, stride))
        left = left[::size]
    found.reverse()
    counted = np.zeros(1, int)
    for run in found:
        counted = (counted[:, None] + run.stride * np.arange(run.size)).ravel()
    if sorted(devices) != list(range(len(devices))) or list(devices) != counted.tolist():
        raise NoAxes(f"the devices of {text} are in no regular order")
    return tuple(found) or (Run(1, 1),)


def _check_chain(strides: Iterable[int]) -> None:
    if any(above % below for below, above in pairwise(sorted(strides))):
        raise NoAxes("its shardings have no axes in common")


def _split(tiles: Tiles, strides: Sequence[int]) -> list[tuple[int, int]]:
    """The runs split at these strides, the outermost first: each as its stride and its size. strides: ascending."""
    found = []
    for run in tiles.runs:
        ends = [end for end in strides if run.stride <= end <= run.stride * run.size]
        found += [(below, above // below) for below, above in reversed(list(pairwise(ends)))]
    return found


def _ends_of_groups(tiles: Tiles, strides: Sequence[int]) -> set[int]:
    """Where to split runs further, so that each group has runs of its own. Raises NoAxes."""
    found: set[int] = set()
    left = _split(tiles, strides)
    for _, size in tiles.groups:
        while size > 1:
            stride, own = left.pop(0)
            if not size % own:
                size //= own
            elif not own % size:
                found.add(stride * (own // size))
                left.insert(0, (stride, own // size))
                size = 1
            else:
                raise NoAxes("its shardings have no axes in common")
    return found
