"""One step of a loop as a graph of numbered values: their dependences, and which may be recomputed."""

from __future__ import annotations

from collections.abc import Iterable

from jaxlib.mlir import ir

from exla_opt.ir.loops import Counting, step_of, trip_count
from exla_opt.ir.types import Types
from exla_opt.ir.walk import captured_values
from exla_opt.ops.collectives import talks
from exla_opt.ops.comparisons import asks_inside
from exla_opt.ops.effects import has_order
from exla_opt.ops.traits import Trait, has_trait, traits_of

# All other ops are expensive: products of matrices, library calls, unknown ops.
_CHEAP = Trait.POINTWISE | Trait.MOVES | Trait.GENERATES | Trait.REDUCES | Trait.FREE
# Loops of more trips are expensive, whatever they do.
_FEW_TRIPS = 8
_BARRIER = "stablehlo.optimization_barrier"


class Step:
    """The body of a `while` in numbers. A value from outside has none: it is available wherever the loop's results are.

    ops: those of the body except its terminator, in order. definers: by value, the number of its op; -1 for a carry,
    which has the same number as its value. reads: by op, the values of the body that it reads, including in its
    regions. growths: by carry, the number that every step adds to it, if it is constant.
    """

    def __init__(self, loop: ir.Operation, counting: Counting, types: Types):
        body = loop.regions[1].blocks[0]
        *views, last = body.operations
        self.loop = loop
        self.counting = counting
        self.ops = [view.operation for view in views]
        self.values: list[ir.Value] = list(body.arguments)
        self.definers = [-1] * len(self.values)
        for position, op in enumerate(self.ops):
            self.values += op.results
            self.definers += [position] * len(op.results)
        self.number = {value: number for number, value in enumerate(self.values)}
        self.reads = [self._known([*op.operands, *(captured_values(op) if len(op.regions) else ())]) for op in self.ops]
        # A barrier computes nothing: each of its results is one of its operands, from the body or from outside.
        self.same: dict[int, ir.Value] = {
            self.number[result]: operand
            for op in self.ops
            if op.name == _BARRIER
            for result, operand in zip(op.results, op.operands, strict=True)
        }
        self.returned = [self.number.get(value) for value in last.operation.operands]
        # Ops that must not run twice, collectives among them, as the devices would send more; and equality tests.
        self.acts = [has_order(op) or talks(op) for op in self.ops]
        self.asks = [asks_inside(op) for op in self.ops]
        self.growths = [step_of(old, new) for old, new in zip(body.arguments, last.operation.operands, strict=True)]
        self.dtypes = [types.of(value).dtype for value in self.values]
        self.bytes = [types.of(value).bytes for value in self.values]

    def _known(self, values: Iterable[ir.Value]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(self.number[value] for value in values if value in self.number))

    def operands_of(self, value: int) -> tuple[int, ...]:
        """The operands of the op that defines a value; empty for a carry."""
        if value in self.same:
            return self._known([self.same[value]])
        return self.reads[self.definers[value]] if self.definers[value] >= 0 else ()

    def is_counted(self, carry: int) -> bool:
        """Whether a carry follows from the number of the step: a counter, or an invariant."""
        if carry == self.counting.place or self.returned[carry] == carry:
            return True
        kind = self.values[carry].type
        if not isinstance(kind, ir.RankedTensorType):  # a token
            return False
        if not isinstance(kind.element_type, ir.IntegerType) or len(kind.shape):
            return False
        return isinstance(self.growths[carry], int)

    def slice_of(self, values: Iterable[int], stops: Iterable[int] = ()) -> set[int]:
        """All values that some values depend on, including those; not traced through `stops`."""
        ends = set(stops)
        found: set[int] = set()
        queue = list(values)
        while queue:
            value = queue.pop()
            if value in found:
                continue
            found.add(value)
            if value not in ends:
                queue += self.operands_of(value)
        return found


def is_dear(op: ir.Operation) -> bool:
    """Whether an op takes long relative to the bytes of its results."""
    if not has_trait(op, Trait.CONTROL_FLOW):
        traits = traits_of(op.name)
        return op.name != _BARRIER and (not traits & _CHEAP or bool(traits & Trait.LIBRARY))
    if op.name == "stablehlo.while" and (trip_count(op) or _FEW_TRIPS + 1) > _FEW_TRIPS:
        return True
    return any(is_dear(inner) for region in op.regions for block in region.blocks for inner in _inner(block))


def _inner(block: ir.Block) -> list[ir.Operation]:
    return [view.operation for view in block.operations if view.operation.name != "stablehlo.return"]
