"""Which kernels read an op, or compute it themselves, and on which side of the peak they run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from jaxlib.mlir import ir

from exla_opt.ir.loops import is_part_of_never
from exla_opt.ir.opaque import is_part_of_always
from exla_opt.ir.types import Types
from exla_opt.ir.walk import terminator
from exla_opt.ops.comparisons import asks_inside

from .kernels import Schedule


def asked_about(block: ir.Block, schedule: Schedule, types: Types) -> set[int]:
    """The tensors that an op tests for equality, as their exact bits matter, and the results of kernels that do so."""
    found: set[int] = set()
    for view in block.operations:
        op = view.operation
        if not asks_inside(op) or is_part_of_always(op) or is_part_of_never(op):
            continue
        for value in (*op.operands, *(types.captured(op) if len(op.regions) else ())):
            found.update(schedule.written_behind(value, types))
        found.update(written_from(op, schedule))
    return found


def written_from(
    op: ir.Operation,
    schedule: Schedule,
    follows: Callable[[ir.Operation, ir.Value], bool] = lambda reader, value: True,
) -> Iterator[int]:
    """The written tensors of the kernels that an op is a part of.

    follows: whether an op that reads a tensor counts as a part of the kernels too.
    """
    seen: set[ir.Value] = set()
    stack = list(op.results)
    while stack:
        value = stack.pop()
        if value in seen:
            continue
        seen.add(value)
        if schedule.is_written(value):
            yield schedule.number[value]
            continue
        for reader in _readers(value, op.block):
            if follows(reader, value):
                stack += reader.results


def _readers(value: ir.Value, block: ir.Block) -> Iterator[ir.Operation]:
    """The ops of a block that read a tensor, themselves or in their regions."""
    for use in value.uses:
        reader: ir.Operation | None = use.owner.operation
        while reader is not None and reader.block != block:
            reader = reader.parent
        if reader is not None:
            yield reader


def is_read_after(op: ir.Operation, steps: Collection[int], schedule: Schedule, returned: Sequence[ir.Value]) -> bool:
    """Whether a kernel other than those of `steps`, or the block's end, reads a result of an op, or one element of it.

    returned: the results that the end of the block may read. Dead ops do not count.
    """
    end = terminator(op.block)
    for value in op.results:
        seen = {value}
        stack: list[ir.Value] = [value]
        while stack:
            for reader in _readers(stack.pop(), op.block):
                if not len(reader.results) and (reader != end or value not in returned):
                    return True
                written = [result for result in reader.results if schedule.is_written(result)]
                if any(schedule.producer[schedule.number[result]] not in steps for result in written):
                    return True
                fused = [result for result in reader.results if result not in seen and result not in written]
                seen.update(fused)
                stack += fused
    return False


def read_by(op: ir.Operation, types: Types) -> list[ir.Value]:
    """The operands of an op, and the captures of its regions."""
    return [*op.operands, *(types.captured(op) if len(op.regions) else ())]


def sides(ops: Sequence[ir.Operation], schedule: Schedule, peak: int, types: Types) -> tuple[list[bool], list[bool]]:
    """For each op of a block, by position, whether it is a part of kernels up to the peak, and of kernels after it.

    The block's results are read directly.
    """
    place: dict[ir.Value, int] = {result: index for index, op in enumerate(ops) for result in op.results}
    early, late = [False] * len(ops), [False] * len(ops)
    early[-1] = True
    for index in range(len(ops) - 1, -1, -1):
        op = ops[index]
        steps = [schedule.producer[schedule.number[value]] for value in op.results if schedule.is_written(value)]
        is_early, is_late = early[index], late[index]
        if steps:
            is_late = max(steps) > peak
            is_early = not is_late
            early[index] = is_early
            late[index] |= is_late
        for operand in read_by(op, types):
            if operand in place:
                early[place[operand]] |= is_early
                late[place[operand]] |= is_late
    return early, late


def first_late_steps(
    ops: Sequence[ir.Operation], schedule: Schedule, peak: int, stays: Collection[int], types: Types
) -> dict[int, int]:
    """The written tensors and the arguments that ops after the peak read, with their first step.

    stays: the tensors read after the peak from memory. An op that is written before the peak, but whose result is not
    among those, is recomputed after it by the kernels that read it there.
    """
    never = len(schedule.kernels)
    first: dict[ir.Value, int] = {}
    found: dict[int, int] = {}
    given = set(schedule.arguments.values())
    for op in reversed(ops[:-1]):
        steps = [schedule.producer[schedule.number[value]] for value in op.results if schedule.is_written(value)]
        if steps and max(steps) <= peak and not any(schedule.number.get(value) in stays for value in op.results):
            steps = []
        step = max(steps) if steps else min((first.get(value, never) for value in op.results), default=never)
        if step == never or step <= peak:
            continue
        for operand in read_by(op, types):
            first[operand] = min(first.get(operand, never), step)
            if schedule.is_written(operand) or operand in given:
                number = schedule.number[operand]
                found[number] = min(found.get(number, never), step)
    return found
