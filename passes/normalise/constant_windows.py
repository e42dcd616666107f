"""A gather of one window, or a scatter of one at a known position, becomes a slice, or an update of one.

    gather(x, [1, 2])            ->   slice(x, 1:, 2:)
    gather(x, [i, j])            ->   dynamic_slice(x, i, j)
    scatter(x, [1, 2], u)        ->   dynamic_update_slice(x, u, 1, 2)
    scatter(x, [1, 2], u, add)   ->   dynamic_update_slice(x, slice(x, 1:, 2:) + u, 1, 2)

`x.at[1:-1].set(u)` and its gradient are written so, and so is `x[i]` in a loop under `vmap`. The elements read and
written are then visible, and slices of them can be traced.

Legal: a gather clamps the start of its window as a dynamic slice does; a window at a known position is within the
operand, so that a gather does not clamp and a scatter does not drop its update; a scatter writes or combines each
element once, by one op of its operands.
"""

from __future__ import annotations

from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integers
from exla_opt.ir.types import element_type
from exla_opt.ir.values import defining_op, has_discardable_attributes, splat_value
from exla_opt.ir.walk import inside_out, terminator
from exla_opt.ops.index_numbers import GATHER, SCATTER, IndexNumbers, indices_of, numbers_of

# Indices have no more components than this.
_MOST_NUMBERS = 16
# Narrower indices are left alone: they may not hold the number that a start is clamped to. So are unsigned ones, which
# XLA may read as signed.
_LEAST_BITS = 32


def read_constant_windows(module: ir.Module) -> bool:
    """Rewrite the gathers of one window, and the scatters of one at a known position; return whether there was one.

    Replaced ops stay, unused, for the caller to clean up.
    """
    changed = False
    for op in inside_out(module, GATHER, SCATTER):
        numbers = numbers_of(op)
        if not _is_one_window(op, numbers) or len(op.results) != 1 or has_discardable_attributes(op):
            continue
        starts = _starts(op, numbers)
        if starts is None and not (op.name == GATHER and _is_wide(indices_of(op))):
            continue
        with ir.InsertionPoint(op), op.location:
            if starts is None:
                made: ir.Value | None = _read_anywhere(op, numbers)
            elif op.name == GATHER:
                made = _read(op, numbers, starts)
            else:
                made = _written(op, numbers, starts)
        if made is not None:
            op.results[0].replace_all_uses_with(made)
            changed = True
    return changed


def _is_one_window(op: ir.Operation, numbers: IndexNumbers) -> bool:
    count = len(numbers.named)
    if not count or numbers.batching or 0 in build.shape_of(op.operands[0]):
        return False
    return prod(build.shape_of(indices_of(op))) == count


def _is_wide(indices: ir.Value) -> bool:
    kind = element_type(indices)
    return isinstance(kind, ir.IntegerType) and kind.width >= _LEAST_BITS and not kind.is_unsigned


def _starts(op: ir.Operation, numbers: IndexNumbers) -> list[int] | None:
    """The start of the only window; None if it is not known, or not completely inside."""
    found, shape = _integers(indices_of(op)), build.shape_of(op.operands[0])
    if found is None:
        return None
    starts = [0] * len(shape)
    for dim, number in zip(numbers.named, found, strict=True):
        starts[dim] = number
    inside = (
        0 <= start <= size - length for start, size, length in zip(starts, shape, _window(op, numbers), strict=True)
    )
    return starts if all(inside) else None


def _integers(value: ir.Value) -> list[int] | None:
    """The integers of a small tensor in order, if they are known."""
    size = prod(build.shape_of(value))
    if not 0 < size <= _MOST_NUMBERS:
        return None
    number, op = splat_value(value), defining_op(value)
    if isinstance(number, int):
        found: list[int] | None = [number] * size
    elif op is None:
        found = None
    elif op.name == "stablehlo.constant" and isinstance(op.attributes["value"], ir.DenseIntElementsAttr):
        numbers = ir.DenseIntElementsAttr(op.attributes["value"])
        found = [int(numbers[place]) for place in range(size)]
    elif op.name == "stablehlo.reshape":
        found = _integers(op.operands[0])
    elif op.name == "stablehlo.concatenate" and len(build.shape_of(value)) == 1:
        parts = [_integers(part) for part in op.operands]
        found = None if None in parts else [number for part in parts for number in part or ()]
    else:
        found = None
    return found


def _window(op: ir.Operation, numbers: IndexNumbers) -> list[int]:
    """The size of the window in the operand."""
    if op.name == GATHER:
        return integers(op, "slice_sizes", [])
    sizes = iter([build.shape_of(op.operands[2])[dim] for dim in numbers.windows])
    return [1 if dim in numbers.single else next(sizes) for dim in range(len(build.shape_of(op.operands[0])))]


def _read(op: ir.Operation, numbers: IndexNumbers, starts: list[int]) -> ir.Value:
    """The slice that equals a gather. Besides the window's own dimensions it has those of the index, of size 1."""
    return _with_index(op, _part(op.operands[0], starts, _window(op, numbers)))


def _read_anywhere(op: ir.Operation, numbers: IndexNumbers) -> ir.Value:
    """The dynamic slice that equals a gather of a window at any position."""
    indices, rank = indices_of(op), len(build.shape_of(op.operands[0]))
    zero = build.splat(build.with_shape(build.tensor_of(indices), []), 0)
    starts = [zero] * rank
    for place, dim in enumerate(numbers.named):
        starts[dim] = _component(indices, place)
    return _with_index(op, stablehlo.dynamic_slice(op.operands[0], starts, _window(op, numbers)))


def _with_index(op: ir.Operation, part: ir.Value) -> ir.Value:
    return part if part.type == op.results[0].type else stablehlo.reshape(op.results[0].type, part)


def _component(value: ir.Value, place: int) -> ir.Value:
    """One element of a small tensor in order, as a 0-d tensor."""
    shape, op, scalar = build.shape_of(value), defining_op(value), build.with_shape(build.tensor_of(value), [])
    if not shape:
        return value
    if (number := splat_value(value)) is not None:
        return build.splat(scalar, number)
    if op is not None and op.name == "stablehlo.reshape":
        return _component(op.operands[0], place)
    if op is not None and op.name == "stablehlo.concatenate" and len(shape) == 1:
        for part in op.operands:
            if place < build.shape_of(part)[0]:
                return _component(part, place)
            place -= build.shape_of(part)[0]
    flat = stablehlo.reshape(build.with_shape(build.tensor_of(value), [prod(shape)]), value)
    return stablehlo.reshape(scalar, _part(flat, [place], [1]))


def _part(value: ir.Value, starts: list[int], sizes: list[int]) -> ir.Value:
    limits = [start + size for start, size in zip(starts, sizes, strict=True)]
    return stablehlo.slice(value, starts, limits, [1] * len(starts))


def _written(op: ir.Operation, numbers: IndexNumbers, starts: list[int]) -> ir.Value | None:
    """The operand of a scatter with its window updated; None if that is more than one op of both."""
    operand, update = op.operands[0], op.operands[2]
    window = build.with_shape(build.tensor_of(operand), _window(op, numbers))
    block = op.regions[0].blocks[0]
    old, new = block.arguments
    returned = terminator(block).operands[0]
    combined = defining_op(returned)
    if returned != new and (
        combined is None
        or combined.block != block
        or set(combined.operands) - {old, new}
        or len(combined.operands) != 2
    ):
        return None
    if update.type != window:
        update = stablehlo.reshape(window, update)
    if returned != new:
        assert combined is not None
        values = {old: _part(operand, starts, list(window.shape)), new: update}
        made = combined.clone(ip=ir.InsertionPoint.current).operation
        for index, value in enumerate(combined.operands):
            made.operands[index] = values[value]
        made.results[0].set_type(window)
        update = made.results[0]
    return stablehlo.dynamic_update_slice(operand, update, [build.scalar_i32(start) for start in starts])
