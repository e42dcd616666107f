"""Writes segments: the forward loop stores the start of each, and two loops inside one run over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.loops import add_carries
from exla_opt.ir.walk import terminator

from .build import reshaped
from .indices import Indices
from .segments import Segments, rows_of
from .steps import Step


def build_segments(step: Step, plan: Segments, indices: Indices) -> ir.Operation:
    """Split both loops into segments; return the forward one. Nothing reads the other one any more."""
    loop = _with_starts(step, plan)
    _Nest(step, plan, loop, indices).build()
    return loop


def _with_starts(step: Step, plan: Segments) -> ir.Operation:
    """The loop with a stack of the carries at the start of segments."""
    if not plan.carries:
        return step.loop
    body, counting = step.loop.regions[1].blocks[0], step.counting
    values = [body.arguments[carry] for carry in plan.carries]
    kinds = [build.tensor_of(value) for value in values]
    rows = rows_of(counting.trips, plan.length)

    def write(stacks: Sequence[ir.Value]) -> list[ir.Value]:
        counter = body.arguments[counting.place]
        kind = counter.type
        ahead = stablehlo.add(counter, build.splat(kind, plan.length - 1 - counting.start))
        index = stablehlo.divide(ahead, build.splat(kind, plan.length))
        parts = [reshaped(v, build.with_shape(kind, [1, *kind.shape])) for v, kind in zip(values, kinds, strict=True)]
        return [build.update_along(whole, part, 0, index) for whole, part in zip(stacks, parts, strict=True)]

    with ir.InsertionPoint(step.loop), step.loop.location:
        initial = [build.broadcast(build.zeros(build.with_shape(kind, [])), [rows, *kind.shape]) for kind in kinds]
    return add_carries(step.loop, initial, write)


class _Nest:
    """Writes the loops that replace the reader."""

    def __init__(self, step: Step, plan: Segments, loop: ir.Operation, indices: Indices):
        self.step = step
        self.plan = plan
        self.loop = loop
        self.reader = plan.reader
        found = indices.counting(plan.reader)
        assert found is not None
        self.reading = found
        self.trips = step.counting.trips
        self.count, self.rest = divmod(self.trips, plan.length)
        self.counter = step.values[step.counting.place].type

    def build(self) -> None:
        reader = self.reader
        with ir.InsertionPoint(reader), reader.location:
            carried: list[ir.Value] = list(reader.operands)
            full = self.count * self.plan.length
            if self.rest and self.plan.backwards:
                carried = self.segment(self.splat(self.count), self.splat(0), self.rest, carried)
            carried = self.segments(carried)
            if self.rest and not self.plan.backwards:
                carried = self.segment(self.splat(self.count), self.splat(full), self.rest, carried)
        for old, new in zip(reader.results, carried, strict=True):
            old.replace_all_uses_with(new)

    def splat(self, number: int) -> ir.Value:
        return build.splat(self.counter, number)

    def segments(self, carried: Sequence[ir.Value]) -> list[ir.Value]:
        """The loop over all full segments. carried: the reader's carries; returns their values after it."""
        length, already = self.splat(self.plan.length), self.rest if self.plan.backwards else 0

        def body(number: ir.Value, inner: Sequence[ir.Value]) -> list[ir.Value]:
            row = stablehlo.subtract(self.splat(self.count - 1), number) if self.plan.backwards else number
            read = stablehlo.multiply(number, length)
            return self.segment(row, stablehlo.add(read, self.splat(already)), self.plan.length, inner)

        return _counted_loop(self.splat(0), self.count, carried, body)

    def segment(self, row: ir.Value, read: ir.Value, length: int, carried: Sequence[ir.Value]) -> list[ir.Value]:
        """Both loops over one segment. row: its number. read: the number of steps read before it."""
        forward = self.forward(row, length)
        starts = list(carried)
        place = self.reading.place
        begin = build.convert(read, build.tensor_of(carried[place]).element_type)
        starts[place] = stablehlo.add(begin, build.splat(begin.type, self.reading.start))
        backward, number = _part_of(self.reader, starts, length, self.counter)
        body = backward.regions[1].blocks[0]
        last = self.splat(length - 1)
        for stack in self.plan.stacks:
            for each in [use.owner.operation for use in self.loop.results[stack.carry].uses]:
                if each.block != body:
                    continue
                with ir.InsertionPoint(each), each.location:
                    at = stablehlo.subtract(last, number) if self.plan.backwards else number
                    each.operands[0] = forward.results[stack.carry]
                    each.operands[1] = build.convert(at, build.tensor_of(each.operands[1]).element_type)
        return [value for place, value in enumerate(backward.results) if place < len(carried)]

    def forward(self, row: ir.Value, length: int) -> ir.Operation:
        """The forward loop over one segment, with stacks of its length."""
        first = stablehlo.multiply(row, self.splat(self.plan.length))
        starts = list(self.loop.operands)
        for carry in range(len(self.step.returned)):
            if self.step.is_counted(carry):
                starts[carry] = self.counted(carry, first)
        behind = len(starts) - len(self.plan.carries)
        for place, carry in enumerate(self.plan.carries):
            slice_of_one = build.slice_along(self.loop.results[behind + place], 0, row, 1)
            starts[carry] = reshaped(slice_of_one, starts[carry].type)
        for stack in self.plan.stacks:
            kind = build.tensor_of(starts[stack.carry])
            starts[stack.carry] = build.broadcast(
                build.zeros(build.with_shape(kind, [])), [length, *list(kind.shape)[1:]]
            )
        made, number = _part_of(self.loop, starts, length, self.counter)
        last = terminator(made.regions[1].blocks[0])
        for stack in self.plan.stacks:
            update = last.operands[stack.carry].owner.operation
            with ir.InsertionPoint(update), update.location:
                update.operands[2] = build.convert(number, build.tensor_of(update.operands[2]).element_type)
        return made

    def counted(self, carry: int, first: ir.Value) -> ir.Value:
        """The value of a counter in a step. first: the number of the step."""
        start: ir.Value = self.loop.operands[carry]
        if self.step.returned[carry] == carry:
            return start
        steps = build.convert(first, build.tensor_of(start).element_type)
        growth = build.splat(start.type, self.step.growths[carry] or 0)
        counted: ir.Value = stablehlo.add(start, stablehlo.multiply(steps, growth))
        return counted


def _part_of(
    loop: ir.Operation, starts: Sequence[ir.Value], length: int, counter: ir.Type
) -> tuple[ir.Operation, ir.Value]:
    """A copy of a loop that starts from these values and runs `length` times, and its trip counter."""
    clone = loop.clone(ip=ir.InsertionPoint.current).operation
    blocks = [region.blocks[0] for region in clone.regions]
    for place, value in enumerate(starts):
        clone.operands[place] = value
        if value.type == clone.results[place].type:
            continue
        for each in (*(block.arguments[place] for block in blocks), clone.results[place]):
            each.set_type(value.type)
        terminator(blocks[1]).operands[place].set_type(value.type)
    zero, one = build.splat(counter, 0), build.splat(counter, 1)
    made = add_carries(clone, [zero], lambda carried: [stablehlo.add(carried[0], one)])
    condition, body = (region.blocks[0] for region in made.regions)
    last = terminator(condition)
    with ir.InsertionPoint(last), last.location:
        stablehlo.return_([build.less_than(condition.arguments[len(starts)], build.splat(counter, length))])
    last.erase()
    return made, body.arguments[len(starts)]


def _counted_loop(
    start: ir.Value,
    trips: int,
    carried: Sequence[ir.Value],
    step: Callable[[ir.Value, Sequence[ir.Value]], Sequence[ir.Value]],
) -> list[ir.Value]:
    """A loop with this trip count; step: builds the body, from the number of the trip and the carried values."""
    initial = [start, *carried]
    types = [value.type for value in initial]
    made = stablehlo.WhileOp(types, initial).operation
    condition, body = (region.blocks.append(*types) for region in made.regions)
    with ir.InsertionPoint(condition):
        stablehlo.return_([build.less_than(condition.arguments[0], build.splat(start.type, trips))])
    with ir.InsertionPoint(body):
        number, *inner = body.arguments
        after = step(number, inner)
        stablehlo.return_([stablehlo.add(number, build.splat(start.type, 1)), *after])
    return [value for place, value in enumerate(made.results) if place]
