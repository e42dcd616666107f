"""Transposes as XLA:GPU moves them: after elementwise ops, to others that cancel them or are equal.

The rule is that of XLA's ReshapeMover: an elementwise op uses the untransposed operands if all are transposed alike, or
are broadcasts without any order, and if only such ops read those transposes. Its AlgebraicSimplifier then drops two
transposes that cancel, and equal ops become one.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from exla_opt.ir.attributes import integers
from exla_opt.ir.values import defining_op
from exla_opt.ops.traits import Trait, traits_of

from ..block import Operation, Shape
from ..builder import Builder

# XLA repeats its passes at most this often.
_MOST_ROUNDS = 25
_TRANSPOSE = traits_of("stablehlo.transpose")


class Sinking:
    """The ops of a block while transposes move. orders: for each transposed tensor, its source and the order.

    ops: by position; an op's replacement has its position. fixed: the tensors that are read outside of the ops.
    """

    def __init__(self, builder: Builder):
        self.builder, self.block = builder, builder.block
        block = self.block
        self.ops: list[list[Operation]] = [[op] for op in block.ops]
        self.producer = {value: op for op in block.ops for value in op.results}
        self.fixed = {*block.returned, *block.kept, *block.widened.values(), *block.behind}
        self.fixed.update(*block.behind.values())
        self.readers: dict[int, set[int]] = {}
        self.orders: dict[int, tuple[int, Shape]] = {}
        self.place = {value: position for position, op in enumerate(block.ops) for value in op.results}
        self.is_changed = False
        for position, op in enumerate(block.ops):
            self.fixed.update(op.captures)
            for value in op.operands:
                self.readers.setdefault(value, set()).add(position)
            source = self.transposed_by(op)
            if source:
                self.orders[op.results[0]] = (op.operands[0], source)

    def run(self) -> bool:
        """Move the transposes; return whether any moved."""
        for _ in range(_MOST_ROUNDS):
            if not self.move():
                break
        if self.is_changed:
            self.rebuild()
        return self.is_changed

    def transposed_by(self, op: Operation) -> Shape:
        """The dimension order that an op of the IR produces; empty for any other op."""
        if op.name != "transpose":
            return ()
        value = self.block.values.get(op.results[0])
        source = None if value is None else defining_op(value, "stablehlo.transpose")
        if source is None or self.builder.number.get(source.results[0]) != op.results[0]:
            return ()
        order = tuple(integers(source, "permutation", []))
        shape, given = self.block.shapes[op.results[0]], self.block.shapes[op.operands[0]]
        is_read_so = len(given) == len(order) and shape == tuple(given[dim] for dim in order)  # without a reshape
        return order if is_read_so else ()

    def move(self) -> bool:
        """Move each transpose after one more op; return whether any moved."""
        for value in list(self.orders):
            self.shorten(value)
        found = {position for value in self.orders for position in self.readers.get(value, ())}
        able = {position for position in found if self.order_of(position)}
        while True:
            stuck = {value for position in able for value in self.moved(position) if not self.may_move(value, able)}
            left = {position for position in able if stuck.isdisjoint(self.moved(position))}
            if left == able:
                break
            able = left
        for position in sorted(able):
            self.sink(position)
        return bool(able)

    def shorten(self, value: int) -> None:
        """Merge two transposes into one; two that cancel are dropped."""
        source, order = self.orders[value]
        position = self.place[value]
        if source in self.orders:
            self.is_changed = True
            self.readers[source].discard(position)
            source, before = self.orders[source]
            order = tuple(before[dim] for dim in order)
            self.readers.setdefault(source, set()).add(position)
            self.set_transpose(value, source, order)
        if order == tuple(range(len(order))) and value not in self.fixed:
            for reader in self.readers.pop(value, ()):
                op = self.ops[reader][0]
                operands = tuple(source if each == value else each for each in op.operands)
                self.ops[reader][0] = replace(op, operands=operands)
                self.readers[source].add(reader)
                [result] = op.results[:1]
                if result in self.orders and op.name == "transpose":
                    self.set_transpose(result, source, self.orders[result][1])
            self.readers[source].discard(position)
            del self.orders[value]

    def set_transpose(self, value: int, source: int, order: Shape) -> None:
        """Transpose a tensor in this order."""
        op = self.ops[self.place[value]][0]
        together = together_in(order, self.block.shapes[source])
        self.ops[self.place[value]][0] = self.producer[value] = replace(op, operands=(source,), together=together)
        self.orders[value] = (source, order)

    def moved(self, position: int) -> list[int]:
        """The transposes among an op's operands."""
        return [value for value in self.ops[position][0].operands if value in self.orders]

    def may_move(self, value: int, able: set[int]) -> bool:
        return value not in self.fixed and self.readers[value] <= able

    def order_of(self, position: int) -> Shape:
        """The order in which all operands of an elementwise op are transposed; empty for any other op."""
        op = self.ops[position][0]
        if Trait.POINTWISE not in op.traits or len(op.results) != 1:
            return ()
        shape = self.block.shapes[op.results[0]]
        orders = {self.orders[value][1] for value in op.operands if value in self.orders}
        if len(orders) != 1 or any(self.block.shapes[value] != shape for value in op.operands):
            return ()
        [order] = orders
        return order if all(value in self.orders or self.is_repeated(value) for value in op.operands) else ()

    def is_repeated(self, value: int) -> bool:
        """Whether a tensor has one value everywhere, or is a broadcast row."""
        op = self.producer.get(value)
        if op is None or op.name == "splat":
            return op is not None
        return op.name == "broadcast_in_dim" and len(op.operands) == 1 and len(self.block.shapes[op.operands[0]]) <= 1

    def sink(self, position: int) -> None:
        """Let an op use its operands' untransposed sources, and transpose its result."""
        op, order = self.ops[position][0], self.order_of(position)
        [result] = op.results
        shape = self.block.shapes[result]
        given = tuple(shape[order.index(dim)] for dim in range(len(order)))
        before = []
        operands = []
        for value in op.operands:
            if value in self.orders:
                operands.append(self.orders[value][0])
                self.readers.setdefault(operands[-1], set()).add(position)
                continue
            made = replace(self.producer[value], results=(self.fresh(value, given),))
            self.producer[made.results[0]] = made
            before.append(made)
            operands.append(made.results[0])
        source = self.fresh(result, given)
        made = replace(op, operands=tuple(operands), results=(source,))
        turn = Operation("transpose", _TRANSPOSE, (source,), (result,), together=together_in(order, given))
        self.ops[position] = [turn, made, *before]
        self.producer.update({source: made, result: turn})
        self.orders[result] = (source, order)
        self.readers[source] = {position}
        for value in op.operands:
            self.readers[value].discard(position)
        self.is_changed = True

    def fresh(self, like: int, shape: Shape) -> int:
        block = self.block
        value = block.add_tensor(shape, block.sizes[like], block.dtypes[like])
        if like in block.values:
            block.values[value] = block.values[like]
        return value

    def rebuild(self) -> None:
        """Put the ops in order, without unread ones, and with equal ones merged."""
        block = self.block
        ops = [op for group in self.ops for op in reversed(group)]
        seen: dict[Hashable, int] = {}
        renamed: dict[int, int] = {}
        kept = []
        for given in ops:
            op = replace(given, operands=tuple(renamed.get(value, value) for value in given.operands))
            value = op.results[0] if len(op.results) == 1 else -1
            key = self.key(op)
            if key in seen and value not in self.fixed:
                renamed[value] = seen[key]
                continue
            if key is not None:
                seen.setdefault(key, value)
            kept.append(op)
        needed = {*self.fixed, *(value for op in kept for value in op.operands)}
        block.ops = [op for op in kept if op.name != "transpose" or not needed.isdisjoint(op.results)]
        self.producer = {value: op for op in block.ops for value in op.results}

    def key(self, op: Operation) -> Hashable:
        """A key for equal ops; None for an op without one."""
        if len(op.results) != 1 or op.bodies:
            return None
        [value] = op.results
        shape, dtype = self.block.shapes[value], self.block.dtypes[value]
        if value in self.orders and op.name == "transpose":
            return op.name, op.operands, self.orders[value][1]
        source = defining_op(self.block.values[value]) if value in self.block.values else None
        if Trait.POINTWISE not in op.traits or source is None or source.name != f"stablehlo.{op.name}":
            return None
        named = (source.attributes[at] for at in range(len(source.attributes)))
        attributes = tuple((each.name, each.attr) for each in named)
        return op.name, op.operands, shape, dtype, attributes


def together_in(order: Shape, shape: Shape) -> int:
    """How many contiguous elements a transpose keeps contiguous."""
    return shape[-1] if order and order[-1] == len(order) - 1 else 1
