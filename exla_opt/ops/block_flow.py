"""The result of cutting control flow: how each of its blocks runs on one tile, and the factor for that."""

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
    """The reason why a block cannot be cut, and the op that prevents it; reported only as the rule's reason.

    needs_sum: whether that op needs a value that is complete only after all tiles.
    """

    def __init__(self, reason: str, op: ir.Operation | None = None, needs_sum: bool = False):
        super().__init__(reason)
        self.reason = reason
        self.op = op
        self.needs_sum = needs_sum


@dataclass(frozen=True, slots=True, eq=False)
class ControlFactor(Factor):
    """One way to cut control flow from outside; its operands include the captures of its blocks.

    flows: how each block of its regions runs, except the condition of a loop. added: those of `summed` whose initial
    value is only ever added to. condition: how a loop's condition on cut values runs, None if it is unchanged.
    """

    flows: tuple[BlockFlow, ...] = ()
    added: tuple[int, ...] = ()
    condition: BlockFlow | None = None

    def cuts_inside(self) -> bool:
        """Whether any op of the blocks, at any depth, is cut."""
        all_tiles = (laid.factor for flow in self.flows for tiles in flow.tiles.values() for laid in tiles)
        return any(
            not factor.is_unsplit() or (isinstance(factor, ControlFactor) and factor.cuts_inside())
            for factor in all_tiles
        )

    def cut_dims(self) -> dict[ir.Value, int]:
        """The cut dimension of each value in the blocks, at any depth, that exists only in tiles."""
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

    tiles: by an op's position in the block, how it is cut; an op may be cut in several ways.
    held: by a barrier's position, the numbers of the operands that it holds, and how they are cut.
    plain: the positions of the ops that are unchanged, on unsplit values or on partial sums.
    returned: the mapping of each value that the block returns, None if it is not cut.
    cut: the values that exist only in tiles. place: by result, the position of its op.
    """

    tiles: Mapping[int, tuple[LaidFactor, ...]]
    held: Mapping[int, tuple[tuple[int, DimMapping | None], ...]]
    plain: frozenset[int]
    returned: tuple[DimMapping | None, ...]
    cut: Mapping[ir.Value, DimMapping]
    place: Mapping[ir.Value, int]
