"""Applies a plan: new stacks in the loop, and, at every reader, the part of the step that computes the value read."""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.loops import Counting, add_carries
from exla_opt.ir.types import Types
from exla_opt.ir.walk import walk_regions

from .choose import Plan, Source
from .readers import Reader, step_readers
from .stacks import Stack
from .steps import Step

_Group = list[tuple[Reader, Stack]]


def build_plan(step: Step, plan: Plan, types: Types) -> ir.Operation:
    """Rewrite all readers of the stacks that the plan replaces; return the loop, which also carries new stacks."""
    loop = with_stacks(step, plan.added)
    for group in _groups(loop, plan, types):
        (reader, stack), *_ = group
        with ir.InsertionPoint(reader.op), reader.op.location:
            place = _Place(step, plan, loop, stack, reader.index)
            made = place.compute([each.value for _, each in group])
        for (each, _), value in zip(group, made, strict=True):
            with ir.InsertionPoint(each.op), each.op.location:
                result = each.op.results[0]
                result.replace_all_uses_with(reshaped(value, result.type))
            each.op.erase()
    return loop


def with_stacks(step: Step, added: Sequence[int]) -> ir.Operation:
    """The loop, which counts by one, with a stack more for each of these values, by number, in the order of the steps.

    The stacks are its last carries. The old loop is erased, unless there is nothing to add.
    """
    if not added:
        return step.loop
    values = [step.values[number] for number in added]
    counting, body = step.counting, step.loop.regions[1].blocks[0]

    def write(stacks: Sequence[ir.Value]) -> list[ir.Value]:
        index = from_first(body.arguments[counting.place], counting)
        parts = [reshaped(value, build.with_shape(kind, [1, *kind.shape])) for value, kind in _kinds(values)]
        return [build.update_along(whole, part, 0, index) for whole, part in zip(stacks, parts, strict=True)]

    with ir.InsertionPoint(step.loop), step.loop.location:
        initial = [
            build.broadcast(build.zeros(build.with_shape(kind, [])), [counting.trips, *kind.shape])
            for _, kind in _kinds(values)
        ]
    return add_carries(step.loop, initial, write)


def from_first(counter: ir.Value, counting: Counting) -> ir.Value:
    """The number of the step of a loop that counts by one, counted from 0."""
    return stablehlo.subtract(counter, build.splat(counter.type, counting.start)) if counting.start else counter


def _kinds(values: Sequence[ir.Value]) -> list[tuple[ir.Value, ir.RankedTensorType]]:
    return [(value, build.tensor_of(value)) for value in values]


def reshaped(value: ir.Value, kind: ir.Type) -> ir.Value:
    """The tensor in another shape; the value itself if it already has that shape."""
    return value if value.type == kind else stablehlo.reshape(kind, value)


def _groups(loop: ir.Operation, plan: Plan, types: Types) -> list[_Group]:
    """The readers, grouped by step and block, each group in order."""
    readers = [(each, stack) for stack in plan.replaced for each in step_readers(loop.results[stack.carry], types)]
    wanted = {each.op.results[0]: (each, stack) for each, stack in readers}
    groups: dict[tuple[ir.Block, ir.Value | int, int, int], _Group] = {}
    for block in {each.op.block: None for each, _ in readers}:
        for view in block.operations:
            found = wanted.get(view.operation.results[0]) if len(view.operation.results) else None
            if found is not None:
                each, stack = found
                groups.setdefault((block, each.index, stack.sign, stack.offset), []).append(found)
    return list(groups.values())


class _Place:
    """Computes values of one step before an op that reads a stack of it at an index.

    made: the replacements of values of the loop's body.
    """

    def __init__(self, step: Step, plan: Plan, loop: ir.Operation, stack: Stack, index: ir.Value | int):
        self.step = step
        self.plan = plan
        self.loop = loop
        self.stack = stack
        self.index = index
        self.made: dict[ir.Value, ir.Value] = {}
        self.numbers: dict[tuple[int, int], ir.Value] = {}

    def compute(self, values: Sequence[ir.Value]) -> list[ir.Value]:
        """The values of the body in the step that is read."""
        step, sources = self.step, self.plan.sources
        targets = [step.number[value] for value in values if value in step.number]
        for number in sorted(step.slice_of(targets, sources)):
            value = step.values[number]
            if value in self.made:
                continue
            if number in sources:
                self.made[value] = self.read(sources[number], value)
            elif number in step.same:
                self.made[value] = self.made.get(step.same[number], step.same[number])
            elif step.definers[number] < 0:
                self.made[value] = self.counted(number)
            else:
                self.clone(step.ops[step.definers[number]])
        return [self.made.get(value, value) for value in values]

    def clone(self, op: ir.Operation) -> None:
        """Clone the op on the values of this step, in its regions too."""
        clone = op.clone(ip=ir.InsertionPoint.current).operation
        inner = [each for region in clone.regions for block in region.blocks for each in walk_regions(block)]
        for each in (clone, *inner):
            for place, operand in enumerate(each.operands):
                if operand in self.made:
                    each.operands[place] = self.made[operand]
        self.made.update(zip(op.results, clone.results, strict=True))

    def number(self, sign: int, offset: int) -> ir.Value:
        """sign * n + offset, where n is the counter of the step; in straight-line code a constant."""
        sign, offset = sign * self.stack.sign, offset - sign * self.stack.sign * self.stack.offset
        if (sign, offset) not in self.numbers:
            self.numbers[sign, offset] = self._number(sign, offset)
        return self.numbers[sign, offset]

    def _number(self, sign: int, offset: int) -> ir.Value:
        if isinstance(self.index, int):
            return build.splat(self.step.values[self.step.counting.place].type, sign * self.index + offset)
        if sign < 0:
            return stablehlo.subtract(build.splat(self.index.type, offset), self.index)
        if not offset:
            return self.index
        return stablehlo.add(self.index, build.splat(self.index.type, offset))

    def counted(self, carry: int) -> ir.Value:
        """A carry that follows from the number of the step."""
        counting = self.step.counting
        value = self.step.values[carry]
        start: ir.Value = self.loop.operands[carry]
        element = build.tensor_of(value).element_type
        if carry == counting.place:
            return build.convert(self.number(1, 0), element)
        if self.step.returned[carry] == carry:
            return start
        growth = build.splat(value.type, self.step.growths[carry] or 0)
        steps = build.convert(self.number(1, -counting.start), element)
        counted: ir.Value = stablehlo.add(start, stablehlo.multiply(steps, growth))
        return counted

    def read(self, source: Source, value: ir.Value) -> ir.Value:
        """The slice of a stack, or the loop's initial or final value if the stack has none for the step."""
        counting = self.step.counting
        first, last = counting.start, counting.start + counting.trips - 1
        edge = {-1: first, 1: last}.get(source.shift)
        begin_or_end = self.loop.operands[source.carry] if source.shift < 0 else self.loop.results[source.carry]
        if source.stack is None:
            stack, sign, offset = len(self.loop.results) - len(self.plan.added) + source.added, 1, -counting.start
        else:
            stack, sign, offset = source.stack.carry, source.stack.sign, source.stack.offset
        index = self.number(sign, offset + sign * source.shift)
        part = reshaped(build.slice_along(self.loop.results[stack], 0, index, 1), value.type)
        if edge is None:
            return part
        number = self.number(1, 0)
        at_edge = build.equal(number, build.splat(number.type, edge))
        return stablehlo.select(at_edge, begin_or_end, part)
