"""Loops: how often they run, with fewer carries, begun no earlier than their input, and as kernels of their own."""

from __future__ import annotations

from collections.abc import Callable, Collection

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.values import defining_op, splat_value
from exla_opt.ir.walk import terminator, walk_regions

# A smaller buffer is not worth the ops.
_BIG = 2**20
# Any number that the counter cannot exceed.
_LARGEST = 2**31 - 1


def trip_count(loop: ir.Operation) -> int | None:
    """How often a `while` runs that counts up by a constant to a constant; None for any other."""
    condition, body = (region.blocks[0] for region in loop.regions)
    test = defining_op(terminator(condition).operands[0], "stablehlo.compare")
    if test is None or "LT" not in str(test.attributes["comparison_direction"]):
        return None
    counter, bound = test.operands[0], splat_value(test.operands[1])
    if not isinstance(counter.owner, ir.Block) or not isinstance(bound, int):
        return None
    place = ir.BlockArgument(counter).arg_number
    start = splat_value(loop.operands[place])
    step = _step(body.arguments[place], terminator(body).operands[place])
    if not isinstance(start, int) or not isinstance(step, int) or step < 1:
        return None
    return max(0, -((start - bound) // step))


def _step(counter: ir.Value, following: ir.Value) -> int | float | None:
    """What is added to the counter in a trip, where that is one number."""
    addition = defining_op(following, "stablehlo.add")
    if addition is None or counter not in (operands := list(addition.operands)):
        return None
    return splat_value(operands[1 - operands.index(counter)])


def drop_carries(loop: ir.Operation, dropped: Collection[int]) -> None:
    """Put a loop in the place of the while `loop` that does not carry the values with these numbers.

    What they start with is used for them everywhere. At least one carry must be left.
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
    smaller = ir.Operation.create(
        loop.name,
        results=[loop.results[index].type for index in kept],
        operands=[loop.operands[index] for index in kept],
        regions=2,
        loc=loop.location,
        ip=ir.InsertionPoint(loop),
    )
    condition.append_to(smaller.regions[0])
    body.append_to(smaller.regions[1])
    for index, result in zip(kept, smaller.results, strict=True):
        loop.results[index].replace_all_uses_with(result)
    loop.erase()


def after_input(initial: ir.Value, after: ir.Value | None, size: int) -> ir.Value:
    """The same tensor, made when `after` is: zeros, or one number everywhere. size: its bytes.

    XLA:CPU runs what is ready first, and a constant is ready at once: the buffers of all loops of a program would be
    filled at its beginning, and stay alive until their loop comes.
    """
    op = defining_op(initial)
    if after is None or size < _BIG or op is None:
        return initial
    kind = build.tensor_of(initial)
    number = op.operands[0] if len(op.operands) else build.zeros(build.with_shape(kind, []))
    other = build.splat(number.type, 1)
    return build.broadcast(stablehlo.select(_never(after), other, number), kind.shape)


def _never(value: ir.Value) -> ir.Value:
    """False, but only known when `value` is: its first element is at once below and above zero."""
    rank = len(build.shape_of(value))
    first = stablehlo.slice(value, [0] * rank, [1] * rank, [1] * rank) if rank else value
    element = stablehlo.reshape(build.with_shape(build.tensor_of(value), []), first) if rank else first
    if isinstance(build.tensor_of(element).element_type, ir.ComplexType):
        element = stablehlo.real(element)
    kind = build.tensor_of(element).element_type
    if isinstance(kind, ir.IntegerType) and (kind.is_unsigned or kind.width == 1):
        element = build.convert(element, ir.F32Type.get())  # XLA knows that nothing of its own type is below zero
    zero = build.zeros(element.type)
    below, above = (stablehlo.ComparisonDirectionAttr.get(name) for name in ("LT", "GT"))
    return stablehlo.and_(stablehlo.compare(element, zero, below), stablehlo.compare(element, zero, above))


def keep_separate_kernels(loop: ir.Operation, is_pointwise: Callable[[ir.Operation], bool]) -> None:
    """Let a loop of tiles, whose counter is carried first and in i32, compute one offset from the sorted counter.

    is_pointwise: whether an op computes each element from those at its place. Why: see `memory.loop_kernels`.
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
    """The last op, and its operand, that reads the counter or a number computed from it, and is no such number."""
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
    """What a number computed from the counter would be with the other value in its place."""
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
