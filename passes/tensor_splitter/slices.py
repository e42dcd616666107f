"""One tile of one op: what it is made from, and what all ops' tiles are made with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ops.rules import DimMapping, Factor

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Tile:
    """What `build_tile` was asked for, and the result types that follow from it."""

    op: ir.Operation
    factor: Factor
    operands: Sequence[ir.Value]
    start: ir.Value
    operand_ranges: Sequence[Range | None]
    result_ranges: Sequence[Range | None]
    types: tuple[ir.Type, ...]

    def clone(self, attributes: dict[str, ir.Attribute] | None = None) -> list[ir.Value]:
        """The op itself on the tile's operands; attributes: those that are not the original's."""
        made = self.op.clone(ip=ir.InsertionPoint.current).operation
        for index, value in enumerate(self.operands):
            made.operands[index] = value
        for result, kind in zip(made.results, self.types, strict=True):
            result.set_type(kind)
        # A sharding rule tells the sizes of the whole, and nothing would notice that it is stale.
        if "sdy.sharding_rule" in made.attributes:
            del made.attributes["sdy.sharding_rule"]
        for name, attribute in (attributes or {}).items():
            made.attributes[name] = attribute
        return list(made.results)

    def begin(self, place: Range | None, element: ir.Type) -> ir.Value:
        """The factor's index at which a range begins, as a 0-d tensor of integers."""
        low = place[0] if place else 0
        shifted = stablehlo.add(self.start, build.scalar_i32(low)) if low else self.start
        return build.convert(shifted, element)


def result_mapping(tile: Tile) -> tuple[DimMapping, Range]:
    """Where the factor stands in the only result, and the tile's indices in it."""
    mapping, place = tile.factor.results[0], tile.result_ranges[0]
    assert mapping is not None and place is not None
    return mapping, place


def replaced(numbers: Sequence[int], dim: int, number: int) -> list[int]:
    return [*numbers[:dim], number, *numbers[dim + 1 :]]
