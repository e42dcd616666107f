"""Recomputes until the program is within the limit, or nothing more is gained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from jaxlib.mlir import ir

from exla_opt.ir.attributes import devices_of
from exla_opt.ir.clean_up import clean_up
from exla_opt.ir.locations import describe
from exla_opt.ir.order import CannotOrder
from exla_opt.ir.rewrite import copy_of, restore
from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import main_function
from exla_opt.memory.peak import Memory
from exla_opt.options import Options
from exla_opt.remarks import Kind, Remark
from exla_opt.sizes import format_size

from .build import build_plan
from .chains import find_chains, wait_for_others
from .choose import Plan, find_plans, find_problem
from .kernels import read_schedule
from .late_copies import delay_copies, find_late_copies
from .late_results import delay_results, find_late_results
from .overwritten import find_overwriting, let_wait
from .places import Place, Snapshot, block_at, places_of, read_places
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
# So must delayed copies, of which later rounds delay more.
_WORTH_DELAYING = 0.99
# The part of the room for temporary memory to leave free if anything is recomputed: predictions are a little off, and a
# compile of a program just above the limit is wasted.
_MARGIN = 1 / 16
# The bytes of the loops that add up one sum, besides the sum.
_COUNTERS = 64
# Another peak is processed if the last one was lowered to this fraction.
_NEXT_ROUND = 0.98


class Tried(NamedTuple):
    """The blocks at the peak of a module after a change, its remarks, and whether it was kept: it may not be."""

    places: list[Place]
    remarks: list[Remark]
    is_kept: bool


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
    places = places_of(function, schedule, types, machine)
    original = copy_of(module)
    places, remarks, _ = _with_early_sums(module, places, options)
    places, waiting, _ = _with_waiting_loops(module, places, options)
    places, chained, _ = _with_chains(module, places, options)
    start = Snapshot(module, places)
    places, found, delays = _rounds(module, places, options, limit, delays_copies=True)
    if delays and places[0].schedule.memory.peak > limit:
        places, found = _without_late_copies(module, places, found, start, options, limit)
    after = places[0].schedule.memory
    if after.peak >= peak or (after.peak > limit and after.temp > _WORTHWHILE * schedule.memory.temp):
        restore(module, original)
        return []
    return [*remarks, *waiting, *chained, *found]


def _rounds(
    module: ir.Module, places: list[Place], options: Options, limit: int, *, delays_copies: bool
) -> tuple[list[Place], list[Remark], bool]:
    """Lower one peak after the other; return the module's places then, the remarks, and whether copies were delayed."""
    remarks: list[Remark] = []
    delays = False
    for _ in range(_MOST_ROUNDS):
        memory = places[0].schedule.memory
        if memory.peak <= limit:
            break
        if delays_copies:
            places, _, is_kept = _with_late_copies(module, places, options)
            delays = delays or is_kept
        places, found, _ = _with_late_results(module, places, options)
        remarks += found
        if places[0].schedule.memory.temp <= _aim(places[0].schedule.memory, limit):
            break
        for number in sorted(range(len(places)), key=lambda number: -places[number].own):
            places, found = _round(module, places, number, options, limit)
            # Segments that only delay arguments make no remark.
            if found or places[0].schedule.memory.temp < memory.temp:
                break
        remarks += found
        if places[0].schedule.memory.temp > _NEXT_ROUND * memory.temp:
            break
    return places, remarks, delays


def _aim(memory: Memory, limit: int) -> int:
    """The temporary bytes with which a program is a margin below the limit."""
    room = limit - (memory.peak - memory.temp)
    return room - int(_MARGIN * max(room, 0))


def _without_late_copies(
    module: ir.Module, places: list[Place], remarks: list[Remark], start: Snapshot, options: Options, limit: int
) -> tuple[list[Place], list[Remark]]:
    """The rounds once more, from the start, without delayed copies; what needs less memory of both.

    A copy that waits may keep what it is copied from, which a segment would recompute.
    """
    late = Snapshot(module, places)
    others, found, _ = _rounds(module, start.restore(module), options, limit, delays_copies=False)
    if others[0].schedule.memory.temp < places[0].schedule.memory.temp:
        return others, found
    return late.restore(module), remarks


def _with_early_sums(module: ir.Module, places: list[Place], options: Options) -> Tried:
    """Let sums of big tensors not wait for their last term.

    What this saves may show only once other peaks are lowered. So the peak may rise by the largest sum.
    """
    if options.machine.kind != "cpu" or not options.reassociate:
        return Tried(places, [], False)
    sums, types = find_sums(module), Types()
    if not sums:
        return Tried(places, [], False)
    most = places[0].schedule.memory.temp + largest_sum(sums) + _COUNTERS * len(sums)
    return _tried(module, places, options, most, lambda: [add_early(found, types) for found in sums][::-1])


def _with_waiting_loops(module: ir.Module, places: list[Place], options: Options) -> Tried:
    """Let loops wait for others that read what they overwrite, if this needs less memory."""
    block, schedule = block_at(module, ()), places[0].schedule
    found = find_overwriting(block, schedule, options.machine)
    if not found:
        return Tried(places, [], False)
    most = int(_WORTHWHILE * schedule.memory.temp)
    return _tried(module, places, options, most, lambda: let_wait(block, found, Types()))


def _with_chains(module: ir.Module, places: list[Place], options: Options) -> Tried:
    """Run independent chains one after another if the peak clearly falls."""
    place, types = max(places, key=lambda place: place.own), Types()
    block, schedule = block_at(module, place.path), place.schedule
    chains = find_chains(block, schedule, types, options.machine)
    if not chains:
        return Tried(places, [], False)
    most = int(_WORTH_WAITING * places[0].schedule.memory.temp)
    return _tried(module, places, options, most, lambda: wait_for_others(block, chains, schedule, types))


def _with_late_copies(module: ir.Module, places: list[Place], options: Options) -> Tried:
    """Let the compiler's own copies wait for their readers, if this needs less memory."""
    place, types = max(places, key=lambda place: place.own), Types()
    block = block_at(module, place.path)
    copies = find_late_copies(block, place.schedule, types, options.machine)
    if not copies:
        return Tried(places, [], False)
    most = int(_WORTH_DELAYING * places[0].schedule.memory.temp)
    return _tried(module, places, options, most, lambda: delay_copies(block, copies))


def _with_late_results(module: ir.Module, places: list[Place], options: Options) -> Tried:
    """Compute results at the end of the function, if this needs less memory."""
    block, schedule, types = block_at(module, ()), places[0].schedule, Types()
    results = find_late_results(block, schedule, types, options.machine)
    if not results:
        return Tried(places, [], False)
    most = int(_WORTHWHILE * schedule.memory.temp)
    return _tried(module, places, options, most, lambda: delay_results(block, results, schedule, types))


def _tried(
    module: ir.Module, places: list[Place], options: Options, most: int, write: Callable[[], list[Remark]]
) -> Tried:
    """Rewrite the module, unless it then needs more than `most` bytes of temporary memory."""
    before = Snapshot(module, places)
    try:
        remarks = write()
    except CannotOrder:
        return Tried(before.restore(module), [], False)
    clean_up(module)
    after = read_places(module, options)
    if after[0].schedule.memory.temp > most:
        return Tried(before.restore(module), [], False)
    return Tried(after, remarks, True)


def _round(
    module: ir.Module, places: list[Place], number: int, options: Options, limit: int
) -> tuple[list[Place], list[Remark]]:
    """Lower one peak in one place; return the module's places then, and the segments, empty if not worthwhile.

    Takes the fastest plan with which the built module is a margin below the limit; if there is none, the first built
    one within the limit, or else the one that needs the least. The plans do not depend on the limit, so a larger one
    takes no slower plan.
    """
    before = places[0].schedule.memory
    room, aim = limit - (before.peak - before.temp), _aim(before, limit)
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
        types, block = Types(), block_at(module, places[number].path)
        problem = replace(problem, schedule=places[number].schedule)
        original = Snapshot(module, places)
        try:
            built = build_plan(block, plan, problem, types, options.machine)
        except CannotOrder:
            places = original.restore(module)
            continue
        made = read_places(module, options)
        temp = made[0].schedule.memory.temp
        if temp <= aim and temp <= least:
            return made, _remarks(built, problem, types)
        if temp <= least and (best is None or least > room):
            said = _remarks(built, problem, types)
            least, best = temp, Snapshot(module, made)
        places = original.restore(module)
        off = max(off, (temp - around) / plan.peak)
    return (places, []) if best is None else (best.restore(module), said)


def _plans(module: ir.Module, place: Place, options: Options) -> tuple[Problem | None, list[Plan]]:
    """The tensors that could be recomputed in a place, and the worthwhile plans, the fastest first."""
    problem = find_problem(place.schedule, block_at(module, place.path), Types(), options)
    if problem is None:
        return None, []
    most = _WORTHWHILE * max(place.schedule.alive)
    return problem, [plan for plan in find_plans(problem, options) if plan.segments and plan.peak <= most]


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
