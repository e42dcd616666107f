"""Barriers of several tensors: each tensor is cut or not, independently of the others.

    barrier(%a : [i,j], %w : [j,k], %b : [i])    ([i,j], -, [i]) -> ([i,j], -, [i])    or without %b, or %w alone, ...

The barrier of one tile holds the tiles of cut tensors and all other tensors, so that everything computed after it stays
after it. The cut tensors are known once a region has reached them: a factor begins with one, and is extended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .factor import DimMapping, Factor, Kind, OpRule, Shape


@dataclass(frozen=True)
class BarrierRule(OpRule):
    """The rule of one barrier of several tensors. shapes: of the tensors."""

    shapes: tuple[Shape, ...]

    def at_operand(self, index: int, dim: int, inner: int = 1) -> Factor | None:
        """The factor that cuts this tensor alone; None if that leaves less than two indices."""
        size = self.shapes[index][dim]
        if size % inner or size < 2 * inner:
            return None
        return self.holding({index: DimMapping(dim, size // inner, inner)}, size // inner)

    def at_result(self, index: int, dim: int, inner: int = 1) -> Factor | None:
        """As for the operand: both are one tensor."""
        return self.at_operand(index, dim, inner)

    def extended(
        self, factor: Factor, operands: Mapping[int, DimMapping], results: Mapping[int, DimMapping]
    ) -> Factor | None:
        """The factor that cuts more tensors; None if one is needed in two ways, or in other slices."""
        held = {index: mapping for index, mapping in enumerate(factor.results) if mapping is not None}
        for index, mapping in (*operands.items(), *results.items()):
            if mapping.length != factor.size or held.setdefault(index, mapping) != mapping:
                return None
        return self.holding(held, factor.size)

    def holding(self, held: Mapping[int, DimMapping], size: int) -> Factor:
        """The factor that cuts these tensors, by operand number."""
        mappings = tuple(held.get(index) for index in range(len(self.shapes)))
        return Factor(Kind.INDEPENDENT, size, mappings, mappings)
