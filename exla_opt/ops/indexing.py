"""Ops that move parts of tensors: slices, pads, gathers, scatters."""

from __future__ import annotations

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir.attributes import integer, integers

from .factor import DimMapping, Factor, Kind, Shapes
from .reducers import body_of, componentwise


def _independent(size: int, operands: list[DimMapping | None], results: list[DimMapping | None]) -> Factor:
    return Factor(Kind.INDEPENDENT, size, tuple(operands), tuple(results))


def slice_(op: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """Result [a, b) of a dimension is operand [start + a * stride, start + b * stride), of which every first is kept.

    Along a dimension that the stride does not divide the tile is read from the whole operand.
    """
    starts, strides = integers(op, "start_indices", []), integers(op, "strides", [])
    factors = []
    for dim, (size, length) in enumerate(zip(shapes.operands[0], shapes.results[0], strict=True)):
        stride = strides[dim]
        count = size // stride
        if length < 1 or size < 2:
            continue
        if size % stride:
            factors += [_independent(length, [None], [DimMapping(dim, length)])] if length > 1 else []
        elif count > 1:
            low = starts[dim] // stride
            factors.append(
                _independent(count, [DimMapping(dim, count, inner=stride)], [DimMapping(dim, length, low=low)])
            )
    return tuple(factors)


def pad(op: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """The operand is result [low, low + n) of a dimension; with padding between, one of every interior + 1 there.

    A negative padding leaves ends of the operand out. Where the distance between elements does not divide the result,
    or elements are left out of a spread operand, the tile is read from the whole operand.
    """
    low, high = integers(op, "edge_padding_low", []), integers(op, "edge_padding_high", [])
    interior = integers(op, "interior_padding", [])
    factors = []
    for dim, (length, size) in enumerate(zip(shapes.operands[0], shapes.results[0], strict=True)):
        stride = interior[dim] + 1
        if length < 1 or size < 1 or max(length, size) < 2:
            continue
        if stride == 1:
            before, after = max(low[dim], 0), max(-low[dim], 0)
            extent = max(before + length, after + size)
            operand = DimMapping(dim, length, low=before)
            factors.append(_independent(extent, [operand, None], [DimMapping(dim, size, low=after)]))
        elif size % stride == 0 and min(low[dim], high[dim]) >= 0 and size > stride:
            operand = DimMapping(dim, length, low=low[dim] // stride)
            factors.append(
                _independent(size // stride, [operand, None], [DimMapping(dim, size // stride, inner=stride)])
            )
        elif size > 1:
            factors.append(_independent(size, [None, None], [DimMapping(dim, size)]))
    return tuple(factors)


def reverse(op: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """A dimension that keeps its order is cut in both; of one that is turned round the tile is read from the whole."""
    turned = integers(op, "dimensions", [])
    mappings = [DimMapping(dim, size) if size > 1 else None for dim, size in enumerate(shapes.results[0])]
    return tuple(
        _independent(mapping.length, [None if mapping.dim in turned else mapping], [mapping])
        for mapping in mappings
        if mapping is not None
    )


def concatenate(op: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """Along the dimension that is joined each operand is a part of the result; the others are cut in all."""
    joined = integer(op, "dimension")
    factors = []
    for dim, size in enumerate(shapes.results[0]):
        if size < 2:
            continue
        operands: list[DimMapping | None] = []
        low = 0
        for shape in shapes.operands:
            if dim != joined:
                operands.append(DimMapping(dim, size))
            else:
                operands.append(DimMapping(dim, shape[dim], low=low) if shape[dim] else None)
                low += shape[dim]
        factors.append(_independent(size, operands, [DimMapping(dim, size)]))
    return tuple(factors)


def dynamic_slice(_: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """A dimension taken in full is cut in both; of another one the tile is read from the whole operand."""
    starts: list[DimMapping | None] = [None] * (len(shapes.operands) - 1)
    factors = []
    for dim, (size, length) in enumerate(zip(shapes.operands[0], shapes.results[0], strict=True)):
        if length > 1:
            mapping = DimMapping(dim, length)
            factors.append(_independent(length, [mapping if size == length else None, *starts], [mapping]))
    return tuple(factors)


def dynamic_update_slice(_: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """A dimension that the update fills is cut in all; along another one slices of the update are written in turn."""
    starts: list[DimMapping | None] = [None] * (len(shapes.operands) - 2)
    factors = []
    for dim, (size, length) in enumerate(zip(shapes.operands[0], shapes.operands[1], strict=True)):
        if length < 2:
            continue
        mapping = DimMapping(dim, length)
        if size == length:
            factors.append(_independent(length, [mapping, mapping, *starts], [mapping]))
        else:
            factors.append(Factor(Kind.CHAIN, length, (None, mapping, *starts), (None,), (0,)))
    return tuple(factors)


def gather_windows(op: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """The window of an indexed dimension that it does not fill: the tile is gathered from start + its place."""
    numbers = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    sizes = integers(op, "slice_sizes", [])
    without = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    windows = [dim for dim in range(len(sizes)) if dim not in without]
    factors = []
    for place, dim in zip(numbers.offset_dims, windows, strict=True):
        if 1 < sizes[dim] < shapes.operands[0][dim] and dim in numbers.start_index_map:
            factors.append(_independent(sizes[dim], [None, None], [DimMapping(place, sizes[dim])]))
    return tuple(factors)


def scatter_chain(op: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """Slices of the updates written in turn: `([k,j],[i,1],[i,j])->([k,j])` chained over i.

    Only the major one of several update dimensions keeps the order of writes; a body that does not mind the order may
    be cut along each.
    """
    numbers = stablehlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    count = len(shapes.results)
    indices = [dim for dim in range(len(shapes.operands[count])) if dim != numbers.index_vector_dim]
    updates = [dim for dim in range(len(shapes.operands[-1])) if dim not in numbers.update_window_dims]
    any_order = componentwise(body_of(op)) is not None
    factors = []
    for at_index, at_update in zip(indices, updates, strict=True):
        size = shapes.operands[-1][at_update]
        if size < 2 or at_index in numbers.scatter_indices_batching_dims:
            continue
        mappings = (DimMapping(at_index, size), *[DimMapping(at_update, size)] * count)
        factors.append(Factor(Kind.CHAIN, size, (*[None] * count, *mappings), (None,) * count, tuple(range(count))))
        if not any_order:
            break
    return tuple(factors)


def scatter_windows(factors: tuple[Factor, ...], count: int) -> tuple[Factor, ...]:
    """Of Shardy's factors those that also cut the updates: an inserted dimension is only named by the indices."""
    return tuple(f for f in factors if f.kind is Kind.INDEPENDENT and f.operands[0] and f.operands[count + 1])
