"""Moves the communication for the weights of all layers out of the loops over the layers.

    while { w = all_gather(ws[n]) }                   ->  all = all_gather(ws); while { w = all[n] }
    while { s[n] = own_part(all_reduce(x)) }          ->  own_part(all_reduce(while { s[n] = x }))

Fully sharded weights are gathered in each step, and their gradients summed. Without that, the loops can be split from
outside along the batch, and the activations of all layers disappear. As many bytes are sent, or fewer, if the backward
loop would have gathered again. In exchange all gathered weights and all gradients are in memory at once: this is done
only if the loop's states take far more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jaxlib.mlir import ir

from exla_opt.ir import build
from exla_opt.ir.clean_up import clean_up
from exla_opt.ir.loops import add_carries, counting, drop_carries
from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import captured_values, inside_out, operations_of, walk
from exla_opt.ops.collectives import talks
from exla_opt.ops.stack_sums import indices_of, only_update
from exla_opt.ops.traits import Trait, has_trait

from .stacked import SLICE, Stacking, reshaped

_LOOP = "stablehlo.while"
_BARRIER = "stablehlo.optimization_barrier"
# The factor by which the states of all steps must exceed what is gathered and summed at once: without the move, the
# states are stored, and with it, all that.
_TIMES = 2


@dataclass(frozen=True, slots=True)
class _Gather:
    """A collective of what every step reads of a stack from outside: the slice, and the ops on it, in order."""

    op: ir.Operation
    slice: ir.Operation
    ops: tuple[ir.Operation, ...]


@dataclass(frozen=True, slots=True)
class _Sum:
    """A collective whose result every step writes to a stack: the ops from it to the write of carry `carry`."""

    carry: int
    update: ir.Operation
    ops: tuple[ir.Operation, ...]


@dataclass(frozen=True, slots=True)
class _Plan:
    loop: ir.Operation
    gathers: tuple[_Gather, ...]
    sums: tuple[_Sum, ...]


def communicate_outside_loops(module: ir.Module) -> None:
    """Move the collectives of loops over layers out of these, in place; inner loops first.

    Either all collectives of all loops of a block are moved, or none: one that is left keeps a loop in one piece.
    """
    types, is_changed = Types(), False
    blocks = dict.fromkeys(loop.block for loop in inside_out(module, _LOOP))
    for block in blocks:
        loops = [op for op in operations_of(block) if op.name == _LOOP and talks(op)]
        plans = [plan for plan in map(_plan, loops) if plan is not None]
        if len(plans) == len(loops) and _pays(plans, types):
            known: dict[tuple[object, ...], ir.Value] = {}
            for plan in plans:
                _apply(plan, known)
            is_changed = True
    if is_changed:
        clean_up(module)


def _plan(loop: ir.Operation) -> _Plan | None:
    """How to move all collectives of a loop; None if one must stay."""
    body, found = loop.regions[1].blocks[0], counting(loop)
    stacking = Stacking(body, {})
    if found is None or len(loop.attributes):  # attributes, such as shardings, have an entry for each carry
        return None
    sums = [each for carry in range(len(loop.operands)) if (each := _sum(loop, carry, found.trips, stacking))]
    summed = {op.results[0] for each in sums for op in each.ops}
    gathers = []
    for op in (op for region in loop.regions for block in region.blocks for op in walk(block)):
        if not has_trait(op, Trait.COLLECTIVE) or (len(op.results) == 1 and op.results[0] in summed):
            continue
        gather = _gather(op, loop, found.trips, stacking)
        if gather is None:
            return None
        gathers.append(gather)
    return _Plan(loop, tuple(gathers), tuple(sums))


def _gather(op: ir.Operation, loop: ir.Operation, trips: int, stacking: Stacking) -> _Gather | None:
    """A collective of a slice of a stack from outside, which has no more slices than the loop reads."""
    ops: list[ir.Operation] = []
    value: ir.Value = op.results[0]
    while (made := defining_op(value)) is not None and made.block == stacking.body:
        if _is_slice_of_stack(made, loop, trips):
            return _Gather(op, made, tuple(reversed(ops)))
        if made.name == _BARRIER:  # around a step that is computed again, of which the state stays behind the barrier
            value = made.operands[ir.OpResult(value).result_number]
            continue
        if not stacking.can_stack(made):
            return None
        ops.append(made)
        value = made.operands[0]
    return None


def _is_slice_of_stack(op: ir.Operation, loop: ir.Operation, trips: int) -> bool:
    """Whether an op reads one slice of a tensor from outside, the same on all devices."""
    if op.name != SLICE:
        return False
    stack, start, *_ = op.operands
    (rows, *rest), (taken, *others) = build.shape_of(stack), build.shape_of(op.results[0])
    if taken != 1 or rest != others or rows > trips or stack.owner == op.block:
        return False
    made = defining_op(stack)
    is_inside = made is not None and made.block == op.block
    return not is_inside and indices_of(loop, start) is not None


def _sum(loop: ir.Operation, carry: int, trips: int, stacking: Stacking) -> _Sum | None:
    """The ops from the first collective to the write of a stack of which each step writes one slice."""
    update = only_update(loop, carry)
    if update is None or update.block != stacking.body:
        return None
    (rows, *rest), (written, *others) = (build.shape_of(each) for each in list(update.operands)[:2])
    if written != 1 or rest != others or rows != trips:
        return None
    ops: list[ir.Operation] = []
    value = update.operands[1]
    made = defining_op(value)
    while made is not None and stacking.can_stack(made) and len(list(value.uses)) == 1:
        ops.append(made)
        value = made.operands[0]
        made = defining_op(value)
    while ops and not has_trait(ops[-1], Trait.COLLECTIVE):
        ops.pop()
    return _Sum(carry, update, tuple(reversed(ops))) if ops else None


def _pays(plans: list[_Plan], types: Types) -> bool:
    """Whether the states of the loops' steps, as far as others read them, take far more than what is moved out."""
    gathered: dict[tuple[ir.Value, ir.Type], int] = {}
    for plan in plans:
        for each in plan.gathers:
            rows, *_ = build.shape_of(each.slice.operands[0])
            gathered[each.slice.operands[0], each.op.results[0].type] = rows * types.of(each.op.results[0]).bytes
    summed = [
        build.shape_of(each.update.operands[0])[0] * types.of(each.ops[0].operands[0]).bytes
        for plan in plans
        for each in plan.sums
    ]
    if not gathered and not summed:
        return False
    read = {value for plan in plans for value in captured_values(plan.loop)}
    states = max(_states(plan.loop, read, types) for plan in plans)
    return states >= _TIMES * (sum(gathered.values()) + sum(summed))


def _states(loop: ir.Operation, read: set[ir.Value], types: Types) -> int:
    """The bytes of the states of all steps of a loop, or of the stacks that it writes for `read`: the lesser."""
    body = loop.regions[1].blocks[0]
    returned = operations_of(body)[-1].operands
    state = written = 0
    for carry, (before, after) in enumerate(zip(body.arguments, returned, strict=True)):
        if only_update(loop, carry) is not None:
            written += types.of(before).bytes if loop.results[carry] in read else 0
        elif before != after:
            state += types.of(before).bytes
    found = counting(loop)
    return min(written, state * (found.trips if found else 0))


def _apply(plan: _Plan, known: dict[tuple[object, ...], ir.Value]) -> None:
    """Move the collectives. known: what was built in the block before."""
    stacking = Stacking(plan.loop.regions[1].blocks[0], known)
    for gather in plan.gathers:
        with ir.InsertionPoint(plan.loop), gather.op.location:
            value = gather.slice.operands[0]
            for op in gather.ops:
                value = stacking.stacked(op, value)
        kind = build.shape_of(gather.op.results[0])
        with ir.InsertionPoint(gather.op), gather.op.location:
            rows, *_ = build.shape_of(value)
            part = build.slice_along(reshaped(value, [rows, *kind]), 0, gather.slice.operands[1], 1)
            gather.op.results[0].replace_all_uses_with(reshaped(part, kind))
    for gather in reversed(plan.gathers):
        gather.op.erase()
    if plan.sums:
        _sum_behind(plan, stacking)


def _sum_behind(plan: _Plan, stacking: Stacking) -> None:
    """Let the loop stack what the sums read, and sum all of it at once."""
    values = [each.ops[0].operands[0] for each in plan.sums]
    kinds = [build.tensor_of(value) for value in values]

    def write(stacks: Sequence[ir.Value]) -> list[ir.Value]:
        parts = [reshaped(value, [1, *build.shape_of(value)]) for value in values]
        starts = [each.update.operands[2] for each in plan.sums]
        return [build.update_along(*each[:2], 0, each[2]) for each in zip(stacks, parts, starts, strict=True)]

    trips = [build.shape_of(each.update.operands[0])[0] for each in plan.sums]
    with ir.InsertionPoint(plan.loop), plan.loop.location:
        zeros = [
            build.broadcast(build.zeros(build.with_shape(kind, [])), [rows, *kind.shape])
            for rows, kind in zip(trips, kinds, strict=True)
        ]
    loop = add_carries(plan.loop, zeros, write)
    first = len(loop.results) - len(values)
    for number, each in enumerate(plan.sums):
        with ir.InsertionPoint.after(loop), each.ops[0].location:
            value = loop.results[first + number]
            for op in each.ops:
                value = stacking.stacked(op, value)
            value = reshaped(value, build.shape_of(loop.results[each.carry]))
        loop.results[each.carry].replace_all_uses_with(value)
    for each in plan.sums:
        each.update.results[0].replace_all_uses_with(each.update.operands[0])
        each.update.erase()
        for op in reversed(each.ops):
            op.erase()
    drop_carries(loop, [each.carry for each in plan.sums])
