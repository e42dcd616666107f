"""The values of an index in the trips of a loop, computed one by one.

JAX, TensorFlow and people write the index of a step in many ways: mirrored, with a remainder, with a choice for
negative ones, clamped. All are a few scalar integer ops on counters with known values, so they are evaluated instead of
matched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxlib.mlir import ir

from exla_opt.ir.loops import Counting, counting, step_of
from exla_opt.ir.types import element_type
from exla_opt.ir.values import splat_value
from exla_opt.ir.walk import terminator
from exla_opt.ops.integers import Numbers, fits, run_integers

from .slices import can_be_moved

# An index is a few ops on a counter.
_MOST_OPS = 64
# Loops of more trips are skipped: computing their indices would take longer than the rest of the module.
MOST_TRIPS = 2**22


@dataclass(frozen=True, slots=True)
class Index:
    """An integer in every trip of one loop. body: of that loop; None if it is the same number everywhere."""

    body: ir.Block | None
    numbers: Numbers


class Indices:
    """The indices of a module, each computed once."""

    def __init__(self) -> None:
        self._known: dict[ir.Value, Index | None] = {}
        self._counting: dict[ir.Block, Counting | None] = {}

    def counting(self, loop: ir.Operation) -> Counting | None:
        """How a `while` counts, if its trip count is in range.

        Numbers derived from the step, such as its segment, are computed in the type of the counter.
        """
        body = loop.regions[1].blocks[0]
        if body not in self._counting:
            found = counting(loop)
            known = found is not None and found.trips <= MOST_TRIPS and can_be_moved(body.arguments[found.place])
            self._counting[body] = found if known else None
        return self._counting[body]

    def of(self, value: ir.Value) -> Index | None:
        """The values of a scalar integer; None if they depend on anything but one counter."""
        stack = [value]
        for _ in range(_MOST_OPS):
            if not stack:
                break
            current = stack[-1]
            missing = [each for each in _scalar_operands(current) if each not in self._known]
            if missing and current not in self._known:
                stack += missing
                continue
            stack.pop()
            if current not in self._known:
                self._known[current] = self._work_out(current)
        return self._known.get(value)

    def _work_out(self, value: ir.Value) -> Index | None:
        kind = element_type(value)
        if not isinstance(kind, ir.IntegerType) or len(ir.RankedTensorType(value.type).shape):
            return None
        number = splat_value(value)
        if isinstance(number, int):
            found: Index | None = Index(None, np.array([number], np.int64)) if abs(number) < 2**32 else None
        elif isinstance(value.owner, ir.Block):
            found = self._of_carry(value, value.owner)
        else:
            found = self._of_op(value.owner.operation)
        return found if found is not None and fits(found.numbers, kind) else None

    def _of_carry(self, value: ir.Value, block: ir.Block) -> Index | None:
        """A carry that grows by a constant from a constant."""
        loop = block.owner
        if loop.name != "stablehlo.while" or loop.operation.regions[1].blocks[0] != block:
            return None
        found = self.counting(loop.operation)
        place = ir.BlockArgument(value).arg_number
        start, step = splat_value(loop.operands[place]), step_of(value, terminator(block).operands[place])
        if found is None or not isinstance(start, int) or not isinstance(step, int) or abs(start) + abs(step) >= 2**32:
            return None
        return Index(block, start + step * np.arange(found.trips, dtype=np.int64))

    def _of_op(self, op: ir.Operation) -> Index | None:
        operands = [self._known.get(value) for value in op.operands]
        known = [each for each in operands if each is not None]
        if len(known) < len(operands):
            return None
        bodies = {each.body for each in known if each.body is not None}
        if len(bodies) > 1:
            return None
        numbers = run_integers(op, [each.numbers for each in known])
        return None if numbers is None else Index(next(iter(bodies), None), numbers)


def _scalar_operands(value: ir.Value) -> Sequence[ir.Value]:
    if isinstance(value.owner, ir.Block) or len(value.owner.operation.regions):
        return ()
    return tuple(value.owner.operation.operands)
