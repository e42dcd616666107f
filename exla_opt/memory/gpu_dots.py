"""Products of matrices that share an operand: XLA:GPU puts the others together and multiplies once, if they are small.

The rule is that of XLA's DotMerger: one of the two products takes, with its operands and its result, no more than 64
MiB, and neither needs the other.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from math import prod

from jaxlib.mlir import ir

from exla_opt.ir.attributes import integers
from exla_opt.ir.values import defining_op
from exla_opt.ops.traits import traits_of

from .block import Block, Operation, Shape
from .builder import Builder
from .dots import dot_dims

_MOST_BYTES = 64 * 2**20
# So many products of one operand, at most, are looked at pair by pair.
_MOST_OF_ONE = 32


@dataclass(frozen=True, slots=True)
class Product:
    """A dot as it may be put together with another. dims: of each operand those of the batch and those summed over.

    outer: the number of elements that each operand has along dimensions that only it has.
    """

    made: Operation
    dims: tuple[tuple[Shape, Shape], tuple[Shape, Shape]]
    outer: tuple[int, int]


def product_of(builder: Builder, op: ir.Operation, made: Operation) -> Product:
    """A dot of IR, with its dimensions as those of what it reads."""
    sides = []
    outer = []
    for side in (0, 1):
        batch, contracted = dot_dims(op, side)
        value = op.operands[side]
        shape = builder.types.of(value).shape
        outer.append(prod(size for dim, size in enumerate(shape) if dim not in {*batch, *contracted}))
        moved = defining_op(value, "stablehlo.transpose")
        if moved is not None and builder.number.get(moved.operands[0]) == made.operands[side]:
            order = integers(moved, "permutation", [])
            batch, contracted = [order[dim] for dim in batch], [order[dim] for dim in contracted]
        sides.append((tuple(batch), tuple(contracted)))
    return Product(made, (sides[0], sides[1]), (outer[0], outer[1]))


def merge_dots(builder: Builder, products: dict[int, Product]) -> None:
    """Put products of one operand together. products: by their results."""
    block = builder.block
    groups: dict[tuple[int, Hashable], list[int]] = {}
    for result, product in products.items():
        for side in (0, 1):
            other = len(block.shapes[product.made.operands[1 - side]])
            key = (product.made.operands[side], product.dims, block.dtypes[result], other)
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
    """Whether an op reads, through others, what another makes."""
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
    """Replace two products by one and two slices of it; returns its result."""
    block = builder.block
    one, two = products.pop(first), products.pop(other)
    own, theirs = one.made.operands[1 - side], two.made.operands[1 - side]
    batch, contracted = one.dims[1 - side]
    shape = list(block.shapes[own])
    free = next(dim for dim in range(len(shape)) if dim not in {*batch, *contracted})
    shape[free] = (prod(shape) + prod(block.shapes[theirs])) // max(prod(shape) // shape[free], 1)
    origin = block.values[first]
    joined = builder.fresh(origin, tuple(shape), own)
    total = one.outer[1 - side] + two.outer[1 - side]
    out = list(block.shapes[first])
    out[-1 if side == 0 else -2 if len(out) > 1 else 0] = total
    elements = (prod(block.shapes[first]) // one.outer[1 - side]) * total
    result = builder.fresh(origin, tuple(out) if prod(out) == elements else (elements,), first)
    operands = (one.made.operands[0], joined) if side == 0 else (joined, one.made.operands[1])
    made = replace(one.made, operands=operands, results=(result,))
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
    """Put the ops in an order in which each comes behind what it reads, else as they were."""
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
