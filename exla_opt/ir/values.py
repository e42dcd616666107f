"""The ops that define values, and splat values."""

from __future__ import annotations

from jaxlib.mlir import ir

Number = int | float


def defining_op(value: ir.Value, name: str | None = None) -> ir.Operation | None:
    """The op that defines the value, if it has this name; None for a block argument."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        return None
    op = owner.operation
    return op if name is None or op.name == name else None


def has_discardable_attributes(op: ir.Operation) -> bool:
    """Whether the op carries an attribute of another dialect, such as a sharding, which would be lost with the op."""
    return any("." in op.attributes[place].name for place in range(len(op.attributes)))


def plain_defining_op(value: ir.Value, name: str) -> ir.Operation | None:
    """The op of this name that defines the value; None for another op, or one with discardable attributes."""
    op = defining_op(value, name)
    return op if op is not None and not has_discardable_attributes(op) else None


def splat_value(value: ir.Value) -> Number | None:
    """The value of a constant tensor, broadcast or not, that is the same everywhere; exact for integers, 0 or 1 for i1.

    None for every other tensor, and for complex numbers, which the bindings cannot read.
    """
    op = defining_op(value)
    while op is not None and op.name in ("stablehlo.broadcast_in_dim", "stablehlo.reshape"):
        value = op.operands[0]
        op = defining_op(value)
    if op is None or op.name != "stablehlo.constant":
        return None
    if isinstance(ir.RankedTensorType(value.type).element_type, ir.ComplexType):
        return None
    attribute = op.attributes["value"]
    if not isinstance(attribute, ir.DenseElementsAttr) or not attribute.is_splat:
        return None
    splat = attribute.get_splat_value()
    if isinstance(splat, ir.BoolAttr):
        return int(splat.value)
    return splat.value if isinstance(splat, ir.FloatAttr | ir.IntegerAttr) else None


def behind_constants(value: ir.Value) -> ir.Value:
    """The tensor that a pad, a concatenation or an update puts among constants; the value itself without any.

    XLA folds the first element of such a result, and with it what should wait for the tensor.
    """
    while (placed := _placed_by(defining_op(value))) is not None:
        value = placed
    return value


def _placed_by(op: ir.Operation | None) -> ir.Value | None:
    """The first tensor that an op puts among constants, or in another shape or order, and that is not known itself."""
    if op is None:
        return None
    placed: list[ir.Value] = []
    if op.name in ("stablehlo.pad", "stablehlo.reshape", "stablehlo.transpose"):
        placed = [op.operands[0]]
    elif op.name == "stablehlo.concatenate":
        placed = list(op.operands)
    elif op.name == "stablehlo.dynamic_update_slice" and _is_known(op.operands[0]):
        placed = [op.operands[1]]
    return next((each for each in placed if not _is_known(each)), None)


def _is_known(value: ir.Value) -> bool:
    """Whether a tensor is a constant, broadcast or not, or has no elements."""
    if 0 in ir.RankedTensorType(value.type).shape:
        return True
    op = defining_op(value)
    while op is not None and op.name in ("stablehlo.broadcast_in_dim", "stablehlo.reshape"):
        op = defining_op(op.operands[0])
    return op is not None and op.name == "stablehlo.constant"
