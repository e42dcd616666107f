"""late-sums: a big sum that a loop carries -> added up by a loop after it, from small stacks.

    while i: %u = f(%u); %s = %s + outer(%u, %v)          while i: %u = f(%u); stack[i] = %u
                                                    ->    while i: %s = %s + outer(stack[i], %v)

The gradient of an iterative solver adds to the gradient of its matrix in every step. Each step needs complete vectors,
so that the loop cannot run tile by tile, but its sum can: no element of it depends on another.

Applies to loops of a known trip count that multiply big matrices, and there to carries above the threshold that each
step changes elementwise, that no other carry depends on, and from which only smaller tensors are computed afterwards.
What is stored for each step is a minimum cut (`choose.py`), of at most a quarter of the carry's bytes in all. The terms
are added in the same order. Leaves sums alone whose terms the other carries need too, if these are long to compute.
"""

from __future__ import annotations

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
from .choose import find_stored, is_kept, is_worthwhile, needs_all_of_something
from .legal import Sum, find_sums, may_be_copied

NAME = "late-sums"


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Add up sums of the module's loops after them, in place; return the remarks."""
    if devices_of(module) > 1:
        return []
    remarks = [remark for loop in inside_out(module, "stablehlo.while") for remark in _rewrite(loop, options)]
    if remarks:
        clean_up(module)
    return remarks


def _rewrite(loop: ir.Operation, options: Options) -> list[Remark]:
    """Take the sums out of a loop that can be, and should be; return the remarks."""
    types, threshold = Types(), options.size_threshold
    if all(types.of(result).bytes <= threshold for result in loop.results) or not may_be_copied(loop):
        return []
    counted = counting(loop)
    if counted is None or counted.step != 1 or counted.trips < 2:
        return []
    step = Step(loop, counted, types)
    sums = [found for found in find_sums(step, threshold) if not is_kept(loop.results[found.carry], types)]
    if not sums or not needs_all_of_something(step, sums, threshold, types):
        return []
    stored = {found: find_stored(step, found) for found in sums}
    taken = {found: values for found, values in stored.items() if is_worthwhile(step, found, values, types)}
    if not taken:
        return []
    remarks = [_remark(loop, found, counted.trips, types) for found in taken]
    sum_later(step, taken)
    return remarks


def _remark(loop: ir.Operation, found: Sum, trips: int, types: Types) -> Remark:
    tensor = types.of(loop.results[found.carry])
    last = terminator(loop.regions[1].blocks[0]).operands[found.carry].owner
    message = f"added up after its loop, from {trips} steps of what its terms are computed from"
    return Remark(Kind.PASSED, "EX020", NAME, str(tensor), tensor.bytes, describe(last), message)
