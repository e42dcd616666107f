"""Slices before elementwise ops, where a loop reads nothing but slices of a tensor that is the same in every trip.

    while ... {                                while ... {
      %c = select(%mask, %zeros, %low)   ->      %m = dynamic_slice(%mask, %i)
      %s = dynamic_slice(%c, %i)                 %s = select(%m, zeros, low)

XLA moves an op with invariant operands out of the loop, and the complete tensor with it: one for each layer that adds
the same mask. An op on slices varies with the loop, and stays in it, in one kernel with the slice. A slice of an
elementwise op's result is that op on the same slices of its operands, to the bit. Nothing is done where the operands
are larger than the result, as in a mask that is made of counters: they would be in memory instead of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op, has_discardable_attributes
from exla_opt.ops.traits import Trait, has_trait

_SLICE, _VIEW, _BROADCAST = "stablehlo.dynamic_slice", "stablehlo.reshape", "stablehlo.broadcast_in_dim"


def slice_first(ops: Sequence[ir.Operation]) -> list[ir.Operation]:
    """Compute the slices that are read of the results of these ops, in program order; return the ops that are left.

    The others, of which nothing but slices is read, are erased.
    """
    left: list[ir.Operation] = []
    types = Types()
    for op in reversed(ops):
        slices = _slices_of(op.results[0], left) if _is_legal(op, types) and _reads_less(op, types) else None
        if not slices:
            left.append(op)
            continue
        for each in slices:
            _compute(op, each)
        _erase(op)
    return left[::-1]


def _is_legal(op: ir.Operation, types: Types) -> bool:
    """Whether each element of the result is computed from those at its place, and nothing refers to dimensions."""
    if not has_trait(op, Trait.POINTWISE) or len(op.results) > 1 or len(op.regions) or has_discardable_attributes(op):
        return False
    shape = types.of(op.results[0]).shape
    return all(types.of(value).shape in ((), shape) for value in op.operands)


def _reads_less(op: ir.Operation, types: Types) -> bool:
    """Whether an op has no more bytes of operands, without broadcast scalars, than of its result."""
    return (
        sum(types.of(value).bytes for value in op.operands if _scalar(value) is None) <= types.of(op.results[0]).bytes
    )


def _scalar(value: ir.Value) -> ir.Value | None:
    """The 0-d tensor that is the same number for all elements: the value itself, or what it broadcasts; else None."""
    if not build.shape_of(value):
        return value
    source = defining_op(value, _BROADCAST)
    return None if source is None or build.shape_of(source.operands[0]) else source.operands[0]


def _slices_of(value: ir.Value, others: Sequence[ir.Operation]) -> list[ir.Operation] | None:
    """The slices that are read of a tensor, in its shape or in others; None if it is read in any other way.

    others: ops that must stay.
    """
    found = []
    for use in value.uses:
        reader = use.owner.operation
        if reader in others:
            return None
        if reader.name == _SLICE and use.operand_number == 0:
            found.append(reader)
            continue
        behind = _slices_of(reader.results[0], others) if reader.name == _VIEW else None
        if behind is None:
            return None
        found += behind
    return found


def _compute(op: ir.Operation, read: ir.Operation) -> None:
    """Replace a slice of an op's result by the op on slices of its operands."""
    with ir.InsertionPoint(read), op.location:
        operands = [_sliced(value, read) for value in op.operands]
        kind = build.with_shape(build.tensor_of(op.results[0]), build.shape_of(read.results[0]))
        attributes = {name: op.attributes[name] for name in op.attributes}
        made = ir.Operation.create(op.name, results=[kind], operands=operands, attributes=attributes)
    read.results[0].replace_all_uses_with(made.results[0])


def _sliced(value: ir.Value, read: ir.Operation) -> ir.Value:
    """The slice of an operand that has the place and shape of another slice; a scalar is the same for all elements."""
    number = _scalar(value)
    if number is not None:
        return number if value == number else build.broadcast(number, build.shape_of(read.results[0]))
    seen = build.reshaped(value, build.shape_of(read.operands[0]))
    sizes = ir.DenseI64ArrayAttr.get(build.shape_of(read.results[0]))
    return stablehlo.dynamic_slice(seen, read.operands[1:], sizes)


def _erase(op: ir.Operation) -> None:
    """Erase an op and all that reads it: slices that are replaced, and views of it for them."""
    for use in list(op.results[0].uses):
        _erase(use.owner.operation)
    op.erase()
