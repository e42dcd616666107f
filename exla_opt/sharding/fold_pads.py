"""Folds pads into the slices and the convolutions that read them, and slices into the convolutions that they read.

A tensor with a few more rows is rarely divided evenly by the devices, and its shards begin elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integers
from exla_opt.ir.values import defining_op, splat_value
from exla_opt.ir.walk import inside_out
from exla_opt.ops.window_geometry import edges

from .shift_parts import EDGES

_PAD = "stablehlo.pad"


def fold_pads(module: ir.Module) -> None:
    """Replace slices of pads by other pads, and convolutions of padded tensors and their slices by others, in place."""
    for op in inside_out(module, "stablehlo.slice", _PAD, "stablehlo.convolution"):
        pad, convolution = defining_op(op.operands[0], _PAD), defining_op(op.operands[0], "stablehlo.convolution")
        if op.name != "stablehlo.convolution" and convolution is not None:
            cut = _cut_off(op)
            if cut is not None and len(list(op.operands[0].uses)) == 1:
                _cut_convolution(op, cut, convolution)
        elif pad is None or any(integers(pad, EDGES[2], [])):
            continue
        elif op.name == "stablehlo.slice":
            _slice_of_pad(op, pad)
        elif op.name == "stablehlo.convolution" and _is_zero(pad.operands[1]):
            _convolution_of_pad(op, pad)


def _is_zero(value: ir.Value) -> bool:
    made = defining_op(value, "stablehlo.convert")
    return splat_value(value if made is None else made.operands[0]) == 0


def _cut_off(op: ir.Operation) -> tuple[list[int], list[int]] | None:
    """The elements that a slice or a pad cuts off at the start and at the end of each dimension, if it does no more."""
    if op.name == _PAD:
        low, high, interior = ([-edge for edge in integers(op, name, [])] for name in EDGES)
        return None if any(interior) or min(*low, *high, 0) < 0 else (low, high)
    starts, limits, steps = (integers(op, name, []) for name in ("start_indices", "limit_indices", "strides"))
    sizes = build.shape_of(op.operands[0])
    ends = [size - limit for size, limit in zip(sizes, limits, strict=True)]
    return None if any(step != 1 for step in steps) else (starts, ends)


def _slice_of_pad(op: ir.Operation, pad: ir.Operation) -> None:
    """Edges may be negative: then the pad cuts rows off. Each dimension must keep some row of the operand."""
    if any(step != 1 for step in integers(op, "strides", [])):
        return
    sizes, padded = build.shape_of(pad.operands[0]), build.shape_of(pad.results[0])
    cut = zip(integers(pad, EDGES[0], []), integers(op, "start_indices", []), strict=True)
    low = [edge - start for edge, start in cut]
    ends = zip(integers(pad, EDGES[1], []), integers(op, "limit_indices", []), padded, strict=True)
    high = [edge - (size - limit) for edge, limit, size in ends]
    if any(size + min(one, 0) + min(two, 0) < 1 for size, one, two in zip(sizes, low, high, strict=True)):
        return
    with ir.InsertionPoint(op), op.location:
        value, fill = pad.operands
        made = stablehlo.PadOp(value, fill, low, high, [0] * len(sizes), results=[op.results[0].type])
    op.results[0].replace_all_uses_with(made.result)
    op.erase()


def _convolution_of_pad(op: ir.Operation, pad: ir.Operation) -> None:
    numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    spatial = list(numbers.input_spatial_dimensions)
    low, high = (integers(pad, name, []) for name in EDGES[:2])
    others = [dim for dim in range(len(low)) if dim not in spatial]
    dilated = integers(op, "lhs_dilation", [1] * len(spatial))
    if any(low[dim] or high[dim] for dim in others) or any(step != 1 for step in dilated):
        return
    padding = integers(op, "padding", [0] * (2 * len(spatial)))
    edge = [each for dim in spatial for each in (low[dim], high[dim])]
    # Rows that the pad cuts off do not come back as the convolution's padding.
    if any(one < 0 < two for one, two in zip(edge, padding, strict=True)):
        return
    padding = [one + two for one, two in zip(edge, padding, strict=True)]
    if not _reads_some([build.shape_of(pad.operands[0])[dim] for dim in spatial], padding):
        return
    op.operands[0] = pad.operands[0]
    op.attributes["padding"] = edges(padding, op.context)


def _reads_some(sizes: Sequence[int], padding: Sequence[int]) -> bool:
    """Whether the padding cuts off less than all of each dimension: XLA:CPU reads beyond the operand otherwise."""
    edges_of = zip(sizes, padding[::2], padding[1::2], strict=True)
    return all(size + min(low, 0) + min(high, 0) > 0 for size, low, high in edges_of)


def _cut_convolution(op: ir.Operation, cut: tuple[list[int], list[int]], convolution: ir.Operation) -> None:
    numbers = stablehlo.ConvDimensionNumbers(convolution.attributes["dimension_numbers"])
    spatial = list(numbers.output_spatial_dimensions)
    starts, ends = cut
    strides = integers(convolution, "window_strides", [1] * len(spatial))
    others = [dim for dim in range(len(starts)) if dim not in spatial]
    if any(starts[dim] or ends[dim] for dim in others) or any(step != 1 for step in strides):
        return
    padding = integers(convolution, "padding", [0] * (2 * len(spatial)))
    for place, dim in enumerate(spatial):
        padding[2 * place] -= starts[dim]
        padding[2 * place + 1] -= ends[dim]
    shape = build.shape_of(convolution.operands[0])
    if not _reads_some([shape[dim] for dim in numbers.input_spatial_dimensions], padding):
        return
    convolution.attributes["padding"] = edges(padding, op.context)
    convolution.results[0].set_type(op.results[0].type)
    op.results[0].replace_all_uses_with(convolution.results[0])
    op.erase()
