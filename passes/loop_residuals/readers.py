"""The ops that read a stack step by step: a dynamic slice in a loop, or a slice of one step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxlib.mlir import ir

from exla_opt.ir.attributes import integers
from exla_opt.ir.types import Types
from exla_opt.remarks import Reason

from .indices import Indices
from .slices import can_be_moved
from .stacks import Stack


@dataclass(frozen=True, slots=True)
class Reader:
    """An op that slices one step along a dimension. index: as a value or, in straight-line code, a number."""

    op: ir.Operation
    index: ir.Value | int
    dim: int = 0


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a stack must stay, and the op that requires it."""

    reason: Reason
    op: ir.Operation | None = None


def step_readers(value: ir.Value, types: Types) -> list[Reader]:
    """The ops that read one slice of a stack along its first dimension, whether in range or not."""
    found = (_reader(use.owner.operation, use.operand_number, types) for use in value.uses)
    return [reader for reader in found if reader is not None]


def readers_along(value: ir.Value, types: Types) -> list[Reader]:
    """As `step_readers`, in loops, along whatever dimension: a `vmap` puts its own first."""
    found = []
    for use in value.uses:
        op = use.owner.operation
        if op.name != "stablehlo.dynamic_slice" or use.operand_number != 0:
            continue
        before, shape = types.of(value).shape, types.of(op.results[0]).shape
        cut = [dim for dim, size in enumerate(before) if size != shape[dim]]
        if len(cut) == 1 and shape[cut[0]] == 1:
            found.append(Reader(op, op.operands[1 + cut[0]], cut[0]))
    return found


def obstacle(value: ir.Value, stack: Stack, indices: Indices, types: Types) -> Obstacle | None:
    """Why some reader of a stack cannot compute its slice itself; None if all can.

    value: the stack, after its loop.
    """
    for use in value.uses:
        op = use.owner.operation
        reader = _reader(op, use.operand_number, types)
        if reader is None:
            return Obstacle(Reason("EX601", "an op reads more of it than the slice of one step"), op)
        if isinstance(reader.index, int):
            if not stack.is_written(np.array([reader.index])):
                return Obstacle(Reason("EX601", "it is read where no step writes"), op)
            continue
        index = indices.of(reader.index)
        if index is None or not can_be_moved(reader.index):
            return Obstacle(Reason("EX602", "it is not known which step is read"), op)
        if not stack.is_written(index.numbers):
            return Obstacle(Reason("EX601", "it is read where no step writes"), op)
    return None


def _reader(op: ir.Operation, operand: int, types: Types) -> Reader | None:
    if operand != 0:
        return None
    before = types.of(op.operands[0]).shape
    if op.name == "stablehlo.dynamic_slice":
        if types.of(op.results[0]).shape == (1, *before[1:]):
            return Reader(op, op.operands[1])
    elif op.name == "stablehlo.slice" and types.of(op.results[0]).shape == (1, *before[1:]):
        return Reader(op, integers(op, "start_indices", [])[0])
    return None
