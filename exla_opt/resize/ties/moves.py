"""Ops that make, move and cut tensors."""

from __future__ import annotations

from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir.attributes import integer, integers, is_splat
from exla_opt.ir.reassociation import reassociation_of

from .site import Site, Told, all_same, cut, cut_all, tie

# The elements of constants that NumPy has arrays of.
_READABLE = frozenset("f16 f32 f64 i1 i8 i16 i32 i64 ui8 ui16 ui32 ui64".split())


def made(site: Site) -> Told:
    yield from site.classes.places(site.op.results[0])


def constant(site: Site) -> Told:
    """One that NumPy cannot read cannot be cut either."""
    element = ir.RankedTensorType(site.op.results[0].type).element_type
    if is_splat(site.op) or str(element) in _READABLE:
        yield from made(site)


def broadcast(site: Site) -> Told:
    operand, result = (site.classes.places(value) for value in (site.op.operands[0], site.op.results[0]))
    sizes = site.classes.shape(site.op.operands[0])
    where = integers(site.op, "broadcast_dimensions", [])
    for place, size, dim in zip(operand, sizes, where, strict=True):
        if size != 1:
            site.classes.same(place, result[dim])
        yield place
    yield from result


def reshape(site: Site) -> Told:
    (operand,), result = site.op.operands, site.op.results[0]
    before, after = site.classes.shape(operand), site.classes.shape(result)
    for group in reassociation_of(before, after) or ():
        left = [site.classes.places(operand)[dim] for dim in group.before if before[dim] != 1]
        right = [site.classes.places(result)[dim] for dim in group.after if after[dim] != 1]
        if left:
            site.classes.relation(prod, left, right)
        yield from (*left, *right)


def set_dimension_size(site: Site) -> Told:
    """The size that is set is a number."""
    yield from tie(site, site.op.operands[0], site.op.results[0])
    site.classes.fix_dimensions(site.classes.places(site.op.results[0])[integer(site.op, "dimension")])


def slice_(site: Site) -> Told:
    operand, result = (site.classes.places(value) for value in (site.op.operands[0], site.op.results[0]))
    sizes = zip(*(site.classes.shape(value) for value in (site.op.operands[0], site.op.results[0])), strict=True)
    strides = integers(site.op, "strides", [])
    for whole, part, pair, stride in zip(operand, result, sizes, strides, strict=True):
        if pair[1]:
            yield from cut(site, whole, part, pair, stride)


def pad(site: Site) -> Told:
    """What is padded is padded by as much as is missing."""
    operand, result = (site.classes.places(value) for value in (site.op.operands[0], site.op.results[0]))
    amounts = [integers(site.op, name, []) for name in ("edge_padding_low", "edge_padding_high", "interior_padding")]
    for before, after, *padding in zip(operand, result, *amounts, strict=True):
        if not any(padding):
            site.classes.same(before, after)
            yield from (before, after)
        elif min(padding) >= 0:
            site.classes.bound(after, before, padding[2] + 1)
            yield from (before, after)


def concatenate(site: Site) -> Told:
    joined, classes = integer(site.op, "dimension"), site.classes
    result = classes.places(site.op.results[0])
    parts = [classes.places(value) for value in site.op.operands]
    for dim, place in enumerate(result):
        dims = [part[dim] for part in parts]
        if dim != joined:
            yield from all_same(site, [*dims, place])
        elif len(dims) == 1:
            yield from all_same(site, [place, dims[0]])
        else:
            classes.relation(sum, [place], dims)
            yield from (place, *dims)


def dynamic_slice(site: Site) -> Told:
    yield from cut_all(site, site.op.operands[0], site.op.results[0])


def dynamic_update_slice(site: Site) -> Told:
    operand, update = list(site.op.operands)[:2]
    yield from tie(site, operand, site.op.results[0])
    yield from cut_all(site, operand, update)


def gather(site: Site) -> Told:
    """Windows are dimensions of the operand or parts of them; of a dimension without a window any row is read."""
    numbers = stablehlo.GatherDimensionNumbers(site.op.attributes["dimension_numbers"])
    (operand, indices), result = site.op.operands, site.op.results[0]
    offset, batching = list(numbers.offset_dims), list(numbers.operand_batching_dims)
    without = {*numbers.collapsed_slice_dims, *batching}
    places, read = site.classes.places(operand), site.classes.places(result)
    shape, sizes = site.classes.shape(operand), site.classes.shape(result)
    windows = [dim for dim in range(len(places)) if dim not in without]
    for dim, at_result in zip(windows, offset, strict=True):
        yield from cut(site, places[dim], read[at_result], (shape[dim], sizes[at_result]))
    yield from (places[dim] for dim in numbers.collapsed_slice_dims)
    counted = [dim for dim in range(len(read)) if dim not in offset]
    yield from _indices(site, indices, numbers.index_vector_dim, [read[dim] for dim in counted])
    starts = site.classes.places(indices)
    for dim, at_index in zip(batching, numbers.start_indices_batching_dims, strict=True):
        yield from all_same(site, [places[dim], starts[at_index]])


def _indices(site: Site, indices: ir.Value, vector: int, counted: list[int]) -> Told:
    """There is a window for each index vector."""
    places = [place for dim, place in enumerate(site.classes.places(indices)) if dim != vector]
    for one, other in zip(places, counted, strict=True):
        yield from all_same(site, [one, other])


def scatter(site: Site) -> Told:
    numbers = stablehlo.ScatterDimensionNumbers(site.op.attributes["scatter_dimension_numbers"])
    count = len(site.op.results)
    operands = list(site.op.operands)
    inputs, indices, updates = operands[:count], operands[count], operands[count + 1 :]
    yield from tie(site, *inputs, *site.op.results)
    yield from tie(site, *updates)
    places, written = site.classes.places(inputs[0]), site.classes.places(updates[0])
    shape, sizes = site.classes.shape(inputs[0]), site.classes.shape(updates[0])
    batching = list(numbers.input_batching_dims)
    without = {*numbers.inserted_window_dims, *batching}
    windows = [dim for dim in range(len(places)) if dim not in without]
    for dim, at_update in zip(windows, numbers.update_window_dims, strict=True):
        yield from cut(site, places[dim], written[at_update], (shape[dim], sizes[at_update]))
    counted = [place for dim, place in enumerate(written) if dim not in list(numbers.update_window_dims)]
    yield from _indices(site, indices, numbers.index_vector_dim, counted)
    starts = site.classes.places(indices)
    for dim, at_index in zip(batching, numbers.scatter_indices_batching_dims, strict=True):
        yield from all_same(site, [places[dim], starts[at_index]])
