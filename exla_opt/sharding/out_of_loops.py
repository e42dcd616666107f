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

from .stacked import SLICE, Stacking

_LOOP = "stablehlo.while"
_BARRIER = "stablehlo.optimization_barrier"
# The factor by which the states of all steps must exceed what is gathered and summed at once: without the move, the
# states are stored, and with it, all that.
_TIMES = 2
# Between a collective and a write are a few ops.
_DEEPEST = 64


@dataclass(frozen=True, slots=True)
class _Gather:
    """A collective of what every step reads of a stack from outside: the slice, and the ops on it, in order."""

    op: ir.Operation
    slice: ir.Operation
    ops: tuple[ir.Operation, ...]


@dataclass(frozen=True, slots=True)
class _Sum:
    """Collectives of which every step writes the result to a stack: the ops from them to the write of carry `carry`.

    sources: what these ops read, which the loop stacks instead.
    """

    carry: int
    update: ir.Operation
    ops: tuple[ir.Operation, ...]
    sources: tuple[ir.Value, ...]


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
        if _is_slice_of_stack(made, loop, trips, stacking):
            return _Gather(op, made, tuple(reversed(ops)))
        if made.name == _BARRIER:  # around a step that is computed again, of which the state stays behind the barrier
            value = made.operands[ir.OpResult(value).result_number]
            continue
        if not stacking.can_stack(made) or len(stacking.inputs_of(made)) > 1:
            return None
        ops.append(made)
        value = made.operands[0]
    return None


def _is_slice_of_stack(op: ir.Operation, loop: ir.Operation, trips: int, stacking: Stacking) -> bool:
    """Whether an op reads one slice of a tensor from outside, the same on all devices."""
    if op.name != SLICE:
        return False
    stack, start, *_ = op.operands
    (rows, *rest), (taken, *others) = build.shape_of(stack), build.shape_of(op.results[0])
    if taken != 1 or rest != others or rows > trips or stacking.is_inside(stack):
        return False
    return indices_of(loop, start) is not None


def _sum(loop: ir.Operation, carry: int, trips: int, stacking: Stacking) -> _Sum | None:
    """The ops from the first collectives to the write of a stack of which each step writes one slice."""
    update = only_update(loop, carry)
    if update is None or update.block != stacking.body:
        return None
    (rows, *rest), (written, *others) = (build.shape_of(each) for each in list(update.operands)[:2])
    if written != 1 or rest != others or rows != trips:
        return None
    ops: list[ir.Operation] = []
    sources: list[ir.Value] = []
    if not _read_behind(update.operands[1], stacking, ops, sources):
        return None
    return _Sum(carry, update, tuple(ops), tuple(sources))


def _read_behind(
    value: ir.Value, stacking: Stacking, ops: list[ir.Operation], sources: list[ir.Value], most: int = _DEEPEST
) -> bool:
    """Whether a value that is read once comes from collectives by ops that can be stacked; add these, in order.

    Add what they read to the sources: a value that comes from no collective.
    """
    made = defining_op(value)
    if made is not None and most and stacking.can_stack(made) and len(list(value.uses)) == 1:
        inner: tuple[list[ir.Operation], list[ir.Value]] = ([], [])
        parts = [_read_behind(each, stacking, *inner, most - 1) for each in stacking.inputs_of(made)]
        if any(parts) or has_trait(made, Trait.COLLECTIVE):
            ops += [*inner[0], made]
            sources += inner[1]
            return True
    sources.append(value)
    return False


def _pays(plans: list[_Plan], types: Types) -> bool:
    """Whether the states of the loops' steps, as far as others read them, take far more than what is moved out."""
    gathered: dict[tuple[ir.Value, ir.Type], int] = {}
    for plan in plans:
        for each in plan.gathers:
            rows, *_ = build.shape_of(each.slice.operands[0])
            gathered[each.slice.operands[0], each.op.results[0].type] = rows * types.of(each.op.results[0]).bytes
    summed = [
        build.shape_of(each.update.operands[0])[0] * types.of(source).bytes
        for plan in plans
        for each in plan.sums
        for source in each.sources
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
                value = stacking.stacked(op, [value])
        kind = build.shape_of(gather.op.results[0])
        with ir.InsertionPoint(gather.op), gather.op.location:
            rows, *_ = build.shape_of(value)
            part = build.slice_along(build.reshaped(value, [rows, *kind]), 0, gather.slice.operands[1], 1)
            gather.op.results[0].replace_all_uses_with(build.reshaped(part, kind))
    for gather in reversed(plan.gathers):
        gather.op.erase()
    if plan.sums:
        _sum_behind(plan, stacking)


def _sum_behind(plan: _Plan, stacking: Stacking) -> None:
    """Let the loop stack what the sums read, and sum all of it at once."""
    pairs = [(each, source) for each in plan.sums for source in each.sources]
    kinds = [build.tensor_of(source) for _, source in pairs]

    def write(stacks: Sequence[ir.Value]) -> list[ir.Value]:
        made = []
        for stack, (each, source) in zip(stacks, pairs, strict=True):
            part = build.reshaped(source, [1, *build.shape_of(source)])
            made.append(build.update_along(stack, part, 0, each.update.operands[2]))
        return made

    with ir.InsertionPoint(plan.loop), plan.loop.location:
        zeros = [
            build.broadcast(
                build.zeros(build.with_shape(kind, [])), [build.shape_of(each.update.operands[0])[0], *kind.shape]
            )
            for (each, _), kind in zip(pairs, kinds, strict=True)
        ]
    loop = add_carries(plan.loop, zeros, write)
    first = len(loop.results) - len(pairs)
    known: dict[ir.Value, ir.Value] = {source: loop.results[first + place] for place, (_, source) in enumerate(pairs)}
    ops = operations_of(loop.block)
    following = ops[ops.index(loop) + 1]  # what is built later may read what is built earlier
    for each in plan.sums:
        with ir.InsertionPoint(following), each.update.location:
            for op in each.ops:
                known[op.results[0]] = stacking.stacked(op, [known[value] for value in stacking.inputs_of(op)])
            value = build.reshaped(known[each.update.operands[1]], build.shape_of(loop.results[each.carry]))
        loop.results[each.carry].replace_all_uses_with(value)
    for each in plan.sums:
        each.update.results[0].replace_all_uses_with(each.update.operands[0])
        each.update.erase()
        for op in reversed(each.ops):
            op.erase()
    drop_carries(loop, [each.carry for each in plan.sums])
