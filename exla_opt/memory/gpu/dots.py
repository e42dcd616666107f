"""Products that XLA:GPU rewrites: vector products without a library, and merged small products with a shared operand.

The latter is the rule of XLA's DotMerger, which concatenates the other operands: one of the two products takes, with
its operands and its result, at most 64 MiB, and neither depends on the other.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from math import prod

from jaxlib.mlir import ir

from exla_opt.ir.attributes import integers
from exla_opt.ir.types import element_type, float_bits
from exla_opt.ir.values import defining_op
from exla_opt.ops.traits import traits_of

from ..block import Block, Operation, Shape
from ..builder import Builder
from ..dots import dot_dims

_MOST_BYTES = 64 * 2**20
# A matrix of this many elements is multiplied with a vector by a library.
_MOST_ELEMENTS = 10**7
_WIDE_BITS = 32
# At most this many products with a shared operand are compared pairwise.
_MOST_OF_ONE = 32


@dataclass(frozen=True, slots=True)
class Product:
    """A dot that may be merged with another. dims: the batch and the contracted dimensions of each operand.

    outer: the number of elements of each operand along dimensions that only it has.
    """

    made: Operation
    dims: tuple[tuple[Shape, Shape], tuple[Shape, Shape]]
    outer: tuple[int, int]


def product_of(builder: Builder, op: ir.Operation, made: Operation) -> Product:
    """A dot of the IR, with its dimensions as those of the tensors that it reads."""
    sides, outer = [], []
    for side in (0, 1):
        shape, batch, contracted = _operand(builder, op, made, side)
        sides.append((tuple(batch), tuple(contracted)))
        outer.append(_outer(shape, batch, contracted))
    return Product(made, (sides[0], sides[1]), (outer[0], outer[1]))


def _operand(builder: Builder, op: ir.Operation, made: Operation, side: int) -> tuple[Shape, list[int], list[int]]:
    """The shape of a dot's operand, and its batch and contracted dimensions, as those of the source behind a transpose.

    The shape is the IR value's: the block may hold the operand of a reshape instead.
    """
    batch, contracted = dot_dims(op, side)
    shape = builder.types.of(op.operands[side]).shape
    moved = defining_op(op.operands[side], "stablehlo.transpose")
    if moved is None or builder.number.get(moved.operands[0]) != made.operands[side]:
        return shape, batch, contracted
    if moved.results[0] == moved.operands[0] or builder.block.values.get(made.operands[side]) == moved.results[0]:
        return shape, batch, contracted
    order = integers(moved, "permutation", [])
    shape = builder.types.of(moved.operands[0]).shape
    return shape, [order[dim] for dim in batch], [order[dim] for dim in contracted]


def _outer(shape: Shape, batch: Sequence[int], contracted: Sequence[int]) -> int:
    """The number of elements along the dimensions that only this operand has."""
    return prod(size for dim, size in enumerate(shape) if dim not in {*batch, *contracted})


def is_vector_product(builder: Builder, op: ir.Operation) -> bool:
    """Whether a dot is of vectors, or of a matrix and a vector that XLA multiplies without a library.

    That holds for an unbatched matrix below 10 million elements, in narrow floats only if it sums along rows.
    """
    shapes = [builder.types.of(value).shape for value in op.operands]
    dims = [dot_dims(op, side) for side in (0, 1)]
    outer = [_outer(shapes[side], *dims[side]) for side in (0, 1)]
    if 1 not in outer:
        return False
    side = outer.index(1)
    batch, contracted = dims[1 - side]
    bits = float_bits(element_type(op.operands[0]))
    if 0 < bits < _WIDE_BITS and len(shapes[1 - side]) - 1 not in contracted:
        return False
    is_vector = outer[1 - side] == 1 or prod(shapes[side][dim] for dim in dims[side][0]) > 1
    return is_vector or prod(shapes[1 - side]) < _MOST_ELEMENTS


def make_vector_product(builder: Builder, op: ir.Operation, made: Operation) -> None:
    """A multiplication by a broadcast vector, and a sum."""
    origin, number, block = op.results[0], made.operands, builder.block
    matrix = 0 if prod(block.shapes[number[0]]) >= prod(block.shapes[number[1]]) else 1
    operands = [_operand(builder, op, made, side) for side in (0, 1)]
    dims = [(batch, contracted) for _, batch, contracted in operands]
    shape, batch, contracted = operands[matrix]
    spread = number[1 - matrix]
    if prod(shape) != prod(block.shapes[spread]):
        spread = builder.fresh(origin, shape, number[1 - matrix])
        builder.add_plain("broadcast_in_dim", (number[1 - matrix],), (spread,))
    elif _order(*dims[0]) != _order(*dims[1]) and not _is_turned(builder, op, dims):
        spread = builder.fresh(origin, shape, number[1 - matrix])
        builder.add_plain("transpose", (number[1 - matrix],), (spread,))
    product = builder.fresh(origin, shape, made.results[0])
    builder.add_plain("multiply", (number[matrix], spread), (product,))
    lengths = tuple(shape[dim] for dim in contracted)
    together = prod(shape[max(contracted, default=-1) + 1 :])
    traits = traits_of("stablehlo.reduce")
    builder.add(Operation("reduce", traits, (product,), made.results, lengths=lengths, together=together))


def _is_turned(builder: Builder, op: ir.Operation, dims: Sequence[tuple[Sequence[int], Sequence[int]]]) -> bool:
    """Whether one operand of a vector product is a matrix product, written in the order of the other operand."""
    for side in (0, 1):
        own, other = ([*batch, *contracted] for batch, contracted in (dims[side], dims[1 - side]))
        order = [own[place] for place in sorted(range(len(own)), key=lambda place: other[place])]
        source = defining_op(op.operands[side], "stablehlo.dot_general")
        if source is None or op.operands[0] == op.operands[1]:
            continue
        if len(order) == len(builder.types.of(op.operands[side]).shape) and is_free_turn(builder, source, order):
            return True
    return False


def is_free_turn(builder: Builder, op: ir.Operation, order: Sequence[int]) -> bool:
    """Whether a matrix product writes its result in the order that its only reader needs.

    The batch, the rows and the columns may be in any order, except the batch last.
    """
    if len(list(op.results[0].uses)) != 1 or is_vector_product(builder, op):
        return False
    shape = builder.types.of(op.results[0]).shape
    batch = len(dot_dims(op, 0)[0])
    rows = len(builder.types.of(op.operands[0]).shape) - len(dot_dims(op, 0)[1])
    real = [dim for dim in order if shape[dim] != 1]
    kinds = [0 if dim < batch else 1 if dim < rows else 2 for dim in real]
    runs = [kind for place, kind in enumerate(kinds) if place == 0 or kinds[place - 1] != kind]
    inside = [[dim for dim, other in zip(real, kinds, strict=True) if other == kind] for kind in range(3)]
    return len(set(runs)) == len(runs) and runs[-1:] != [0] and all(dims == sorted(dims) for dims in inside)


def write_turned(builder: Builder, op: ir.Operation, made: Operation) -> Operation:
    """Let a matrix product write the result of a transpose, its only reader, if it can."""
    [use, *others] = list(op.results[0].uses) or [None]
    reader = use.owner.operation if use is not None and not others else None
    if reader is None or reader.name != "stablehlo.transpose":
        return made
    order = integers(reader, "permutation", [])
    [result] = made.results
    if not is_free_turn(builder, op, order):
        return made
    builder.number[reader.results[0]] = result
    builder.block.shapes[result] = builder.types.of(reader.results[0]).shape
    builder.block.ops[-1] = replace(made, shared=tuple(order.index(dim) for dim in made.shared))
    return builder.block.ops[-1]


def _order(batch: Sequence[int], contracted: Sequence[int]) -> list[int]:
    """The pairs of dimensions of two operands in the order in which they appear in one."""
    dims = [*batch, *contracted]
    return sorted(range(len(dims)), key=lambda place: dims[place])


def merge_dots(builder: Builder, products: dict[int, Product]) -> None:
    """Merge products with a shared operand. products: by their results."""
    block = builder.block
    groups: dict[tuple[int, Hashable], list[int]] = {}
    for result, product in products.items():
        for side in (0, 1):
            other = len(block.shapes[product.made.operands[1 - side]])
            barrier = block.behind.get(result)  # its outputs are no operands of products before it
            key = (product.made.operands[side], product.dims, block.dtypes[result], other, barrier)
            groups.setdefault((side, key), []).append(result)
    merged = False
    gone: set[int] = set()
    for (side, _), results in groups.items():
        if len(results) > 1:
            merged |= _merge_group(builder, products, [each for each in results if each not in gone], side, gone)
    if merged:
        _sort(block)


def _merge_group(builder: Builder, products: dict[int, Product], results: list[int], side: int, gone: set[int]) -> bool:
    block, found = builder.block, False
    rest = results[:_MOST_OF_ONE]
    while len(rest) > 1:
        first, *rest = rest
        for other in list(rest):
            one, two = products[first], products[other]
            if not (_is_small(block, one.made) or _is_small(block, two.made)):
                continue
            if min(one.outer[1 - side], two.outer[1 - side]) == 1 or one.made.operands == two.made.operands:
                continue
            if _needs(block, one.made, two.made) or _needs(block, two.made, one.made):
                continue
            rest.remove(other)
            gone.update((first, other))
            first = _merge(builder, products, first, other, side)
            found = True
    return found


def _is_small(block: Block, made: Operation) -> bool:
    return sum(block.sizes[value] for value in (*made.operands, *made.results)) <= _MOST_BYTES


def _needs(block: Block, op: Operation, other: Operation) -> bool:
    """Whether an op depends on another, directly or through others."""
    producer = {value: each for each in block.ops for value in each.results}
    [wanted] = other.results
    stack, seen = list(op.operands), set(op.operands)
    while stack:
        value = stack.pop()
        if value == wanted:
            return True
        source = producer.get(value)
        for each in (*source.operands, *source.captures) if source is not None else ():
            if each not in seen:
                seen.add(each)
                stack.append(each)
    return False


def _merge(builder: Builder, products: dict[int, Product], first: int, other: int, side: int) -> int:
    """Replace two products by one and two slices of it; return its result."""
    block = builder.block
    one, two = products.pop(first), products.pop(other)
    own, theirs = one.made.operands[1 - side], two.made.operands[1 - side]
    batch, contracted = one.dims[1 - side]
    shape = list(block.shapes[own])
    free = next((dim for dim in range(len(shape)) if dim not in {*batch, *contracted}), 0)
    shape[free] = (prod(shape) + prod(block.shapes[theirs])) // max(prod(shape) // shape[free], 1)
    origin = block.values[first]
    joined = builder.fresh(origin, tuple(shape), own)
    total = one.outer[1 - side] + two.outer[1 - side]
    out = list(block.shapes[first])
    out[-1 if side == 0 else -2 if len(out) > 1 else 0] = total
    elements = (prod(block.shapes[first]) // one.outer[1 - side]) * total
    shared = one.made.shared
    if prod(out) != elements:  # the dimensions are in another order: only the batch has to be known
        batches = prod(block.shapes[first][dim] for dim in shared)
        out, shared = [batches, elements // max(batches, 1)], (0,)
    result = builder.fresh(origin, tuple(out), first)
    operands = (one.made.operands[0], joined) if side == 0 else (joined, one.made.operands[1])
    made = replace(one.made, operands=operands, results=(result,), shared=shared)
    plain = [
        Operation("concatenate", traits_of("stablehlo.concatenate"), (own, theirs), (joined,)),
        made,
        *(Operation("slice", traits_of("stablehlo.slice"), (result,), (each,)) for each in (first, other)),
    ]
    block.ops = [op for op in block.ops if op is not one.made and op is not two.made] + plain
    sizes = (one.outer[0] + two.outer[0], one.outer[1]) if side else (one.outer[0], one.outer[1] + two.outer[1])
    products[result] = Product(made, one.dims, sizes)
    return result


def _sort(block: Block) -> None:
    """Sort the ops so that each comes after its operands, otherwise in their old order."""
    producer = {value: place for place, op in enumerate(block.ops) for value in op.results}
    waiting = [0] * len(block.ops)
    readers: list[list[int]] = [[] for _ in block.ops]
    for place, op in enumerate(block.ops):
        for before in {producer[value] for value in (*op.operands, *op.captures) if value in producer}:
            readers[before].append(place)
            waiting[place] += 1
    ready = [place for place, count in enumerate(waiting) if not count]
    heapify(ready)
    ops: list[Operation] = []
    while ready:
        place = heappop(ready)
        ops.append(block.ops[place])
        for reader in readers[place]:
            waiting[reader] -= 1
            if not waiting[reader]:
                heappush(ready, reader)
    block.ops = ops
