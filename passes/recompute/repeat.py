"""Which ops compute a segment's tensors again, and their clones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jaxlib.mlir import ir

from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import operations_of

from .kernels import Schedule, may_repeat
from .readers import read_by
from .segments import Segment

Copies = dict[ir.Value, ir.Value]


@dataclass(frozen=True, slots=True)
class Ops:
    """The ops of a block. place: the position in `all` of the op that computes a tensor. given: arguments, captures."""

    all: list[ir.Operation]
    place: dict[ir.Value, int]
    given: frozenset[ir.Value]


def read_ops(block: ir.Block, schedule: Schedule) -> Ops:
    """The ops of a block as they are now."""
    ops = operations_of(block)
    place: dict[ir.Value, int] = {result: index for index, op in enumerate(ops) for result in op.results}
    return Ops(ops, place, frozenset(schedule.arguments.values()))


def chain_of(ops: Ops, segment: Segment, schedule: Schedule, types: Types) -> tuple[list[ir.Operation], list[ir.Value]]:
    """The ops to repeat for a segment, in order, and the values of other ops that they read."""
    stored = set(segment.inputs)
    inputs = {schedule.value_of(value): None for value in segment.made if value in stored}
    stack = [schedule.value_of(value) for value in segment.made if value not in stored]
    read: dict[int, list[ir.Value]] = {}  # by the position of each op of the chain
    while stack:
        place = ops.place[stack.pop()]
        if place in read:
            continue
        read[place] = []
        for operand in read_by(ops.all[place], types):
            definer = defining_op(operand)
            is_there = operand in ops.given or schedule.number.get(operand) in stored
            if definer is not None and definer.name == "stablehlo.constant" and is_there:
                continue  # read directly: the body of a sort may name constants only, and none after a barrier
            is_copy = operand not in ops.place  # written since `ops` were read
            if definer is None or is_there or is_copy or not may_repeat(definer):
                read[place].append(operand)
            else:
                stack.append(operand)
    for place in sorted(read, reverse=True):
        inputs.update(dict.fromkeys(read[place]))
    return [ops.all[place] for place in sorted(read)], list(inputs)


def clone_ops(chain: Sequence[ir.Operation], copies: Copies) -> Copies:
    """Clone ops at the insertion point. copies: of their outer operands, unless those are read directly."""
    for op in chain:
        clone = op.clone(ip=ir.InsertionPoint.current).operation
        redirect(clone, copies)
        copies.update(zip(op.results, clone.results, strict=True))
    return copies


def redirect(op: ir.Operation, copies: Copies) -> None:
    """Let an op, and everything in its regions, read copies."""

    def visit(inner: ir.Operation) -> ir.WalkResult:
        for index, operand in enumerate(inner.operands):
            if operand in copies:
                inner.operands[index] = copies[operand]
        return ir.WalkResult.ADVANCE

    if len(op.regions):
        op.walk(visit)
    else:
        visit(op)
