"""Applies a plan: repeats each segment, in a form that the machine's compiler does not undo.

NOTE [Forms]

XLA merges equal ops, so a plain copy has no effect. On GPUs and TPUs an optimization barrier around a segment's inputs
and a number of the backward pass keeps the copy separate, and late. XLA:CPU drops barriers before it orders the
kernels: there the copy would run early, and be kept. So it is put into a loop of one trip, which waits for the number,
and whose trip count no compiler can know:

    %trips = convert((bitcast(%number) | 1) != 0, and the same of each input)
    %i, %again = while %i = 0, %start < %trips { barrier, then the segment }

The initial carries are computed from %trips, as ops without operands would run at the start of the program, and wait.
%trips also depends on the segment's inputs: if a later round recomputes one of these, the carries wait for that too.
The barrier holds the segment's inputs and %i: so nothing merges the copy with its original, or moves it out of the
loop. A branch would need a second one, which computes tensors of the same types.

In loops XLA:CPU has a fast kernel for convolutions in one dimension order only. A segment with a convolution in another
order is not put into a loop: all that it reads is selected by a boolean that is always true, as no compiler can know.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.opaque import always, bits_of
from exla_opt.ir.order import restore_order
from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import terminator
from exla_opt.memory.convolutions import is_slow_inside
from exla_opt.memory.machine import Machine
from exla_opt.ops.effects import has_order
from exla_opt.ops.traits import Trait, has_trait

from .choose import Plan
from .kernels import Schedule
from .readers import read_by, sides
from .repeat import Copies, Ops, chain_of, clone_ops, read_ops, redirect
from .segments import Problem, Segment


def build_plan(block: ir.Block, plan: Plan, problem: Problem, types: Types, machine: Machine) -> list[Segment]:
    """Recompute the segments of a plan in `block`, in place; return those that were recomputed.

    A segment that has nothing to wait for is skipped. Raises CannotOrder when the block cannot be put in order.
    """
    ops = read_ops(block, problem.schedule)
    early, late = sides(ops.all, problem.schedule, problem.peak, types)
    copies: Copies = {}
    built = []
    for segment in plan.segments:
        if found := _recompute(block, ops, segment, problem, types, machine):
            copies.update(found)
            built.append(segment)
    _rewire(ops.all, early, late, copies, problem, types)
    restore_order(block, has_order)
    return built


def _recompute(block: ir.Block, ops: Ops, segment: Segment, problem: Problem, types: Types, machine: Machine) -> Copies:
    """Write a segment before the end of the block; return the copies by their originals, or none."""
    schedule = problem.schedule
    chain, inputs = chain_of(ops, segment, schedule, types)
    made = [schedule.value_of(value) for value in segment.made]
    trigger = last_written(schedule, segment.before)
    if trigger is None:  # the copy has nothing to wait for: the originals stay
        return {}
    origin = defining_op(made[0]) or defining_op(trigger)
    assert origin is not None  # a trigger is not an argument
    with ir.InsertionPoint(terminator(block)), origin.location:
        if machine.kind != "cpu":
            held = _barrier([*inputs, trigger])
            copies = clone_ops(chain, dict(zip(inputs, held, strict=False)))
            return {value: copies[value] for value in made}
        if not chain and all(defining_op(value) is None for value in made):
            return _held_back(made, always(trigger))
        if any(is_slow_inside(op, types) for op in chain):
            return _once_held_back(chain, inputs, made, always(trigger))
        return _once(chain, inputs, made, _ready(block, trigger, inputs))


def move_behind(
    block: ir.Block,
    ops: Ops,
    steps: Sequence[int],
    made: Sequence[int],
    trigger: ir.Value,
    schedule: Schedule,
    types: Types,
) -> None:
    """Compute the results of some kernels of a CPU once a tensor is there that does not depend on them.

    They go to the end of the block; the originals stay, unread.
    """
    stored = tuple(schedule.values.keys() - set(made))
    segment = Segment(tuple(steps), frozenset(made), tuple(made), stored, 0, 0.0, 0)
    chain, inputs = chain_of(ops, segment, schedule, types)
    values = [schedule.value_of(value) for value in made]
    origin = defining_op(values[0])
    assert origin is not None
    with ir.InsertionPoint(terminator(block)), origin.location:
        copies = _once(chain, inputs, values, _ready(block, trigger, inputs))
    for value in values:
        value.replace_all_uses_with(copies[value])


def compute_late(
    block: ir.Block,
    ops: Ops,
    made: int,
    read: Sequence[int],
    trigger: ir.Value,
    schedule: Schedule,
    types: Types,
) -> None:
    """Compute a tensor from others, `read`, once a tensor is there that does not depend on it.

    Not in a loop, in which some convolutions are slow. It goes to the end of the block. Of what is read, tensors of
    complex numbers, booleans and other rare types do not wait: what reads only those may run early.
    """
    value = schedule.value_of(made)
    chain, inputs = chain_of(ops, Segment((), frozenset(), (made,), tuple(read), 0, 0.0, 0), schedule, types)
    origin = defining_op(value)
    assert origin is not None
    with ir.InsertionPoint(terminator(block)), origin.location:
        copies = _once_held_back(chain, inputs, [value], always(trigger))
    value.replace_all_uses_with(copies[value])


def _ready(block: ir.Block, trigger: ir.Value, inputs: Sequence[ir.Value]) -> ir.Value:
    """A boolean, always true, that is there after the trigger and all inputs."""
    ready = always(trigger)
    for value in inputs:
        op = defining_op(value)
        if value != trigger and op is not None and op.block == block and is_computed(value):
            ready = stablehlo.and_(ready, always(value))
    return ready


def _held_back(values: list[ir.Value], always: ir.Value) -> Copies:
    """Tensors that depend on the boolean: the compiler fuses the select into its own copies of them."""
    return {value: stablehlo.select(always, value, start_of(value.type, always)) for value in values}


def _once(chain: Sequence[ir.Operation], inputs: list[ir.Value], made: list[ir.Value], always: ir.Value) -> Copies:
    """A loop of one trip, which no compiler can know; see Forms."""
    number = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
    trips = stablehlo.convert(number, always)
    starts = [start_of(value.type, always) for value in made]
    kinds = [number, *(value.type for value in made)]
    loop = ir.Operation.create("stablehlo.while", results=kinds, operands=[build.scalar_i32(0), *starts], regions=2)
    condition, body = (region.blocks.append(*kinds) for region in loop.regions)
    with ir.InsertionPoint(condition):
        stablehlo.return_([build.less_than(condition.arguments[0], trips)])
    with ir.InsertionPoint(body):
        held = _barrier([*inputs, body.arguments[0]])
        copies = clone_ops(chain, dict(zip(inputs, held, strict=False)))
        following = stablehlo.add(body.arguments[0], build.scalar_i32(1))
        stablehlo.return_([following, *(copies[value] for value in made)])
    return dict(zip(made, list(loop.results)[1:], strict=True))


def _once_held_back(
    chain: Sequence[ir.Operation], inputs: list[ir.Value], made: list[ir.Value], always: ir.Value
) -> Copies:
    """The chain, from inputs that depend on the boolean: not in a loop, where some ops are slow; see Forms."""
    copies = clone_ops(chain, _held_back([value for value in inputs if bits_of(value)], always))
    return {value: copies[value] for value in made if value in copies}


def start_of(kind: ir.Type, always: ir.Value) -> ir.Value:
    """The initial value of a carry: any numbers that depend on the boolean."""
    tensor = ir.RankedTensorType(kind)
    return build.broadcast(build.convert(always, tensor.element_type), list(tensor.shape))


def _barrier(values: Sequence[ir.Value]) -> list[ir.Value]:
    return list(stablehlo.OptimizationBarrierOp(list(values)).results)


def _rewire(
    ops: Sequence[ir.Operation],
    early: Sequence[bool],
    late: Sequence[bool],
    copies: Copies,
    problem: Problem,
    types: Types,
) -> None:
    """Let ops after the peak read the copies; an op that is a part of kernels on both sides gets a second clone.

    A tensor read there from memory gets none, unless it is a view of one with a copy.
    """
    schedule = problem.schedule
    stays = problem.stays - {schedule.number[value] for value in copies if value in schedule.number}
    for index, op in enumerate(ops):
        if not late[index] or not any(operand in copies for operand in read_by(op, types)):
            continue
        if early[index] and any(value in copies or schedule.number.get(value) in stays for value in op.results):
            continue
        if not early[index]:
            redirect(op, copies)
            continue
        with ir.InsertionPoint(op):
            clone = op.clone(ip=ir.InsertionPoint.current).operation
        redirect(clone, copies)
        copies.update(zip(op.results, clone.results, strict=True))


def last_written(schedule: Schedule, before: int, except_for: Collection[int] = ()) -> ir.Value | None:
    """The last tensor that is written before a step: it does not depend on what the step computes.

    except_for: steps whose tensors do not count.
    """
    for step in range(before - 1, -1, -1):
        if step in except_for:
            continue
        for number in schedule.kernels[step].made:
            value = schedule.values.get(number)
            if value is not None and is_computed(value):
                return value
    return None


def is_computed(value: ir.Value) -> bool:
    """Whether a value is a tensor of numbers that is not a broadcast, as initial values of loops are."""
    op = defining_op(value)
    return op is not None and not has_trait(op, Trait.FREE) and bits_of(value) > 0 and prod(build.shape_of(value)) > 1
