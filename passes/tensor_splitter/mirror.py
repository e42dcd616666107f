"""Computes the transpose of a big tensor separately, if both are read at the same places.

    %k = exp(dot(%x, %y)); %t = transpose(%k); add(%k, %t)   ->   %t = exp(dot(%y, %x))

A loop over rows of the sum needs rows and columns of %k. Cut along its rows, all of %k would have to be complete before
its transpose is read. If both are computed from small operands, each is cut along the rows of the sum.

NOTE [Not compared]: the two may round differently, also on the diagonal, where they are the same number. So nothing is
done if an op tests values of the transpose for equality, or asks which of both is larger: `k > k.T`, the sign of
`k - k.T`. Their sum and product are no such difference, and may be compared. Nor is a test for equality made twice.
"""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.walk import all_blocks
from exla_opt.ops.comparisons import SYMMETRIC, asks, asks_about, orders_by_element
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
        impossible: set[_Needed] = set()
        for op in self.met(turned) if turned else []:
            if len(found) == _MOST:
                break
            needed = self.needed(op, impossible)
            if needed and not _is_compared(op, needed):
                found[op] = needed
        return found

    def met(self, turned: list[ir.Operation]) -> list[ir.Operation]:
        """The transposes that elementwise ops connect with their operand."""
        leader: dict[ir.Value, ir.Value] = {}

        def lead(value: ir.Value) -> ir.Value:
            passed = []
            while (other := leader.get(value)) is not None:
                passed.append(value)
                value = other
            leader.update(dict.fromkeys(passed, value))  # a tensor may be read thousands of times
            return value

        for op in self.ops:
            if not has_trait(op, Trait.POINTWISE) or not self.is_big(op.results):
                continue
            for value in op.operands:
                one, other = lead(value), lead(op.results[0])
                if one != other and self.is_big((value,)):
                    leader[one] = other
        return [op for op in turned if lead(op.results[0]) == lead(op.operands[0])]

    def needed(self, op: ir.Operation, impossible: set[_Needed]) -> list[_Needed]:
        """The tensors of which the transposes compute that of `op`, in order of the block; empty if that gains nothing.

        Nothing is gained by the transpose of a tensor that stays complete: of a big one that no rule computes.
        impossible: those of which this is known, to which that of `op` is added.
        """
        wanted = order_of(op)
        assert wanted is not None
        found: dict[_Needed, None] = {}
        stack: list[_Needed] = [(op.operands[0], wanted)]
        while stack:
            value, order = key = stack.pop()
            if key in found or is_identity(order):
                continue
            orders = self.orders(value, order)
            if orders is not None:
                found[key] = None
                stack += zip(self.ops[self.place[value]].operands, orders, strict=False)
            if key in impossible or (orders is None and self.is_computed(value)):
                impossible.add((op.operands[0], wanted))
                return []
        return sorted(found, key=lambda each: self.place[each[0]])

    def is_computed(self, value: ir.Value) -> bool:
        return value in self.place and self.is_big((value,))

    def orders(self, value: ir.Value, order: Order) -> list[Order] | None:
        """The orders of the operands of what computes a big tensor; None if a transpose of it is needed instead."""
        if not self.is_computed(value):
            return None
        op = self.ops[self.place[value]]
        return operand_orders(op, order) if may_be_copied(op) and not asks(op) else None

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


def _is_compared(op: ir.Operation, needed: list[_Needed]) -> bool:
    """Whether the program compares a transpose with what it is computed from; see NOTE [Not compared]."""
    both = {op.operands[0], op.results[0]}
    sums = [
        use.owner.operation
        for use in op.results[0].uses
        if use.owner.operation.name in SYMMETRIC and set(use.owner.operation.operands) == both
    ]
    if orders_by_element(op.results, [value for value, _ in needed], [op, *sums]):
        return True
    block = op.block
    while (around := block.owner.operation).name != "func.func":
        block = around.block
    return asks_about(op.results[0], block)
