"""Recomputes until the program is within the limit, or nothing more is gained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jaxlib.mlir import ir

from exla_opt.ir.attributes import devices_of
from exla_opt.ir.clean_up import clean_up
from exla_opt.ir.locations import describe
from exla_opt.ir.order import CannotOrder
from exla_opt.ir.rewrite import copy_of, restore
from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import main_function, operations_of
from exla_opt.memory.machine import Machine
from exla_opt.options import Options
from exla_opt.remarks import Kind, Remark
from exla_opt.sizes import format_size

from .build import build_plan
from .chains import find_chains, wait_for_others
from .choose import Plan, find_plans, find_problem
from .kernels import Schedule, place_schedule, read_body, read_schedule
from .segments import Problem, Segment
from .sums import add_early, find_sums, largest_sum

_PASS = "recompute"
# Lowering one peak may expose a second one.
_MOST_ROUNDS = 6
# How many plans are built if they turn out to need more than predicted.
_MOST_TRIES = 4
# Recomputing must lower the temporary memory to this fraction.
_WORTHWHILE = 0.98
# So must chains that wait for others: the other plans fit the order as it was.
_WORTH_WAITING = 0.9
# The part of the room for temporary memory to leave free if anything is recomputed: predictions are a little off, and a
# compile of a program just above the limit is wasted.
_MARGIN = 1 / 16
# The bytes of the loops that add up one sum, besides the sum.
_COUNTERS = 64
# Another peak is processed if the last one was lowered to this fraction.
_NEXT_ROUND = 0.98


@dataclass(frozen=True, slots=True)
class _Place:
    """A block that runs at the peak, and its schedule.

    path: for each loop around it, the position of its op in the enclosing block; empty for the function's own.
    """

    path: tuple[int, ...]
    schedule: Schedule

    @property
    def own(self) -> int:
        """The bytes at the peak that are not of a loop inside of this block."""
        peak, loop = _loop_at_peak(self.schedule)
        if peak is None:
            return 0
        return self.schedule.alive[peak] - (0 if loop is None else self.schedule.kernels[peak].scratch)


class _Snapshot:
    """A copy of a module and its places, so that restoring it needs no new predictions."""

    def __init__(self, module: ir.Module, places: Sequence[_Place]):
        self.module = copy_of(module)
        self.places = [(place.path, place_schedule(place.schedule, _block(module, place.path))) for place in places]

    def restore(self, module: ir.Module) -> list[_Place]:
        """Restore `module`, once; return its places."""
        for view in list(module.body.operations):
            view.operation.erase()
        for view in list(self.module.body.operations):
            module.body.append(view.operation.detach_from_parent())
        return [_Place(path, placed.of(_block(module, path))) for path, placed in self.places]


def recompute(module: ir.Module, options: Options) -> list[Remark]:
    """Recompute tensors that the module holds for long, while it is predicted to need more than the limit."""
    limit = options.memory_limit
    if limit is None or devices_of(module) > 1:
        return []
    function, types = main_function(module), Types()
    schedule, machine = read_schedule(function, types, options.machine)
    peak = schedule.memory.peak
    if peak <= limit:
        return []
    places = _places(function, schedule, types, machine)
    original = copy_of(module)
    places, remarks = _with_early_sums(module, places, options)
    places, chained = _with_chains(module, places, options)
    remarks += chained
    for _ in range(_MOST_ROUNDS):
        memory = places[0].schedule.memory
        if memory.peak <= limit:
            break
        found: list[Remark] = []
        for number in sorted(range(len(places)), key=lambda number: -places[number].own):
            places, found = _round(module, places, number, options, limit)
            # Segments that only delay arguments make no remark.
            if found or places[0].schedule.memory.temp < memory.temp:
                break
        remarks += found
        if places[0].schedule.memory.temp > _NEXT_ROUND * memory.temp:
            break
    if remarks and places[0].schedule.memory.peak >= peak:  # adding early gained nothing
        restore(module, original)
        return []
    return remarks


def _with_early_sums(module: ir.Module, places: list[_Place], options: Options) -> tuple[list[_Place], list[Remark]]:
    """Let sums of big tensors not wait for their last term; the module's places then, and the sums.

    What this saves may show only once other peaks are lowered. So the peak may rise by the largest sum.
    """
    if options.machine.kind != "cpu" or not options.reassociate:
        return places, []
    sums, types = find_sums(module), Types()
    if not sums:
        return places, []
    before = _Snapshot(module, places)
    most = places[0].schedule.memory.peak + largest_sum(sums) + _COUNTERS * len(sums)
    remarks = [add_early(found, types) for found in sums]
    clean_up(module)
    after = _read(module, options)
    return (after, remarks[::-1]) if after[0].schedule.memory.peak <= most else (before.restore(module), [])


def _with_chains(module: ir.Module, places: list[_Place], options: Options) -> tuple[list[_Place], list[Remark]]:
    """Run independent chains one after another if the peak clearly falls; the module's places then, and the chains."""
    place, types = max(places, key=lambda place: place.own), Types()
    block = _block(module, place.path)
    chains = find_chains(block, place.schedule, types, options.machine)
    if not chains:
        return places, []
    before = _Snapshot(module, places)
    try:
        remarks = wait_for_others(block, chains, place.schedule, types)
    except CannotOrder:
        return before.restore(module), []
    clean_up(module)
    after = _read(module, options)
    most = _WORTH_WAITING * places[0].schedule.memory.temp
    return (after, remarks) if after[0].schedule.memory.temp <= most else (before.restore(module), [])


def _read(module: ir.Module, options: Options) -> list[_Place]:
    """The blocks that run at the peak, from the function's own inwards, in the compile that needs the most."""
    function, types = main_function(module), Types()
    schedule, machine = read_schedule(function, types, options.machine)
    return _places(function, schedule, types, machine)


def _places(function: ir.Operation, schedule: Schedule, types: Types, machine: Machine) -> list[_Place]:
    """As `_read`, from the schedule of the function's block. machine: of its compile."""
    places = [_Place((), schedule)]
    block = function.regions[0].blocks[0]
    while (loop := _loop_at_peak(places[-1].schedule)[1]) is not None:
        path = (*places[-1].path, operations_of(block).index(loop))
        block = loop.regions[1].blocks[0]
        places.append(_Place(path, read_body(block, types, machine, schedule.memory)))
    return places


def _loop_at_peak(schedule: Schedule) -> tuple[int | None, ir.Operation | None]:
    """The step of the peak, and the loop that runs then, if there is one with a body."""
    if not schedule.alive:
        return None, None
    peak = max(range(len(schedule.alive)), key=lambda step: schedule.alive[step])
    values = [schedule.values[value] for value in schedule.kernels[peak].made if value in schedule.values]
    op = defining_op(values[0]) if values else None
    return peak, op if op is not None and op.name == "stablehlo.while" else None


def _round(
    module: ir.Module, places: list[_Place], number: int, options: Options, limit: int
) -> tuple[list[_Place], list[Remark]]:
    """Lower one peak in one place; return the module's places then, and the segments, empty if not worthwhile.

    Takes the fastest plan with which the built module is a margin below the limit; if there is none, the first built
    one within the limit, or else the one that needs the least. The plans do not depend on the limit, so a larger one
    takes no slower plan.
    """
    before = places[0].schedule.memory
    room = limit - (before.peak - before.temp)
    aim = room - int(_MARGIN * max(room, 0))
    around = before.temp - max(places[number].schedule.alive, default=0)  # of others, for a loop's body
    problem, plans = _plans(module, places[number], options)
    least, best, said, off = int(_WORTHWHILE * before.temp), None, [], 1.0
    for tries in range(_MOST_TRIES, 0, -1):
        if problem is None or not plans:
            break
        # The last one shows whether any reaches the aim.
        reaches = next((plan for plan in plans if off * plan.peak + around <= aim), plans[-1])
        plan = reaches if tries > 1 else plans[-1]
        plans = plans[plans.index(plan) + 1 :]
        types, block = Types(), _block(module, places[number].path)
        problem = replace(problem, schedule=places[number].schedule)
        original = _Snapshot(module, places)
        try:
            built = build_plan(block, plan, problem, types, options.machine)
        except CannotOrder:
            places = original.restore(module)
            continue
        made = _read(module, options)
        temp = made[0].schedule.memory.temp
        if temp <= aim and temp <= least:
            return made, _remarks(built, problem, types)
        if temp <= least and (best is None or least > room):
            said = _remarks(built, problem, types)
            least, best = temp, _Snapshot(module, made)
        places = original.restore(module)
        off = max(off, (temp - around) / plan.peak)
    return (places, []) if best is None else (best.restore(module), said)


def _plans(module: ir.Module, place: _Place, options: Options) -> tuple[Problem | None, list[Plan]]:
    """The tensors that could be recomputed in a place, and the worthwhile plans, the fastest first."""
    problem = find_problem(place.schedule, _block(module, place.path), Types(), options)
    if problem is None:
        return None, []
    most = _WORTHWHILE * max(place.schedule.alive)
    return problem, [plan for plan in find_plans(problem, options) if plan.segments and plan.peak <= most]


def _block(module: ir.Module, path: Sequence[int]) -> ir.Block:
    block: ir.Block = main_function(module).regions[0].blocks[0]
    for place in path:
        block = operations_of(block)[place].regions[1].blocks[0]
    return block


def _remarks(built: Sequence[Segment], problem: Problem, types: Types) -> list[Remark]:
    """One remark per segment, on the largest tensor that it recomputes."""
    found = []
    for segment in built:
        values = [problem.schedule.values[value] for value in segment.made if value not in problem.turned]
        if not values or not segment.steps:  # tensors that only wait are not recomputed
            continue
        largest = max(values, key=lambda value: types.of(value).bytes)
        kind = types.of(largest)
        total = sum(types.of(value).bytes for value in values)
        more = len(values) - 1
        others = f" with {more} other{'s' * (more != 1)}, {format_size(total)} in all" if more else ""
        message = f"recomputed before it is read again{others}"
        op = defining_op(largest)
        assert op is not None
        found.append(Remark(Kind.PASSED, "EX013", _PASS, str(kind), kind.bytes, describe(op), message))
    return found
