"""Ops on one slice of a stack in each step of a loop, done outside the loop on all slices at once.

The number of the slice becomes a leading dimension: transpose(s[n], dims = [1, 0]) -> transpose(s, dims = [0, 2, 1]).
"""

from __future__ import annotations

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integers
from exla_opt.ir.values import defining_op
from exla_opt.ops.collectives import DIMENSIONS
from exla_opt.ops.effects import may_be_merged
from exla_opt.ops.reducers import body_of, componentwise
from exla_opt.ops.traits import Trait, has_trait

SLICE = "stablehlo.dynamic_slice"
_RESHAPE, _TRANSPOSE, _CONVERT = "stablehlo.reshape", "stablehlo.transpose", "stablehlo.convert"
_ADD, _REDUCE = "stablehlo.add", "stablehlo.reduce"
_GATHER = "stablehlo.all_gather"
_SUMS = frozenset({"stablehlo.all_reduce", "stablehlo.reduce_scatter"})
# Where a device's own part begins takes a few ops to compute.
_MOST_OPS = 16
_CHANNEL = "channel_handle"


class Stacking:
    """Builds ops for all slices.

    body: of the loop. known: what was built before in the same block: loops over the same layers gather the same.
    """

    def __init__(self, body: ir.Block, known: dict[tuple[object, ...], ir.Value]):
        self.body = body
        self.known = known

    def can_stack(self, op: ir.Operation) -> bool:
        """Whether the op can be done on all slices of its `inputs_of` at once, sending as many bytes."""
        if op.block != self.body or len(op.results) != 1:
            return False
        if op.name == _REDUCE and len(op.operands) != 2:
            return False
        if op.name in (SLICE, _REDUCE):
            return all(self.is_same_in_all_steps(each) for each in list(op.operands)[1:])
        if op.name == _ADD:
            return all(self.is_inside(each) for each in op.operands)
        if op.name in _SUMS:
            return len(op.operands) == 1 and componentwise(body_of(op)) is not None
        return op.name in (_RESHAPE, _TRANSPOSE, _CONVERT, _GATHER) and len(op.operands) == 1

    def inputs_of(self, op: ir.Operation) -> list[ir.Value]:
        """The operands of which every step has its own."""
        return list(op.operands) if op.name == _ADD else [op.operands[0]]

    def is_inside(self, value: ir.Value) -> bool:
        """Whether the body defines a value, or receives it from the step before."""
        op = defining_op(value)
        return value.owner == self.body if op is None else op.block == self.body

    def is_same_in_all_steps(self, value: ir.Value, most: int = _MOST_OPS) -> bool:
        """Whether a scalar of the body depends on values from outside the loop only."""
        op = defining_op(value)
        if op is None or not self.is_inside(value):
            return not self.is_inside(value)
        if build.shape_of(value) or len(op.regions) or not may_be_merged(op) or has_trait(op, Trait.COLLECTIVE):
            return False
        return most > 0 and all(self.is_same_in_all_steps(each, most - 1) for each in op.operands)

    def stacked(self, op: ir.Operation, values: list[ir.Value]) -> ir.Value:
        """The op on all slices, built at the current insertion point.

        values: the stacks of its inputs' slices, of any shape with their number first. The result's shape may differ
        likewise.
        """
        if op.name == _RESHAPE:
            return values[0]
        inputs = self.inputs_of(op)
        rows, *_ = build.shape_of(values[0])
        values = [
            build.reshaped(value, [rows, *build.shape_of(each)]) for value, each in zip(values, inputs, strict=True)
        ]
        key = (op.name, *values, *list(op.operands)[len(inputs) :], *_text_of(op))
        if key not in self.known:
            self.known[key] = self._made(op, values, rows)
        return self.known[key]

    def _made(self, op: ir.Operation, values: list[ir.Value], rows: int) -> ir.Value:
        value, after = values[0], [rows, *build.shape_of(op.results[0])]
        if op.name == _TRANSPOSE:
            order = [0, *(1 + dim for dim in integers(op, "permutation", []))]
            return stablehlo.transpose(value, ir.DenseI64ArrayAttr.get(order))
        if op.name == SLICE:
            starts = [self._outside(start) for start in list(op.operands)[1:]]
            first = build.scalar_like(starts[0], 0)
            return stablehlo.dynamic_slice(value, [first, *starts], ir.DenseI64ArrayAttr.get(after))
        others = [self._outside(each) for each in list(op.operands)[len(values) :]]
        made = op.clone(ip=ir.InsertionPoint.current).operation
        for place, operand in enumerate([*values, *others]):
            made.operands[place] = operand
        made.results[0].set_type(build.with_shape(build.tensor_of(op.results[0]), after))
        if op.name == _REDUCE:
            dims = [1 + dim for dim in integers(op, "dimensions", [])]
            made.attributes["dimensions"] = ir.DenseI64ArrayAttr.get(dims)
        for name in DIMENSIONS:
            if name in made.attributes:
                number = ir.IntegerAttr(made.attributes[name])
                made.attributes[name] = ir.IntegerAttr.get(number.type, number.value + 1)
        result: ir.Value = made.results[0]
        return result

    def _outside(self, value: ir.Value) -> ir.Value:
        """A scalar that is the same in all steps, computed outside the loop."""
        op = defining_op(value)
        if op is None or not self.is_inside(value):
            return value
        operands = [self._outside(each) for each in op.operands]
        made = op.clone(ip=ir.InsertionPoint.current).operation
        for place, operand in enumerate(operands):
            made.operands[place] = operand
        result: ir.Value = made.results[ir.OpResult(value).result_number]
        return result


def _text_of(op: ir.Operation) -> tuple[object, ...]:
    """What distinguishes an op from others of its name and its operands; not its channel, which each has of its own."""
    names = sorted(op.attributes[place].name for place in range(len(op.attributes)))
    texts = tuple(f"{name} = {op.attributes[name]}" for name in names if name != _CHANNEL)
    return (*texts, str(body_of(op)) if len(op.regions) else "", str(op.results[0].type))
