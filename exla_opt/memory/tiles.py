"""A body of control flow as it is in one tile: the block that was read of it, with its cut tensors smaller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from jaxlib.mlir import ir

from .block import Block, Operation, Shape
from .fusion import fuse
from .machine import Machine
from .schedule import run_block
from .seconds import seconds_in_cache, seconds_of


@dataclass(frozen=True, slots=True)
class CutBodies:
    """The bodies of control flow that is cut, in tiles of any length.

    dims: the dimension along which each of their values is cut. length: indices in all. scale: those of one index of
    a region. trips: how often they run. known: what was found, by the length of the tile.
    """

    bodies: list[Block]
    dims: dict[ir.Value, int]
    length: int
    scale: int
    trips: int
    machine: Machine
    known: dict[int, tuple[int, float]] = field(default_factory=dict)

    def in_tile(self, op: Operation, tile: int) -> Operation:
        """The op with what its bodies take in a tile of the region."""
        count = min(tile * self.scale, self.length)
        if count not in self.known:
            self.known[count] = self.cost(count)
        scratch, seconds = self.known[count]
        return replace(op, scratch=scratch, seconds=seconds)

    def cost(self, count: int) -> tuple[int, float]:
        """The bytes and the seconds of the bodies on some of the indices."""
        bodies = [tile_of(body, self.dims, count, self.length) for body in self.bodies]
        price = seconds_in_cache if self.machine.kind == "cpu" else seconds_of
        seconds = max(price(body, self.machine) for body in bodies) + self.machine.seconds_per_trip
        scratch = max(run_block(body, self.machine).peak for body in bodies)
        return scratch, self.trips * seconds

    def repeats(self, tile: int) -> float:
        """How many times the arithmetic of the bodies is done when all tiles of this length are: what is not cut is
        done again in each.
        """
        count = min(tile * self.scale, self.length)
        free = replace(self.machine, seconds_per_kernel=0.0, seconds_per_trip=0.0)
        parts = [[tile_of(body, self.dims, each, self.length) for body in self.bodies] for each in (count, self.length)]
        part, all_of_it = (sum(seconds_in_cache(body, free) for body in bodies) for bodies in parts)
        return part * self.length / count / all_of_it if all_of_it else 1.0

    def bytes_per_index(self) -> int:
        """The most that an index of the region takes of a tensor that the bodies write to memory."""
        if 0 not in self.known:
            most = max(most_written(body, self.dims, self.machine) for body in self.bodies)
            self.known[0] = (most, 0.0)
        return -(-self.known[0][0] * self.scale // self.length)


def tile_of(block: Block, dims: Mapping[ir.Value, int], tile: int, length: int) -> Block:
    """The block with `tile` of `length` indices of each cut tensor. dims: the dimension along which each is cut.

    What XLA makes of a cut tensor, a copy in another layout say, is smaller by as much.
    """
    made = block.copied()
    cut: dict[int, int] = {}  # by tensor, where the cut dimension stands in it

    def shrink(number: int, dim: int | None) -> None:
        made.sizes[number] = block.sizes[number] * tile // length
        if dim is not None:
            shape = list(block.shapes[number])
            shape[dim] = max(shape[dim] * tile // length, 1)
            made.shapes[number] = tuple(shape)
            cut[number] = dim

    for number, value in block.values.items():
        if value in dims:
            full = tuple(ir.RankedTensorType(value.type).shape)
            shrink(number, _place_of(block.shapes[number], full, dims[value], length))
    for op in block.ops:  # what only the compiler makes
        if op.name == "transpose" and op.operands[0] in cut and op.results[0] not in cut:
            source, [result] = op.operands[0], op.results
            shrink(result, _place_of(block.shapes[result], block.shapes[source], cut[source], length))
    made.ops = [
        replace(op, bodies=tuple(tile_of(body, dims, tile, length) for body in op.bodies)) if op.bodies else op
        for op in block.ops
    ]
    return made


def _place_of(shape: Shape, full: Shape, dim: int, length: int) -> int | None:
    """Where the cut dimension of a tensor of shape `full` stands in a copy, which may have another order or rank."""
    if shape == full:
        return dim
    alike = [place for place, size in enumerate(shape) if size == full[dim]]
    merged = [place for place, size in enumerate(shape) if size % length == 0]
    return next(iter(alike or merged), None)


def most_written(block: Block, dims: Mapping[ir.Value, int], machine: Machine) -> int:
    """The bytes of the largest cut tensor that the block, or one inside it, writes to memory."""
    written = fuse(block, machine).tensors()
    most = max((block.sizes[number] for number in written if block.values.get(number) in dims), default=0)
    inner = (most_written(body, dims, machine) for op in block.ops for body in op.bodies)
    return max(most, *inner, 0)
