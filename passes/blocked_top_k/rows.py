"""top_k of long rows: the k largest elements of the k blocks with the largest maxima."""

from __future__ import annotations

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integer
from exla_opt.ir.clean_up import clean_up
from exla_opt.ir.types import element_type
from exla_opt.ir.values import has_discardable_attributes
from exla_opt.ir.walk import inside_out

from .blocks import WIDTHS, as_before, block_length, extreme, in_blocks, in_order, least
from .picked import picked

# Row elements per requested one: measured on rows of 1,000 to 4,000,000, where from 500 on it takes 0.1 to 0.8 of the
# time, and 0.8 to 1.1 below.
_LEAST_ELEMENTS, _LEAST_ROW = 500, 2_000


def rewrite_rows(module: ir.Module) -> None:
    """Rewrite the top_k of long rows in `module`, in place."""
    while found := [op for op in inside_out(module, "chlo.top_k") if _is_legal(op) and _gains(op)]:
        for op in found:
            with op.location, ir.InsertionPoint(op):
                values, places = _write(op)
            op.results[0].replace_all_uses_with(values)
            op.results[1].replace_all_uses_with(places)
        clean_up(module)  # again: there may be many blocks


def _is_legal(op: ir.Operation) -> bool:
    """Whether the elements are integers, or floats that can be compared as integers."""
    kind = element_type(op.operands[0])
    is_integer = isinstance(kind, ir.IntegerType) and kind.width >= 8
    filled = 0 not in build.shape_of(op.operands[0]) and integer(op, "k", 0) > 0
    return filled and not has_discardable_attributes(op) and (is_integer or str(kind) in WIDTHS)


def _gains(op: ir.Operation) -> bool:
    """Whether few elements of each row are requested."""
    length = build.shape_of(op.operands[0])[-1]
    return length >= max(_LEAST_ROW, _LEAST_ELEMENTS * integer(op, "k", length))


def _write(op: ir.Operation) -> tuple[ir.Value, ir.Value]:
    """The largest elements and their indices."""
    [operand], count = op.operands, integer(op, "k", 0)
    *rows, length = build.shape_of(operand)
    width = block_length(length)
    kind = build.tensor_of(operand)
    blocks = in_blocks(operand, least(kind))
    _, best = _top(as_before(extreme(in_order(blocks), largest=True), element_type(operand)), count)
    widths = build.splat(best.type, width)
    begins = stablehlo.multiply(_rising(best), widths)
    # The last block may be short: the one read instead begins earlier.
    read = stablehlo.minimum(begins, build.splat(begins.type, length - width))
    candidates = picked(operand, read, width)
    if length % width:
        candidates = _without(candidates, stablehlo.subtract(begins, read))
    values, of = _top(stablehlo.reshape(build.with_shape(kind, [*rows, count * width]), candidates), count)
    begin = build.take_along_last(read, stablehlo.divide(of, widths))
    return values, stablehlo.add(begin, stablehlo.remainder(of, widths))


def _without(blocks: ir.Value, counts: ir.Value) -> ir.Value:
    """Blocks, [..., j, width], with the minimum in place of their first counts[..., j] elements.

    Those are never chosen: other blocks are read before the last one, and have enough elements that are not less.
    """
    kind = build.tensor_of(blocks)
    rank = len(kind.shape)
    i32 = ir.RankedTensorType.get(kind.shape, ir.IntegerType.get_signless(32))
    spread = stablehlo.broadcast_in_dim(i32, counts, ir.DenseI64ArrayAttr.get(list(range(rank - 1))))
    nothing = build.broadcast(least(kind), kind.shape)
    return stablehlo.select(build.less_than(stablehlo.iota(i32, rank - 1), spread), nothing, blocks)


def _top(value: ir.Value, count: int) -> tuple[ir.Value, ir.Value]:
    kind = build.tensor_of(value)
    shape = [*list(kind.shape)[:-1], count]
    made = ir.Operation.create(
        "chlo.top_k",
        results=[build.with_shape(kind, shape), ir.RankedTensorType.get(shape, ir.IntegerType.get_signless(32))],
        operands=[value],
        attributes={"k": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), count)},
    )
    return made.results[0], made.results[1]


def _rising(places: ir.Value) -> ir.Value:
    """The numbers of every row in ascending order, so that of equal elements the first stays the first."""
    kind = build.tensor_of(places)
    made = stablehlo.SortOp([kind], [places], dimension=len(kind.shape) - 1, is_stable=False)
    scalar = build.with_shape(kind, [])
    with ir.InsertionPoint(made.comparator.blocks.append(scalar, scalar)) as inside:
        stablehlo.return_([build.less_than(*inside.block.arguments)])
    result: ir.Value = made.operation.results[0]
    return result
