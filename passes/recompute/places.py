"""The blocks of a module that run at its peak, with their schedules, and snapshots of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jaxlib.mlir import ir

from exla_opt.ir.rewrite import copy_of
from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import main_function, operations_of
from exla_opt.memory.machine import Machine
from exla_opt.options import Options

from .kernels import Schedule, place_schedule, read_body, read_schedule


@dataclass(frozen=True, slots=True)
class Place:
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


class Snapshot:
    """A copy of a module and its places, so that restoring it needs no new predictions."""

    def __init__(self, module: ir.Module, places: Sequence[Place]):
        self.module = copy_of(module)
        self.places = [(place.path, place_schedule(place.schedule, block_at(module, place.path))) for place in places]

    def restore(self, module: ir.Module) -> list[Place]:
        """Restore `module`, once; return its places."""
        for view in list(module.body.operations):
            view.operation.erase()
        for view in list(self.module.body.operations):
            module.body.append(view.operation.detach_from_parent())
        return [Place(path, placed.of(block_at(module, path))) for path, placed in self.places]


def read_places(module: ir.Module, options: Options) -> list[Place]:
    """The blocks that run at the peak, from the function's own inwards, in the compile that needs the most."""
    function, types = main_function(module), Types()
    schedule, machine = read_schedule(function, types, options.machine)
    return places_of(function, schedule, types, machine)


def places_of(function: ir.Operation, schedule: Schedule, types: Types, machine: Machine) -> list[Place]:
    """As `read_places`, from the schedule of the function's block. machine: of its compile."""
    places = [Place((), schedule)]
    block = function.regions[0].blocks[0]
    while (loop := _loop_at_peak(places[-1].schedule)[1]) is not None:
        path = (*places[-1].path, operations_of(block).index(loop))
        block = loop.regions[1].blocks[0]
        places.append(Place(path, read_body(block, types, machine, schedule.memory)))
    return places


def block_at(module: ir.Module, path: Sequence[int]) -> ir.Block:
    """The block of the main function at a path, as in `Place`."""
    block: ir.Block = main_function(module).regions[0].blocks[0]
    for place in path:
        block = operations_of(block)[place].regions[1].blocks[0]
    return block


def _loop_at_peak(schedule: Schedule) -> tuple[int | None, ir.Operation | None]:
    """The step of the peak, and the loop that runs then, if there is one with a body."""
    peak = schedule.peak
    if peak is None:
        return None, None
    values = [schedule.values[value] for value in schedule.kernels[peak].made if value in schedule.values]
    op = defining_op(values[0]) if values else None
    return peak, op if op is not None and op.name == "stablehlo.while" else None
