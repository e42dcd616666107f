"""Regions: the ops that one factor reaches from one dimension of one big tensor.

Analysis only. A region's index runs over [0, extent); every tiled op has its own factor laid on that index, so that a
shifted slice, a pad or a merged dimension are handled in one place. The end of the file has the terms for the loops of
a region: producers, outputs, stages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from exla_opt.ops.rules import DimMapping, Kind
from exla_opt.ops.tiling import starts_anew
from exla_opt.ops.traits import Trait
from exla_opt.remarks import Reason

from ..graph import Graph, TiledOp


@dataclass(slots=True)
class Region:
    """The ops that one factor reaches. `mappings` has every tensor that is cut; `blocked` says where it ended, and why.

    joined: where the search ended early, because the rest is known to be hopeless.
    """

    seed: int
    mappings: dict[int, DimMapping]
    tiled: dict[int, TiledOp] = field(default_factory=dict)
    blocked: dict[int, Reason] = field(default_factory=dict)
    joined: tuple[int, DimMapping] | None = None

    @property
    def low(self) -> int:
        """The smallest region index of any tensor that is cut or computed."""
        return min(mapping.low for mapping in self._extents())

    @property
    def high(self) -> int:
        """One past the largest region index of any tensor that is cut or computed."""
        return max(mapping.low + mapping.length for mapping in self._extents())

    def _extents(self) -> Iterator[DimMapping]:
        """Of the tensors that the factor follows, and of the tiled ops' results: a pad may reach beyond them."""
        yield from self.mappings.values()
        for tiled in self.tiled.values():
            yield from filter(None, tiled.results)

    def partly_cut(self, graph: Graph) -> int | None:
        """The first loop or branch that is not in all of the region's slices: no tile of it can be empty."""
        low, high = self.low, self.high
        for position in sorted(self.tiled):
            tiled = self.tiled[position]
            held = [mapping for mapping in (*tiled.operands, *tiled.results) if mapping is not None]
            if Trait.CONTROL_FLOW in graph.nodes[position].traits and any(
                mapping.low > low or mapping.low + mapping.length < high for mapping in held
            ):
                return position
        return None

    def reaches(self) -> bool:
        """Whether some op reads more of an operand in tiles than its own part."""
        return any(tiled.factor.reaches for tiled in self.tiled.values())


Producers = dict[int, tuple[int | None, ...]]


@dataclass(frozen=True, slots=True)
class Work:
    """The seconds of the arithmetic of ops, by position, and the most that all loops together may take."""

    of: Mapping[int, float]
    most: float


def find_producers(graph: Graph, region: Region) -> Producers:
    """For every tiled op and operand, the position of the tiled op that computes it in the same tile."""
    made: dict[int, tuple[int, DimMapping | None]] = {}
    for position, tiled in region.tiled.items():
        for index, (value, mapping) in enumerate(zip(graph.nodes[position].results, tiled.results, strict=True)):
            if mapping is not None or tiled.factor.is_same(index):
                made[value] = (position, mapping)

    def producer(tiled: TiledOp, index: int, value: int) -> int | None:
        found, mapping = made.get(value), tiled.operands[index]
        return found[0] if found and found[1] in (mapping, None) and not _begins_with(graph, tiled, index) else None

    return {
        position: tuple([producer(tiled, index, value) for index, value in enumerate(graph.nodes[position].operands)])
        for position, tiled in region.tiled.items()
    }


def _begins_with(graph: Graph, tiled: TiledOp, index: int) -> bool:
    """Whether the tiles are combined with an operand, which is then needed outside of their loop: the init of a sum."""
    combined = tiled.factor.kind is not Kind.INDEPENDENT and tiled.operands[index] is None
    return combined or starts_anew(graph.nodes[tiled.node].op, tiled.factor, index)


def find_copies(graph: Graph, producers: Producers) -> set[int]:
    """The cheap ops that the loop only repeats: all their operands come from outside the region."""
    copies: set[int] = set()
    for position in sorted(producers):
        if Trait.CHEAP not in graph.nodes[position].traits:
            continue
        if all(producer is None or producer in copies for producer in producers[position]):
            copies.add(position)
    return copies


@dataclass(frozen=True, slots=True)
class Output:
    """One result that a loop writes: slice by slice along `mapping`, or combined if it is None."""

    node: int
    result: int
    mapping: DimMapping | None


# For each dimension of a small tensor, that of a sum; None for one of size 1.
Dims = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum that a loop computes together with a value that its terms wait for.

    shift: the subtrahend in its terms, one of Running.shifts, or None. dims: the subtrahend's dimensions in the sum.
    weight: for squares, the sum if each of them is 1. later: the factors that multiply the sum only after the loop:
    values, their powers, and their dimensions in it.
    """

    shift: int | None = None
    dims: Dims = ()
    weight: float = 0.0
    later: tuple[tuple[int, int, Dims], ...] = ()


@dataclass(frozen=True, slots=True)
class Shift:
    """A maximum or a mean whose running value a loop reads.

    op: the maximum, or the sum of the mean. between: the ops from it to the value that the loop reads, none of them in
    the loop. mean: which of the two it is. guarded: whether the value read is finite whatever the maximum is.
    """

    op: int
    between: tuple[int, ...]
    mean: bool
    guarded: bool = False


@dataclass(frozen=True, slots=True)
class Running:
    """The values that a loop both computes and reads.

    shifts: by value, the subtrahends of its ops. sums: by op, those that change with them, or wait for them. ones: the
    factors that count as 1 in the loop, and multiply sums after it.
    """

    shifts: Mapping[int, Shift]
    sums: Mapping[int, Sum]
    ones: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Stage:
    """One loop: the ops of its body in program order, its outputs, and the results of earlier loops that it needs.

    running: the values that it both computes and reads, if any.
    """

    number: int
    nodes: tuple[int, ...]
    outputs: tuple[Output, ...]
    awaited: frozenset[int] = frozenset()
    running: Running | None = None

    def is_own(self, value: int) -> bool:
        """Whether the loop itself computes a value that its ops read as if it came from outside."""
        return self.running is not None and (value in self.running.shifts or value in self.running.ones)
