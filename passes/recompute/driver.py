"""Recomputes until the program is within the limit, or nothing more is gained."""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir

from exla_opt.ir.attributes import devices_of
from exla_opt.ir.locations import describe
from exla_opt.ir.order import CannotOrder
from exla_opt.ir.rewrite import copy_of
from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import main_function
from exla_opt.memory.machine import compiles_of
from exla_opt.options import Options
from exla_opt.remarks import Kind, Remark
from exla_opt.sizes import format_size

from .build import build_plan
from .choose import choose_plan, find_problem
from .kernels import Schedule, place_schedule, read_schedule
from .segments import Problem, Segment

_PASS = "recompute"
# A second peak may show behind the first.
_MOST_ROUNDS = 6
# How often a plan is made anew that turns out to need more than was thought.
_MOST_TRIES = 4
# With what is recomputed a program must need no more than this part of the temporary memory that it needs without.
_WORTHWHILE = 0.98
# Another peak is looked at where the last one was lowered to this part of the memory.
_NEXT_ROUND = 0.98
# A plan that needs more than was thought is made anew for at most this part of the room.
_CLOSER = 0.97


def recompute(module: ir.Module, options: Options) -> list[Remark]:
    """Recompute what the module holds for long, as long as it is predicted to need more than the limit."""
    limit = options.memory_limit
    if limit is None or devices_of(module) > 1:
        return []
    remarks: list[Remark] = []
    now = _read(module, options)
    for _ in range(_MOST_ROUNDS):
        if now.memory.peak <= limit:
            break
        before = now.memory.temp
        now, found = _round(module, now, options, limit)
        remarks += found
        if now.memory.temp > _NEXT_ROUND * before:
            break
    return remarks


def _read(module: ir.Module, options: Options) -> Schedule:
    """The schedule of the compile that needs most."""
    function = main_function(module)
    found = (read_schedule(function, Types(), each) for each in compiles_of(options.machine))
    return max(found, key=lambda schedule: schedule.memory.temp)


def _round(module: ir.Module, now: Schedule, options: Options, limit: int) -> tuple[Schedule, list[Remark]]:
    """One peak lowered: the schedule of the module then, and what was done; nothing where that is not worthwhile.

    Of several plans none of which is within the limit when it is written, the one that needs least.
    """
    before = now.memory
    room = aim = limit - (before.peak - before.temp)
    least, best, said = int(_WORTHWHILE * before.temp), None, []
    for _ in range(_MOST_TRIES):
        types = Types()
        block = _block(module)
        problem = find_problem(now, block, types, options)
        plan = choose_plan(problem, options, aim) if problem is not None else None
        if problem is None or plan is None or not plan.segments or plan.peak > _WORTHWHILE * max(now.alive):
            break
        original, placed = copy_of(module), place_schedule(now, block)
        try:
            built = build_plan(block, plan, problem, types, options.machine)
        except CannotOrder:
            _restore(module, original)
            now = placed.of(_block(module))
            break
        made = _read(module, options)
        if made.memory.temp <= min(room, least):
            return made, _remarks(built, problem, types)
        if made.memory.temp <= least:
            least, said = made.memory.temp, _remarks(built, problem, types)
            best = copy_of(module), place_schedule(made, _block(module))
        _restore(module, original)
        now = placed.of(_block(module))
        if plan.peak > aim or made.memory.temp <= room:
            break
        aim = int(aim * min(room / made.memory.temp, _CLOSER))
    if best is None:
        return now, []
    _restore(module, best[0])
    return best[1].of(_block(module)), said


def _block(module: ir.Module) -> ir.Block:
    block: ir.Block = main_function(module).regions[0].blocks[0]
    return block


def _restore(module: ir.Module, other: ir.Module) -> None:
    """Let the module be another."""
    for view in list(module.body.operations):
        view.operation.erase()
    for view in list(other.body.operations):
        module.body.append(view.operation.detach_from_parent())


def _remarks(built: Sequence[Segment], problem: Problem, types: Types) -> list[Remark]:
    """One for each segment, of the largest tensor that it recomputes."""
    found = []
    for segment in built:
        values = [problem.schedule.values[value] for value in segment.made if value not in problem.turned]
        if not values:
            continue
        largest = max(values, key=lambda value: types.of(value).bytes)
        kind = types.of(largest)
        total = sum(types.of(value).bytes for value in values)
        others = f" with {len(values) - 1} others, {format_size(total)} in all" if len(values) > 1 else ""
        message = f"recomputed before it is read again{others}"
        op = defining_op(largest)
        assert op is not None
        found.append(Remark(Kind.PASSED, "EX013", _PASS, str(kind), kind.bytes, describe(op), message))
    return found
