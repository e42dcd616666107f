"""What the patterns share: the movements, and an op on other operands."""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir

from exla_opt.ir import build
from exla_opt.ir.values import plainly_made_by

RESHAPE, TRANSPOSE = "stablehlo.reshape", "stablehlo.transpose"


def only_for(value: ir.Value, name: str, reader: ir.Operation) -> ir.Operation | None:
    """The op of this name that makes the value for one reader alone; a reshape, which moves nothing, for any number."""
    op = plainly_made_by(value, name)
    alone = name == RESHAPE or all(use.owner.operation == reader for use in value.uses)
    return op if op is not None and alone else None


def clone_on(
    op: ir.Operation, operands: Sequence[ir.Value], shape: Sequence[int], numbers: dict[str, list[int]]
) -> ir.Value:
    made = op.clone(ip=ir.InsertionPoint.current).operation
    for index, value in enumerate(operands):
        made.operands[index] = value
    for name, values in numbers.items():
        made.attributes[name] = ir.DenseI64ArrayAttr.get(values)
    made.results[0].set_type(build.with_shape(build.tensor_of(op.results[0]), shape))
    result: ir.Value = made.results[0]
    return result
