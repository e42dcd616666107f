"""Calls that return a tuple, as TensorFlow writes them for `tf.linalg.qr`: they return its tensors instead.

To XLA both are one call with a tuple, unless it has one element; Shardy, and most of MLIR's passes, expect tensors.
"""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.attributes import integer, named
from exla_opt.ir.walk import inside_out

_CALL, _ELEMENT = "stablehlo.custom_call", "stablehlo.get_tuple_element"


def unpack_tuples(module: ir.Module) -> None:
    """Replace every call whose only result is a tuple of several tensors, of which only elements are read."""
    for op in inside_out(module, _CALL):
        if len(op.results) == 1 and isinstance(op.results[0].type, ir.TupleType):
            _unpack(op)


def _unpack(op: ir.Operation) -> None:
    kind = ir.TupleType(op.results[0].type)
    types = [kind.get_type(place) for place in range(kind.num_types)]
    readers = [use.owner.operation for use in op.results[0].uses]
    are_tensors = all(isinstance(each, ir.RankedTensorType) for each in types)
    if len(types) == 1 or not are_tensors or any(reader.name != _ELEMENT for reader in readers):
        return
    # TensorFlow writes the tuple's type once more, which would be wrong as soon as the call is split.
    kept = {name: value for name, value in named(op) if name != "xla_shape"}
    made = ir.Operation.create(_CALL, types, list(op.operands), kept, loc=op.location, ip=ir.InsertionPoint(op))
    for reader in readers:
        reader.results[0].replace_all_uses_with(made.results[integer(reader, "index")])
        reader.erase()
    op.erase()
