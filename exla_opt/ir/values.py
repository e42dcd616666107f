"""Looking at what makes a value."""

from __future__ import annotations

from jaxlib.mlir import ir

Number = int | float


def defining_op(value: ir.Value, name: str | None = None) -> ir.Operation | None:
    """The op whose result the value is, if it has this name; None for an argument of a block."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        return None
    op = owner.operation
    return op if name is None or op.name == name else None


def has_discardable_attributes(op: ir.Operation) -> bool:
    """Whether the op carries an attribute of another dialect: a sharding, say, which is lost when the op goes."""
    return any("." in op.attributes[place].name for place in range(len(op.attributes)))


def plain_defining_op(value: ir.Value, name: str) -> ir.Operation | None:
    """The op of this name that makes the value; None when another does, or when it carries notes."""
    op = defining_op(value, name)
    return op if op is not None and not has_discardable_attributes(op) else None


def splat_value(value: ir.Value) -> Number | None:
    """The number that the tensor is everywhere: a constant, repeated or not; exact for integers, 0 or 1 for booleans.

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
