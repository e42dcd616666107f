"""pooling-gradients: the gradient of max pooling on a CPU, as comparisons of shifted slices instead of a scatter.

before:  %dx = select_and_scatter %x, %dy, windows of 2, strides of 2 : (64xf32, 32xf32) -> 64xf32
after:   %0, %1 = slice %x [0:63:2], slice %x [1:64:2]
         %place = select (compare GE %0, %1), 0, 1
         %dx = (pad %dy where %place is 0, low 0, interior 1) + (pad %dy where %place is 1, low 1, interior 1)

XLA:CPU finds the element that a window selects, writes its indices, four bytes for each dimension, and scatters one
element after the other: five times the bytes of the pooled tensor, and ten times as long as the loops that it fuses
slices, comparisons and pads into. If windows overlap, an element that several selected sums in another order: with
--no-reassociate such floats stay. Nothing is done for other machines, and for windows of more than 64 elements, or of
more than 9 if strides along the last dimension leave no vectors to load.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integers
from exla_opt.ir.clean_up import clean_up
from exla_opt.ir.locations import describe
from exla_opt.ir.opaque import always
from exla_opt.ir.types import Types, element_type, float_bits
from exla_opt.ir.values import has_discardable_attributes, splat_value
from exla_opt.ir.walk import inside_out
from exla_opt.ops.reducers import componentwise, run_body
from exla_opt.ops.window_geometry import Window, windows_of
from exla_opt.options import Options
from exla_opt.remarks import Kind, Remark

NAME = "pooling-gradients"
# Chosen on 14 windows of 2 to 64 elements, 0.02 to 1.6 MB each; see docs/passes/pooling-gradients.md for others.
_MOST_ELEMENTS = 64
_MOST_IN_STRIDES = 9
_TYPES = ("f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8")


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Rewrite the gradients of max pooling in `module`, in place, if it is for a CPU."""
    if options.machine.kind != "cpu":
        return []
    types = Types()
    found = [
        op
        for op in inside_out(module, "stablehlo.select_and_scatter")
        if _is_legal(op, options.reassociate) and _gains(_windows(op))
    ]
    remarks = [_remark(op, types) for op in found if types.of(op.operands[0]).bytes > options.size_threshold]
    for op in found:
        with op.location, ir.InsertionPoint(op):
            op.results[0].replace_all_uses_with(_write(op, _windows(op)))
    if found:
        clean_up(module)
    return remarks


def _windows(op: ir.Operation) -> list[Window]:
    return windows_of(op, integers(op, "window_dimensions", [1] * len(build.shape_of(op.operands[0]))))


def _is_legal(op: ir.Operation, reassociate: bool) -> bool:
    """Whether it adds the elements that windows select, from zero, in any order."""
    select, scatter = (region.blocks[0] for region in op.regions)
    shapes = [build.shape_of(value) for value in op.operands[:2]]
    if not shapes[0] or any(0 in shape for shape in shapes) or str(element_type(op.operands[1])) not in _TYPES:
        return False
    windows = _windows(op)
    disjoint = all(window.stride >= window.size for window in windows)
    return (
        not has_discardable_attributes(op)
        and all(window.low >= 0 <= window.high for window in windows)
        and len(select.operations) == 2
        and select.operations[0].operation.name == "stablehlo.compare"
        and componentwise(scatter) == ("add",)
        and splat_value(op.operands[2]) == 0
        and (disjoint or reassociate or not float_bits(element_type(op.operands[1])))
    )


def _gains(windows: Sequence[Window]) -> bool:
    """Whether the loops take less time than the scatter."""
    elements = prod(window.size for window in windows)
    return elements <= (_MOST_ELEMENTS if windows[-1].stride == 1 else _MOST_IN_STRIDES)


def _write(op: ir.Operation, windows: Sequence[Window]) -> ir.Value:
    """In a branch that is always taken: XLA would fuse the sum into each of its readers, and write every pad.

    The branch is a case on a number: for a boolean, XLA computes both branches, and selects.
    """
    number = build.convert(always(op.operands[1]), ir.IntegerType.get_signless(32))
    branches = (_nothing, _sum_of_shifts)
    chosen = stablehlo.CaseOp([op.results[0].type], number, len(branches))
    for region, branch in zip(chosen.operation.regions, branches, strict=True):
        with ir.InsertionPoint(region.blocks.append()):
            stablehlo.return_([branch(op, windows)])
    [made] = chosen.results
    return made


def _nothing(op: ir.Operation, _: Sequence[Window]) -> ir.Value:
    return build.zeros(op.results[0].type)


def _sum_of_shifts(op: ir.Operation, windows: Sequence[Window]) -> ir.Value:
    operand, source, zero = op.operands
    low, high = [window.low for window in windows], [window.high for window in windows]
    padded = any((*low, *high))
    if padded:
        operand = stablehlo.pad(operand, zero, low, high, [0] * len(windows))
    offsets = list(product(*(range(window.size) for window in windows)))
    chosen = _chosen(op, operand, windows, offsets)
    wide = build.wide_float() if 0 < float_bits(element_type(source)) < 32 else element_type(source)
    source, zero = build.convert(source, wide), build.convert(zero, wide)
    nothing = build.zeros(source.type)
    total: ir.Value | None = None
    for number, offset in enumerate(offsets):
        own = stablehlo.select(build.equal(chosen, build.splat(chosen.type, number)), source, nothing)
        behind = [
            size - place - (count - 1) * window.stride - 1
            for size, place, count, window in zip(
                build.shape_of(operand), offset, build.shape_of(source), windows, strict=True
            )
        ]
        part = stablehlo.pad(own, zero, offset, behind, [window.stride - 1 for window in windows])
        total = part if total is None else stablehlo.add(total, part)
    assert total is not None
    if padded:
        limits = [size - more for size, more in zip(build.shape_of(operand), high, strict=True)]
        total = stablehlo.slice(total, low, limits, [1] * len(windows))
    return build.convert(total, element_type(op.results[0]))


def _chosen(
    op: ir.Operation, operand: ir.Value, windows: Sequence[Window], offsets: Sequence[tuple[int, ...]]
) -> ir.Value:
    """For every window the number of the offset whose element it selects, as i8; -1 if it has only padding.

    operand: with its padding, which no window selects.
    """
    shape = build.shape_of(op.operands[1])
    places = ir.RankedTensorType.get(shape, ir.IntegerType.get_signless(8))
    nothing = build.splat(places, -1)
    best = _strided(operand, offsets[0], shape, windows)
    inside = _inside(op, offsets[0], windows)
    chosen = build.zeros(places) if inside is None else stablehlo.select(inside, build.zeros(places), nothing)
    padded = inside is not None
    for number, offset in enumerate(offsets[1:], 1):
        candidate = _strided(operand, offset, shape, windows)
        [keeps] = run_body(op.regions[0].blocks[0], [best, candidate])
        takes = stablehlo.not_(keeps)
        inside = _inside(op, offset, windows)
        if padded:
            takes = stablehlo.or_(takes, build.equal(chosen, nothing))
        if inside is not None:
            takes = stablehlo.and_(takes, inside)
        best = stablehlo.select(takes, candidate, best)
        chosen = stablehlo.select(takes, build.splat(places, number), chosen)
    return chosen


def _strided(operand: ir.Value, offset: Sequence[int], counts: Sequence[int], windows: Sequence[Window]) -> ir.Value:
    """The elements at one offset of all windows."""
    limits = [
        place + (count - 1) * window.stride + 1 for place, count, window in zip(offset, counts, windows, strict=True)
    ]
    return stablehlo.slice(operand, offset, limits, [window.stride for window in windows])


def _inside(op: ir.Operation, offset: Sequence[int], windows: Sequence[Window]) -> ir.Value | None:
    """The windows that have an element of the operand at an offset, not padding; None if all have."""
    shape = build.shape_of(op.operands[1])
    mask: ir.Value | None = None
    for dim, (size, count, window) in enumerate(zip(build.shape_of(op.operands[0]), shape, windows, strict=True)):
        low = window.low - offset[dim]  # the smallest index of an element inside, times the stride
        first, last = -(-low // window.stride), (size - 1 + low) // window.stride
        if first <= 0 and last >= count - 1:
            continue
        places = stablehlo.iota(ir.RankedTensorType.get(shape, ir.IntegerType.get_signless(32)), dim)
        bounds = build.splat(places.type, first), build.splat(places.type, last)
        within = stablehlo.and_(
            build.compare(places, bounds[0], "GE", "SIGNED"), build.compare(places, bounds[1], "LE", "SIGNED")
        )
        mask = within if mask is None else stablehlo.and_(mask, within)
    return mask


def _remark(op: ir.Operation, types: Types) -> Remark:
    big = types.of(op.operands[0])
    message = "the gradient of its pooling is computed by comparisons, without a scatter"
    return Remark(Kind.PASSED, "EX015", NAME, str(big), big.bytes, describe(op), message)
