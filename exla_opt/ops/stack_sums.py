"""Adds stacks of partial sums of tiles inside the loop that writes a stack.

    total + while(..., 0, ...) { s = dynamic_update_slice(s, x, n) }
      = while(..., total, ...) { s = dynamic_update_slice(s, dynamic_slice(s, n) + x, n) }

A loop of the program that is cut gives a stack of partial sums in every tile: the gradients of the weights of all
layers. Adding complete stacks to the total would need a second stack. The same two numbers are added for every element,
so no bit changes, provided that the loop writes no element twice, as the first value would then be added too.
"""

from __future__ import annotations

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.loops import counting, step_of
from exla_opt.ir.types import element_type
from exla_opt.ir.values import defining_op, splat_value
from exla_opt.ir.walk import terminator

from .integers import Numbers, fits, run_integers

_LOOP, _UPDATE = "stablehlo.while", "stablehlo.dynamic_update_slice"
# The total number of steps of a loop nest: their index values are computed one by one.
_MOST_STEPS = 2**18
# An index is a few ops on a counter.
_MOST_OPS = 64


def add_in_place(total: ir.Value, stack: ir.Value) -> bool:
    """Let a new loop that writes a stack, starting from zero, start from the total instead, and add in each step.

    Returns whether that is possible: `stack` is then the sum. Otherwise nothing has changed.
    """
    loop = defining_op(stack, _LOOP)
    if loop is None or total.type != stack.type:
        return False
    carry = ir.OpResult(stack).result_number
    if splat_value(loop.operands[carry]) != 0:
        return False
    update = only_update(loop, carry)
    if update is None:
        return False
    loop.operands[carry] = total
    kept, part, *places = update.operands
    with ir.InsertionPoint(update), update.location:
        sizes = ir.DenseI64ArrayAttr.get(build.shape_of(part))
        update.operands[1] = stablehlo.add(stablehlo.dynamic_slice(kept, places, sizes), part)
    return True


def only_update(loop: ir.Operation, carry: int) -> ir.Operation | None:
    """The only op that writes a carry, in the loop or in a loop inside, if no element is written twice."""
    return _only_update(loop, carry, [])


def indices_of(loop: ir.Operation, value: ir.Value) -> Numbers | None:
    """A scalar integer of the body in every step of a loop; None if it depends on anything but the counter.

    One number, if it is the same in all steps.
    """
    trips = _trips([loop])
    return None if trips is None else _Steps([loop], trips).of(value)


def _only_update(loop: ir.Operation, carry: int, around: list[ir.Operation]) -> ir.Operation | None:
    """As above. around: the loops around this one, outermost first."""
    condition, body = (region.blocks[0] for region in loop.regions)
    argument, nest = body.arguments[carry], [*around, loop]
    uses = list(argument.uses)
    if len(uses) != 1 or any(True for _ in condition.arguments[carry].uses):
        return None
    op, place = uses[0].owner.operation, uses[0].operand_number
    is_update = op.name == _UPDATE and place == 0
    if op.block != body or not (is_update or op.name == _LOOP) or not _is_returned(op.results[place], body, carry):
        return None
    if not is_update:
        return _only_update(op, place, nest)
    return op if _writes_once(op, nest) else None


def _is_returned(value: ir.Value, body: ir.Block, carry: int) -> bool:
    [*uses] = value.uses
    return len(uses) == 1 and uses[0].owner.operation == terminator(body) and uses[0].operand_number == carry


def _writes_once(update: ir.Operation, nest: list[ir.Operation]) -> bool:
    """Whether no two slices, in all steps of all loops, share an element: they are disjoint in one dimension."""
    whole, part = (build.shape_of(update.operands[index]) for index in (0, 1))
    dims = [dim for dim, (size, length) in enumerate(zip(whole, part, strict=True)) if length < size]
    if len(dims) != 1:
        return False
    [dim] = dims
    trips = _trips(nest)
    if trips is None:
        return False
    starts = _Steps(nest, trips).of(update.operands[2 + dim])
    if starts is None:
        return False
    ordered = np.sort(np.broadcast_to(starts, trips).reshape(-1))
    in_range = not ordered.size or (ordered[0] >= 0 and ordered[-1] + part[dim] <= whole[dim])
    return bool(in_range and (np.diff(ordered) >= part[dim]).all())


def _trips(nest: list[ir.Operation]) -> tuple[int, ...] | None:
    """The trip count of each loop; None if one is not known, or too large."""
    known = [counting(loop) for loop in nest]
    trips = tuple(each.trips for each in known if each is not None)
    return trips if len(trips) == len(nest) and np.prod(trips, dtype=float) <= _MOST_STEPS else None


class _Steps:
    """Integers in every step of nested loops: arrays of one dimension for each loop, outermost first."""

    def __init__(self, nest: list[ir.Operation], trips: tuple[int, ...]):
        self.trips = trips
        self.level = {loop.regions[1].blocks[0]: number for number, loop in enumerate(nest)}
        self.nest = nest
        self.known: dict[ir.Value, Numbers | None] = {}

    def of(self, value: ir.Value, most: int = _MOST_OPS) -> Numbers | None:
        """The values of a scalar; None if they depend on anything but counters."""
        if value not in self.known:
            found = self.work_out(value, most - 1) if most else None
            kind = element_type(value)
            if (
                not isinstance(kind, ir.IntegerType)
                or build.shape_of(value)
                or (found is not None and not fits(found, kind))
            ):
                found = None
            self.known[value] = found
        return self.known[value]

    def work_out(self, value: ir.Value, most: int) -> Numbers | None:
        number = splat_value(value)
        if number is not None:
            return np.full([1] * len(self.nest), number, np.int64) if isinstance(number, int) else None
        if isinstance(value.owner, ir.Block):
            return self.of_carry(ir.BlockArgument(value), most)
        op = value.owner.operation
        operands = [self.of(each, most) for each in op.operands]
        known = [each for each in operands if each is not None]
        return run_integers(op, known) if len(known) == len(operands) and known else None

    def of_carry(self, value: ir.BlockArgument, most: int) -> Numbers | None:
        """The values of a carry that grows by a constant in each step."""
        level = self.level.get(value.owner)
        if level is None:
            return None
        start = self.of(self.nest[level].operands[value.arg_number], most)
        step = step_of(value, terminator(value.owner).operands[value.arg_number])
        if start is None or not isinstance(step, int):
            return None
        shape = [1] * len(self.nest)
        shape[level] = self.trips[level]
        return start + step * np.arange(self.trips[level], dtype=np.int64).reshape(shape)
