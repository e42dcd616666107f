"""Ops that create a tensor without operands."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integer, is_splat, splat_text

from .definition import NONE, OpDefinition
from .factor import Einsum, Factor, Shape, Shapes, factors_of, numbered
from .sizes import elements
from .tie import Site, Spoken
from .tile import Tile, result_mapping

OPS: dict[str, OpDefinition] = {}

# The element types of constants that NumPy can represent.
_READABLE = frozenset("f16 f32 f64 i1 i8 i16 i32 i64 ui8 ui16 ui32 ui64".split())


def _constant_factors(op: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """`()->([i,j])` for one value everywhere. Other constants are read in slices from outside."""
    return _made_factors(op, shapes) if is_splat(op) else ()


def _constant_tile(tile: Tile) -> list[ir.Value]:
    kind = ir.RankedTensorType(tile.types[0])
    if isinstance(kind.element_type, ir.ComplexType):
        text = splat_text(tile.op)
        assert text is not None
        return [build.constant_of_text(kind, text)]
    old = ir.DenseElementsAttr(tile.op.attributes["value"])
    return tile.clone({"value": ir.DenseElementsAttr.get_splat(kind, old.get_splat_value())})


def _constant_ties(site: Site) -> Spoken:
    """A constant that NumPy cannot read cannot be cut either."""
    element = ir.RankedTensorType(site.op.results[0].type).element_type
    if is_splat(site.op) or str(element) in _READABLE:
        yield from _made_ties(site)


def _constant_resize(op: ir.Operation, _: Sequence[Shape]) -> None:
    """Keep the first elements."""
    kind = build.tensor_of(op.results[0])
    if isinstance(kind.element_type, ir.ComplexType):
        text = splat_text(op)
        assert text is not None
        with ir.InsertionPoint(op), op.location:
            op.results[0].replace_all_uses_with(build.constant_of_text(kind, text))
        op.erase()
        return
    value = ir.DenseElementsAttr(op.attributes["value"])
    if value.is_splat:
        op.attributes["value"] = ir.DenseElementsAttr.get_splat(kind, value.get_splat_value())
        return
    op.attributes["value"] = elements(np.asarray(value)[tuple(map(slice, kind.shape))], kind)


OPS["stablehlo.constant"] = OpDefinition(
    factors=_constant_factors,
    tile=_constant_tile,
    ties=_constant_ties,
    resize=_constant_resize,
    combination=NONE,
    reason="the elements of this stablehlo.constant differ: it is read in slices",
)
OPS["chlo.constant"] = OpDefinition(
    factors=_constant_factors,
    tile=_constant_tile,
    ties=_constant_ties,
    resize=_constant_resize,
    combination=NONE,
    reason="",
)


def _made_factors(_: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """`()->([i,j])`"""
    return factors_of(Einsum([], [numbered(shapes.results[0])]), shapes, makes=True)


def _made_ties(site: Site) -> Spoken:
    """Every dimension may have any size."""
    yield from site.classes.places(site.op.results[0])


def _iota_tile(tile: Tile) -> list[ir.Value]:
    """Offset by the start of the tile; converted last: a narrow float could not hold the sum."""
    mapping, place = result_mapping(tile)
    if integer(tile.op, "iota_dimension") != mapping.dim:
        return tile.clone()
    kind = ir.RankedTensorType(tile.types[0])
    counted = stablehlo.iota(build.with_shape(build.tensor_of(tile.start), kind.shape), mapping.dim)
    begin = build.broadcast(tile.begin(place), kind.shape)
    return [build.convert(stablehlo.add(counted, begin), kind.element_type)]


OPS["stablehlo.iota"] = OpDefinition(
    factors=_made_factors, tile=_iota_tile, ties=_made_ties, resize=NONE, combination=NONE, reason=""
)
