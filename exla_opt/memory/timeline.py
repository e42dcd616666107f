"""The memory of the main function over its run, and the tensors that hold it, by the model of `peak.py`.

The peak of a timeline is the temporary memory that `peak.predict` predicts.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxlib.mlir import ir

from exla_opt.ir.locations import describe
from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import main_function

from .block import Operation
from .live_ranges import Run, is_branch
from .machine import CPU, Machine
from .operation import widened_type
from .peak import Memory, memory_of
from .reading import read_block
from .schedule import run_block
from .seconds import seconds_of, seconds_of_kernels

_LOOP = "while"


@dataclass(frozen=True, slots=True)
class Point:
    """One kernel: an op with everything that XLA computes together with it.

    op: the op's full name. location: of the op, as in `model.py:12:3`. depth: the number of loops around it. bytes: the
    temporary memory while it runs, its own scratch memory included.
    """

    op: str
    location: str
    depth: int
    bytes: int


@dataclass(frozen=True, slots=True)
class LiveTensor:
    """One tensor in temporary memory.

    type: as in `2x3xf32`. op, location: of the op that computes it. first, last: the points from and to which it is
    alive. copy_of: the type in the program, as in `2x3xbf16`, of a tensor that the compiler keeps in a wider one; None
    for all others.
    """

    type: str
    bytes: int
    op: str
    location: str
    first: int
    last: int
    copy_of: str | None = None

    @property
    def name(self) -> str:
        """Its type, or the type of which it is a wider copy."""
        return self.type if self.copy_of is None else f"a copy of {self.copy_of} in {self.type.rpartition('x')[2]}"


@dataclass(frozen=True, slots=True)
class Timeline:
    """The temporary memory of one function.

    points: its kernels in execution order; those of a loop or a branch appear once, after the op that holds them.
    tensors: those alive at the points, in order of creation. memory: the function's bytes. seconds: of a run, by the
    model of `seconds.py`.
    """

    points: tuple[Point, ...]
    tensors: tuple[LiveTensor, ...]
    memory: Memory
    seconds: float

    @property
    def peak(self) -> int | None:
        """The first of the points with the most bytes; None without points."""
        return max(range(len(self.points)), key=lambda number: self.points[number].bytes, default=None)

    def alive_at(self, point: int) -> list[LiveTensor]:
        """The tensors alive at one point, largest first."""
        found = [tensor for tensor in self.tensors if tensor.first <= point <= tensor.last]
        return sorted(found, key=lambda tensor: -tensor.bytes)


def read_timeline(module: ir.Module, machine: Machine = CPU) -> Timeline:
    """The timeline of the main function on a machine, in a time linear in the number of ops.

    Calls are not followed, so a module with inlined calls shows more.
    """
    function = main_function(module)
    types = Types()
    block = read_block(function.regions[0].blocks[0], types, machine)
    run = run_block(block, machine, held=block.returned)
    collected = _Collected(types)
    collected.add(run, 0, 0)
    tensors = sorted(collected.tensors, key=lambda tensor: tensor.first)
    # On a CPU the run has the compiler's copies among its ops; for a GPU, fusion decisions take most of the time.
    seconds = seconds_of(block, machine) if machine.breadth_first else sum(seconds_of_kernels(run.fusion))
    memory = memory_of(function, run, types)
    return Timeline(tuple(collected.points), tuple(tensors), memory, seconds)


class _Collected:
    """The points of a run and of those inside it, and their tensors."""

    def __init__(self, types: Types) -> None:
        self.types = types
        self.points: list[Point] = []
        self.tensors: list[LiveTensor] = []

    def add(self, run: Run, depth: int, around: int) -> None:
        """Add a run. around: the bytes in use outside of it."""
        spans: list[tuple[int, int]] = []
        for step, kernel in enumerate(run.order):
            op = run.block.ops[kernel]
            start = len(self.points)
            taken = around + run.lives[step] + sum(run.widened_before(op).values())
            scratch = 0 if op.bodies else run.scratches[step]
            self.points.append(Point(*_origin(run, op), depth, max(taken + scratch, 0)))
            for inner in run.inner[step]:
                self.add(inner, depth + (op.name == _LOOP), taken - run.made_inside(op))
            spans.append((start, len(self.points) - 1))
            for value, size in run.widened_before(op).items():
                self.add_widened(run, op, value, size, *spans[-1])
        for value, born in run.born.items():
            died = run.died.get(value, len(spans) - 1)
            first, last = spans[born][0], spans[died][1] if died >= born else -1
            if is_branch(run.block.ops[run.order[born]]):
                first = spans[born][1] + 1  # its bodies compute it
            if run.block.sizes[value] and last >= first:
                self.add_tensor(run, value, first, last)

    def add_tensor(self, run: Run, value: int, first: int, last: int) -> None:
        block = run.block
        lengths = [*map(str, block.shapes[value])]
        kind = "x".join([*lengths, block.dtypes[value]])
        copy_of = "x".join([*lengths, block.wider[value]]) if value in block.wider else None
        origin = _place(block.values[value], "copy")
        self.tensors.append(LiveTensor(kind, block.sizes[value], *origin, first, last, copy_of))

    def add_widened(self, run: Run, loop: Operation, value: int, size: int, first: int, last: int) -> None:
        """Add the widened copy of a tensor that a loop slices; its location is the loop's."""
        block = run.block
        lengths = [*map(str, block.shapes[value])]
        narrow = block.dtypes[value]
        kind = "x".join([*lengths, widened_type(narrow)])
        self.tensors.append(LiveTensor(kind, size, *_origin(run, loop), first, last, "x".join([*lengths, narrow])))


def _origin(run: Run, op: Operation) -> tuple[str, str]:
    """The op's full name and location; for an op without results, its short name twice."""
    return _place(run.block.values[op.results[0]], op.name) if op.results else (op.name, op.name)


def _place(value: ir.Value, name: str) -> tuple[str, str]:
    """The full name and the location of the op that defines a value, or that holds the block whose argument it is."""
    op = defining_op(value)
    if op is None:
        assert isinstance(value.owner, ir.Block)
        return f"stablehlo.{name}", describe(value.owner.owner.operation)
    return op.name, describe(op)
