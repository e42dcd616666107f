"""Whether a tile of an op depends on nothing but the tile's operands, so that it may hold any rows, in any order."""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.build import shape_of
from exla_opt.ir.walk import operands_of, operations_of

from .block_flow import BlockFlow, ControlFactor
from .factor import DimMapping, Factor, Kind
from .index_numbers import GATHER, numbers_of
from .shifts import may_shift
from .tiling import is_alike_anywhere, may_reach


def is_by_row(op: ir.Operation, factor: Factor) -> bool:
    """Whether each index of a factor of an op is computed alike, from the same index of all operands that carry it.

    Not if an op reads a slice of an unsplit tensor at the tile's start, or counts from there.
    """
    if factor.kind is not Kind.INDEPENDENT or factor.summed or factor.reaches or not _is_whole(op, factor):
        return False
    if isinstance(factor, ControlFactor):
        return _is_control_by_row(op, factor)
    if not may_reach(op, factor):
        return False
    if op.name == GATHER and factor.operands[0] is None:  # rows at other indices
        place = factor.results[0]
        return place is not None and factor.operands[1] is not None and place.dim not in numbers_of(op).windows
    return (may_shift(op.name) and factor.operands[0] is not None) or is_alike_anywhere(op, factor)


def _is_whole(op: ir.Operation, factor: Factor) -> bool:
    """Whether every tensor that carries the factor has all of its indices, and nothing else along that dimension."""
    pairs = [*zip(operands_of(op), factor.operands, strict=True), *zip(op.results, factor.results, strict=True)]
    return all(
        mapping.low == 0
        and mapping.length == factor.size
        and shape_of(value)[mapping.dim] == mapping.length * mapping.inner
        for value, mapping in pairs
        if mapping is not None
    )


def _is_control_by_row(op: ir.Operation, factor: ControlFactor) -> bool:
    """Whether all ops in the blocks are computed by row, and no block cuts a slice from an unsplit value."""
    if factor.condition is not None:
        return False
    blocks = [region.blocks[0] for region in op.regions][len(op.regions) - len(factor.flows) :]
    given = {*zip(operands_of(op), factor.operands, strict=True)}
    return all(_is_block_by_row(block, flow, given) for block, flow in zip(blocks, factor.flows, strict=True))


def _is_block_by_row(block: ir.Block, flow: BlockFlow, given: set[tuple[ir.Value, DimMapping | None]]) -> bool:
    """As above, for one block. given: the operands and captures, as the tile reads them."""
    ops = operations_of(block)
    cut = given | {(value, mapping) for value, mapping in flow.cut.items() if value in list(block.arguments)}
    read = [(value, mapping) for value, mapping in zip(ops[-1].operands, flow.returned, strict=True)]
    for place, op in enumerate(ops):
        read += [(op.operands[index], mapping) for index, mapping in flow.held.get(place, ())]
        cut.update((op.results[index], mapping) for index, mapping in flow.held.get(place, ()))
        for laid in flow.tiles.get(place, ()):
            if laid.offset or not (laid.factor.is_unsplit() or is_by_row(op, laid.factor)):
                return False
            read += zip(operands_of(op), laid.operands, strict=True)
            cut.update(zip(op.results, laid.results, strict=True))
    return all(mapping is None or (value, mapping) in cut for value, mapping in read)
