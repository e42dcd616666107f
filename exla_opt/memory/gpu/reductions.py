"""Reductions that XLA:GPU splits into several steps, each with its partial results in memory.

A block of threads reduces a limited number of elements of a row, or of rows of some columns; longer ones are split into
about as many parts as each part has elements, and the parts' results are reduced in turn: XLA's TreeReductionRewriter.
A reduction along non-adjacent dimensions reduces the longest first: its ReductionSplitter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import isqrt, prod

from jaxlib.mlir import ir

from exla_opt.ir.attributes import integers
from exla_opt.ir.values import defining_op

from ..block import Operation, Shape
from ..builder import Builder
from .reduction_orders import orders_of_reduced

# The most elements that one kernel reduces along a row, along columns, and along the outer of two row dimensions.
_LONGEST_ROW, _LONGEST_COLUMN, _MOST_ROWS = 2**14, 2**12, 8
# Shorter reductions are loops: rows that do not fill a warp, and columns.
_WARP = 32
# Lengths of dimensions, and whether each is reduced; adjacent ones always differ in that.
_Runs = tuple[tuple[int, bool], ...]


def split_reductions(builder: Builder, block: ir.Block, reductions: Mapping[int, ir.Operation]) -> None:
    """Replace the reduces of a block under construction by their steps. reductions: by their first results."""
    orders = orders_of_reduced(builder, block)
    ops: list[Operation] = []
    for made in builder.block.ops:
        op = reductions.get(made.results[0]) if made.results else None
        ops.extend((made,) if op is None or made.name != "reduce" else _steps_of(builder, op, made, orders))
    builder.block.ops = ops


def _steps_of(
    builder: Builder, op: ir.Operation, made: Operation, orders: Mapping[int, Sequence[int]]
) -> Iterator[Operation]:
    """The steps of a reduce. orders: the memory order of dimensions, by tensor."""
    order = orders.get(made.operands[0])
    runs = _runs_of(builder, op, made, order)
    found = steps(runs, len(made.results) > 1)
    if len(found) == 1 and order is None:
        yield made
        return
    count = len(made.results)
    values, initial = made.operands[:count], made.operands[count:]
    for place, step in enumerate(found):
        results = made.results
        if place < len(found) - 1:
            kept = tuple(length for length, is_reduced in step if not is_reduced)
            results = tuple(builder.fresh(op.results[0], kept, value) for value in values)
        lengths, together = _lengths(step)
        yield replace(made, operands=(*values, *initial), results=results, lengths=lengths, together=together)
        values = results


def _runs_of(builder: Builder, op: ir.Operation, made: Operation, order: Sequence[int] | None) -> _Runs:
    """The dimensions of a reduce's operand, behind a transpose or not, in memory order."""
    value, dims = op.operands[0], integers(op, "dimensions", [])
    moved = defining_op(value, "stablehlo.transpose")
    if moved is not None and builder.number.get(moved.operands[0]) == made.operands[0]:
        permutation = integers(moved, "permutation", [])
        value, dims = moved.operands[0], [permutation[dim] for dim in dims]
    shape = builder.types.of(value).shape
    if order is None or len(order) != len(shape):
        order = range(len(shape))
    return _joined(tuple((shape[dim], dim in dims) for dim in order))


def steps(runs: _Runs, is_variadic: bool = False) -> list[_Runs]:
    """The successive reductions that make up one; each reads the result of the one before."""
    reduced = [place for place, (_, is_reduced) in enumerate(runs) if is_reduced]
    if not reduced:
        return [runs]
    if not _is_one_kernel(runs):
        if len(reduced) == 1 or is_variadic:
            return [runs]
        return _apart(runs, max(reduced, key=lambda place: runs[place][0]), is_variadic)
    last = reduced[-1]
    length = runs[last][0]
    if last == len(runs) - 1 and len(reduced) > 1 and runs[reduced[0]][0] > _MOST_ROWS:
        return _apart(runs, last, is_variadic)
    if length <= (_LONGEST_ROW if last == len(runs) - 1 else _LONGEST_COLUMN):
        return [runs]
    parts = _parts(length)
    cut = (*runs[:last], (parts, True), (-(-length // parts), True), *runs[last + 1 :])
    return _apart(cut, last + 1, is_variadic)


def _apart(runs: _Runs, first: int, is_variadic: bool) -> list[_Runs]:
    """The steps of a reduction along one dimension before the others."""
    inner = _joined(tuple((length, place == first) for place, (length, _) in enumerate(runs)))
    outer = _joined((*runs[:first], *runs[first + 1 :]))
    return [*steps(inner, is_variadic), *steps(outer, is_variadic)]


def _joined(runs: _Runs) -> _Runs:
    """With dimensions of one element removed, and adjacent ones of the same kind merged."""
    found: list[tuple[int, bool]] = []
    for length, is_reduced in runs:
        if length == 1:
            continue
        if found and found[-1][1] == is_reduced:
            found[-1] = (found[-1][0] * length, is_reduced)
        else:
            found.append((length, is_reduced))
    return tuple(found)


def _is_one_kernel(runs: _Runs) -> bool:
    """Whether a row or column kernel does the reduction: one run, or two with another between, none of them short."""
    kinds = [is_reduced for _, is_reduced in runs]
    if kinds.count(True) > 1 and kinds.count(False) > 1:
        return False
    if kinds[-1]:
        return runs[-1][0] >= _WARP or _WARP % runs[-1][0] == 0
    return runs[kinds.index(True)][0] >= _WARP


def _parts(length: int) -> int:
    """The number of parts: between half the square root and the square root, with the least padding, else the most."""
    most = isqrt(length)
    return min(range(most, most // 2, -1), key=lambda parts: -length % parts)


def _lengths(runs: _Runs) -> tuple[Shape, int]:
    """The reduced lengths, and the number of contiguous elements after the last of them."""
    last = max(place for place, (_, is_reduced) in enumerate(runs) if is_reduced)
    lengths = tuple(length for length, is_reduced in runs if is_reduced)
    return lengths, prod(length for length, _ in runs[last + 1 :])
