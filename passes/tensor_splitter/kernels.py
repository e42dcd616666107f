"""Keeps the kernels of a loop of tiles apart where XLA:CPU would compile the loop into a single one.

Note [Why a loop of tiles sorts its counter]

XLA:CPU compiles a `while` into one kernel, which runs on one thread and calls no library, where it thinks few bytes
are accessed in a trip. "Few" is less than 1,024 bytes up to jaxlib 0.11, and as good as everything on jaxlib 0.12:
a Gaussian kernel matrix times a vector in slices of 4 MB then takes twice the time on two cores, and more cores lose
more. No flag is at hand in a module. What stays out of such a kernel is a loop that holds, at any depth, an op that the
emitter of these kernels cannot write: a custom kernel, which most products of matrices and most sums of floats become
today, a custom call, a collective, an FFT, or a sort. So a loop of tiles computes one of its offsets from

    sort([counter, 2147483647])[0]

which is the counter, whatever it is, and which no simplifier of XLA looks through: a sort of one element vanishes, a
sort of a splat vanishes, and so do a replica's number and a scatter of one element on jaxlib 0.12. It costs less than
can be measured in a trip, and eight bytes. The counter that is counted up and compared stays as it was, so that XLA
still knows the number of trips. The last op that reads an offset reads the sorted one, and no other: what waits for the
sort is scheduled later, and two slices of an input that were needed one after the other could be alive together.

A loop of small tiles is left as it is: XLA:CPU gives no op less than 256 KiB for a thread of its own, so that one
kernel is no slower and spares the loop the cost of many. On a GPU the sort would be a kernel of its own in every trip.
"""

from __future__ import annotations

from collections.abc import Iterator

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.types import Types
from exla_opt.ops.traits import Trait, has_trait

# Twice the least that XLA:CPU gives to a thread.
LEAST_TILE_BYTES = 2**19
# Any number that the counter cannot exceed.
_LARGEST = 2**31 - 1


def needs_separate_kernels(loop: ir.Operation, types: Types) -> bool:
    """Whether one kernel for the whole loop would cost time: a tile is big, and no op of the body rules it out."""
    big = False
    for op in _ops_within(loop.regions[1].blocks[0]):
        if has_trait(op, Trait.LIBRARY):
            return False
        if not has_trait(op, Trait.IN_PLACE):  # what is carried is no work of a trip
            big = big or any(types.of(value).bytes >= LEAST_TILE_BYTES for value in op.results)
    return big


def keep_separate_kernels(loop: ir.Operation) -> None:
    """Let a loop of tiles, whose counter is carried first and in i32, compute one offset from the sorted counter."""
    body = loop.regions[1].blocks[0]
    counter = body.arguments[0]
    found = _last_reader(body, counter)
    if found is None:
        return
    reader, operand = found
    with ir.InsertionPoint(reader), loop.location:
        reader.operands[operand] = _recomputed(reader.operands[operand], counter, _sorted_with_largest(counter))


def _last_reader(body: ir.Block, counter: ir.Value) -> tuple[ir.Operation, int] | None:
    """The last op, and its operand, that reads the counter or a number computed from it, and is no such number."""
    *_, terminator = body.operations
    increment = terminator.operands[0].owner
    numbers = {counter}
    found = None
    for op in _ops_within(body):
        read = [index for index, operand in enumerate(op.operands) if operand in numbers]
        if not read or op == increment:
            continue
        if has_trait(op, Trait.POINTWISE) and build.shape_of(op.results[0]) == []:
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


def _ops_within(block: ir.Block) -> Iterator[ir.Operation]:
    for view in block.operations:
        op = view.operation
        yield op
        for region in op.regions:
            for inner in region.blocks:
                yield from _ops_within(inner)
