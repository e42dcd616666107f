"""Moves the slice of one step before the ops that treat every step for itself, so that it stands at the stack.

    dynamic_slice(cos(stack) * y, i)   ->   cos(dynamic_slice(stack, i)) * dynamic_slice(y, i)
    dynamic_slice(reverse(stack), i)   ->   dynamic_slice(stack, n - 1 - i)

Applies where nothing else reads what stands between, so that it is gone: as big as the stack is, it is made nowhere.
What is made of other tensors than stacks, for all steps at once, goes the same way where it is above the threshold:

    dynamic_slice(broadcast(x), i)   ->   broadcast(x)     one matrix for all steps, as a scan may be given it
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integers
from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op, has_discardable_attributes, splat_value
from exla_opt.ir.walk import walk
from exla_opt.ops.comparisons import asks
from exla_opt.ops.traits import Trait, has_trait

from .indices import Indices
from .readers import Reader, step_readers

# So far a stack is looked for from a reader.
_MOST_OPS = 64
# So many loops, forwards and backwards, may each compute what is made for all steps at once.
_MOST_LOOPS = 2
# What then has to stay, to be sliced, must take less than this part of what is gone.
_LEFT = 0.5


def sink_slices(block: ir.Block, light: int, indices: Indices, types: Types) -> bool:
    """Move the slices that read what is made of a loop's stacks in the block; whether there were any.

    light: bytes of a tensor that is no matter.
    """
    changed = False
    for value in _candidates(block, light, types):
        op = defining_op(value)
        if op is None or not is_by_step(op, types) or not _comes_from_loop(op, types):
            continue
        readers = step_readers(value, types)
        if readers and len(readers) == len(list(value.uses)) and _may_follow(op, readers, indices, types):
            sink(op, types)
            changed = True
    return changed


def _candidates(block: ir.Block, light: int, types: Types) -> list[ir.Value]:
    """What ops of the block make that is a matter, what stands nearest to its readers first."""
    ops = (view.operation for view in block.operations)
    results = [value for op in ops if not len(op.regions) for value in op.results]
    return [value for value in reversed(results) if types.of(value).bytes > light]


def _may_follow(op: ir.Operation, readers: Sequence[Reader], indices: Indices, types: Types) -> bool:
    """Whether the op gives the same behind the slices.

    A slice out of range is one at the end: in what a slice reads another place may be the end.
    """
    length = types.of(op.results[0]).shape[0]
    return op.name != "stablehlo.slice" or all(_is_in_range(each, length, indices) for each in readers)


def step_inputs(block: ir.Block, threshold: int, light: int, indices: Indices, types: Types) -> list[ir.Operation]:
    """The ops that make for all steps at once what loops of the block read one step of, the last ones first.

    None where the loops' inputs take less than the threshold together, or where they are made of as much.
    """
    found: dict[ir.Value, ir.Operation] = {}
    sliced: set[ir.Value] = set()  # of the operands of those that are found
    repeated: set[ir.Value] = set()
    gone = 0
    for value in _candidates(block, light, types):
        op = defining_op(value)
        if op is None or not (_repeats(op, types) or is_by_step(op, types)) or any(map(_counts, op.operands)):
            continue
        readers = step_readers(value, types)
        users = [use.owner.operation.results for use in value.uses]
        following = sum(len(results) == 1 and results[0] in found for results in users) if value in sliced else 0
        if not users or following + len(readers) < len(users) or value in repeated:
            continue
        if not _read_once(readers, block, indices) or not _may_follow(op, readers, indices, types):
            continue
        found[value] = op
        (repeated if _repeats(op, types) else sliced).update(op.operands)
        gone += types.of(value).bytes if readers else 0
    left = sum(types.of(value).bytes for value in sliced - found.keys() if _is_made_for_this(value, types))
    return list(found.values()) if gone > threshold and left <= _LEFT * gone else []


def _read_once(readers: Sequence[Reader], block: ir.Block, indices: Indices) -> bool:
    """Whether few loops of the block read each step once, and ask nothing to which two might have two answers."""
    bodies: set[ir.Block] = set()
    for reader in readers:
        if isinstance(reader.index, int):
            continue
        index, body = indices.of(reader.index), reader.op.block
        if index is None or index.body != body or body.owner.operation.block != block:
            return False
        if len(np.unique(index.numbers)) < len(index.numbers):
            return False
        bodies.add(body)
    return len(bodies) < 2 or (len(bodies) <= _MOST_LOOPS and not any(asks(op) for body in bodies for op in walk(body)))


def _counts(value: ir.Value) -> bool:
    """Whether a tensor is numbers counted up, which has no slice as long as nobody writes it."""
    return defining_op(value, "stablehlo.iota") is not None


def _is_made_for_this(value: ir.Value, types: Types) -> bool:
    """Whether a tensor would be kept for the slices alone: one that is given is there anyway."""
    op = defining_op(value)
    return op is not None and op.name != "stablehlo.constant" and not _repeats(op, types)


def _repeats(op: ir.Operation, types: Types) -> bool:
    """Whether all steps of what the op makes are the same: it is repeated along the first dimension."""
    if op.name != "stablehlo.broadcast_in_dim" or has_discardable_attributes(op):
        return False
    dims = integers(op, "broadcast_dimensions", [])
    shape, before = types.of(op.results[0]).shape, types.of(op.operands[0]).shape
    return bool(shape) and (0 not in dims or (before[dims.index(0)] == 1 and shape[0] > 1))


def is_by_step(op: ir.Operation, types: Types) -> bool:
    """Whether each step along the first dimension of the result comes from one step of each operand."""
    if has_discardable_attributes(op) or len(op.results) != 1 or not len(op.operands):
        return False
    shape, before = types.of(op.results[0]).shape, types.of(op.operands[0]).shape
    if not before or not shape:
        return False
    if op.name == "stablehlo.transpose":
        return integers(op, "permutation", [])[0] == 0
    if op.name == "stablehlo.reshape":
        return before[0] == shape[0]
    if op.name == "stablehlo.reverse":
        return integers(op, "dimensions", []) == [0]
    if op.name == "stablehlo.broadcast_in_dim":
        return before[0] == shape[0] and integers(op, "broadcast_dimensions", [])[0] == 0
    if op.name == "stablehlo.slice":
        return before[1:] == shape[1:] and integers(op, "strides", [])[0] == 1
    return has_trait(op, Trait.POINTWISE) and all(types.of(value).shape == shape for value in op.operands)


def _is_in_range(reader: Reader, length: int, indices: Indices) -> bool:
    index = None if isinstance(reader.index, int) else indices.of(reader.index)
    if index is None:
        return isinstance(reader.index, int)
    return not index.numbers.size or bool(index.numbers.min() >= 0 and index.numbers.max() < length)


def _comes_from_loop(op: ir.Operation, types: Types) -> bool:
    """Whether ops by step lead from a loop to the op."""
    queue = [op]
    for _ in range(_MOST_OPS):
        if not queue:
            break
        for value in queue.pop().operands:
            found = defining_op(value)
            if found is None:
                continue
            if found.name == "stablehlo.while":
                return True
            if is_by_step(found, types):
                queue.append(found)
    return False


def sink(op: ir.Operation, types: Types) -> None:
    """Let the op follow the slices that read its result, and nothing else does."""
    for reader in step_readers(op.results[0], types):
        with ir.InsertionPoint(reader.op), op.location:
            reader.op.results[0].replace_all_uses_with(_behind(op, reader, types))
        reader.op.erase()
    op.erase()


def _behind(op: ir.Operation, reader: Reader, types: Types) -> ir.Value:
    """What a reader reads, made of slices of the op's operands."""
    kind = reader.op.results[0].type
    index, shift = reader.index, 0
    if op.name == "stablehlo.slice":
        shift = integers(op, "start_indices", [])[0]
    elif op.name == "stablehlo.reverse":
        last = build.shape_of(op.results[0])[0] - 1
        index = last - index if isinstance(index, int) else _mirrored(index, last)
    parts = list(op.operands) if _repeats(op, types) else [part_of(value, index, shift, types) for value in op.operands]
    if op.name in ("stablehlo.slice", "stablehlo.reverse"):
        return parts[0]
    return clone_on(op, parts, kind)


def clone_on(op: ir.Operation, operands: Sequence[ir.Value], kind: ir.Type) -> ir.Value:
    """The op on other operands, with a result of another type."""
    clone = op.clone(ip=ir.InsertionPoint.current).operation
    for place, value in enumerate(operands):
        clone.operands[place] = value
    clone.results[0].set_type(kind)
    made: ir.Value = clone.results[0]
    return made


def _mirrored(index: ir.Value, last: int) -> ir.Value:
    mirrored: ir.Value = stablehlo.subtract(build.splat(index.type, last), index)
    return mirrored


def part_of(value: ir.Value, index: ir.Value | int, shift: int, types: Types) -> ir.Value:
    """The step of a tensor at an index that is so much further on; of what is the same in all steps, one."""
    shape = build.shape_of(value)
    kind = build.with_shape(build.tensor_of(value), [1, *shape[1:]])
    number, op = splat_value(value), defining_op(value)
    if number is not None:
        return build.splat(kind, number)
    if op is not None and _repeats(op, types):
        return clone_on(op, list(op.operands), kind)
    if isinstance(index, ir.Value):
        moved = stablehlo.add(index, build.splat(index.type, shift)) if shift else index
        return build.slice_along(value, 0, moved, 1)
    start, rest = index + shift, [0] * (len(shape) - 1)
    return stablehlo.slice(value, [start, *rest], [start + 1, *shape[1:]], [1] * len(shape))
