"""The loop or branch of one tile: the same op on slices, with its blocks rebuilt as `block_search` found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.types import element_type
from exla_opt.ir.walk import operands_of, operations_of, walk_regions

from .block_flow import BlockFlow, ControlFactor
from .factor import DimMapping, Factor, LaidFactor
from .tile import Range, Tile
from .traits import Trait, has_trait

_LOOP = "stablehlo.while"


class _BuildTile(Protocol):
    """`tiling.build_tile`, which imports the definitions of all ops."""

    def __call__(
        self,
        op: ir.Operation,
        factor: Factor,
        operands: Sequence[ir.Value],
        start: ir.Value,
        operand_ranges: Sequence[Range | None],
        result_ranges: Sequence[Range | None],
        widens: bool = True,
    ) -> list[ir.Value]:
        """The results of one tile of an op."""


def build_control(tile: Tile, build_tile: _BuildTile) -> list[ir.Value]:
    """The results of a loop or branch on one tile. build_tile: `tiling.build_tile`, for the ops of the blocks."""
    op, factor = tile.op, tile.factor
    assert isinstance(factor, ControlFactor)
    [length, *_] = {high - low for low, high in filter(None, (*tile.operand_ranges, *tile.result_ranges))}
    count = len(op.operands)
    values = _Values(tile.start, length, build_tile)
    values.read(operands_of(op)[count:], factor.operands[count:], tile.operands[count:])
    given = list(tile.operands[:count])
    attributes = {op.attributes[place].name: op.attributes[place].attr for place in range(len(op.attributes))}
    types = [value.type for value in given] if op.name == _LOOP else list(tile.types)
    made = ir.Operation.create(op.name, types, given, attributes, regions=len(op.regions))
    if op.name == _LOOP:
        condition, body = (region.blocks[0] for region in op.regions)
        in_condition, in_body = (region.blocks.append(*types) for region in made.regions)
        with ir.InsertionPoint(in_condition):
            inner = values.inside()
            if factor.condition is None:
                inner.plain.update(zip(condition.arguments, in_condition.arguments, strict=True))
                stablehlo.return_(inner.copy(condition))
            else:
                inner.read(condition.arguments, factor.operands[:count], list(in_condition.arguments))
                stablehlo.return_(inner.run(condition, factor.condition))
        with ir.InsertionPoint(in_body):
            inner = values.inside()
            inner.read(body.arguments, factor.operands[:count], list(in_body.arguments))
            stablehlo.return_(inner.run(body, factor.flows[0]))
        return list(made.results)
    for region, new, flow in zip(op.regions, made.regions, factor.flows, strict=True):
        with ir.InsertionPoint(new.blocks.append()):
            stablehlo.return_(values.inside().run(region.blocks[0], flow))
    return list(made.results)


class _Values:
    """Maps values of the old blocks to the new ones: plain (unsplit or a partial sum), and in slices."""

    def __init__(self, start: ir.Value, length: int, build_tile: _BuildTile):
        self.start = start
        self.length = length
        self.build_tile = build_tile
        self.plain: dict[ir.Value, ir.Value] = {}
        self.cut: dict[tuple[ir.Value, DimMapping], ir.Value] = {}

    def inside(self) -> _Values:
        """A copy for a nested block, which sees all outer values."""
        made = _Values(self.start, self.length, self.build_tile)
        made.plain.update(self.plain)
        made.cut.update(self.cut)
        return made

    def read(
        self, values: Sequence[ir.Value], mappings: Sequence[DimMapping | None], given: Sequence[ir.Value]
    ) -> None:
        """Record replacements of some values."""
        for value, mapping, new in zip(values, mappings, given, strict=True):
            if mapping is None:
                self.plain[value] = new
            else:
                self.cut[value, mapping] = new

    def of(self, value: ir.Value, mapping: DimMapping | None) -> ir.Value:
        """A value, or its slice."""
        if mapping is None:
            return self.plain.get(value, value)
        key = (value, mapping)
        if key not in self.cut:
            begin = self.offset(mapping.inner)
            self.cut[key] = build.slice_along(
                self.plain.get(value, value), mapping.dim, begin, self.length * mapping.inner
            )
        return self.cut[key]

    def offset(self, scale: int) -> ir.Value:
        return self.start if scale == 1 else stablehlo.multiply(self.start, build.scalar_like(self.start, scale))

    def run(self, block: ir.Block, flow: BlockFlow) -> list[ir.Value]:
        """Build the block's ops for one tile; return the results."""
        *ops, last = operations_of(block)
        for place, op in enumerate(ops):
            with op.location:
                if flow.held.get(place):
                    self.barrier(op, flow.held[place])
                for laid in flow.tiles.get(place, ()):
                    self.tile(op, laid)
                if place in flow.plain:
                    self.clone(op)
        with last.location:
            return [self.of(value, mapping) for value, mapping in zip(last.operands, flow.returned, strict=True)]

    def tile(self, op: ir.Operation, laid: LaidFactor) -> None:
        if has_trait(op, Trait.CONTROL_FLOW) and laid.factor.is_unsplit():
            self.clone(op)  # the same in every tile, with the captures of its blocks
            return
        operands = [self.of(value, mapping) for value, mapping in zip(operands_of(op), laid.operands, strict=True)]
        place = (0, self.length * laid.scale)
        results = self.build_tile(
            op,
            laid.factor,
            operands,
            self.offset(laid.scale),
            [None if mapping is None else place for mapping in laid.operands],
            [None if mapping is None else place for mapping in laid.results],
            widens=False,
        )
        kept = [build.convert(new, element_type(old)) for old, new in zip(op.results, results, strict=True)]
        self.read(list(op.results), laid.results, kept)

    def barrier(self, op: ir.Operation, held: Sequence[tuple[int, DimMapping | None]]) -> None:
        """Build a barrier of those operands of the old one that exist in this tile."""
        given = [self.of(op.operands[index], mapping) for index, mapping in held]
        made = stablehlo.OptimizationBarrierOp(given).operation
        self.read([op.results[index] for index, _ in held], [mapping for _, mapping in held], list(made.results))

    def copy(self, block: ir.Block) -> list[ir.Value]:
        """Copy an entire block; return the results."""
        *ops, last = operations_of(block)
        for op in ops:
            self.clone(op)
        return [self.of(value, None) for value in last.operands]

    def clone(self, op: ir.Operation) -> None:
        made = op.clone(ip=ir.InsertionPoint.current).operation
        _replace_operands(made, self.plain)
        for region in made.regions:
            for block in region.blocks:
                for inner in walk_regions(block):
                    _replace_operands(inner, self.plain)
        self.plain.update(zip(op.results, made.results, strict=True))


def _replace_operands(op: ir.Operation, new: Mapping[ir.Value, ir.Value]) -> None:
    for index, value in enumerate(op.operands):
        if value in new:
            op.operands[index] = new[value]
