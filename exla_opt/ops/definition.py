"""The form of an op's definition. Each family of ops has one table of definitions, `OPS`.

No field has a default: a definition must also state what its op does not need or cannot have.
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
    """Values in the place of a rule.

    NONE: there is none. BY_TARGET: by the function that a custom_call calls. SAME_OP: the tile is the op itself on
    slices. BY_FACTORS: dimensions that one factor fills have the same size. BY_BLOCKS: given by the ops of its blocks.
    BY_PAIRS: each operand with its result, independently of the others.
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
    """Factors from Shardy's sharding rule, which also holds for slices under the guards of `factors_of`.

    sums: whether the rule's reduction is a sum. makes: whether a letter may be in the results only. adapt: given the
    op, its shapes and Shardy's factors, returns the factors that hold for slices.
    """

    sums: bool = False
    makes: bool = False
    adapt: Callable[[ir.Operation, Shapes, tuple[Factor, ...]], tuple[Factor, ...]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """How the results of tiles combine to the op's, if they are not concatenated.

    The state is what a loop carries for the op: before the first tile `initial(op, types, operands)`, after each tile
    `combine(op, state, partial, start)`, where the tile begins at index `start`, a tensor<i32>, of the factor. widens:
    whether partial results of the op are float32 although its own are narrower; converts: whether its operands are
    converted for that, and not by the op itself. reassociates: whether combining along a factor of this kind may round
    differently from the op itself, given that not all results are integers. resume: `(op, state, partial)` to a slice
    of a scan that continues from the state.
    """

    initial: Callable[[ir.Operation, Sequence[ir.Type], Sequence[ir.Value]], list[ir.Value]] | _None
    combine: Callable[[ir.Operation, Sequence[ir.Value], Sequence[ir.Value], ir.Value], list[ir.Value]] | _None
    resume: Callable[[ir.Operation, Sequence[ir.Value], Sequence[ir.Value]], list[ir.Value]] | _None
    widens: Callable[[ir.Operation], bool] | _None
    converts: bool
    reassociates: Callable[[ir.Operation, Kind], bool] | _None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpDefinition:
    """The definition of one op.

    factors: along which it may be cut. tile: builds the op of one tile and returns its results. ties: adds the
    dimensions of equal size to the classes, and returns those that it covers; all others keep their size. resize:
    adapts the attributes of an op whose types already have other sizes, given the previous shapes of operands and
    results. combination: for factors that are not in the results.
    reason: why the other dimensions are not cut, if naming them is not enough, else ""; for an op that is never cut,
    the sentence, with {} for its name.
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
    """An op that is never cut or resized. reason: as in OpDefinition."""
    return OpDefinition(factors=NONE, tile=NONE, ties=NONE, resize=NONE, combination=NONE, reason=reason)
