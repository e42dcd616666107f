"""joined-trips: several slices in one trip of a loop, if the fixed cost of a trip matters.

before:  while %i < 16 { %o' = dynamic_update_slice %o, f(dynamic_slice %x, %i), %i;  %i + 1 }
after:   while %i < 16 { %a, %b = f(dynamic_slice %x, %i), f(dynamic_slice %x, %i + 1)
                         %o' = dynamic_update_slice %o, concatenate(%a, %b), %i;  %i + 2 }

A trip counts, waits, and starts a kernel for each slice that it reads and writes. If a trip computes several slices,
one after the other, XLA:GPU cuts the slices of one tensor in one kernel, and writes the results in one. That takes less
time and more memory, so the search under a limit decides (`exla_opt/budget/joined.py`): nothing else sets the number of
slices in a trip.

Legal for every loop whose trip count is known and a multiple of the number joined: each trip reads the previous one's
results, as before, so no number changes. Parts are written together if nothing reads the tensor that they are written
to, and they are contiguous in it. A short loop inside another one is unrolled. Not worthwhile if a trip's fixed costs
are less than half a hundredth of it, or if the code would grow too much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.loops import Counting, counting
from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op, has_discardable_attributes, splat_value
from exla_opt.ir.walk import inside_out, operations_of, terminator, walk
from exla_opt.memory.machine import Machine
from exla_opt.memory.reading import read_block
from exla_opt.memory.seconds import seconds_of
from exla_opt.ops.effects import has_side_effect
from exla_opt.options import Options
from exla_opt.remarks import Remark

_LOOP, _FUNCTION = "stablehlo.while", "func.func"
# The maximum number of ops of all joined trips together: XLA compiles each.
_MOST_OPS = 512
# Below this fraction of a trip's time, its fixed costs do not count.
_LEAST_SHARE = 0.005


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Let the loops of `module` compute up to `options.slices_a_trip` slices per trip, in place."""
    for loop in inside_out(module, _LOOP):
        if (found := _joined(loop, options)) is not None:
            _join(loop, *found, options.machine)
    return []


def joins_any(module: ir.Module, options: Options) -> bool:
    """Whether the pass would change the module, which is unchanged."""
    return any(_joined(loop, options) is not None for loop in inside_out(module, _LOOP))


def _joined(loop: ir.Operation, options: Options) -> tuple[Counting, int] | None:
    """The counting of a loop and the number of trips to join; None if it stays as it is."""
    if options.slices_a_trip < 2 or not _may_repeat(loop):
        return None
    counted = counting(loop)
    joined = 1 if counted is None else _slices_a_trip(loop, counted, options.slices_a_trip)
    if counted is None or joined < 2 or not _is_worthwhile(loop, counted, options.machine):
        return None
    return counted, joined


def _may_repeat(loop: ir.Operation) -> bool:
    """Whether the condition only counts, and the loop has no discardable attributes, such as a sharding."""
    return not len(loop.attributes) and not any(map(has_side_effect, walk(loop.regions[0].blocks[0])))


def _slices_a_trip(loop: ir.Operation, counted: Counting, most: int) -> int:
    """The largest number up to `most` that divides the trips; all of them only inside another loop, whose code is
    compiled anyway."""
    ops = sum(1 for _ in walk(loop.regions[1].blocks[0]))
    within = loop.parent is not None and loop.parent.operation.name != _FUNCTION
    most = min(most, _MOST_OPS // ops, counted.trips if within else counted.trips // 2)
    return max((number for number in range(2, most + 1) if counted.trips % number == 0), default=1)


def _is_worthwhile(loop: ir.Operation, counted: Counting, machine: Machine) -> bool:
    """Whether the fixed costs of a trip, for the count, its slices and its updates, are worth saving."""
    body = loop.regions[1].blocks[0]
    ops = operations_of(body)
    made = {result for op in ops for result in op.results}
    cut = {op.operands[0] for op in ops if op.name == "stablehlo.dynamic_slice"} - made
    written = sum(_update(loop, counted, place, machine) is not None for place in range(len(loop.results)))
    own = machine.seconds_per_trip + (1 + len(cut) + written) * machine.seconds_per_kernel
    return own >= _LEAST_SHARE * seconds_of(read_block(body, Types(), machine), machine)


@dataclass(frozen=True, slots=True)
class _Update:
    """A carry into which each trip writes its part, after that of the trip before.

    dim: the dimension of the parts. op: the dynamic_update_slice.
    """

    dim: int
    op: ir.Operation


def _update(loop: ir.Operation, counted: Counting, place: int, machine: Machine) -> _Update | None:
    """The only write of the loop to carry number `place`, if a part takes no longer than a kernel's start."""
    body = loop.regions[1].blocks[0]
    carried, yielded = body.arguments[place], terminator(body).operands[place]
    op = defining_op(yielded, "stablehlo.dynamic_update_slice")
    if op is None or has_discardable_attributes(op) or op.operands[0] != carried or op.parent != loop:
        return None
    if len(list(carried.uses)) > 1 or len(list(yielded.uses)) > 1:
        return None
    part = Types().of(op.operands[1])
    if part.bytes > machine.seconds_per_kernel * machine.bytes_per_second:
        return None
    whole = build.shape_of(carried)
    counter = body.arguments[counted.place]
    moving = [dim for dim, start in enumerate(list(op.operands)[2:]) if splat_value(start) is None]
    if len(moving) != 1:
        return None
    [dim] = moving
    found = _linear(op.operands[2 + dim], counter, counted)
    if found is None or found[0] * counted.step != part.shape[dim]:
        return None
    first, last = (found[0] * number + found[1] for number in _range(counted))
    return _Update(dim, op) if first >= 0 and last + part.shape[dim] <= whole[dim] else None


def _range(counted: Counting) -> tuple[int, int]:
    """The counter in the first and the last trip."""
    return counted.start, counted.start + (counted.trips - 1) * counted.step


def _linear(value: ir.Value, counter: ir.Value, counted: Counting) -> tuple[int, int] | None:
    """(a, b) if an integer is a times the counter plus b, in all trips and without overflow; else None."""
    if value == counter:
        return 1, 0
    number = splat_value(value)
    if isinstance(number, int):
        return 0, number
    op = defining_op(value)
    if op is None or op.name not in ("stablehlo.add", "stablehlo.multiply", "stablehlo.convert"):
        return None
    parts = [_linear(operand, counter, counted) for operand in op.operands]
    if None in parts:
        return None
    scales, offsets = zip(*(part for part in parts if part is not None), strict=True)
    if op.name == "stablehlo.multiply":
        if all(scales):
            return None
        found = scales[0] * offsets[1] + scales[1] * offsets[0], offsets[0] * offsets[1]
    else:
        found = sum(scales), sum(offsets)
    largest = max(abs(found[0] * number + found[1]) for number in _range(counted))
    kind = build.tensor_of(value).element_type
    return found if isinstance(kind, ir.IntegerType) and largest < 2 ** (kind.width - 1) else None


def _join(loop: ir.Operation, counted: Counting, joined: int, machine: Machine) -> None:
    """Replace the loop by one with fewer trips, or by their code."""
    updates = {
        place: found
        for place in range(len(loop.operands))
        if place != counted.place and (found := _update(loop, counted, place, machine)) is not None
    }
    if joined == counted.trips:
        with ir.InsertionPoint(loop), loop.location:
            values = _several(loop, list(loop.operands), counted, joined, updates)
    else:
        made = loop.clone(ip=ir.InsertionPoint(loop)).operation
        body = made.regions[1].blocks[0]
        old = operations_of(body)
        with ir.InsertionPoint(terminator(body)), loop.location:
            following = _several(loop, list(body.arguments), counted, joined, updates)
            ir.Operation.create(terminator(body).name, operands=following)
        for op in reversed(old):
            op.erase()
        values = list(made.results)
    for result, value in zip(loop.results, values, strict=True):
        result.replace_all_uses_with(value)
    loop.erase()


def _several(
    loop: ir.Operation, carried: Sequence[ir.Value], counted: Counting, joined: int, updates: dict[int, _Update]
) -> list[ir.Value]:
    """Several trips of the loop, one after the other, at the insertion point; returns the carried values.

    carried: the initial values. updates: the carries into which all trips write their parts together.
    """
    values, counter = list(carried), carried[counted.place]
    parts: dict[int, list[ir.Value]] = {place: [] for place in updates}
    starts: dict[int, list[ir.Value]] = {}
    for number in range(joined):
        if number:
            values[counted.place] = stablehlo.add(counter, build.scalar_like(counter, number * counted.step))
        following = _trip(loop, values)
        for place in updates:
            op = defining_op(following[place], "stablehlo.dynamic_update_slice")
            assert op is not None
            parts[place].append(op.operands[1])
            starts.setdefault(place, list(op.operands)[2:])
            following[place] = carried[place]
        values = following
    values[counted.place] = stablehlo.add(counter, build.scalar_like(counter, joined * counted.step))
    for place, update in updates.items():
        part = _concatenated(parts[place], update.dim)
        if part.type == carried[place].type:
            values[place] = part  # all of it is overwritten
        else:
            values[place] = stablehlo.dynamic_update_slice(carried[place], part, starts[place])
    return values


def _trip(loop: ir.Operation, values: Sequence[ir.Value]) -> list[ir.Value]:
    """One trip of the loop from these values, at the insertion point; returns the carried values."""
    clone = loop.clone(ip=ir.InsertionPoint.current).operation
    body = clone.regions[1].blocks[0]
    for argument, value in zip(body.arguments, values, strict=True):
        argument.replace_all_uses_with(value)
    *inner, last = operations_of(body)
    for op in inner:
        op.move_before(clone)
    found = list(last.operands)
    clone.erase()
    return found


def _concatenated(parts: Sequence[ir.Value], dim: int) -> ir.Value:
    shape = build.shape_of(parts[0])
    shape[dim] *= len(parts)
    kind = build.with_shape(build.tensor_of(parts[0]), shape)
    return stablehlo.ConcatenateOp(list(parts), dim, results=[kind]).result
