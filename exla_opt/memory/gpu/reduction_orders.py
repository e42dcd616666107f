"""The memory layout of tensors that XLA:GPU computes only to reduce them.

XLA's LayoutAssignment goes back from the last reduction: a tensor computed only from broadcasts has the dimensions that
the reduction keeps in their order, followed by those that it reduces. Everything computed from it element by element
shares that order, including its other reductions.
"""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.attributes import integers
from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op, splat_value
from exla_opt.ops.traits import Trait, traits_of

from ..builder import Builder

# A matrix that is reduced to a vector keeps its order.
_FEWEST_KEPT = 2
_REPEATED = frozenset({"stablehlo.broadcast_in_dim", "stablehlo.iota"})


def orders_of_reduced(builder: Builder, block: ir.Block) -> dict[int, list[int]]:
    """The dimension orders of reduced tensors that are not in order, outermost first, by number."""
    types, number = builder.types, builder.number
    group: dict[int, int] = {}
    reduces: list[tuple[int, ir.Operation]] = []
    fixed: list[int] = []
    for view in block.operations:
        op = view.operation
        if op.name == "stablehlo.reduce" and len(op.results) == 1:
            reduces.append((number[op.operands[0]], op))
        if Trait.POINTWISE not in traits_of(op.name) or len(op.results) != 1:
            continue
        [result] = op.results
        if _kept(types.of(result).shape) <= _FEWEST_KEPT:
            continue
        for operand in op.operands:
            if types.of(operand).shape == types.of(result).shape:
                _join(group, number[result], number[operand])
                if _is_fixed(operand, block):
                    fixed.append(number[operand])
        if any(_is_other_reader(use.owner.operation, op, types) for use in result.uses):
            fixed.append(number[result])
    stay = {_head(group, value) for value in fixed}
    chosen: dict[int, list[int]] = {}
    for value, op in reversed(reduces):
        head, dims = _head(group, value), integers(op, "dimensions", [])
        if value not in group or head in stay or head in chosen:
            continue
        if _kept(types.of(op.results[0]).shape) >= _FEWEST_KEPT:
            rank = len(types.of(op.operands[0]).shape)
            chosen[head] = [*(dim for dim in range(rank) if dim not in dims), *dims]
    found = {value: chosen.get(_head(group, value)) for value, _ in reduces}
    return {value: order for value, order in found.items() if order is not None and order != sorted(order)}


def _kept(shape: tuple[int, ...]) -> int:
    return sum(size != 1 for size in shape)


def _is_fixed(value: ir.Value, block: ir.Block) -> bool:
    """Whether a tensor that is read element by element has a fixed order."""
    source = defining_op(value)
    if source is None or source.block != block:
        return True
    if source.name in _REPEATED or splat_value(value) is not None:
        return False
    return Trait.POINTWISE not in traits_of(source.name)


def _is_other_reader(reader: ir.Operation, op: ir.Operation, types: Types) -> bool:
    """Whether a reader of an op's result is neither elementwise nor a reduction of it alone, in the same block."""
    if reader.block != op.block:
        return True
    if reader.name == "stablehlo.reduce":
        return len(reader.results) > 1
    return Trait.POINTWISE not in traits_of(reader.name) or _shape(reader, types) != _shape(op, types)


def _shape(op: ir.Operation, types: Types) -> tuple[int, ...]:
    return types.of(op.results[0]).shape


def _join(group: dict[int, int], one: int, other: int) -> None:
    group.setdefault(one, one)
    group.setdefault(other, other)
    group[_head(group, one)] = _head(group, other)


def _head(group: dict[int, int], value: int) -> int:
    while (above := group.get(value, value)) != value:
        group[value] = group.get(above, above)
        value = above
    return value
