"""Moves the slice of one step before ops that treat every step separately, so that it reads the stack directly.

    dynamic_slice(cos(stack) * y, i)   ->   cos(dynamic_slice(stack, i)) * dynamic_slice(y, i)
    dynamic_slice(reverse(stack), i)   ->   dynamic_slice(stack, n - 1 - i)

Applies if nothing else reads the tensors in between, so that they disappear: they are as big as the stack.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integers
from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op

from .indices import Indices
from .readers import Reader, step_readers
from .slices import SHIFTS, can_be_moved, clone_on, is_by_step

# How far a stack is searched from a reader.
_MOST_OPS = 64


def sink_slices(block: ir.Block, light: int, indices: Indices, types: Types) -> bool:
    """Move the slices of functions of a loop's stacks in the block to the stacks; return whether there were any.

    light: bytes of a tensor that does not matter.
    """
    results = [
        value
        for view in block.operations
        if not len(view.operation.regions)
        for value in view.operation.results
        if types.of(value).bytes > light
    ]
    changed = False
    for value in reversed(results):  # nearest to the readers first
        op, readers = defining_op(value), step_readers(value, types)
        if op is None or not readers or len(readers) != len(list(value.uses)):
            continue
        if not is_by_step(op, types) or not _comes_from_loop(op, types):
            continue
        # A slice out of range is clamped to the end, which may be another position in the op's operand.
        if op.name == "stablehlo.slice" and not all(
            _is_in_range(each, types.of(value).shape[0], indices) for each in readers
        ):
            continue
        moves = op.name in SHIFTS
        if moves and not all(isinstance(each.index, int) or can_be_moved(each.index) for each in readers):
            continue
        for reader in _merged(readers):
            _sink(op, reader)
        op.erase()
        changed = True
    return changed


def _is_in_range(reader: Reader, length: int, indices: Indices) -> bool:
    index = None if isinstance(reader.index, int) else indices.of(reader.index)
    if index is None:
        return isinstance(reader.index, int)
    return not index.numbers.size or bool(index.numbers.min() >= 0 and index.numbers.max() < length)


def _comes_from_loop(op: ir.Operation, types: Types) -> bool:
    """Whether a chain of ops by step leads from a loop to the op."""
    queue = [op]
    seen: set[ir.Value] = set()
    for _ in range(_MOST_OPS):
        if not queue:
            break
        for value in queue.pop().operands:
            found = defining_op(value)
            if found is None or value in seen:
                continue
            if found.name == "stablehlo.while":
                return True
            seen.add(value)
            if is_by_step(found, types):
                queue.append(found)
    return False


def _merged(readers: Sequence[Reader]) -> list[Reader]:
    """One reader for all in a block that read the same step: the ops after it are built once."""
    found: dict[tuple[ir.Block, ir.Value | int, str], Reader] = {}
    for reader in readers:
        key = (reader.op.block, reader.index, reader.op.name)
        first = found.setdefault(key, reader)
        if first is reader:
            continue
        first, other = (first, reader) if first.op.is_before_in_block(reader.op) else (reader, first)
        found[key] = first
        other.op.results[0].replace_all_uses_with(first.op.results[0])
        other.op.erase()
    return list(found.values())


def _sink(op: ir.Operation, reader: Reader) -> None:
    """Move the op after the slice."""
    with ir.InsertionPoint(reader.op), op.location:
        result = reader.op.results[0]
        index, shift = reader.index, 0
        if op.name == "stablehlo.slice":
            shift = integers(op, "start_indices", [])[0]
        elif op.name == "stablehlo.reverse":
            last = build.shape_of(op.results[0])[0] - 1
            index = last - index if isinstance(index, int) else _mirrored(index, last)
        slices = {value: _slice(value, index, shift) for value in op.operands}
        parts = [slices[value] for value in op.operands]
        moves = op.name in SHIFTS
        made = parts[0] if moves else clone_on(op, parts, result.type)
    result.replace_all_uses_with(made)
    reader.op.erase()


def _mirrored(index: ir.Value, last: int) -> ir.Value:
    mirrored: ir.Value = stablehlo.subtract(build.splat(index.type, last), index)
    return mirrored


def _slice(value: ir.Value, index: ir.Value | int, shift: int) -> ir.Value:
    """The step of a tensor at an index plus a shift."""
    if isinstance(index, ir.Value):
        moved = stablehlo.add(index, build.splat(index.type, shift)) if shift else index
        return build.slice_along(value, 0, moved, 1)
    shape, start = build.shape_of(value), index + shift
    rest = [0] * (len(shape) - 1)
    return stablehlo.slice(value, [start, *rest], [start + 1, *shape[1:]], [1] * len(shape))
