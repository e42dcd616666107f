"""One tile of one op: its inputs, and helpers for building it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build

from .factor import DimMapping, Factor
from .shardy import RULE

Range = tuple[int, int]
_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Tile:
    """The arguments of `tiling.build_tile`, and the result types that follow from them."""

    op: ir.Operation
    factor: Factor
    operands: Sequence[ir.Value]
    start: ir.Value
    operand_ranges: Sequence[Range | None]
    result_ranges: Sequence[Range | None]
    types: tuple[ir.Type, ...]

    def clone(self, attributes: dict[str, ir.Attribute] | None = None) -> list[ir.Value]:
        """The op itself on the tile's operands; attributes: those that differ from the original's."""
        made = self.op.clone(ip=ir.InsertionPoint.current).operation
        for index, value in enumerate(self.operands):
            made.operands[index] = value
        for result, kind in zip(made.results, self.types, strict=True):
            result.set_type(kind)
        # A sharding rule has the sizes of the unsplit op, and nothing would detect that it is stale.
        if RULE in made.attributes:
            del made.attributes[RULE]
        for name, attribute in (attributes or {}).items():
            made.attributes[name] = attribute
        return list(made.results)

    def begin(self, place: Range | None, element: ir.Type | None = None) -> ir.Value:
        """The factor's index at which a range begins, as a 0-d tensor; by default of the start's own type."""
        low = place[0] if place else 0
        shifted = stablehlo.add(self.start, build.scalar_like(self.start, low)) if low else self.start
        return shifted if element is None else build.convert(shifted, element)


def result_mapping(tile: Tile) -> tuple[DimMapping, Range]:
    """The factor's mapping in the first result, and the tile's indices there."""
    mapping, place = tile.factor.results[0], tile.result_ranges[0]
    assert mapping is not None and place is not None
    return mapping, place


def replaced(items: Sequence[_Item], place: int, item: _Item) -> list[_Item]:
    """The items, such as sizes or operands, with another one at `place`."""
    return [*items[:place], item, *items[place + 1 :]]


def read_padded(
    value: ir.Value, dim: int, start: ir.Value, length: int, padding: tuple[int, int, int], fill: ir.Value
) -> ir.Value:
    """Elements [start, start + length) of dimension `dim` of pad(value), without computing pad(value).

    start: a 0-d integer tensor, counted in pad(value). padding: low, high and interior. The slice that is read of
    `value` is moved inward if it would exceed an end, and padded so that its elements are at their positions.
    """
    low, high, interior = padding
    step = interior + 1
    size = build.shape_of(value)[dim]
    if padding == (0, 0, 0):
        return build.slice_along(value, dim, start, length)
    read = min(size, -(-(length + interior - 1) // step) + 1)
    # Division rounds towards zero, and every negative position is moved to zero anyway.
    place = start if low == 0 else stablehlo.subtract(start, build.scalar_like(start, low))
    index = place if step == 1 else stablehlo.divide(place, build.scalar_like(start, step))
    begin = build.clamp(build.scalar_like(start, 0), index, build.scalar_like(start, size - read))
    part = build.slice_along(value, dim, begin, read)
    begins = begin if step == 1 else stablehlo.multiply(begin, build.scalar_like(start, step))
    inside = stablehlo.add(stablehlo.subtract(place, begins), build.scalar_like(start, max(low, 0)))
    return build.slice_along(_pad_along(part, dim, (max(low, 0), max(high, 0), interior), fill), dim, inside, length)


def _pad_along(value: ir.Value, dim: int, padding: tuple[int, int, int], fill: ir.Value) -> ir.Value:
    low, high, interior = padding
    shape = build.shape_of(value)
    edges = [replaced([0] * len(shape), dim, number) for number in padding]
    shape[dim] = low + high + (shape[dim] - 1) * (interior + 1) + 1
    return stablehlo.PadOp(value, fill, *edges, results=[build.with_shape(build.tensor_of(value), shape)]).result
