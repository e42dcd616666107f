"""The ops of a block by their places, and copies of them: what a second loop is to compute on its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jaxlib.mlir import ir

from exla_opt.ir.types import Types
from exla_opt.ir.walk import operations_of
from exla_opt.ops.effects import may_be_merged
from exla_opt.ops.traits import Trait, has_trait

# Not made twice: what no second one may be of, what takes long, or talks to other devices.
_MADE_ONCE = (Trait.CONTROL_FLOW, Trait.LIBRARY, Trait.COLLECTIVE)


class BlockOps:
    """A block as it stands, its ops by their places. most: bytes, over which a tensor is big."""

    def __init__(self, block: ir.Block, most: int):
        self.ops = operations_of(block)
        self.types, self.most = Types(), most
        self.place: dict[ir.Value, int] = {}
        for place, op in enumerate(self.ops):
            self.place.update(dict.fromkeys(op.results, place))

    def is_big(self, values: Iterable[ir.Value]) -> bool:
        """Whether one of the tensors is."""
        return any(self.types.of(value).bytes > self.most for value in values)

    def ancestors(self, value: ir.Value) -> set[int]:
        """The places of the ops that a tensor is made by."""
        found: set[int] = set()
        stack = [value]
        while stack:
            place = self.place.get(stack.pop())
            if place is not None and place not in found:
                found.add(place)
                stack += list(self.ops[place].operands)
        return found


def may_be_copied(op: ir.Operation) -> bool:
    """Whether an op may be computed a second time, and quickly."""
    return may_be_merged(op) and not any(has_trait(op, trait) for trait in _MADE_ONCE)


def copy_behind(op: ir.Operation, operands: Mapping[ir.Value, ir.Value]) -> dict[ir.Value, ir.Value]:
    """Put a copy of an op behind it, with other operands; the results of the copy, by those of the op."""
    made = op.clone(ip=ir.InsertionPoint.after(op)).operation
    for index, value in enumerate(made.operands):
        made.operands[index] = operands.get(value, value)
    return dict(zip(op.results, made.results, strict=True))
