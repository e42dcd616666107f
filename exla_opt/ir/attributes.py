"""Reading the attributes of an op as plain values; a missing one is its default."""

from __future__ import annotations

from jaxlib.mlir import ir

# Of a module: the number of devices that its tensors are sharded over.
PARTITIONS = "mhlo.num_partitions"
# Of a module: the number of devices that each run all of it, on arguments of their own, as by jax's old pmap.
REPLICAS = "mhlo.num_replicas"


def named(op: ir.Operation) -> tuple[tuple[str, ir.Attribute], ...]:
    """All attributes of an op, by name. The map itself is no key: its text and its equality are those of an address."""
    found = [op.attributes[place] for place in range(len(op.attributes))]
    return tuple((each.name, each.attr) for each in found)


def integers(op: ir.Operation, name: str, default: list[int]) -> list[int]:
    """An attribute that holds a list of integers, flattened."""
    if name not in op.attributes:
        return default
    attribute = op.attributes[name]
    if isinstance(attribute, ir.DenseI64ArrayAttr):
        return [int(number) for number in attribute]
    elements = ir.DenseIntElementsAttr(attribute)
    return [int(elements[place]) for place in range(len(elements))]


def integer(op: ir.Operation, name: str, default: int = 0) -> int:
    """An attribute that holds one integer."""
    return ir.IntegerAttr(op.attributes[name]).value if name in op.attributes else default


def boolean(op: ir.Operation, name: str, default: bool = False) -> bool:
    """An attribute that holds a boolean."""
    return ir.BoolAttr(op.attributes[name]).value if name in op.attributes else default


def string(op: ir.Operation, name: str, default: str = "") -> str:
    """An attribute that holds text."""
    return ir.StringAttr(op.attributes[name]).value if name in op.attributes else default


def devices_of(module: ir.Module) -> int:
    """The number of devices that the module's tensors are sharded over: a slice of one would be sharded as well."""
    return integer(module.operation, PARTITIONS, 1)


def replicas_of(module: ir.Module) -> int:
    """The number of devices, or of groups of `devices_of`, that each run the module, on arguments of their own."""
    return integer(module.operation, REPLICAS, 1)


def all_devices_of(module: ir.Module) -> int:
    """The number of devices that run the module."""
    return replicas_of(module) * devices_of(module)


def is_splat(op: ir.Operation) -> bool:
    """Whether a constant op has one value everywhere.

    The value of a complex constant cannot be read through the bindings; its text can.
    """
    kind = op.results[0].type
    if isinstance(kind, ir.RankedTensorType) and isinstance(kind.element_type, ir.ComplexType):
        return splat_text(op) is not None
    value = op.attributes["value"]
    return isinstance(value, ir.DenseElementsAttr) and value.is_splat


def splat_text(op: ir.Operation) -> str | None:
    """The value of a splat constant op as MLIR writes it between `dense<` and `>`; None for any other constant."""
    value = _between_brackets(op, limit=1)
    return None if value.startswith("[") else value or None


def elements_text(op: ir.Operation) -> str:
    """All values of a constant op as MLIR writes them between `dense<` and `>`."""
    return _between_brackets(op, limit=None)


def _between_brackets(op: ir.Operation, limit: int | None) -> str:
    # A detached clone is printed alone; an attached op numbers the entire function first.
    text = str(op.clone(ip=False).operation.get_asm(large_elements_limit=limit, print_generic_op_form=True))
    _, _, rest = text.partition("dense<")
    return rest.rpartition("> : tensor<")[0]
