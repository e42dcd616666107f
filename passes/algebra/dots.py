"""The positions of the dimensions of a dot's operands in a larger formula."""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build

from .places import Place


def contracted_sizes(op: ir.Operation) -> list[int]:
    """The sizes of the dimensions that a dot_general sums over."""
    shape = build.shape_of(op.operands[0])
    return [shape[dim] for dim in _numbers(op).lhs_contracting_dimensions]


def operand_places(op: ir.Operation, place: Place, contracted: Sequence[int | None]) -> tuple[Place, Place]:
    """The places of both operands of a dot_general.

    place: of the result. contracted: the dimensions of the formula that it sums over, in its order.
    """
    numbers = _numbers(op)
    sides = (
        (numbers.lhs_batching_dimensions, numbers.lhs_contracting_dimensions),
        (numbers.rhs_batching_dimensions, numbers.rhs_contracting_dimensions),
    )
    free = iter(place[len(sides[0][0]) :])
    places = []
    for operand, (batch, summed) in zip(op.operands, sides, strict=True):
        known = dict(zip([*batch, *summed], [*place[: len(batch)], *contracted], strict=True))
        rank = len(build.shape_of(operand))
        places.append(tuple(known[dim] if dim in known else next(free) for dim in range(rank)))
    return places[0], places[1]


def _numbers(op: ir.Operation) -> stablehlo.DotDimensionNumbers:
    return stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
