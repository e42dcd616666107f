"""Ops with windows: reductions of windows, their scatter, and convolutions."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integer, integers

from .definition import BY_FACTORS, NONE, SAME_OP, Combination, OpDefinition
from .factor import DimMapping, Einsum, Factor, Kind, Shape, Shapes, factors_of
from .reducers import body_of, componentwise, counts_once, rounds, run_body
from .sizes import set_integers, shapes_of
from .sums import SUM
from .tie import Site, Spoken, all_same, by_factors, tie
from .tile import Tile, replaced, result_mapping
from .window_geometry import (
    NO_WINDOW,
    disjoint_windows,
    edges,
    is_halo,
    is_running,
    spanned,
    unpadded,
    window_letters,
    window_sizes,
    windows_of,
)

OPS: dict[str, OpDefinition] = {}


def _reduce_window_factors(op: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """`([iw,j],[])->([i,j])` if windows of w do not overlap; w is 1 in a dimension without a window.

    If windows overlap or are padded, the tile reads the span of its own windows from the unsplit operand. If all begin
    at the first element, the tile continues from the one before.
    """
    source, result = shapes.operands[0], shapes.results[0]
    windows = windows_of(op, integers(op, "window_dimensions", []))
    disjoint = disjoint_windows(windows, source, result)
    large, small = window_letters(disjoint, len(source))
    count = len(shapes.results)
    sizes = window_sizes(disjoint, result)
    factors = list(factors_of(Einsum([*[large] * count, *[[]] * count], [small] * count, sizes), shapes))
    names = componentwise(body_of(op))
    # XLA leaves the padding out where the specification reduces the init again: both agree for an identity.
    no_harm = names is not None and all(map(counts_once, list(op.operands)[count:], names))
    nothing: list[DimMapping | None] = [None] * count
    for dim, window in enumerate(windows):
        mapping = DimMapping(dim, result[dim])
        if dim in disjoint or 0 in source:
            continue
        if is_running(window, source[dim], result[dim]) and no_harm:
            factors.append(Factor(Kind.SCAN, mapping.length, (*[mapping] * count, *nothing), (mapping,) * count))
        elif is_halo(window, source[dim], result[dim]) and (no_harm or not window.is_padded):
            factors.append(Factor(Kind.INDEPENDENT, mapping.length, (*nothing, *nothing), (mapping,) * count))
    return tuple(factors)


def _reduce_window_tile(tile: Tile) -> list[ir.Value]:
    mapping, place = result_mapping(tile)
    count = place[1] - place[0]
    window = windows_of(tile.op, integers(tile.op, "window_dimensions", []))[mapping.dim]
    results = len(tile.types)
    if tile.factor.kind is Kind.SCAN:
        return tile.clone(_running(tile.op, mapping.dim, count))
    if tile.factor.operands[0] is not None:
        return tile.clone()
    start = tile.begin(place)
    inits = tile.operands[results:]
    read = [
        spanned(value, mapping.dim, window, start, count, init)
        for value, init in zip(tile.operands[:results], inits, strict=True)
    ]
    return replace(tile, operands=[*read, *inits]).clone(unpadded(tile.op, mapping.dim, "base_dilations"))


def _running(op: ir.Operation, dim: int, length: int) -> dict[str, ir.Attribute]:
    """The attributes of a cumulative op of this length."""
    sizes = integers(op, "window_dimensions", [])
    padding = integers(op, "padding", [0] * (2 * len(sizes)))
    return {
        "window_dimensions": ir.DenseI64ArrayAttr.get(replaced(sizes, dim, length)),
        "padding": edges(replaced(padding, 2 * dim, length - 1), op.context),
    }


def _reduce_window_ties(site: Site) -> Spoken:
    """A dimension without a window, and a running sum."""
    count = len(site.op.results)
    sources = list(site.op.operands)[:count]
    yield from tie(site, *sources)
    yield from tie(site, *site.op.results)
    windows = windows_of(site.op, integers(site.op, "window_dimensions", []))
    read, made = (site.classes.places(value) for value in (sources[0], site.op.results[0]))
    for place, other, size, window in zip(read, made, site.classes.shape(sources[0]), windows, strict=True):
        if window == NO_WINDOW or is_running(window, size, size):
            site.classes.same(place, other)
        else:
            site.classes.fix_dimensions(place, other)


def _reduce_window_resize(op: ir.Operation, before: Sequence[Shape]) -> None:
    """The only windows along dimensions that change are cumulative."""
    windows = integers(op, "window_dimensions", [])
    padding = integers(op, "padding", [0] * (2 * len(windows)))
    for dim, (old, size) in enumerate(zip(before[0], shapes_of(op)[0], strict=True)):
        if old != size and windows[dim] != 1:
            windows[dim], padding[2 * dim] = size, size - 1
    set_integers(op, "window_dimensions", windows)
    op.attributes["padding"] = edges(padding, op.context)


OPS["stablehlo.reduce_window"] = OpDefinition(
    factors=_reduce_window_factors,
    tile=_reduce_window_tile,
    ties=_reduce_window_ties,
    resize=_reduce_window_resize,
    combination=Combination(
        initial=NONE,
        combine=NONE,
        resume=lambda op, state, partial: run_body(body_of(op), [*state, *partial]),
        widens=NONE,
        converts=False,
        reassociates=lambda op, kind: kind is Kind.SCAN and rounds(body_of(op)),
    ),
    reason="stablehlo.reduce_window has windows that overlap: each tile reads all of its operand",
)


def _select_and_scatter_factors(op: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """`([iw,j],[i,j],[])->([iw,j])` if windows do not overlap."""
    operand, source, _ = shapes.operands
    windows = windows_of(op, integers(op, "window_dimensions", [1] * len(operand)))
    disjoint = disjoint_windows(windows, operand, source)
    large, small = window_letters(disjoint, len(operand))
    sizes = window_sizes(disjoint, source)
    # Positions within a window are in the operand and in the result, and still belong to one window.
    uncut = {(kind, dim) for dim in range(len(operand)) for kind in ("uncut", "within")}
    return factors_of(Einsum([large, small, []], [large], sizes, uncut=uncut), shapes)


OPS["stablehlo.select_and_scatter"] = OpDefinition(
    factors=_select_and_scatter_factors, tile=SAME_OP, ties=BY_FACTORS, resize=NONE, combination=NONE, reason=""
)


def _convolution_factors(op: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """Batch, features, groups, and the spatial dimensions.

    If the kernel's windows overlap or are padded, the tile reads the span of its own windows from the unsplit operand.
    Groups are the major part of the feature (or batch) dimension; the minor part is not cut.
    """
    numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    (left, kernel), result = shapes.operands, shapes.results[0]
    features, batches = integer(op, "feature_group_count", 1), integer(op, "batch_group_count", 1)
    in_left: list[list[Hashable]] = [[] for _ in left]
    in_kernel: list[list[Hashable]] = [[] for _ in kernel]
    in_result: list[list[Hashable]] = [[] for _ in result]
    in_left[numbers.input_batch_dimension] = ["batch groups", "batch"]
    in_left[numbers.input_feature_dimension] = ["feature groups", "input"]
    in_kernel[numbers.kernel_input_feature_dimension] = ["input"]
    in_kernel[numbers.kernel_output_feature_dimension] = ["batch groups", "feature groups", "output"]
    in_result[numbers.output_batch_dimension] = ["batch"]
    in_result[numbers.output_feature_dimension] = ["batch groups", "feature groups", "output"]
    sizes: dict[Hashable, int] = {
        "batch groups": batches,
        "feature groups": features,
        "batch": left[numbers.input_batch_dimension] // batches,
        "input": left[numbers.input_feature_dimension] // features,
        "output": kernel[numbers.kernel_output_feature_dimension] // (features * batches),
    }
    windows = windows_of(op, [kernel[place] for place in numbers.kernel_spatial_dimensions])
    sources = tuple(left[place] for place in numbers.input_spatial_dimensions)
    counts = tuple(result[place] for place in numbers.output_spatial_dimensions)
    disjoint = disjoint_windows(windows, sources, counts)
    large, small = window_letters(disjoint, len(windows))
    halos = []
    for index, at_result in enumerate(numbers.output_spatial_dimensions):
        in_left[numbers.input_spatial_dimensions[index]] = large[index]
        in_kernel[numbers.kernel_spatial_dimensions[index]] = [("kernel", index)]
        in_result[at_result] = small[index]
        if index not in disjoint and 0 not in left and is_halo(windows[index], sources[index], counts[index]):
            mapping = DimMapping(at_result, counts[index])
            halos.append(Factor(Kind.INDEPENDENT, mapping.length, (None, None), (mapping,)))
    sizes |= window_sizes(disjoint, counts)
    return (*factors_of(Einsum([in_left, in_kernel], [in_result], sizes, summed=("input",)), shapes), *halos)


def _convolution_tile(tile: Tile) -> list[ir.Value]:
    """If groups are cut, the tile has fewer of them; along a spatial dimension it reads the span of its windows."""
    numbers = stablehlo.ConvDimensionNumbers(tile.op.attributes["dimension_numbers"])
    left, kernel = tile.factor.operands
    if left is None and kernel is None:
        return _rows_of_convolution(tile, numbers)
    if left is None or kernel is None or kernel.dim != numbers.kernel_output_feature_dimension:
        return tile.clone()
    by_feature = left.dim == numbers.input_feature_dimension
    name = "feature_group_count" if by_feature else "batch_group_count"
    place = tile.operand_ranges[0]
    assert place is not None and integer(tile.op, name) == tile.factor.size
    count = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), place[1] - place[0])
    return tile.clone({name: count})


def _rows_of_convolution(tile: Tile, numbers: stablehlo.ConvDimensionNumbers) -> list[ir.Value]:
    mapping, place = result_mapping(tile)
    left, kernel = tile.operands
    sizes = [build.shape_of(kernel)[dim] for dim in numbers.kernel_spatial_dimensions]
    index = list(numbers.output_spatial_dimensions).index(mapping.dim)
    dim = numbers.input_spatial_dimensions[index]
    start = tile.begin(place)
    zero = build.zeros(build.with_shape(build.tensor_of(left), []))
    read = spanned(left, dim, windows_of(tile.op, sizes)[index], start, place[1] - place[0], zero)
    return replace(tile, operands=[read, kernel]).clone(unpadded(tile.op, index, "lhs_dilation"))


def _convolution_ties(site: Site) -> Spoken:
    """The number of groups is an attribute: with groups, only examples without any may change in number."""
    features, batches = (integer(site.op, f"{name}_group_count", 1) for name in ("feature", "batch"))
    if features == batches == 1:
        yield from by_factors(site)
        return
    numbers = stablehlo.ConvDimensionNumbers(site.op.attributes["dimension_numbers"])
    left, kernel, result = (site.classes.places(value) for value in (*site.op.operands, *site.op.results))
    if batches == 1:
        pair = left[numbers.input_batch_dimension], result[numbers.output_batch_dimension]
        yield from all_same(site, pair)
    if features == 1:
        summed = left[numbers.input_feature_dimension], kernel[numbers.kernel_input_feature_dimension]
        yield from all_same(site, summed)


OPS["stablehlo.convolution"] = OpDefinition(
    factors=_convolution_factors,
    tile=_convolution_tile,
    ties=_convolution_ties,
    resize=NONE,
    combination=SUM,
    reason="",
)
