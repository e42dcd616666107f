"""Sums in a loop what it only stacks for a reduction over all steps: one sum is carried instead of the stack.

    while i: stack[i] = f(%c)                   while i: %s = %s + cos(f(%c))
    reduce(cos(stack), over the steps)    ->    %s

Applies if every step writes its slice, and all readers of the stack treat each step separately and end in a reduction
over the first dimension: a sum, a product, a maximum, a minimum or the like.

NOTE [Sums of many steps]

The error of floats that are added one after the other grows with their number, and XLA adds a stack in parts. So a sum
of many steps is carried as two: that of the steps since the last multiple of the square root of their number, and that
of all before, to which the first is added there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integers
from exla_opt.ir.loops import add_carries
from exla_opt.ir.types import Types, element_type, float_bits
from exla_opt.ir.values import has_discardable_attributes, splat_value
from exla_opt.ops.comparisons import asks_about
from exla_opt.ops.reducers import body_of, counts_once, is_orderless, monoid_of, run_body

from .build import reshaped
from .slices import SHIFTS, can_be_moved, clone_on, is_by_step, made_of_slices, slice_at
from .stacks import Stack, updates

# Sums must take less than this fraction of their stack.
_WORTHWHILE = 0.5
# The maximum number of ops between a stack and its sums.
_MOST_OPS = 64
_ROUNDING = ("add", "multiply")
# Sums of more steps are carried as two: see the note.
_MANY = 256


@dataclass(frozen=True, slots=True)
class Sums:
    """A stack that is only reduced over its steps.

    between: the ops by step that lead from it to the reductions, by their results. reductions: in program order.
    """

    stack: Stack
    between: dict[ir.Value, ir.Operation]
    reductions: tuple[ir.Operation, ...]


def find_sums(
    loop: ir.Operation, stack: Stack, others: Sequence[Stack], reassociates: bool, types: Types
) -> Sums | None:
    """The reductions of a stack of a loop; None if something else reads it.

    others: the stacks of the loop, including this one. reassociates: whether sums may be reordered.
    """
    shape = types.of(loop.results[stack.carry]).shape
    if stack.first != 0 or stack.last != shape[0] - 1 or not can_be_moved(updates(loop)[stack.carry].operands[2]):
        return None
    written_alike = {
        loop.results[each.carry] for each in others if (each.sign, each.offset) == (stack.sign, stack.offset)
    }
    between: dict[ir.Value, ir.Operation] = {}
    reductions: dict[ir.Value, ir.Operation] = {}
    queue = [loop.results[stack.carry]]
    while queue:
        for use in queue.pop().uses:
            op = use.owner.operation
            if len(op.results) != 1 or op.block != loop.block or len(between) > _MOST_OPS:
                return None
            result = op.results[0]
            if result in between or result in reductions:
                continue
            if is_by_step(op, types) and op.name not in SHIFTS:
                between[result] = op
                queue.append(result)
            elif use.operand_number == 0 and _reduces_steps(op, reassociates):
                reductions[result] = op
            else:
                return None
    size = sum(_bytes(op, stack, types) for op in reductions.values())
    if not reductions or size > _WORTHWHILE * stack.bytes:
        return None
    given = {value for op in between.values() for value in op.operands} - between.keys() - written_alike
    given |= {op.operands[1] for op in reductions.values()}
    if not all(_is_before(value, loop) for value in given):
        return None
    # A maximum may be compared with the elements that it was taken of, which would be recomputed.
    if any(asks_about(value, loop.block) for value, op in reductions.items() if monoid_of(op) not in _ROUNDING):
        return None
    ops = (view.operation for view in loop.block.operations)
    return Sums(stack, between, tuple(op for op in ops if len(op.results) == 1 and op.results[0] in reductions))


def _reduces_steps(op: ir.Operation, reassociates: bool) -> bool:
    """Whether an op reduces over the first dimension at least, and may do so step by step."""
    if op.name != "stablehlo.reduce" or len(op.results) != 1 or has_discardable_attributes(op):
        return False
    name, dims = monoid_of(op), integers(op, "dimensions", [])
    if name is None or 0 not in dims or not (reassociates or is_orderless(op)):
        return False
    return counts_once(op.operands[1], name) and (dims == [0] or not (_is_narrow(op) and name != "add"))


def _is_narrow(op: ir.Operation) -> bool:
    """Whether a reduction rounds to a float that is too narrow to add up many."""
    return 0 < float_bits(element_type(op.results[0])) < 32 and monoid_of(op) in _ROUNDING


def _is_before(value: ir.Value, loop: ir.Operation) -> bool:
    """Whether an operand of an op in the loop's block exists before the loop: splats always do."""
    if splat_value(value) is not None or isinstance(value.owner, ir.Block):
        return True
    op = value.owner.operation
    return op.block != loop.block or op.is_before_in_block(loop)


def _bytes(op: ir.Operation, stack: Stack, types: Types) -> int:
    """The bytes that a loop carries for a reduction."""
    size = types.of(op.results[0]).bytes
    return _count(op, stack.last + 1) * size * (4 if _is_narrow(op) else 1)


def build_sums(loop: ir.Operation, sums: Sums, others: Sequence[Stack], types: Types) -> ir.Operation:
    """Let a loop carry the reductions of its stack; return the loop, in which nothing reads the stack any more."""
    update = updates(loop)[sums.stack.carry]
    values = {loop.results[each.carry]: each.value for each in others}
    count = len(loop.results)
    steps = sums.stack.last + 1
    with ir.InsertionPoint(loop), loop.location:
        initial = [value for op in sums.reductions for value in [_start(op)] * _count(op, steps)]

    def step(carried: Sequence[ir.Value]) -> list[ir.Value]:
        writer = _Step(values, sums.between, update.operands[2], types)
        left = iter(carried)
        return [
            value
            for op in sums.reductions
            for value in writer.add(op, [next(left) for _ in range(_count(op, steps))], isqrt(steps))
        ]

    larger = add_carries(loop, initial, step)
    totals = iter(list(larger.results)[count:])
    for op in sums.reductions:
        with ir.InsertionPoint(op), op.location:
            result, total = op.results[0], next(totals)
            if _count(op, steps) > 1:
                total = stablehlo.add(total, next(totals))
            result.replace_all_uses_with(build.convert(total, element_type(result)))
        op.erase()
    return larger


def _count(op: ir.Operation, steps: int) -> int:
    """The number of carries of a reduction: see the note."""
    is_sum = float_bits(element_type(op.results[0])) > 0 and monoid_of(op) == "add"
    return 2 if is_sum and steps > _MANY else 1


def _start(op: ir.Operation) -> ir.Value:
    """The initial value of a reduction's total."""
    init = _init(op)
    if _is_narrow(op):
        init = build.convert(init, build.wide_float())
    return build.broadcast(init, build.shape_of(op.results[0]))


def _init(op: ir.Operation) -> ir.Value:
    """A reduction's init: rebuilt if it is a constant, which may be after the loop."""
    number = splat_value(op.operands[1])
    return op.operands[1] if number is None else build.splat(op.operands[1].type, number)


class _Step:
    """Computes the ops between the stacks and the reductions in the body, on the slice of one step.

    values: the value that the step writes into each stack. index: where. made: by the tensor of all steps, its slice.
    """

    def __init__(
        self, values: dict[ir.Value, ir.Value], between: dict[ir.Value, ir.Operation], index: ir.Value, types: Types
    ):
        self.values = values
        self.between = between
        self.index = index
        self.types = types
        self.made: dict[ir.Value, ir.Value] = {}

    def add(self, op: ir.Operation, totals: Sequence[ir.Value], length: int) -> list[ir.Value]:
        """The total with one more step; of two, the first restarts if the index is a multiple of the length."""
        part = self.reduced(op, totals[0])
        if len(totals) == 1:
            return [self.combined(op, totals[0], part)]
        some, rest = totals
        left = stablehlo.remainder(self.index, build.splat(self.index.type, length))
        full = build.equal(left, build.zeros(left.type))
        return [
            stablehlo.select(full, part, self.combined(op, some, part)),
            stablehlo.select(full, self.combined(op, rest, some), rest),
        ]

    def combined(self, op: ir.Operation, one: ir.Value, other: ir.Value) -> ir.Value:
        """Two totals combined."""
        if not _is_narrow(op):
            [made] = run_body(body_of(op), [one, other])
            return made
        wide: ir.Value = (stablehlo.add if monoid_of(op) == "add" else stablehlo.multiply)(one, other)
        return wide

    def reduced(self, op: ir.Operation, total: ir.Value) -> ir.Value:
        """The reduction of one step, in the type of its total."""
        dims, part = integers(op, "dimensions", []), self.slice_of(op.operands[0])
        narrow = _is_narrow(op)
        if narrow:
            part = build.convert(part, build.wide_float())
        if dims == [0]:
            return reshaped(part, total.type)
        return build.sum_along(part, dims) if narrow else clone_on(op, [part, _init(op)], total.type)

    def slice_of(self, value: ir.Value) -> ir.Value:
        """The slice of one step; the tensors between are at most a few, one after the other."""
        if value not in self.made:
            self.made[value] = self.compute(value)
        return self.made[value]

    def compute(self, value: ir.Value) -> ir.Value:
        shape = build.shape_of(value)
        kind = build.with_shape(build.tensor_of(value), [1, *shape[1:]])
        if value in self.values:
            return reshaped(self.values[value], kind)
        if value not in self.between:
            return slice_at(value, self.index, self.types)
        op = self.between[value]
        with op.location:
            return made_of_slices(op, [self.slice_of(operand) for operand in op.operands])
