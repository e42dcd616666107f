"""The stacks of a loop: carries into which every step writes its own slice, along the first dimension.

    %next = dynamic_update_slice %stack, reshape(%value), %index, 0, ...     %stack: the carry, read by nothing else

The index is the loop's counter or its mirror image, plus a constant, and never out of range.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxlib.mlir import ir

from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import terminator
from exla_opt.ops.integers import Numbers
from exla_opt.ops.views import is_view
from exla_opt.remarks import Reason

from .indices import Indices

_UPDATE = "stablehlo.dynamic_update_slice"


@dataclass(frozen=True, slots=True)
class Stack:
    """A carry that holds one slice for each step.

    carry: its number. value: the value that a step writes, in the body, in any shape of the same size.
    sign, offset: the step whose counter is n writes at index sign * n + offset.
    first, last: the least and the greatest index that is written. bytes: of the entire carry.
    """

    carry: int
    value: ir.Value
    sign: int
    offset: int
    first: int
    last: int
    bytes: int

    def is_written(self, numbers: Numbers) -> bool:
        """Whether all of these indices are written."""
        return not numbers.size or bool(self.first <= numbers.min() and numbers.max() <= self.last)


def updates(loop: ir.Operation) -> dict[int, ir.Operation]:
    """The carries, by number, that a step returns with some slice of them updated."""
    body = loop.regions[1].blocks[0]
    returned = terminator(body).operands
    found: dict[int, ir.Operation] = {}
    for carry, argument in enumerate(body.arguments):
        update = defining_op(returned[carry], _UPDATE)
        if update is not None and update.operands[0] == argument:
            found[carry] = update
    return found


def read_stack(
    loop: ir.Operation, carry: int, update: ir.Operation, counters: Numbers, indices: Indices, types: Types
) -> Stack | Reason:
    """The stack that a carry is, or why it is none. counters: the loop's counter, step by step."""
    condition, body = (region.blocks[0] for region in loop.regions)
    for value in (body.arguments[carry], update.results[0]):
        if len(list(value.uses)) > 1:
            return Reason("EX606", "the loop that writes it reads it as well")
    if next(iter(condition.arguments[carry].uses), None) is not None:
        return Reason("EX606", "the loop that writes it reads it as well")
    shape, part = types.of(update.operands[0]).shape, types.of(update.operands[1]).shape
    if not shape or part != (1, *shape[1:]):
        return Reason("EX606", "a step does not write exactly one slice along its first dimension")
    index = indices.of(update.operands[2])
    if index is None or index.body is None or index.body != body:
        return Reason("EX606", "the index at which a step writes does not depend on the loop's counter alone")
    written = index.numbers
    sign = 1 if len(written) < 2 or written[1] > written[0] else -1
    offset = int(written[0] - sign * counters[0])
    if not np.array_equal(written, sign * counters + offset):
        return Reason("EX606", "the steps do not write consecutive slices")
    first, last = int(written.min()), int(written.max())
    if first < 0 or last >= shape[0]:
        return Reason("EX606", "a step writes out of bounds")
    size = types.of(update.operands[0]).bytes
    return Stack(carry, _without_views(update.operands[1], types), sign, offset, first, last, size)


def _without_views(value: ir.Value, types: Types) -> ir.Value:
    """The first tensor of the same elements in the same order."""
    while (op := defining_op(value)) is not None and len(op.operands) == 1 and is_view(op, types):
        if types.of(op.operands[0]).dtype != types.of(value).dtype:
            break
        value = op.operands[0]
    return value
