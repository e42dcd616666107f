"""late-sums: a big sum that a loop carries -> added up by a loop after it, from small stacks.

    while i: %u = f(%u); %s = %s + outer(%u, %v)          while i: %u = f(%u); stack[i] = %u
                                                    ->    while i: %s = %s + outer(stack[i], %v)

The gradient of an iterative solver adds to the gradient of its matrix in every step. Each step needs complete vectors,
so that the loop cannot run tile by tile, but its sum can: no element of it depends on another.

Applies to loops of a known trip count, and to carries above the threshold that each step changes elementwise, that no
other carry depends on, and that only smaller tensors are computed from afterwards. What is stored for each step is a
minimum cut (`choose.py`), of at most a quarter of the carry's bytes in all. The terms are added in the same order.
Leaves sums alone whose terms would be computed twice, by expensive ops, as the other carries need them too.
"""

from __future__ import annotations

from collections.abc import Iterator

from jaxlib.mlir import ir

from exla_opt.ir.attributes import devices_of
from exla_opt.ir.clean_up import clean_up
from exla_opt.ir.locations import describe
from exla_opt.ir.loops import counting
from exla_opt.ir.types import Types
from exla_opt.ir.walk import inside_out, terminator
from exla_opt.options import Options
from exla_opt.passes.loop_residuals.steps import Step
from exla_opt.remarks import Kind, Remark

from .build import sum_later
from .choose import find_stored, is_worthwhile
from .legal import find_sums

NAME = "late-sums"
# Loops change while others are visited: one round for each sum of a loop, and no more than these.
_MOST_ROUNDS = 16


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Add up sums of the module's loops after them, in place; return the remarks."""
    if devices_of(module) > 1:
        return []
    remarks: list[Remark] = []
    for _ in range(_MOST_ROUNDS):
        found = [remark for loop in inside_out(module, "stablehlo.while") for remark in _rewrite(loop, options)]
        if not found:
            break
        remarks += found
        clean_up(module)
    return remarks


def _rewrite(loop: ir.Operation, options: Options) -> Iterator[Remark]:
    """Take the first sum out of a loop that can be, and should be."""
    types = Types()
    if len(loop.attributes) or all(types.of(result).bytes <= options.size_threshold for result in loop.results):
        return
    counted = counting(loop)
    if counted is None or counted.step != 1 or counted.trips < 2:
        return
    step = Step(loop, counted, types)
    for found in find_sums(step, options.size_threshold):
        stored = find_stored(step, found)
        if not is_worthwhile(step, found, stored, types):
            continue
        tensor = types.of(loop.results[found.carry])
        last = terminator(loop.regions[1].blocks[0]).operands[found.carry]
        message = f"added up after its loop, from {counted.trips} steps of what its terms are computed from"
        yield Remark(Kind.PASSED, "EX020", NAME, str(tensor), tensor.bytes, describe(last.owner), message)
        sum_later(step, found, sorted(stored))
        return
