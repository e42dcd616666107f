"""Moves all-reduces of the slices that a loop writes into a stack behind the loop.

    while { s = dynamic_update_slice(s, all_reduce(x), n) }  ->  all_reduce(while { s = dynamic_update_slice(s, x, n) })

The gradients of the weights of all layers are such a stack. The loop then does not communicate, so it can be split
along the batch. The same numbers are added for every element, and as many bytes are sent: either each element of the
stack is written once, or the sum stays where it is.
"""

from __future__ import annotations

from math import prod

from jaxlib.mlir import ir

from exla_opt.ir import build
from exla_opt.ir.loops import trip_count
from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import captured_values, inside_out
from exla_opt.ops.reducers import body_of, componentwise
from exla_opt.ops.stack_sums import only_update
from exla_opt.ops.traits import Trait, has_trait

_SUM = "stablehlo.all_reduce"
# The factor by which the other tensors must exceed the stack.
_TIMES = 2


def sum_behind_loops(module: ir.Module) -> None:
    """Move the sums of stacks behind the loops that write them, in place; inner loops first."""
    for loop in inside_out(module, "stablehlo.while"):
        for carry, result in enumerate(loop.results):
            found = _sum_of_stack(loop, carry)
            if found is not None and _pays(loop, result):
                _move(found, result)


def _sum_of_stack(loop: ir.Operation, carry: int) -> ir.Operation | None:
    """The all-reduce of each slice of a stack, if nothing else changes the slice and the loop fills the stack."""
    update = only_update(loop, carry)
    if update is None or update.block != loop.regions[1].blocks[0]:
        return None
    stack, part = (prod(build.shape_of(value)) for value in list(update.operands)[:2])
    if (trip_count(loop) or 0) * part != stack:
        return None
    value = update.operands[1]
    made = defining_op(value)
    # Ops that only move elements may come before or after the sum.
    while made is not None and has_trait(made, Trait.REARRANGES) and _is_read_once(value):
        value = made.operands[0]
        made = defining_op(value)
    if prod(build.shape_of(value)) != part:  # as many bytes as before
        return None
    if made is None or made.name != _SUM or len(made.operands) != 1 or not _is_read_once(value):
        return None
    return made if made.block == update.block and componentwise(body_of(made)) == ("add",) else None


def _pays(loop: ir.Operation, stack: ir.Value) -> bool:
    """Whether the loop reads or carries a tensor of twice the stack's size; the stack then exists twice.

    Without such a tensor, like the activations of all layers, splitting the loop gains nothing.
    """
    types = Types()
    values = [*loop.results, *captured_values(loop)]
    return any(types.of(value).bytes >= _TIMES * types.of(stack).bytes for value in values)


def _is_read_once(value: ir.Value) -> bool:
    return len(list(value.uses)) == 1


def _move(summed: ir.Operation, stack: ir.Value) -> None:
    loop = defining_op(stack)
    assert loop is not None
    uses = list(stack.uses)
    with ir.InsertionPoint.after(loop):
        whole = summed.clone(ip=ir.InsertionPoint.current).operation
    whole.operands[0] = stack
    whole.results[0].set_type(stack.type)
    for use in uses:
        use.owner.operation.operands[use.operand_number] = whole.results[0]
    summed.results[0].replace_all_uses_with(summed.operands[0])
    summed.erase()
