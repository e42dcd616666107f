"""Takes sums out of their loop: stacks in the loop, and for each sum a copy of the loop after it that only adds."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from jaxlib.mlir import ir

from exla_opt.ir import build
from exla_opt.ir.loops import drop_carries
from exla_opt.passes.loop_residuals.build import from_first, with_stacks
from exla_opt.passes.loop_residuals.steps import Step

from .legal import Sum


def sum_later(step: Step, sums: Mapping[Sum, Collection[int]]) -> None:
    """Let the loop of a step store values, and a loop after it for each sum compute the sum from these.

    sums: the values that are stored for each, by number; a value of several is stored once.
    """
    stored = sorted({value for values in sums.values() for value in values})
    copies = [step.loop.clone(ip=ir.InsertionPoint(step.loop)).operation for _ in sums]
    loop = with_stacks(step, stored)
    stacks = dict(zip(stored, list(loop.results)[len(loop.results) - len(stored) :], strict=True))
    last = loop
    for (found, values), copy in zip(sums.items(), copies, strict=True):
        copy.move_after(last)
        loop.results[found.carry].replace_all_uses_with(copy.results[found.carry])
        last = _reduced(copy, step, found, {value: stacks[value] for value in values})
    drop_carries(loop, [found.carry for found in sums])


def _reduced(copy: ir.Operation, step: Step, found: Sum, stacks: Mapping[int, ir.Value]) -> ir.Operation:
    """A copy of the loop of a step that reads values from stacks, by number, and computes nothing but a sum."""
    body = copy.regions[1].blocks[0]
    *views, _ = body.operations
    ops = [view.operation for view in views]
    values = [*body.arguments, *(result for op in ops for result in op.results)]  # in the numbers of the step
    with ir.InsertionPoint.at_block_begin(body), copy.location:
        index = from_first(body.arguments[step.counting.place], step.counting)
        for number, stack in stacks.items():
            part = build.slice_along(stack, 0, index, 1)
            values[number].replace_all_uses_with(build.reshaped(part, build.shape_of(values[number])))
    # The sum, the counter, and the counters and invariants that the terms are computed from.
    kept = {found.carry, step.counting.place, *(step.slice_of(found.terms, stacks) - stacks.keys())}
    smaller = drop_carries(copy, [carry for carry in range(len(step.returned)) if carry not in kept])
    for op in reversed(ops):  # also those with an effect: the loop itself has it
        if all(next(iter(result.uses), None) is None for result in op.results):
            op.erase()
    return smaller
