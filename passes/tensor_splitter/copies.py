"""The ops of a block by position, and copies of them, for a second loop to compute itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jaxlib.mlir import ir

from exla_opt.ir.types import Types
from exla_opt.ir.walk import operations_of
from exla_opt.ops.effects import may_be_merged
from exla_opt.ops.traits import Trait, has_trait

# Not copied: ops that must run once, that take long, or that communicate with other devices.
_MADE_ONCE = (Trait.CONTROL_FLOW, Trait.LIBRARY, Trait.COLLECTIVE)


class BlockOps:
    """A block, with its ops by position. most: bytes, over which a tensor is big."""

    def __init__(self, block: ir.Block, most: int):
        self.ops = operations_of(block)
        self.types, self.most = Types(), most
        self.place: dict[ir.Value, int] = {}
        for place, op in enumerate(self.ops):
            self.place.update(dict.fromkeys(op.results, place))

    def is_big(self, values: Iterable[ir.Value]) -> bool:
        """Whether any of the tensors is big."""
        return any(self.types.of(value).bytes > self.most for value in values)

    def ancestors(self, value: ir.Value) -> set[int]:
        """The positions of the ops that a tensor depends on."""
        found: set[int] = set()
        stack = [value]
        while stack:
            place = self.place.get(stack.pop())
            if place is not None and place not in found:
                found.add(place)
                stack += list(self.ops[place].operands)
        return found


def may_be_copied(op: ir.Operation) -> bool:
    """Whether an op may be repeated, at low cost."""
    return may_be_merged(op) and not any(has_trait(op, trait) for trait in _MADE_ONCE)


def copy_behind(op: ir.Operation, operands: Mapping[ir.Value, ir.Value]) -> dict[ir.Value, ir.Value]:
    """Insert a copy of an op after it, with other operands; return the results of the copy, by those of the op."""
    made = op.clone(ip=ir.InsertionPoint.after(op)).operation
    for index, value in enumerate(made.operands):
        made.operands[index] = operands.get(value, value)
    return dict(zip(op.results, made.results, strict=True))
