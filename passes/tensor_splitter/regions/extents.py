"""How much longer than its own part each tile of a region is, where ops read more than their part. Analysis only.

A tile of a chain of convolutions, [a, b) of the last one, needs rows [a - 1, b + 1) of the one before it, and [a - 2,
b + 2) of the one before that. Those rows are computed twice, by two tiles; beyond the ends of the tensor they are no
rows at all, and what reads them puts its padding in their place (`exla_opt/ops/overlaps.py`).

What a loop brings out or adds up is its own part alone, so nothing is written or counted twice.

NOTE [Periods]: what an op reads over the ends of as of a ring, as a roll does, has to be that of the other end there.
So has all that it is made of: rows [a - 1, b + 1) of two rolls are made of [a - 2, b + 2) of the tensor, of which those
beyond an end are read at the other. An op that asks where it stands cannot be computed there, but as a shift, whose
positions are counted in the ring as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from exla_opt.ops.rules import DimMapping, Kind
from exla_opt.ops.shifts import is_turned, may_shift
from exla_opt.ops.tiling import goes_round, may_reach
from exla_opt.ops.traits import Trait
from exla_opt.remarks import Reason

from ..graph import Graph, Node, TiledOp
from .loops import Refusal
from .region import Producers, Region, Stage

# By position of an op: the region's indices before and after its own that its tiles have.
Extents = Mapping[int, tuple[int, int]]
# By position of an op: after how many indices its operands are the same again (see NOTE [Periods]).
Periods = Mapping[int, int]
_NONE = (0, 0)


def find_extents(graph: Graph, region: Region, producers: Producers, stage: Stage) -> Extents:
    """The extents of the ops of one stage that have any."""
    if not region.reaches():
        return {}
    found: dict[int, tuple[int, int]] = {}
    for position in reversed(stage.nodes):
        tiled = region.tiled[position]
        for index, producer in enumerate(producers[position]):
            if producer is None or tiled.operands[index] is None:
                continue
            found[producer] = longer(found.get(producer, _NONE), read_extent(tiled, index, found))
    return {position: extent for position, extent in found.items() if extent != _NONE}


def read_extent(tiled: TiledOp, index: int, extents: Extents) -> tuple[int, int]:
    """The indices before and after its own that a tile reads of an operand; fewer than none where it reads less."""
    before, after = extents.get(tiled.node, _NONE)
    more, further = tiled.reach(index)
    return before + more, after + further


def longer(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """What both need."""
    return max(one[0], other[0]), max(one[1], other[1])


def find_periods(graph: Graph, region: Region) -> Periods | Refusal:
    """The periods of what the region's ops read, or which of them cannot read or make a tensor that has one."""
    if not any(tiled.factor.period for tiled in region.tiled.values()):
        return {}
    found: dict[int, int] = {}
    wanted: dict[int, int] = {}
    for position in sorted(region.tiled, reverse=True):
        tiled, node = region.tiled[position], graph.nodes[position]
        asked = {wanted[value] for value in node.results if value in wanted}
        periods = asked | ({tiled.factor.period} if tiled.factor.period else set())
        if not periods:
            continue
        own = periods.pop()
        held = [mapping for mapping in tiled.operands if mapping is not None]
        if periods or any(mapping.inner != 1 for mapping in held) or (asked and _asks_where(node, tiled, own)):
            return _refuse_rings(position)
        if asked and not goes_round(node.op, tiled.factor):
            return Refusal(
                Reason("EX301", f"{node.name} cannot be computed on slices that wrap around its ends"), position
            )
        found[position] = own
        for value, mapping in zip(node.operands, tiled.operands, strict=True):
            if mapping is None:
                continue
            if wanted.setdefault(value, own) != own:
                return _refuse_rings(position)
    return found


def _asks_where(node: Node, tiled: TiledOp, period: int) -> bool:
    """Whether an op asks where it stands in more than one round."""
    [made] = tiled.results if may_shift(node.name) and tiled.factor.reaches else (None,)
    if made is None or Trait.CUTS in node.traits or made.length <= period:
        return False
    return not is_turned(node.op, made.dim, period)


def _refuse_rings(position: int) -> Refusal:
    return Refusal(Reason("EX307", "its slices wrap around different ends"), position)


def refuse_extents(graph: Graph, region: Region, extents: Extents) -> Refusal | None:
    """Why the ops of a region cannot have longer tiles, if so: one of them cannot, or they are shifted or too short.

    A tile of one that ends before the region does may reach beyond that end, whether it is longer or not.
    """
    if not region.reaches():
        return None
    low, high = region.low, region.high
    for position, tiled in sorted(region.tiled.items()):
        node = graph.nodes[position]
        held = [mapping for mapping in (*tiled.operands, *tiled.results) if mapping is not None]
        moves = bool(tiled.factor.reaches) and may_shift(node.name)
        if not moves and len({(mapping.low, mapping.length) for mapping in held}) > 1:
            return Refusal(Reason("EX307", "its slices have different offsets, and overlap"), position)
        independent = tiled.factor.kind is Kind.INDEPENDENT  # others begin and end with a tile (`find_seams`)
        short = independent and any(each.low > low or each.low + each.length < high for each in held)
        if (short or position in extents) and not (tiled.factor.reaches or may_reach(node.op, tiled.factor)):
            return Refusal(Reason("EX301", f"{node.name} cannot be computed beyond its ends"), position)
    return None


def find_seams(region: Region, stage: Stage) -> list[int]:
    """The indices at which something begins or ends that a stage brings out or adds up, where tiles overlap."""
    seams: set[int] = set()
    written = {(output.node, output.result) for output in stage.outputs}
    for position in stage.nodes:
        tiled = region.tiled[position]
        own = [mapping for index, mapping in enumerate(tiled.results) if (position, index) in written]
        if tiled.factor.kind is not Kind.INDEPENDENT:
            own += tiled.operands
        for mapping in filter(None, own):
            seams |= {mapping.low, mapping.low + mapping.length}
    return sorted(seams) if len(seams) > 1 else [region.low, region.high]


@dataclass(frozen=True, slots=True)
class Read:
    """What a stage reads of a tensor from outside: the indices beside its own part, and its period, if any is asked."""

    extent: tuple[int, int]
    period: int


# By tensor that a stage reads from outside in slices, and how it is cut.
Reads = Mapping[tuple[int, DimMapping], Read]


def find_reads(
    graph: Graph, region: Region, producers: Producers, stage: Stage, extents: Extents, periods: Periods
) -> Reads | Refusal:
    """What a stage reads from outside, all its readers together; or who wants a period that it does not have."""
    found: dict[tuple[int, DimMapping], Read] = {}
    members = set(stage.nodes)
    for position in stage.nodes:
        tiled = region.tiled[position]
        for index, (value, mapping) in enumerate(zip(graph.nodes[position].operands, tiled.operands, strict=True)):
            if mapping is None or producers[position][index] in members:
                continue
            own = Read(read_extent(tiled, index, extents), periods.get(position, 0))
            known = found.get((value, mapping), own)
            found[value, mapping] = Read(longer(known.extent, own.extent), max(known.period, own.period))
            if found[value, mapping].period not in (0, mapping.length):
                return Refusal(Reason("EX307", "its slices wrap around the ends of a part of it"), position)
    return found
