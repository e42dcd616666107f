"""Layouts chosen by libraries, which XLA:GPU keeps, and transposes where a function returns.

Convolutions have their channels last, or first, and linear algebra writes column-major matrices.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from exla_opt.ir.attributes import integers
from exla_opt.ir.values import defining_op
from exla_opt.ops.traits import Trait, traits_of

from ..block import Block, Operation, Shape

# Ops on windows keep the order of their operand.
_KEEPS = frozenset({"reduce_window", "pad", "slice", "dynamic_slice"})


def turn_results(block: Block, by_columns: Collection[int]) -> None:
    """Add an op for each result of a function that has a library's dimension order.

    by_columns: the column-major matrices.
    """
    orders = _orders_of(block, is_inside=False)
    for place, value in enumerate(block.returned):
        if value not in by_columns and not _is_turned(orders.get(value, ())):
            continue
        result = block.add_tensor(block.shapes[value], block.sizes[value], block.dtypes[value])
        block.values[result] = block.values[value]
        block.ops.append(Operation("transpose", traits_of("stablehlo.transpose"), (value,), (result,)))
        block.returned[place] = result


def _orders_of(block: Block, is_inside: bool) -> dict[int, Shape]:
    """The dimension orders of tensors that got a convolution's order, outermost first.

    Counted from 0 without the dimensions of one element. is_inside: whether the block is a loop's, where a transpose is
    a view.
    """
    found: dict[int, Shape] = {}
    for op in block.ops:
        order: Shape | None = None
        if op.name == "convolution":
            # An addend may give the result another shape.
            is_known = len(op.order) == sum(size != 1 for size in block.shapes[op.results[0]])
            order = op.order if is_known else None
        elif op.name == "while" and op.bodies:
            inside = _orders_of(op.bodies[0], is_inside=True)
            pairs = zip(op.results, op.bodies[0].returned, strict=False)
            found.update((result, inside[value]) for result, value in pairs if value in inside)
        elif op.name == "transpose":
            order = _moved(block, op, found[op.operands[0]]) if is_inside and op.operands[0] in found else None
        elif op.name == "dynamic_update_slice":
            order = found.get(op.operands[1])
        elif Trait.POINTWISE in op.traits or op.name in _KEEPS:
            known = [found[value] for value in op.operands if value in found]
            order = next((each for each in known if _is_turned(each)), known[0] if known else None)
        if order is not None:
            found.update(dict.fromkeys(op.results, order))
    return found


def _is_turned(order: Shape) -> bool:
    return list(order) != sorted(order)


def without_ones(order: Sequence[int], shape: Shape) -> Shape:
    """An order of dimensions without those of one element, the others counted from 0."""
    longer = [dim for dim, size in enumerate(shape) if size != 1]
    return tuple(longer.index(dim) for dim in order if shape[dim] != 1)


def _moved(block: Block, op: Operation, order: Shape) -> Shape | None:
    """The order of a transpose's result if its operand is in `order`; None if not known."""
    transpose = defining_op(block.values[op.results[0]], "stablehlo.transpose")
    if transpose is None:
        return None
    permutation = integers(transpose, "permutation", [])
    # As dimensions of the operand, in the order of the result.
    shape = block.shapes[op.results[0]]
    if len(shape) != len(permutation):
        return None
    sizes = [1] * len(shape)
    for place, dim in enumerate(permutation):
        sizes[dim] = shape[place]
    moved = without_ones(permutation, tuple(sizes))
    return tuple(moved.index(dim) for dim in order) if len(moved) == len(order) else None
