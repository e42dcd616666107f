"""What is found of control flow that is cut: how each of its blocks runs on one tile, and the factor that says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from jaxlib.mlir import ir

from .factor import DimMapping, Factor, LaidFactor

BARRIER = "stablehlo.optimization_barrier"


class Partial(Enum):
    """The state of a value that is a partial sum over the cut factor."""

    SUM = "sum"


State = DimMapping | Partial


class Refused(Exception):
    """Why a block cannot be cut, and the op that stands in the way; it leaves only as the rule's reason.

    needs_sum: whether that op needs what is complete when all tiles are done.
    """

    def __init__(self, reason: str, op: ir.Operation | None = None, needs_sum: bool = False):
        super().__init__(reason)
        self.reason = reason
        self.op = op
        self.needs_sum = needs_sum


@dataclass(frozen=True, slots=True, eq=False)
class ControlFactor(Factor):
    """One way to cut control flow from outside, its operands followed by what its blocks capture.

    flows: how each block of its regions runs, but for the condition of a loop. added: those of `summed` whose start is
    only ever added to. condition: how that of a loop runs that asks for what is cut, None if it is as it was.
    """

    flows: tuple[BlockFlow, ...] = ()
    added: tuple[int, ...] = ()
    condition: BlockFlow | None = None

    def cuts_inside(self) -> bool:
        """Whether any op of the blocks, however deep, is cut."""
        all_tiles = (laid.factor for flow in self.flows for tiles in flow.tiles.values() for laid in tiles)
        return any(
            not factor.is_unsplit() or (isinstance(factor, ControlFactor) and factor.cuts_inside())
            for factor in all_tiles
        )

    def cut_dims(self) -> dict[ir.Value, int]:
        """The dimension along which each value of the blocks, however deep, is cut that exists in tiles alone."""
        found: dict[ir.Value, int] = {}
        for flow in self.flows:
            found |= {value: mapping.dim for value, mapping in flow.cut.items()}
            for laid in (laid for tiles in flow.tiles.values() for laid in tiles):
                if isinstance(laid.factor, ControlFactor):
                    found |= laid.factor.cut_dims()
        return found


@dataclass(frozen=True, slots=True)
class BlockFlow:
    """How a block runs on one tile.

    tiles: by the place of an op in the block, how it is cut: an op may be cut in several ways.
    held: by the place of a barrier, the numbers of the operands that it holds, and how they are cut.
    plain: the places of the ops that run as they are, on unsplit values or on partial sums.
    returned: the mapping of each value that the block returns, None where it is not cut.
    cut: the values that exist in tiles alone. place: by result, the place of the op that makes it.
    """

    tiles: Mapping[int, tuple[LaidFactor, ...]]
    held: Mapping[int, tuple[tuple[int, DimMapping | None], ...]]
    plain: frozenset[int]
    returned: tuple[DimMapping | None, ...]
    cut: Mapping[ir.Value, DimMapping]
    place: Mapping[ir.Value, int]
