"""The form in which the knowledge of one op is written down. Each family of ops has one table of these, `OPS`.

What an op does not need or cannot have is stated: no field has a default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from jaxlib.mlir import ir

from .factor import Factor, Kind, Shape, Shapes
from .tie import Site
from .tile import Tile


class Stated(Enum):
    """What stands in the place of a rule.

    NONE: there is none. BY_TARGET: by the function that a custom_call calls. SAME_OP: the tile is the op itself on
    slices. BY_FACTORS: what one factor fills is of one size. BY_BLOCKS: as the ops of its blocks say. BY_PAIRS: each
    operand with its result, whatever happens to the others.
    """

    NONE = "none"
    BY_TARGET = "by target"
    SAME_OP = "same op"
    BY_FACTORS = "by factors"
    BY_BLOCKS = "by blocks"
    BY_PAIRS = "by pairs"


_None = Literal[Stated.NONE]
NONE: _None = Stated.NONE
BY_TARGET: Literal[Stated.BY_TARGET] = Stated.BY_TARGET
SAME_OP: Literal[Stated.SAME_OP] = Stated.SAME_OP
BY_FACTORS: Literal[Stated.BY_FACTORS] = Stated.BY_FACTORS
BY_BLOCKS: Literal[Stated.BY_BLOCKS] = Stated.BY_BLOCKS
BY_PAIRS: Literal[Stated.BY_PAIRS] = Stated.BY_PAIRS


@dataclass(frozen=True, slots=True)
class ByShardy:
    """Factors from Shardy's sharding rule: under the guards of `factors_of` it is a true statement about slices.

    sums: whether what the rule calls a reduction is one that adds. makes: whether a letter may stand in the results
    only. adapt: from the op, its shapes and Shardy's factors those that hold of slices.
    """

    sums: bool = False
    makes: bool = False
    adapt: Callable[[ir.Operation, Shapes, tuple[Factor, ...]], tuple[Factor, ...]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """How the results of tiles become the op's, where they are not concatenated.

    The state is what a loop carries for the op: before the first tile `initial(op, types, operands)`, after each tile
    `combine(op, state, partial, start)`, where the tile begins at index `start`, a tensor<i32>, of the factor.
    widens: whether partial results of the op are float32 although its own are narrower; converts: whether its operands
    are converted for that, and not by the op itself. reassociates: whether combining along a factor of this kind may
    round otherwise than the op itself, given that not all results are integers. resume: `(op, state, partial)` to a
    slice of a scan that goes on from the state.
    """

    initial: Callable[[ir.Operation, Sequence[ir.Type], Sequence[ir.Value]], list[ir.Value]] | _None
    combine: Callable[[ir.Operation, Sequence[ir.Value], Sequence[ir.Value], ir.Value], list[ir.Value]] | _None
    resume: Callable[[ir.Operation, Sequence[ir.Value], Sequence[ir.Value]], list[ir.Value]] | _None
    widens: Callable[[ir.Operation], bool] | _None
    converts: bool
    reassociates: Callable[[ir.Operation, Kind], bool] | _None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpDefinition:
    """All that is known of one op.

    factors: along which it may be cut. tile: makes the op of one tile and gives back its results. ties: says to the
    classes which dimensions are of one size, and gives back those that it spoke of; all others stay as they are.
    resize: adapts the attributes of an op whose types have other sizes already, given the shapes of before, of operands
    and results. combination: for factors that are not in the results.
    reason: why the other dimensions are not cut, where naming them would say too little, else ""; of an op that is
    never cut the sentence, with {} for its name.
    """

    factors: (
        Callable[[ir.Operation, Shapes], tuple[Factor, ...]]
        | ByShardy
        | Literal[Stated.NONE, Stated.BY_TARGET, Stated.BY_BLOCKS, Stated.BY_PAIRS]
    )
    tile: Callable[[Tile], list[ir.Value]] | Literal[Stated.NONE, Stated.SAME_OP, Stated.BY_BLOCKS]
    ties: Callable[[Site], Iterable[int]] | Literal[Stated.NONE, Stated.BY_FACTORS]
    resize: Callable[[ir.Operation, Sequence[Shape]], None] | _None
    combination: Combination | _None
    reason: str


def never_cut(reason: str) -> OpDefinition:
    """An op of which nothing is cut or given another size. reason: as in OpDefinition."""
    return OpDefinition(factors=NONE, tile=NONE, ties=NONE, resize=NONE, combination=NONE, reason=reason)
