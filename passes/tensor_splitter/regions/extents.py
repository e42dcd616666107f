"""The extra length of each tile of a region, if ops read more than their own part. Analysis only.

A tile of a chain of convolutions, [a, b) of the last one, needs rows [a - 1, b + 1) of the one before it, and [a - 2, b
+ 2) of the one before that. Those rows are computed twice, by two tiles; beyond the ends of the tensor there are no
rows, and their readers use their padding instead (`exla_opt/ops/overlaps.py`).

A loop writes or sums its own part only, so nothing is written or counted twice.

NOTE [Periods]: elements that an op reads beyond the ends of a circular tensor, as a roll does, must be those of the
other end. So must all that they depend on: rows [a - 1, b + 1) of two rolls depend on [a - 2, b + 2) of the tensor, of
which those beyond an end are read at the other. An op that depends on its position cannot be computed there, except as
a shift, whose positions also wrap around.
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
# By position of an op: the number of indices after which its operands repeat (see NOTE [Periods]).
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
    """The indices before and after its own that a tile reads of an operand; negative if it reads fewer."""
    before, after = extents.get(tiled.node, _NONE)
    more, further = tiled.reach(index)
    return before + more, after + further


def longer(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """The extent that covers both."""
    return max(one[0], other[0]), max(one[1], other[1])


def find_periods(graph: Graph, region: Region) -> Periods | Refusal:
    """The periods of the operands of the region's ops, or which of them cannot read or compute a periodic tensor."""
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
    """Whether an op depends on its position in more than one period."""
    [made] = tiled.results if may_shift(node.name) and tiled.factor.reaches else (None,)
    if made is None or Trait.CUTS in node.traits or made.length <= period:
        return False
    return not is_turned(node.op, made.dim, period)


def _refuse_rings(position: int) -> Refusal:
    return Refusal(Reason("EX307", "its slices wrap around different ends"), position)


def refuse_extents(graph: Graph, region: Region, extents: Extents) -> Refusal | None:
    """Why the ops of a region cannot have longer tiles, if so: one of them cannot, or they are shifted or too short.

    A tile of an op that ends before the region does may reach beyond that end, whether it is longer or not.
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
    """The indices at which something begins or ends that a stage writes or sums, if tiles overlap."""
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
    """A stage's reads of an outer tensor: the extra indices besides its own part, and the required period, if any."""

    extent: tuple[int, int]
    period: int


# By outer tensor that a stage reads in slices, and how it is cut.
Reads = Mapping[tuple[int, DimMapping], Read]


def find_reads(
    graph: Graph, region: Region, producers: Producers, stage: Stage, extents: Extents, periods: Periods
) -> Reads | Refusal:
    """The reads of a stage from outside, of all readers together; or which op needs a period that a tensor lacks."""
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
