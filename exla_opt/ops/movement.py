"""Ops that move all elements of their operand, or broadcast them."""

from __future__ import annotations

from dataclasses import replace
from math import gcd, prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integer, integers
from exla_opt.ir.reassociation import reassociation_of

from .definition import BY_FACTORS, NONE, SAME_OP, ByShardy, OpDefinition
from .factor import DimMapping, Factor, Shapes, independent
from .tie import Site, Spoken, tie, tie_all
from .tile import Tile, result_mapping

OPS: dict[str, OpDefinition] = {}

OPS["stablehlo.transpose"] = OpDefinition(
    factors=ByShardy(), tile=SAME_OP, ties=BY_FACTORS, resize=NONE, combination=NONE, reason=""
)


def _broadcast_ties(site: Site) -> Spoken:
    """Dimensions of 1 may be broadcast."""
    operand, result = (site.classes.places(value) for value in (site.op.operands[0], site.op.results[0]))
    sizes = site.classes.shape(site.op.operands[0])
    where = integers(site.op, "broadcast_dimensions", [])
    for place, size, dim in zip(operand, sizes, where, strict=True):
        if size != 1:
            site.classes.same(place, result[dim])
        yield place
    yield from result


OPS["stablehlo.broadcast_in_dim"] = OpDefinition(
    factors=ByShardy(makes=True), tile=SAME_OP, ties=_broadcast_ties, resize=NONE, combination=NONE, reason=""
)


def _reshape_factors(op: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """One factor for each group of dimensions, with as many equal parts as the major dimension has before and after.

    Not Shardy's: its rule for 6x4 -> 4x6 has two parts to cut on jaxlib 0.10, and none for slices on 0.12.
    """
    (before,), (after,) = shapes.operands, shapes.results
    factors = []
    for group in reassociation_of(before, after) or ():
        old = next((dim for dim in group.before if before[dim] != 1), None)
        new = next((dim for dim in group.after if after[dim] != 1), None)
        if old is None or new is None:
            continue
        size = gcd(before[old], after[new])
        if size > 1:
            mappings = DimMapping(old, size, before[old] // size), DimMapping(new, size, after[new] // size)
            factors.append(independent(size, mappings[:1], mappings[1:]))
    return tuple(factors)


def _reshape_ties(site: Site) -> Spoken:
    """The products of the dimensions of every group are equal."""
    (operand,), result = site.op.operands, site.op.results[0]
    before, after = site.classes.shape(operand), site.classes.shape(result)
    for group in reassociation_of(before, after) or ():
        left = [site.classes.places(operand)[dim] for dim in group.before if before[dim] != 1]
        right = [site.classes.places(result)[dim] for dim in group.after if after[dim] != 1]
        if left:
            site.classes.relation(prod, left, right)
        yield from (*left, *right)


OPS["stablehlo.reshape"] = OpDefinition(
    factors=_reshape_factors, tile=SAME_OP, ties=_reshape_ties, resize=NONE, combination=NONE, reason=""
)


def _reverse_factors(op: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """A dimension that keeps its order is cut in both; along a reversed one the unsplit operand is read."""
    turned = integers(op, "dimensions", [])
    mappings = [DimMapping(dim, size) if size > 1 else None for dim, size in enumerate(shapes.results[0])]
    return tuple(
        independent(mapping.length, [None if mapping.dim in turned else mapping], [mapping])
        for mapping in mappings
        if mapping is not None
    )


def _reverse_tile(tile: Tile) -> list[ir.Value]:
    """Result [a, b) of a reversed dimension is operand [n - b, n - a) reversed."""
    mapping, place = result_mapping(tile)
    if tile.factor.operands[0] is not None:
        return tile.clone()
    length = place[1] - place[0]
    from_end = stablehlo.subtract(build.scalar_like(tile.start, mapping.length - length), tile.begin(place))
    part = build.slice_along(tile.operands[0], mapping.dim, from_end, length)
    return replace(tile, operands=[part]).clone()


OPS["stablehlo.reverse"] = OpDefinition(
    factors=_reverse_factors, tile=_reverse_tile, ties=tie_all, resize=NONE, combination=NONE, reason=""
)


def _set_dimension_size_ties(site: Site) -> Spoken:
    """The size to set is a number."""
    yield from tie(site, site.op.operands[0], site.op.results[0])
    site.classes.fix_dimensions(site.classes.places(site.op.results[0])[integer(site.op, "dimension")])


OPS["stablehlo.set_dimension_size"] = OpDefinition(
    factors=NONE, tile=NONE, ties=_set_dimension_size_ties, resize=NONE, combination=NONE, reason=""
)
