"""The layouts of tensors that only transposes read on XLA:GPU, and the positions of those transposes.

LayoutAssignment lays such a tensor out as the transposes need it, back to its origin, and inserts a copy there.
MoveCopyToUsers moves the copy after ops whose operands are all such copies. Broadcasts are not copies: so a transpose
ends before the first op that computes with a number.
"""

from __future__ import annotations

from dataclasses import replace

from exla_opt.ops.traits import Trait, traits_of

from ..block import Operation, Shape
from .transposes import Sinking, together_in

_TRANSPOSE = traits_of("stablehlo.transpose")
_BINARY = 2


class TransposedLayouts:
    """The ops of a block while the operands of transposes are laid out.

    wanted: for each elementwise op, by position, the order that all its readers need. turned: the tensor in another
    order, by the original and the order. laid_out: the ops' results in another order; renamed: those of transposes that
    are then not needed. needed: for each result, its transpose that is read outside of the ops.
    """

    def __init__(self, sinking: Sinking):
        self.sinking, self.block = sinking, sinking.block
        self.ops = self.block.ops
        self.wanted: dict[int, Shape] = {}
        self.turned: dict[tuple[int, Shape], int] = {}
        self.orders = sinking.orders
        self.laid_out: dict[int, int] = {}
        self.renamed: dict[int, int] = {}
        self.needed: dict[int, int] = {}
        self.made: list[Operation] = []

    def assign(self) -> None:
        """Lay out tensors that only transposes read, and put the transposes where the copies end."""
        self.find_wanted()
        for position, given in enumerate(self.ops):
            op = replace(given, operands=tuple(self.renamed.get(each, each) for each in given.operands))
            order = self.wanted.get(position, ())
            if self.is_transpose(op):
                [source], [value] = op.operands, op.results
                if source in self.laid_out:
                    self.renamed[value] = self.laid_out[source]
                    continue
                self.turned.setdefault((source, self.orders[value][1]), value)
            elif order and not self.is_copied(op):
                self.lay_out(op, order)
                continue
            self.made.append(op)
        self.block.ops = self.made

    def find_wanted(self) -> None:
        readers: dict[int, list[int]] = {}
        for position, op in enumerate(self.ops):
            for value in op.operands:
                readers.setdefault(value, []).append(position)
        for position in range(len(self.ops) - 1, -1, -1):
            op = self.ops[position]
            if Trait.POINTWISE not in op.traits or len(op.results) != 1:
                continue
            [value] = op.results
            shape = self.block.shapes[value]
            orders = {self.order_at(reader) for reader in readers.get(value, ())}
            needed = [self.ops[each].results[0] for each in readers.get(value, ()) if self.is_needed(each)]
            is_plain = value not in self.sinking.fixed and all(self.block.shapes[each] == shape for each in op.operands)
            if len(orders) == 1 and is_plain and len(needed) <= 1:
                [self.wanted[position]] = orders
                if needed:
                    self.needed[value] = needed[0]

    def order_at(self, position: int) -> Shape:
        """The order in which an op needs its operand; empty if unchanged."""
        op = self.ops[position]
        return self.orders[op.results[0]][1] if self.is_transpose(op) else self.wanted.get(position, ())

    def is_transpose(self, op: Operation) -> bool:
        return op.name == "transpose" and op.results[0] in self.orders

    def is_needed(self, position: int) -> bool:
        """Whether an op is a transpose that is read outside of the ops."""
        return self.is_transpose(self.ops[position]) and self.ops[position].results[0] in self.sinking.fixed

    def is_copied(self, op: Operation) -> bool:
        """Whether all operands of an op are copies."""
        return len(op.operands) <= _BINARY and not any(
            value in self.laid_out or self.sinking.is_repeated(value) for value in op.operands
        )

    def lay_out(self, op: Operation, order: Shape) -> None:
        """Append the op on operands in another order."""
        operands = []
        for value in op.operands:
            if value in self.laid_out:
                operands.append(self.laid_out[value])
                continue
            if (value, order) not in self.turned:
                self.turned[value, order] = self.turn(value, order)
            operands.append(self.turned[value, order])
        [result] = op.results
        made = self.needed.get(result, -1)
        self.laid_out[result] = self.fresh(result, order) if made < 0 else made
        self.made.append(replace(op, operands=tuple(operands), results=(self.laid_out[result],)))

    def turn(self, value: int, order: Shape) -> int:
        """Append the op that puts a tensor into another order."""
        made = self.fresh(value, order)
        if self.sinking.is_repeated(value):
            self.made.append(replace(self.sinking.producer[value], results=(made,)))
        else:
            together = together_in(order, self.block.shapes[value])
            self.made.append(Operation("transpose", _TRANSPOSE, (value,), (made,), together=together))
        return made

    def fresh(self, value: int, order: Shape) -> int:
        shape = self.block.shapes[value]
        return self.sinking.fresh(value, tuple(shape[dim] for dim in order))
