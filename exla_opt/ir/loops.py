"""Loops: trip counts, removed and added carries, delayed initial values, and separate kernels."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.opaque import known_later, only_user
from exla_opt.ir.types import element_type
from exla_opt.ir.values import behind_constants, defining_op, splat_value
from exla_opt.ir.walk import captured_values, terminator, walk_regions

# A smaller buffer is not worth the extra ops.
_BIG = 2**20
# Any number that the counter cannot exceed.
_LARGEST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Counting:
    """How a `while` counts: carry `place` is start, start + step, ... in each of a known number of trips."""

    place: int
    start: int
    step: int
    trips: int


def trip_count(loop: ir.Operation) -> int | None:
    """The trip count of a `while` that counts up by a constant to a constant; None for any other."""
    found = counting(loop)
    return None if found is None else found.trips


def counting(loop: ir.Operation) -> Counting | None:
    """The counting of a `while` that runs until a number that grows by a constant reaches a constant; None for others.

    None also if the type of the number cannot hold its final value.
    """
    condition, body = (region.blocks[0] for region in loop.regions)
    test = defining_op(_asked(terminator(condition).operands[0]), "stablehlo.compare")
    if test is None or "LT" not in str(test.attributes["comparison_direction"]):
        return None
    counter, bound = test.operands[0], splat_value(test.operands[1])
    if counter.owner != condition or not isinstance(bound, int):
        return None
    place = ir.BlockArgument(counter).arg_number
    start = splat_value(known_later(loop.operands[place]))
    step = step_of(body.arguments[place], terminator(body).operands[place])
    if not isinstance(start, int) or not isinstance(step, int) or step < 1 or not _holds(counter, bound + step - 1):
        return None
    return Counting(place, start, step, max(0, -((start - bound) // step)))


def _asked(condition: ir.Value) -> ir.Value:
    """What a condition asks, without what it asks twice or knows.

    TensorFlow's loops ask twice once `normalise` has merged counters; those that only count also ask for a constant.
    """
    both = defining_op(condition, "stablehlo.and")
    if both is None:
        return condition
    asked = [value for value in dict.fromkeys(both.operands) if splat_value(value) != 1]
    return asked[0] if len(asked) == 1 else condition


def _holds(counter: ir.Value, number: int) -> bool:
    kind = element_type(counter)
    return isinstance(kind, ir.IntegerType) and number < 2 ** (kind.width - (not kind.is_unsigned))


def step_of(counter: ir.Value, following: ir.Value) -> int | float | None:
    """The number added to the counter in a trip, if it is one number."""
    subtraction = defining_op(following, "stablehlo.subtract")
    if subtraction is not None and subtraction.operands[0] == counter:
        number = splat_value(subtraction.operands[1])
        return None if number is None else -number
    addition = defining_op(following, "stablehlo.add")
    if addition is None or counter not in (operands := list(addition.operands)):
        return None
    return splat_value(operands[1 - operands.index(counter)])


def drop_carries(loop: ir.Operation, dropped: Collection[int]) -> ir.Operation:
    """Replace the while `loop` by one without these carries; return it.

    Their initial values are used instead. At least one carry must be left.
    """
    condition, body = (region.blocks[0] for region in loop.regions)
    for index in dropped:
        value = loop.operands[index]
        for carried in (condition.arguments[index], body.arguments[index], loop.results[index]):
            carried.replace_all_uses_with(value)
    kept = [index for index in range(len(loop.operands)) if index not in set(dropped)]
    last = terminator(body)
    with ir.InsertionPoint(last):
        ir.Operation.create(last.name, operands=[last.operands[index] for index in kept], loc=last.location)
    last.erase()
    for block in (condition, body):
        for index in sorted(dropped, reverse=True):
            block.erase_argument(index)
    smaller = _moved(loop, [loop.operands[index] for index in kept])
    for index, result in zip(kept, smaller.results, strict=True):
        loop.results[index].replace_all_uses_with(result)
    loop.erase()
    return smaller


def _moved(loop: ir.Operation, operands: Sequence[ir.Value]) -> ir.Operation:
    """A loop before `loop` with its condition and its body, which carries these operands."""
    named = [loop.attributes[place] for place in range(len(loop.attributes))]
    made = ir.Operation.create(
        loop.name,
        results=[value.type for value in operands],
        operands=list(operands),
        attributes={each.name: each.attr for each in named},
        regions=2,
        loc=loop.location,
        ip=ir.InsertionPoint(loop),
    )
    for old, new in zip(loop.regions, made.regions, strict=True):
        old.blocks[0].append_to(new)
    return made


def add_carries(
    loop: ir.Operation, initial: Sequence[ir.Value], step: Callable[[Sequence[ir.Value]], Sequence[ir.Value]]
) -> ir.Operation:
    """Replace the while `loop` by one with more carries after the existing ones; return it.

    initial: of the new carries. step: builds, at the end of the body, their next values from the current ones.
    """
    condition, body = (region.blocks[0] for region in loop.regions)
    last = terminator(body)
    for value in initial:
        condition.add_argument(value.type, loop.location)
    carried = [body.add_argument(value.type, loop.location) for value in initial]
    with ir.InsertionPoint(last), last.location:
        ir.Operation.create(last.name, operands=[*last.operands, *step(carried)])
    last.erase()
    larger = _moved(loop, [*loop.operands, *initial])
    for old, new in zip(loop.results, larger.results, strict=False):
        old.replace_all_uses_with(new)
    loop.erase()
    return larger


def dead_carries(loop: ir.Operation, acts: Callable[[ir.Operation], bool]) -> list[int]:
    """The carries of a `while` on which only other dead carries depend.

    acts: whether an op has side effects, so that its operands are needed.
    """
    condition, body = (region.blocks[0] for region in loop.regions)
    last = terminator(body)
    place = {argument: index for index, argument in enumerate(body.arguments)}
    definer = {result: view.operation for view in body.operations for result in view.operation.results}
    used = [*loop.results, *condition.arguments]
    found = [index % len(place) for index, value in enumerate(used) if next(iter(value.uses), None) is not None]
    alive = set(found)
    queue = [last.operands[index] for index in alive]
    queue += [value for view in body.operations if acts(view.operation) for value in _read_by(view.operation)]
    seen: set[ir.Value] = set()
    while queue:
        value = queue.pop()
        if value in seen:
            continue
        seen.add(value)
        if value in definer:
            queue += _read_by(definer[value])
        elif value in place and place[value] not in alive:
            alive.add(place[value])
            queue.append(last.operands[place[value]])
    return [index for index in range(len(place)) if index not in alive]


def _read_by(op: ir.Operation) -> list[ir.Value]:
    return [*op.operands, *(captured_values(op) if len(op.regions) else ())]


def after_input(initial: ir.Value, after: ir.Value | None, size: int) -> ir.Value:
    """The same tensor, zeros or one number everywhere, made to depend on `after`. size: its bytes.

    XLA:CPU runs ready ops first, and a constant is always ready: the buffers of all loops of a program would be filled
    at its start, and stay alive until their loops run.
    """
    op = defining_op(initial)
    if after is None or size < _BIG or op is None:
        return initial
    kind = build.tensor_of(initial)
    number = op.operands[0] if len(op.operands) else build.zeros(build.with_shape(kind, []))
    other = build.splat(number.type, 1)
    return build.broadcast(stablehlo.select(_never(after), other, number), kind.shape)


def starts_with_zeros(initial: ir.Value) -> bool:
    """Whether a tensor is zero everywhere, possibly through `after_input`."""
    if splat_value(initial) == 0:
        return True
    spread = defining_op(initial, "stablehlo.broadcast_in_dim")
    chosen = spread and defining_op(spread.operands[0], "stablehlo.select")
    return chosen is not None and splat_value(chosen.operands[2]) == 0 and _is_never(chosen.operands[0])


def is_part_of_never(op: ir.Operation) -> bool:
    """Whether an op is one of the comparisons by which `after_input` waits: what it compares does not matter."""
    both = only_user(op)
    if both is None or both.name != "stablehlo.and" or both.block != op.block:
        return False
    return not build.shape_of(both.results[0]) and _is_never(both.results[0])


def _is_never(value: ir.Value) -> bool:
    """Whether `_never` computes the value."""
    both = defining_op(value, "stablehlo.and")
    tests = [] if both is None else [defining_op(operand, "stablehlo.compare") for operand in both.operands]
    known = [test for test in tests if test is not None]
    if len(known) != 2 or list(known[0].operands) != list(known[1].operands):
        return False
    if splat_value(known[0].operands[1]) != 0:
        return False
    directions = {str(stablehlo.ComparisonDirectionAttr(test.attributes["comparison_direction"])) for test in known}
    return all(any(name in direction for direction in directions) for name in ("LT", "GT"))


def _never(value: ir.Value) -> ir.Value:
    """False, but known only once `value` is: its first element is both below and above zero."""
    value = behind_constants(value)
    rank = len(build.shape_of(value))
    first = stablehlo.slice(value, [0] * rank, [1] * rank, [1] * rank) if rank else value
    element = stablehlo.reshape(build.with_shape(build.tensor_of(value), []), first) if rank else first
    if isinstance(build.tensor_of(element).element_type, ir.ComplexType):
        element = stablehlo.real(element)
    kind = build.tensor_of(element).element_type
    if isinstance(kind, ir.IntegerType) and (kind.is_unsigned or kind.width == 1):
        element = build.convert(element, ir.F32Type.get())  # XLA knows that no number of this type is below zero
    zero = build.zeros(element.type)
    below, above = (stablehlo.ComparisonDirectionAttr.get(name) for name in ("LT", "GT"))
    return stablehlo.and_(stablehlo.compare(element, zero, below), stablehlo.compare(element, zero, above))


def keep_separate_kernels(loop: ir.Operation, is_pointwise: Callable[[ir.Operation], bool]) -> None:
    """Let a loop of tiles, whose first carry is the counter, an i32, compute one offset from the sorted counter.

    is_pointwise: whether an op is elementwise. For the reason see `memory.loop_kernels`.
    """
    body = loop.regions[1].blocks[0]
    counter = body.arguments[0]
    found = _last_reader(body, counter, is_pointwise)
    if found is None:
        return
    reader, operand = found
    with ir.InsertionPoint(reader), loop.location:
        reader.operands[operand] = _recomputed(reader.operands[operand], counter, _sorted_with_largest(counter))


def _last_reader(
    body: ir.Block, counter: ir.Value, is_pointwise: Callable[[ir.Operation], bool]
) -> tuple[ir.Operation, int] | None:
    """The last op, with the operand, that reads the counter or a number computed from it, and is no such number."""
    *_, terminator = body.operations
    increment = terminator.operands[0].owner
    numbers = {counter}
    found = None
    for op in walk_regions(body):
        read = [index for index, operand in enumerate(op.operands) if operand in numbers]
        if not read or op == increment:
            continue
        if is_pointwise(op) and build.shape_of(op.results[0]) == []:
            numbers.update(op.results)
        else:
            found = op, read[-1]
    return found


def _recomputed(number: ir.Value, counter: ir.Value, other: ir.Value) -> ir.Value:
    """A number computed from the counter, recomputed from another value instead."""
    if number == counter:
        return other
    if not isinstance(number.owner, ir.Operation | ir.OpView):
        return number
    op = number.owner.operation
    operands = [_recomputed(operand, counter, other) for operand in op.operands]
    if operands == list(op.operands):
        return number
    clone = op.clone(ip=ir.InsertionPoint.current).operation
    for index, operand in enumerate(operands):
        clone.operands[index] = operand
    made: ir.Value = clone.results[ir.OpResult(number).result_number]
    return made


def _sorted_with_largest(number: ir.Value) -> ir.Value:
    element = build.tensor_of(number).element_type
    one, two = (ir.RankedTensorType.get([length], element) for length in (1, 2))
    largest = build.splat(one, _LARGEST)
    pair = stablehlo.concatenate([stablehlo.reshape(one, number), largest], 0)
    made = stablehlo.SortOp([two], [pair], dimension=0, is_stable=False)
    scalar = build.tensor_of(number)
    comparator = made.operation.regions[0].blocks.append(scalar, scalar)
    with ir.InsertionPoint(comparator):
        stablehlo.return_([build.less_than(*comparator.arguments)])
    smaller = stablehlo.slice(made.operation.results[0], [0], [1], [1])
    return stablehlo.reshape(scalar, smaller)
