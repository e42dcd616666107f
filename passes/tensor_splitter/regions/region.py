"""Regions: the ops that one factor reaches from one dimension of one big tensor (design: regions).

Analysis only. A region's index runs over [0, extent); every tiled op knows how its own factor lies on
that index, so that a shifted slice, a pad or a merged dimension are read off in one place. At the end stand the words
for the loops of a region: who makes whose tile, what one loop brings out, a stage.
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
    """What one factor reaches. `mappings` holds every tensor that is cut; `blocked` says where it ended, and why.

    joined: where the search ended early, because what lies behind is known to be hopeless.
    """

    seed: int
    mappings: dict[int, DimMapping]
    tiled: dict[int, TiledOp] = field(default_factory=dict)
    blocked: dict[int, Reason] = field(default_factory=dict)
    joined: tuple[int, DimMapping] | None = None

    @property
    def low(self) -> int:
        """The smallest region index of any tensor that is cut or made."""
        return min(mapping.low for mapping in self._extents())

    @property
    def high(self) -> int:
        """One past the largest region index of any tensor that is cut or made."""
        return max(mapping.low + mapping.length for mapping in self._extents())

    def _extents(self) -> Iterator[DimMapping]:
        """Of the tensors that the factor follows, and of what is made of them: a pad may reach beyond them."""
        yield from self.mappings.values()
        for tiled in self.tiled.values():
            yield from filter(None, tiled.results)

    def partly_cut(self, graph: Graph) -> int | None:
        """The first loop or branch that has nothing in some of the region's slices: no tile of it can be empty."""
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
        """Whether some op reads more of what is made in tiles than its own part."""
        return any(tiled.factor.reaches for tiled in self.tiled.values())


Producers = dict[int, tuple[int | None, ...]]


@dataclass(frozen=True, slots=True)
class Work:
    """The seconds of the arithmetic of ops, by position, and the most that all loops together may take."""

    of: Mapping[int, float]
    most: float


def find_producers(graph: Graph, region: Region) -> Producers:
    """For every tiled op and operand the position of the tiled op whose result it is, in that very tile."""
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
    """Whether the tiles are combined with an operand, which is so needed outside of their loop: the init of a sum."""
    combined = tiled.factor.kind is not Kind.INDEPENDENT and tiled.operands[index] is None
    return combined or starts_anew(graph.nodes[tiled.node].op, tiled.factor, index)


def find_copies(graph: Graph, producers: Producers) -> set[int]:
    """The cheap ops that the loop only repeats: everything they read comes from outside the region."""
    copies: set[int] = set()
    for position in sorted(producers):
        if Trait.CHEAP not in graph.nodes[position].traits:
            continue
        if all(producer is None or producer in copies for producer in producers[position]):
            copies.add(position)
    return copies


@dataclass(frozen=True, slots=True)
class Output:
    """One result that a loop brings out: written slice by slice along `mapping`, or combined when it is None."""

    node: int
    result: int
    mapping: DimMapping | None


# For each dimension of a small tensor, that of a sum; None for one of size 1.
Dims = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum that a loop makes together with what its terms wait for.

    shift: what is subtracted in its terms, one of Running.shifts, and None where nothing is. dims: how that lies along
    the sum. weight: of squares, what the sum is where each of them is 1. later: what is multiplied with the sum only
    behind the loop: values, to which power, and how they lie along it.
    """

    shift: int | None = None
    dims: Dims = ()
    weight: float = 0.0
    later: tuple[tuple[int, int, Dims], ...] = ()


@dataclass(frozen=True, slots=True)
class Shift:
    """A maximum or a mean of which a loop reads what it is so far.

    op: the maximum, or the sum of which the mean comes. between: the ops that lead from it to what the loop reads, none
    of them in the loop. mean: which of the two it is. guarded: whether what is read is finite whatever the maximum is.
    """

    op: int
    between: tuple[int, ...]
    mean: bool
    guarded: bool = False


@dataclass(frozen=True, slots=True)
class Running:
    """What a loop both finds and reads.

    shifts: by value, what its ops subtract. sums: by op, those that change with it, or wait for it. ones: what counts
    as 1 in the loop, and is multiplied with sums behind it.
    """

    shifts: Mapping[int, Shift]
    sums: Mapping[int, Sum]
    ones: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Stage:
    """One loop: the ops of its body in program order, its outputs, and what it reads that earlier loops lead to.

    running: what it both finds and reads, if there is anything.
    """

    number: int
    nodes: tuple[int, ...]
    outputs: tuple[Output, ...]
    awaited: frozenset[int] = frozenset()
    running: Running | None = None

    def is_own(self, value: int) -> bool:
        """Whether the loop makes for itself what its ops read as if it came from outside."""
        return self.running is not None and (value in self.running.shifts or value in self.running.ones)
