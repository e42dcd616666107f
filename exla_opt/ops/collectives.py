"""Ops that communicate with other devices: none is cut by its own rule, unless it is marked.

Both a marked one and a loop that contains one may be cut along a dimension in which it moves nothing: all devices run
the same tiles, each tile sends its part, and together they send as much as before.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import overload

from jaxlib.mlir import ir

from exla_opt.ir.attributes import integer
from exla_opt.ir.walk import walk_regions

from .definition import NONE, SAME_OP, OpDefinition
from .factor import Einsum, Factor, OpRule, Shapes, factors_of
from .traits import Trait, has_trait

# On a collective that may be cut by its own rule.
MARK = "exla.sends_slices"
# The dimensions along which shards of several devices are concatenated, or taken apart.
DIMENSIONS = ("all_gather_dim", "scatter_dimension", "split_dimension", "concat_dimension")


@dataclass(frozen=True)
class CollectiveRule(OpRule):
    """The rule of a collective, which has no factor. inside: its rule in a loop that is cut from outside."""

    inside: OpRule


@dataclass(frozen=True)
class Inside(Sequence[OpRule]):
    """The rules of a module's ops in blocks that are cut from outside."""

    rules: Sequence[OpRule]

    def __len__(self) -> int:
        return len(self.rules)

    @overload
    def __getitem__(self, number: int) -> OpRule: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[OpRule]: ...
    def __getitem__(self, number: int | slice) -> OpRule | Sequence[OpRule]:
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        rule = self.rules[number]
        return rule.inside if isinstance(rule, CollectiveRule) else rule


def talks(op: ir.Operation) -> bool:
    """Whether an op, or one in its regions, communicates with other devices."""
    inner = (each for region in op.regions for block in region.blocks for each in walk_regions(block))
    return any(has_trait(each, Trait.COLLECTIVE) for each in (op, *inner))


def moved_dims(op: ir.Operation) -> frozenset[int]:
    """The dimensions along which a collective concatenates the shards of several devices, or takes them apart.

    Along all others, each element of a result depends only on the elements at its own position.
    """
    return frozenset(integer(op, name) for name in DIMENSIONS if name in op.attributes)


def _factors(op: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    if len(shapes.results) != 1 or len(shapes.operands) != 1:
        return ()
    moved = moved_dims(op)
    rank = len(shapes.results[0])
    before, after = ([[(when, dim) if dim in moved else dim] for dim in range(rank)] for when in ("before", "after"))
    uncut: set[Hashable] = {(when, dim) for when in ("before", "after") for dim in moved}
    return factors_of(Einsum([before], [after], uncut=uncut), shapes)


OPS: dict[str, OpDefinition] = {
    f"stablehlo.{name}": OpDefinition(
        factors=_factors,
        tile=SAME_OP,
        ties=NONE,
        resize=NONE,
        combination=NONE,
        reason="{} communicates with other devices",
    )
    for name in (
        "all_gather all_reduce all_to_all collective_broadcast collective_permute cross-replica-sum reduce_scatter"
    ).split()
}
