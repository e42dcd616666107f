"""Computes the transpose of a big tensor separately, if both are read at the same places.

    %k = exp(dot(%x, %y)); %t = transpose(%k); add(%k, %t)   ->   %t = exp(dot(%y, %x))

A loop over rows of the sum needs rows and columns of %k. Cut along its rows, all of %k would have to be complete before
its transpose is read. If both are computed from small operands, each is cut along the rows of the sum.

NOTE [Not compared]: the two may round differently. So nothing is done if an op tests values of the transpose for
equality.
"""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.walk import all_blocks
from exla_opt.ops.comparisons import asks_about
from exla_opt.ops.traits import Trait, has_trait
from exla_opt.ops.transposed import (
    Order,
    is_identity,
    operand_orders,
    order_of,
    write_transpose,
    write_transposed,
)
from exla_opt.options import Options

from .copies import BlockOps, may_be_copied

# Up to this many transposes of a block are computed separately.
_MOST = 8
# A tensor, and the order in which it is needed.
_Needed = tuple[ir.Value, Order]


def meets_itself(module: ir.Module, options: Options) -> bool:
    """Whether a tensor over the threshold is read with its transpose, which can be computed separately."""
    return any(_Mirrors(block, options.size_threshold).find() for block in all_blocks(module))


def mirror(module: ir.Module, options: Options) -> bool:
    """Compute such transposes separately; return whether there was one."""
    found = False
    for block in list(all_blocks(module)):
        mirrors = _Mirrors(block, options.size_threshold)
        if turned := mirrors.find():
            mirrors.write(turned)
            found = True
    return found


class _Mirrors(BlockOps):
    """Finds such transposes in a block, and writes them."""

    def find(self) -> dict[ir.Operation, list[_Needed]]:
        """The transposes that elementwise ops connect with their operand, with what computes them, if it is small."""
        turned = [op for op in self.ops if order_of(op) is not None and self.is_computed(op.operands[0])]
        found: dict[ir.Operation, list[_Needed]] = {}
        for op in self.met(turned) if turned else []:
            needed = self.needed(op)
            if needed and len(found) < _MOST and not asks_about(op.results[0], op.block):
                found[op] = needed
        return found

    def met(self, turned: list[ir.Operation]) -> list[ir.Operation]:
        """The transposes that elementwise ops connect with their operand."""
        leader: dict[ir.Value, ir.Value] = {}

        def lead(value: ir.Value) -> ir.Value:
            while (other := leader.get(value)) is not None:
                value = other
            return value

        for op in self.ops:
            if not has_trait(op, Trait.POINTWISE) or not self.is_big(op.results):
                continue
            for value in op.operands:
                one, other = lead(value), lead(op.results[0])
                if one != other and self.is_big((value,)):
                    leader[one] = other
        return [op for op in turned if lead(op.results[0]) == lead(op.operands[0])]

    def needed(self, op: ir.Operation) -> list[_Needed]:
        """The tensors of which the transposes compute that of `op`, in order of the block; empty if that gains nothing.

        Nothing is gained by the transpose of a tensor that stays complete: of a big one that no rule computes.
        """
        order = order_of(op)
        assert order is not None
        found: dict[_Needed, None] = {}
        stack: list[_Needed] = [(op.operands[0], order)]
        while stack:
            value, order = key = stack.pop()
            if key in found or is_identity(order):
                continue
            orders = self.orders(value, order)
            if orders is not None:
                found[key] = None
                stack += zip(self.ops[self.place[value]].operands, orders, strict=False)
            elif self.is_computed(value):
                return []
        return sorted(found, key=lambda each: self.place[each[0]])

    def is_computed(self, value: ir.Value) -> bool:
        return value in self.place and self.is_big((value,))

    def orders(self, value: ir.Value, order: Order) -> list[Order] | None:
        """The orders of the operands of what computes a big tensor; None if a transpose of it is needed instead."""
        if not self.is_computed(value):
            return None
        op = self.ops[self.place[value]]
        return operand_orders(op, order) if may_be_copied(op) else None

    def write(self, turned: dict[ir.Operation, list[_Needed]]) -> None:
        """Replace transposes by what computes them."""
        made: dict[_Needed, ir.Value] = {}

        def turn(value: ir.Value, order: Order) -> ir.Value:
            if is_identity(order):
                return value
            if (value, order) not in made:
                made[value, order] = write_transpose(value, order)
            return made[value, order]

        needed = {key for keys in turned.values() for key in keys}
        for value, order in sorted(needed, key=lambda each: self.place[each[0]]):
            op, following = self.ops[self.place[value]], self.ops[self.place[value] + 1]
            orders = self.orders(value, order)
            assert orders is not None
            with ir.InsertionPoint(following), op.location:
                operands = [turn(*each) for each in zip(op.operands, orders, strict=False)]
                made[value, order] = write_transposed(op, order, operands)
        for op in turned:
            wanted = order_of(op)
            assert wanted is not None
            op.results[0].replace_all_uses_with(made[op.operands[0], wanted])
            op.erase()
