"""Shardy's collectives as StableHLO collectives on local shards."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ops.sizes import elements

from .mesh import Axes, Mesh, Sharding, parts

_MOVE = re.compile(r"(\{[^{}]*\}): (\d+)->(\d+)")
# StableHLO's number for a channel between the devices of a program.
_DEVICE_TO_DEVICE = 1


@dataclass(slots=True)
class Collectives:
    """Writes collectives at the current insertion point.

    channel: the last one in use. top: an op at the head of the function, before which values that all blocks read are
    written.
    """

    mesh: Mesh
    channel: int
    top: ir.Operation = field(init=False)
    _indices: dict[Axes, ir.Value] = field(default_factory=dict)

    def index(self, axes: Axes) -> ir.Value:
        """The index of this device's shard along `axes`, a tensor<i32>."""
        if axes not in self._indices:
            with ir.InsertionPoint(self.top), ir.Location.unknown():
                table = np.array(self.mesh.indices(axes), np.int32)
                kind = ir.RankedTensorType.get([len(table)], ir.IntegerType.get_signless(32))
                numbers = stablehlo.constant(elements(table, kind))
                unsigned = ir.RankedTensorType.get([], ir.IntegerType.get_unsigned(32))
                own = ir.Operation.create("stablehlo.partition_id", [unsigned]).results[0]
                place = build.convert(own, kind.element_type)
                one = build.slice_along(numbers, 0, place, 1)
                self._indices[axes] = stablehlo.reshape(build.with_shape(kind, []), one)
        return self._indices[axes]

    def number(self, axes: Axes, numbers: Sequence[int]) -> ir.Value:
        """The number of this device's shard, a tensor<i32>. numbers: by shard along these axes."""
        if len(set(numbers)) == 1:
            return build.scalar_i32(numbers[0])
        kind = ir.RankedTensorType.get([len(numbers)], ir.IntegerType.get_signless(32))
        table = stablehlo.constant(elements(np.array(numbers, np.int32), kind))
        one = build.slice_along(table, 0, self.index(axes), 1)
        return stablehlo.reshape(build.with_shape(kind, []), one)

    def offset(self, axes: Axes, size: int) -> ir.Value:
        """The start of this device's shard, a tensor<i32>. size: of each shard."""
        return stablehlo.multiply(self.index(axes), build.scalar_i32(size))

    def gather(self, value: ir.Value, dim: int, axes: Axes) -> ir.Value:
        """The concatenation of all shards along a dimension."""
        if parts(axes) == 1:
            return value
        shape = build.shape_of(value)
        shape[dim] *= parts(axes)
        if 0 in shape:  # StableHLO cannot gather an empty tensor
            return build.zeros(build.with_shape(build.tensor_of(value), shape))
        attributes = {"all_gather_dim": _i64(dim), **self._between(axes)}
        return _one(self._made("stablehlo.all_gather", value, shape, attributes))

    def part(self, value: ir.Value, dim: int, axes: Axes) -> ir.Value:
        """This device's shard along a dimension of a replicated tensor."""
        if parts(axes) == 1:
            return value
        size = build.shape_of(value)[dim] // parts(axes)
        return build.slice_along(value, dim, self.offset(axes, size), size)

    def reduce(self, value: ir.Value, axes: Axes, monoid: str) -> ir.Value:
        """All-reduce: the combined shards, on all devices of a group."""
        if parts(axes) == 1:
            return value
        made = self._made("stablehlo.all_reduce", value, build.shape_of(value), self._between(axes), regions=1)
        return _with_body(made, value, monoid)

    def reduce_scatter(self, value: ir.Value, dim: int, axes: Axes, monoid: str) -> ir.Value:
        """This device's shard along a dimension of the combined shards of a group."""
        if parts(axes) == 1:
            return value
        shape = build.shape_of(value)
        shape[dim] //= parts(axes)
        attributes = {"scatter_dimension": _i64(dim), **self._between(axes)}
        return _with_body(self._made("stablehlo.reduce_scatter", value, shape, attributes, regions=1), value, monoid)

    def all_to_all(self, value: ir.Value, axes: Axes, source: int, target: int) -> ir.Value:
        """Shard along `target` instead of `source`."""
        if parts(axes) == 1:
            return value
        shape, count = build.shape_of(value), parts(axes)
        shape[source] *= count
        shape[target] //= count
        attributes = {
            "split_dimension": _i64(target),
            "concat_dimension": _i64(source),
            "split_count": _i64(count),
            **self._between(axes),
        }
        del attributes["use_global_device_ids"]
        return _one(self._made("stablehlo.all_to_all", value, shape, attributes))

    def permute(self, value: ir.Value, before: Sharding, after: Sharding) -> ir.Value:
        """Send shards so that each device has the one of `after` instead of `before`."""
        pairs = np.array(sources_and_targets(self.mesh, before, after), np.int64)
        attributes = {"source_target_pairs": _pairs(pairs), "channel_handle": self._channel()}
        return _one(self._made("stablehlo.collective_permute", value, build.shape_of(value), attributes))

    def shift(self, value: ir.Value, axes: Axes, step: int) -> ir.Value:
        """The value of the previous device in the group, for a step of 1, or the next, for -1; zeros at the end."""
        pairs = list(pairwise(range(parts(axes))))
        return self.send(value, axes, pairs if step == 1 else [(high, low) for low, high in pairs])

    def turn(self, value: ir.Value, axes: Axes, step: int) -> ir.Value:
        """The value of the device `step` places further in the group, which is a ring."""
        if step % parts(axes) == 0:
            return value
        count = parts(axes)
        return self.send(value, axes, [((place + step) % count, place) for place in range(count)])

    def send(self, value: ir.Value, axes: Axes, pairs: Sequence[tuple[int, int]]) -> ir.Value:
        """The value of another device in the group: pairs of sender and receiver. Zeros for who receives nothing."""
        sent = [(group[source], group[target]) for group in self.mesh.groups(axes) for source, target in pairs]
        attributes = {"source_target_pairs": _pairs(np.array(sent, np.int64)), "channel_handle": self._channel()}
        return _one(self._made("stablehlo.collective_permute", value, build.shape_of(value), attributes))

    def _between(self, axes: Axes) -> dict[str, ir.Attribute]:
        groups = np.array(self.mesh.groups(axes), np.int64)
        return {
            "replica_groups": _pairs(groups),
            "channel_handle": self._channel(),
            "use_global_device_ids": ir.UnitAttr.get(),
        }

    def _channel(self) -> ir.Attribute:
        self.channel += 1
        return ir.Attribute.parse(f"#stablehlo.channel_handle<handle = {self.channel}, type = {_DEVICE_TO_DEVICE}>")

    def _made(
        self, name: str, value: ir.Value, shape: Sequence[int], attributes: dict[str, ir.Attribute], regions: int = 0
    ) -> ir.Operation:
        kind = build.with_shape(build.tensor_of(value), shape)
        return ir.Operation.create(name, [kind], [value], attributes, regions=regions)


def sources_and_targets(mesh: Mesh, before: Sharding, after: Sharding) -> list[tuple[int, int]]:
    """Pairs of sender and receiver, so that each device gets its shard; from itself if it already has it."""

    def part_of(place: int, sharding: Sharding) -> tuple[int, ...]:
        return tuple(mesh.index(place, axes) for axes in sharding)

    places = range(mesh.count)
    sources: dict[tuple[int, ...], list[int]] = {}
    targets: dict[tuple[int, ...], list[int]] = {}
    pairs = []
    for place in places:
        has, wants = part_of(place, before), part_of(place, after)
        if has == wants:
            pairs.append((place, place))
            continue
        sources.setdefault(has, []).append(place)
        targets.setdefault(wants, []).append(place)
    for part, wanting in targets.items():
        pairs += list(zip(sources[part], wanting, strict=True))
    return [(mesh.devices[source], mesh.devices[target]) for source, target in sorted(pairs)]


def moves_of(mesh: Mesh, op: ir.Operation) -> list[tuple[Axes, int, int]]:
    """The axes that a Shardy all_to_all moves, each with the source and the target dimension."""
    found = _MOVE.findall(str(op.attributes["params"]))
    return [(mesh.read_axes(axes), int(source), int(target)) for axes, source, target in found]


def _pairs(numbers: np.typing.NDArray[np.int64]) -> ir.Attribute:
    return elements(numbers, ir.RankedTensorType.get(list(numbers.shape), ir.IntegerType.get_signless(64)))


def _i64(number: int) -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)


def _with_body(op: ir.Operation, value: ir.Value, monoid: str) -> ir.Value:
    scalar = build.with_shape(build.tensor_of(value), [])
    block = op.regions[0].blocks.append(scalar, scalar)
    with ir.InsertionPoint(block):
        made = ir.Operation.create(f"stablehlo.{monoid}", [scalar], list(block.arguments))
        stablehlo.return_([made.results[0]])
    return _one(op)


def _one(op: ir.Operation) -> ir.Value:
    result: ir.Value = op.results[0]
    return result
