"""A body of control flow within one tile: the block that was read from it, with its split tensors smaller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from jaxlib.mlir import ir

from exla_opt.ops.block_flow import BlockFlow, ControlFactor
from exla_opt.ops.traits import Trait

from .block import Block, Operation, Shape
from .fusion import fuse
from .machine import Machine
from .schedule import run_block
from .seconds import seconds_in_cache, seconds_of, seconds_of_ops


@dataclass(frozen=True, slots=True)
class _Cost:
    """The cost of bodies: bytes, and seconds of all trips."""

    bytes: int
    seconds: float


@dataclass(frozen=True)
class Bodies:
    """The unsplit bodies of control flow.

    trips: the trip count. found: the results of `bytes_once_cut`.
    """

    blocks: list[Block]
    trips: int
    machine: Machine
    found: dict[int, int] = field(default_factory=dict)

    @cached_property
    def cost(self) -> _Cost:
        return self.cost_of(self.blocks)

    def bytes_once_cut(self, most: int) -> int:
        """The bytes of the bodies once their own big tensors are split to this many bytes."""
        if most not in self.found:
            self.found[most] = max(run_block(once_cut(block, most), self.machine).peak for block in self.blocks)
        return self.found[most]

    def cost_of(self, blocks: list[Block]) -> _Cost:
        """The cost of the bodies if they are these."""
        price = seconds_in_cache if self.machine.kind == "cpu" else seconds_of
        seconds = max(price(block, self.machine) for block in blocks) + self.machine.seconds_per_trip
        return _Cost(max(run_block(block, self.machine).peak for block in blocks), self.trips * seconds)

    @cached_property
    def arithmetic(self) -> float:
        """The seconds of the arithmetic of one trip."""
        return sum(sum(seconds_of_ops(block, self.machine, any_shape=True)) for block in self.blocks)

    @cached_property
    def written(self) -> list[tuple[ir.Value, int]]:
        """The tensors that the bodies, and those inside them, write to memory, with their bytes."""
        found = []
        stack = list(self.blocks)
        while stack:
            block = stack.pop()
            written = fuse(block, self.machine, sums_alone=True).tensors()
            found += [(block.values[number], block.sizes[number]) for number in written if number in block.values]
            stack += [body for op in block.ops for body in op.bodies]
        return found


@dataclass(frozen=True)
class CutBodies:
    """The bodies of split control flow, in tiles of any length.

    factor: how they are split. scale: the indices of the factor per index of a region.
    """

    bodies: Bodies
    factor: ControlFactor
    scale: int

    @property
    def length(self) -> int:
        """The total number of indices."""
        return self.factor.size

    @cached_property
    def dims(self) -> dict[ir.Value, int]:
        """The dimension along which each of their values is split."""
        return self.factor.cut_dims()

    def in_tile(self, op: Operation, tile: int) -> Operation:
        """The op with the cost of its bodies in a tile of the region.

        Computed for one index and for all, and interpolated: between them it is no more than in proportion, as the peak
        is a maximum of sums of tensors that grow with the tile or stay.
        """
        part = self.part(tile)
        scratch = int(self.one.bytes + part * (self.entire.bytes - self.one.bytes))
        seconds = self.one.seconds + part * (self.entire.seconds - self.one.seconds)
        return replace(op, scratch=scratch, seconds=seconds)

    def bytes_once_cut(self, tile: int, most: int) -> int:
        """The bytes of the bodies in a tile of the region once their own big tensors are split to this many bytes."""
        indices = min(tile * self.scale, self.length)
        blocks = [once_cut(tile_of(block, self.dims, indices, self.length), most) for block in self.bodies.blocks]
        return max(run_block(block, self.bodies.machine).peak for block in blocks)

    def part(self, tile: int) -> float:
        """The position of a tile between one index, 0, and all, 1."""
        return (min(tile * self.scale, self.length) - 1) / (self.length - 1)

    def repeats(self, tile: int) -> float:
        """How many times all tiles of this length do the arithmetic of the bodies: each repeats the unsplit part."""
        entire = self.bodies.trips * self.bodies.arithmetic
        return self.work_in(tile) / self.share(tile) / entire if entire else 1.0

    def work_in(self, tile: int) -> float:
        """The seconds of the arithmetic of all trips in one tile of this length."""
        unsplit, cut = self.arithmetic
        return self.bodies.trips * (unsplit + self.share(tile) * cut)

    def share(self, tile: int) -> float:
        """The fraction of all indices in a tile of this length."""
        return min(tile * self.scale, self.length) / self.length

    def bytes_per_index(self) -> int:
        """The most bytes per index of the region in any tensor that the bodies write to memory."""
        most = max((size for value, size in self.bodies.written if value in self.dims), default=0)
        return -(-most * self.scale // self.length)

    @cached_property
    def least(self) -> list[Block]:
        """The bodies in a tile of one index."""
        return [tile_of(block, self.dims, 1, self.length) for block in self.bodies.blocks]

    @cached_property
    def arithmetic(self) -> tuple[float, float]:
        """The seconds of one trip's arithmetic: of the part that each tile repeats, and of the split part in all."""
        blocks = zip(self.bodies.blocks, self.factor.flows, strict=True)
        found = [_arithmetic(block, flow, self.dims, self.bodies.machine) for block, flow in blocks]
        return sum(unsplit for unsplit, _ in found), sum(cut for _, cut in found)

    @cached_property
    def one(self) -> _Cost:
        return self.bodies.cost_of(self.least)

    @property
    def entire(self) -> _Cost:
        return self.bodies.cost


def _arithmetic(block: Block, flow: BlockFlow, dims: Mapping[ir.Value, int], machine: Machine) -> tuple[float, float]:
    """The seconds of a body's arithmetic that every tile repeats, and of the slices in all tiles.

    An op that is needed both unsplit and in slices counts in both; a compiler's op counts with the op that it is for.
    dims: the split dimension of each value that exists only in tiles.
    """
    unsplit, cut = 0.0, 0.0
    for op, seconds in zip(block.ops, seconds_of_ops(block, machine, any_shape=True), strict=True):
        value = block.values.get(op.results[0]) if op.results else None
        place = None if value is None else flow.place.get(value)
        if place is None:  # for an argument or a capture, or moved out of an inner loop
            is_cut = value in dims
            unsplit, cut = unsplit + seconds * (not is_cut), cut + seconds * is_cut
            continue
        unsplit += seconds * (place in flow.plain)
        for laid in flow.tiles.get(place, ()):
            if not isinstance(laid.factor, ControlFactor):
                cut += seconds
                continue
            for body, inner in zip(op.bodies, laid.factor.flows, strict=True):
                same, sliced = _arithmetic(body, inner, dims, machine)
                unsplit, cut = unsplit + op.trips * same, cut + op.trips * sliced
    return unsplit, cut


def once_cut(block: Block, most: int) -> Block:
    """The block once its own big tensors are split: each takes at most this many bytes.

    Results, tensors written in place and carries of inner loops stay unsplit.
    """
    made = block.copied()
    kept = set(block.returned)
    for op in block.ops:
        if not op.traits & (Trait.CONTROL_FLOW | Trait.IN_PLACE):
            for number in op.results:
                if number not in kept:
                    made.sizes[number] = min(made.sizes[number], most)
    made.ops = [
        replace(op, bodies=tuple(once_cut(body, most) for body in op.bodies)) if op.bodies else op for op in block.ops
    ]
    return made


def tile_of(block: Block, dims: Mapping[ir.Value, int], tile: int, length: int) -> Block:
    """The block with `tile` of `length` indices of each split tensor. dims: the split dimension of each.

    XLA's own versions of a split tensor, such as copies in another layout, shrink in proportion.
    """
    made = block.copied()
    cut: dict[int, int] = {}  # by tensor, the position of the split dimension

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
    for op in block.ops:  # ops that only the compiler makes
        if op.name in ("convert", "transpose") and op.operands[0] in cut and op.results[0] not in cut:
            source, [result] = op.operands[0], op.results
            shrink(result, _place_of(block.shapes[result], block.shapes[source], cut[source], length))
    made.ops = [
        replace(op, bodies=tuple(tile_of(body, dims, tile, length) for body in op.bodies)) if op.bodies else op
        for op in block.ops
    ]
    return made


def _place_of(shape: Shape, full: Shape, dim: int, length: int) -> int | None:
    """The position of the split dimension of a tensor of shape `full` in a copy, whose order or rank may differ."""
    if shape == full:
        return dim
    alike = [place for place, size in enumerate(shape) if size == full[dim]]
    merged = [place for place, size in enumerate(shape) if size % length == 0]
    return next(iter(alike or merged), None)
