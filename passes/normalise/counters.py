"""Counters of a loop, as TensorFlow writes them: one for each list that a loop fills, and one that bounds its trips.

before:  i, j, k, p = while (i < n and j < n) { p[k] = i; i + 1, j + 1, k + 1, p }, all from 0; then p[m], and k
after:   i, p = while (i < n and i < n) { p[i] = i; i + 1, p }; then clamp(0, m, n - 1), and n

The other passes then see the trip count, and which step a loop reads.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.loops import Counting, counting, drop_carries, step_of
from exla_opt.ir.types import element_type
from exla_opt.ir.values import defining_op, splat_value
from exla_opt.ir.walk import inside_out, terminator

_WHILE, _UPDATE, _SLICE = "stablehlo.while", "stablehlo.dynamic_update_slice", "stablehlo.dynamic_slice"


def merge_counters(module: ir.Module) -> bool:
    """Carry counters that are always equal once; return whether any were."""
    changed = False
    for loop in inside_out(module, _WHILE):
        equal = {} if len(loop.attributes) else _equal_counters(loop)
        for place, first in equal.items():
            for values in (loop.regions[0].blocks[0].arguments, loop.regions[1].blocks[0].arguments, loop.results):
                values[place].replace_all_uses_with(values[first])
        if equal:
            drop_carries(loop, equal)
            changed = True
    return changed


def read_counters(module: ir.Module) -> bool:
    """Replace what loops of known trip count leave of their counters; return whether anything was."""
    changed = False
    for loop in inside_out(module, _WHILE):
        found = counting(loop)
        if found is None or not found.trips:
            continue
        steps = dict(_steps(loop))
        for place, result in enumerate(loop.results):
            if next(iter(result.uses), None) is not None:
                changed |= _read_last(loop, found, place, steps.get(place)) or _read_back(loop, found, place)
    return changed


def _equal_counters(loop: ir.Operation) -> dict[int, int]:
    """The places of counters that begin and step as an earlier one, with its place."""
    first_of: dict[Hashable, int] = {}
    equal: dict[int, int] = {}
    for place, step in _steps(loop):
        start = splat_value(loop.operands[place])
        begin = loop.operands[place] if start is None else start
        first = first_of.setdefault((begin, step, loop.operands[place].type), place)
        if first != place:
            equal[place] = first
    return equal


def _steps(loop: ir.Operation) -> Iterator[tuple[int, int]]:
    """The places of the scalar integers that grow by a constant, with that constant."""
    body = loop.regions[1].blocks[0]
    returned = terminator(body).operands
    for place, argument in enumerate(body.arguments):
        if not isinstance(argument.type, ir.RankedTensorType) or ir.RankedTensorType(argument.type).shape:
            continue
        step = step_of(argument, returned[place])
        if isinstance(element_type(argument), ir.IntegerType) and isinstance(step, int):
            yield place, step


def _read_last(loop: ir.Operation, found: Counting, place: int, step: int | None) -> bool:
    """Replace the last value of a counter, where another loop starts from it or counts up to it, by that number.

    Anywhere else, what is computed from it may have to wait for the loop, such as the rest behind tiles.
    """
    start = splat_value(loop.operands[place])
    if not isinstance(start, int) or step is None:
        return False
    kind = ir.IntegerType(element_type(loop.results[place]))
    uses = [use for use in loop.results[place].uses if _is_of_a_loop(use)]
    if not uses or kind.width == 1:
        return False
    with ir.InsertionPoint(loop), loop.location:
        number = build.splat(loop.results[place].type, build.wrapped(kind, start + step * found.trips))
    for use in uses:
        use.owner.operands[use.operand_number] = number
    return True


def _is_of_a_loop(use: ir.OpOperand) -> bool:
    """Whether a value is what a `while` starts from, or what its condition compares with."""
    op = use.owner.operation
    if op.name == "stablehlo.compare":
        owner = op.block.owner.operation
        return owner.name == _WHILE and owner.regions[0].blocks[0] == op.block
    return bool(op.name == _WHILE)


def _read_back(loop: ir.Operation, found: Counting, place: int) -> bool:
    """Replace reads of a list of all counts by the positions that they read."""
    body, result = loop.regions[1].blocks[0], loop.results[place]
    update = defining_op(terminator(body).operands[place], _UPDATE)
    if update is None or update.operands[0] != body.arguments[place] or len(update.operands) != 3:  # of one dimension
        return False
    counter, [size] = body.arguments[found.place], build.shape_of(result)
    written = defining_op(update.operands[1], "stablehlo.reshape")
    counts = written is not None and written.operands[0] == counter == update.operands[2]
    if not counts or (found.start, found.step, found.trips) != (0, 1, size):
        return False
    changed = False
    for reader in [use.owner.operation for use in result.uses]:
        if reader.name != _SLICE or reader.operands[0] != result or build.shape_of(reader.results[0]) != [1]:
            continue
        if reader.operands[1].type != counter.type:
            continue
        with ir.InsertionPoint(reader), reader.location:
            ends = [build.splat(counter.type, number) for number in (0, size - 1)]
            position = stablehlo.clamp(ends[0], reader.operands[1], ends[1])
            reader.results[0].replace_all_uses_with(stablehlo.reshape(reader.results[0].type, position))
        changed = True
    return changed
