"""A block as the memory model runs it: kernels in order, their operands, results and costs, and which may run twice.

The block of a function, or of a loop's body, whose captures then count as arguments.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from jaxlib.mlir import ir

from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import BRANCHES, captured_values
from exla_opt.memory.live_ranges import Run
from exla_opt.memory.machine import Machine
from exla_opt.memory.peak import Memory, memory_of
from exla_opt.memory.reading import read_numbered
from exla_opt.memory.schedule import run_block
from exla_opt.memory.seconds import seconds_of_kernels
from exla_opt.ops.effects import CUSTOM_CALL
from exla_opt.ops.traits import Trait, traits_of


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel. read, made: numbers of tensors. seconds: of a run. scratch: bytes on top of its results.

    sources: the tensors of the IR that it depends on, which it reads or which the compiler copies for it; seconds and
    scratch include these copies. repeats: whether it may run again.
    """

    read: tuple[int, ...]
    sources: tuple[int, ...]
    made: tuple[int, ...]
    seconds: float
    scratch: int
    repeats: bool


@dataclass(frozen=True, slots=True)
class Schedule:
    """The kernels of a block in order: a step is a place in `kernels`.

    alive: the bytes in use at each step. sizes: bytes, of every tensor, by number. number: of every tensor of the IR.
    values, written: the tensors of the IR that kernels write, by number and as a set. arguments: the block's, and the
    captures of a body. copied_for: tensors of the compiler's own, such as copies, each with one of the IR: normally a
    result of the op for which it is made. producer: the step that writes a tensor. readers: the steps that read it, in
    order. used: the steps that depend on it. held: the tensors in memory of others, such as a function's results; not
    those lent such a buffer before the result is written: others can use it if these are recomputed. memory: of the
    function, whichever block of it this is.
    """

    kernels: tuple[Kernel, ...]
    alive: tuple[int, ...]
    sizes: list[int]
    number: dict[ir.Value, int]
    values: dict[int, ir.Value]
    written: frozenset[ir.Value]
    arguments: dict[int, ir.Value]
    copied_for: dict[int, ir.Value]
    producer: dict[int, int]
    readers: dict[int, list[int]]
    used: dict[int, list[int]]
    held: frozenset[int]
    memory: Memory

    @property
    def peak(self) -> int | None:
        """The first step with the most bytes in use; None without steps."""
        return max(range(len(self.alive)), key=self.alive.__getitem__, default=None)

    def is_written(self, value: ir.Value) -> bool:
        """Whether a kernel writes the value itself: not a view of another, nor a value fused into other kernels."""
        return value in self.written

    def value_of(self, number: int) -> ir.Value:
        """A tensor of the IR that a kernel writes, or an argument."""
        return self.values[number] if number in self.values else self.arguments[number]

    def written_behind(self, value: ir.Value, types: Types) -> Iterator[int]:
        """The written tensors, and arguments, from which the kernels that read a value compute it."""
        seen: set[ir.Value] = set()
        given = set(self.arguments.values())
        stack = [value]
        while stack:
            current = stack.pop()
            if current in seen:
                continue
            seen.add(current)
            op = defining_op(current)
            if op is None or current in given or self.is_written(current):
                if current in self.number:
                    yield self.number[current]
                continue
            stack += [*op.operands, *(types.captured(op) if len(op.regions) else ())]


def read_schedule(function: ir.Operation, types: Types, machine: Machine) -> tuple[Schedule, Machine]:
    """The memory model's schedule of a function's block in the compile that needs the most, and the machine of it."""
    block = function.regions[0].blocks[0]
    read, number = read_numbered(block, types, machine)
    run = run_block(read, machine, held=read.returned)
    return _schedule(block, run, number, memory_of(function, run, types)), run.machine


def read_body(block: ir.Block, types: Types, machine: Machine, memory: Memory) -> Schedule:
    """The memory model's schedule of a loop's body. memory: of the function around it."""
    read, number = read_numbered(block, types, machine)
    return _schedule(block, run_block(read, machine), number, memory)


def _schedule(block: ir.Block, run: Run, number: dict[ir.Value, int], memory: Memory) -> Schedule:
    seconds = seconds_of_kernels(run.fusion)
    producer = {value: step for step, kernel in enumerate(run.order) for value in run.block.ops[kernel].results}
    values: dict[int, ir.Value] = {}
    for value, known in number.items():
        if known in producer and known not in values and defining_op(value) is not None:
            values[known] = value
    definers = {value: defining_op(origin) for value, origin in run.block.values.items()}
    kernels: list[Kernel] = []
    may_run_again: dict[ir.Operation | None, bool] = {}  # many kernels may belong to one loop
    readers: dict[int, list[int]] = {}
    used: dict[int, list[int]] = {}
    for step, kernel in enumerate(run.order):
        op = run.block.ops[kernel]
        origins = {definers.get(value) for value in op.results}  # a loop has many results
        for origin in origins:
            if origin not in may_run_again:
                may_run_again[origin] = origin is not None and may_repeat(origin)
        repeats = all(may_run_again[origin] for origin in origins)
        inputs = tuple(run.inputs[kernel])
        sources: dict[int, None] = {}
        scratch, time = run.scratches[step], seconds[kernel]
        for read_value in inputs:
            readers.setdefault(read_value, []).append(step)
            if read_value in values or read_value not in producer:
                sources[read_value] = None
                continue
            inner = kernels[producer[read_value]]
            sources.update(dict.fromkeys(inner.sources))
            scratch, time = scratch + run.block.sizes[read_value], time + inner.seconds
        for source in sources:
            used.setdefault(source, []).append(step)
        kernels.append(Kernel(inputs, tuple(sources), tuple(op.results), time, scratch, repeats))
    alive = tuple(live + scratch for live, scratch in zip(run.lives, run.scratches, strict=True))
    held = frozenset(value for value in producer if value not in run.born and value not in run.lent)
    written = frozenset(values.values())
    sizes = run.block.sizes
    given = {number[value]: value for value in _given_to(block) if value in number}
    copied = {value: run.block.values[value] for value in producer if value not in values and value in run.block.values}
    return Schedule(
        tuple(kernels), alive, sizes, number, values, written, given, copied, producer, readers, used, held, memory
    )


@dataclass(frozen=True, slots=True)
class Placed:
    """A schedule that names the tensors of the IR by their positions in the block, to apply it to copies.

    number: of the tensor at each position, None if it has none. values, arguments, copied_for: positions, by number.
    """

    schedule: Schedule
    number: tuple[int | None, ...]
    values: dict[int, int]
    arguments: dict[int, int]
    copied_for: dict[int, int]

    def of(self, block: ir.Block) -> Schedule:
        """The schedule of a block with the same ops."""
        tensors = _tensors_of(block)
        number = {value: known for value, known in zip(tensors, self.number, strict=True) if known is not None}
        values = {known: tensors[place] for known, place in self.values.items()}
        given = {known: tensors[place] for known, place in self.arguments.items()}
        written = frozenset(values.values())
        copied = {known: tensors[place] for known, place in self.copied_for.items()}
        return replace(self.schedule, number=number, values=values, arguments=given, written=written, copied_for=copied)


def place_schedule(schedule: Schedule, block: ir.Block) -> Placed:
    """The schedule of a block for copies of it: reading a new one takes as long as everything else together."""
    tensors = _tensors_of(block)
    places = {value: place for place, value in enumerate(tensors)}
    values = {known: places[value] for known, value in schedule.values.items()}
    given = {known: places[value] for known, value in schedule.arguments.items()}
    copied = {known: places[value] for known, value in schedule.copied_for.items() if value in places}
    return Placed(schedule, tuple(map(schedule.number.get, tensors)), values, given, copied)


def _tensors_of(block: ir.Block) -> list[ir.Value]:
    """The arguments of a block, its captures, and the results of its ops, in order."""
    return [*_given_to(block), *(value for view in block.operations for value in view.operation.results)]


def _given_to(block: ir.Block) -> list[ir.Value]:
    """The arguments of a block and the captures of the op around it."""
    return [*block.arguments, *captured_values(block.owner.operation)]


def may_repeat(op: ir.Operation) -> bool:
    """Whether an op gives the same result again, and may run again: it is neither random nor foreign, nor sends."""
    # Tensors in a branch depend on its predicate, which would have to be stored as well; barriers delay what others
    # recompute.
    if op.name in BRANCHES:
        return False
    if not len(op.regions):
        return not _runs_once(op.name)
    runs_once = False

    def visit(inner: ir.Operation) -> ir.WalkResult:
        nonlocal runs_once
        runs_once = runs_once or _runs_once(inner.name)
        return ir.WalkResult.INTERRUPT if runs_once else ir.WalkResult.ADVANCE

    op.walk(visit)
    return not runs_once


@cache
def _runs_once(name: str) -> bool:
    """Whether an op of this name may not run again. Cached, as flags are slow to combine."""
    return name == CUSTOM_CALL or bool(traits_of(name) & (Trait.ORDERED | Trait.COLLECTIVE))
