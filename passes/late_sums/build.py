"""Takes a sum out of its loop: stacks in the loop, and a copy of the loop after it that does nothing but add."""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.loops import drop_carries
from exla_opt.passes.loop_residuals.build import with_stacks
from exla_opt.passes.loop_residuals.steps import Step

from .legal import Sum


def sum_later(step: Step, found: Sum, stored: Sequence[int]) -> None:
    """Let the loop of a step store values, by number, and a second loop after it compute the sum from these."""
    copy = step.loop.clone(ip=ir.InsertionPoint(step.loop)).operation
    loop = with_stacks(step, stored)
    copy.move_after(loop)
    body = copy.regions[1].blocks[0]
    *views, _ = body.operations
    ops = [view.operation for view in views]
    values = [*body.arguments, *(result for op in ops for result in op.results)]
    stacks = list(loop.results)[len(loop.results) - len(stored) :]
    with ir.InsertionPoint.at_block_begin(body), loop.location:
        counter = body.arguments[step.counting.place]
        start = step.counting.start
        index = stablehlo.subtract(counter, build.splat(counter.type, start)) if start else counter
        for number, stack in zip(stored, stacks, strict=True):
            part = build.slice_along(stack, 0, index, 1)
            values[number].replace_all_uses_with(build.reshaped(part, build.shape_of(values[number])))
    loop.results[found.carry].replace_all_uses_with(copy.results[found.carry])
    drop_carries(loop, [found.carry])
    kept = {value for value in step.slice_of(found.terms, stored) if step.definers[value] < 0} - set(stored)
    kept |= {found.carry, step.counting.place}
    drop_carries(copy, [carry for carry in range(len(step.returned)) if carry not in kept])
    for op in reversed(ops):  # also those with an effect: the loop itself has it
        if all(next(iter(result.uses), None) is None for result in op.results):
            op.erase()
