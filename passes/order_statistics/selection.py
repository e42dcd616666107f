"""Writes the loop that finds elements by their ranks: a few bits of their keys in each pass over all elements.

    while %i < passes, %key = 0:                       for one rank of one row, 4 bits in a pass
      %d      = make again                             its chain, if it has one
      %bounds = %key + 1 * 2^shift, ..., %key + 15 * 2^shift
      %below  = for each bound, how many keys of %d are below it
      %key    = %key + 2^shift * (how many of %below are at most the rank)

The key of the element of a rank is the largest number below which there are at most as many keys as the rank. Each pass
counts anew how many keys are below a number: if two passes round an element differently, the key that is found is
between those that each would find alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.types import element_type

from .again import clone_here
from .candidate import Candidate
from .keys import elements_of, key_type, keys_of
from .readers import ranks_read, read_from

_WIDE = 2**32


def write(candidate: Candidate) -> None:
    """Let the readers of a sort read elements that are found by counting. The block may be out of order then."""
    sort, readers = candidate.sort, candidate.reads.few
    unsorted = sort.operands[candidate.order.operand]
    for op in candidate.reads.all:
        for number, operand in enumerate(op.operands):
            if operand == sort.results[candidate.order.operand]:
                op.operands[number] = unsorted
    with ir.InsertionPoint(readers[0].op), sort.location:
        places: list[int] = []
        ranks: list[ir.Value] = []
        for reader in readers:
            places.append(len(ranks))
            ranks += ranks_read(reader, _count_type(candidate))
        selected = _selected(candidate, _keys_of_ranks(candidate, ranks))
    for reader, place in zip(readers, places, strict=True):
        with ir.InsertionPoint(reader.op), reader.op.location:
            reader.op.results[0].replace_all_uses_with(read_from(reader, selected, place))


def _count_type(candidate: Candidate) -> ir.IntegerType:
    """The type of the number of elements that are sorted together."""
    shape = build.shape_of(candidate.base)
    return ir.IntegerType.get_unsigned(32 if prod(shape[dim] for dim in candidate.reduced) < _WIDE else 64)


def _rows(candidate: Candidate) -> list[int]:
    """The dimensions of the base that are not sorted."""
    return [dim for dim in range(len(build.shape_of(candidate.base))) if dim not in candidate.reduced]


def _selected(candidate: Candidate, keys: Sequence[ir.Value]) -> ir.Value:
    """The elements with these keys, concatenated along the sorted dimension."""
    kind = build.tensor_of(candidate.sort.results[candidate.order.operand])
    shape = list(kind.shape)
    shape[candidate.dim] = 1
    elements = [elements_of(key, kind.element_type, candidate.order) for key in keys]
    shaped = [stablehlo.reshape(build.with_shape(kind, shape), each) for each in elements]
    shape[candidate.dim] = len(shaped)
    joined = build.with_shape(kind, shape)
    return stablehlo.ConcatenateOp(shaped, candidate.dim, results=[joined]).result if len(shaped) > 1 else shaped[0]


def _keys_of_ranks(candidate: Candidate, ranks: Sequence[ir.Value]) -> list[ir.Value]:
    """For each rank, the keys of the elements of that rank: one for each row."""
    base = build.tensor_of(candidate.base)
    shape = [base.shape[dim] for dim in _rows(candidate)]
    zero = build.zeros(ir.RankedTensorType.get(shape, key_type(base.element_type)))
    initial = [build.scalar_i32(0), *[zero] * len(ranks)]
    loop = stablehlo.WhileOp([value.type for value in initial], initial)
    kinds = [value.type for value in initial]
    condition, body = (region.blocks.append(*kinds) for region in (loop.cond, loop.body))
    with ir.InsertionPoint(condition):
        stablehlo.return_([build.less_than(condition.arguments[0], build.scalar_i32(candidate.passes))])
    with ir.InsertionPoint(body):
        counter, *known = body.arguments
        keys = keys_of(clone_here(candidate.chain, candidate.base, counter), candidate.order)
        found = _next_digits(candidate, keys, known, ranks, _step(candidate, counter))
        stablehlo.return_([stablehlo.add(counter, build.scalar_i32(1)), *found])
    results: list[ir.Value] = list(loop.results)
    return results[1:]


def _step(candidate: Candidate, counter: ir.Value) -> ir.Value:
    """The distance of a pass's bits from the lowest bit: a 0-d tensor of the keys' type."""
    last = build.scalar_i32(candidate.passes - 1)
    shift = stablehlo.multiply(stablehlo.subtract(last, counter), build.scalar_i32(candidate.digit))
    return build.convert(shift, key_type(element_type(candidate.base)))


def _next_digits(
    candidate: Candidate, keys: ir.Value, known: Sequence[ir.Value], ranks: Sequence[ir.Value], shift: ir.Value
) -> list[ir.Value]:
    """The known bits of the ranks' keys after one more pass."""
    shape, rows = build.shape_of(known[0]), _rows(candidate)
    distance = build.broadcast(shift, shape)
    steps = [
        stablehlo.shift_left(build.splat(known[0].type, digit), distance) for digit in range(1, 2**candidate.digit)
    ]
    bounds = [[stablehlo.add(key, step) for step in steps] for key in known]
    below = _count_below(candidate, keys, [bound for some in bounds for bound in some], rows)
    found: list[ir.Value] = []
    for place, (key, rank) in enumerate(zip(known, ranks, strict=True)):
        counts = below[place * len(steps) : (place + 1) * len(steps)]
        reached = [
            build.convert(build.compare(count, build.broadcast(rank, shape), "LE", "UNSIGNED"), element_type(key))
            for count in counts
        ]
        digit = reached[0]
        for other in reached[1:]:
            digit = stablehlo.add(digit, other)
        found.append(stablehlo.add(key, stablehlo.shift_left(digit, distance)))
    return found


def _count_below(
    candidate: Candidate, keys: ir.Value, bounds: Sequence[ir.Value], rows: Sequence[int]
) -> list[ir.Value]:
    """For each bound, the number of keys of each row below it: by one reduce, which XLA compiles to one loop."""
    shape, kind = build.shape_of(keys), _count_type(candidate)
    repeated = [stablehlo.broadcast_in_dim(keys.type, bound, ir.DenseI64ArrayAttr.get(list(rows))) for bound in bounds]
    ones = [build.convert(build.compare(keys, bound, "LT", "UNSIGNED"), kind) for bound in repeated]
    scalar = ir.RankedTensorType.get([], kind)
    counted = ir.RankedTensorType.get([shape[dim] for dim in rows], kind)
    zero = build.zeros(scalar)
    made = stablehlo.ReduceOp([counted] * len(ones), ones, [zero] * len(ones), list(candidate.reduced))
    block = made.body.blocks.append(*[scalar] * (2 * len(ones)))
    first, second = list(block.arguments)[: len(ones)], list(block.arguments)[len(ones) :]
    with ir.InsertionPoint(block):
        stablehlo.return_([stablehlo.add(one, other) for one, other in zip(first, second, strict=True)])
    results: list[ir.Value] = list(made.operation.results)
    return results
