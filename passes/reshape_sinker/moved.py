"""Shared by the patterns: the movements, and an op on other operands."""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.values import plain_defining_op

RESHAPE, TRANSPOSE = "stablehlo.reshape", "stablehlo.transpose"


def only_for(value: ir.Value, name: str, reader: ir.Operation) -> ir.Operation | None:
    """The op of this name that computes the value for one reader only; a reshape, which moves nothing, for any."""
    op = plain_defining_op(value, name)
    alone = name == RESHAPE or all(use.owner.operation == reader for use in value.uses)
    return op if op is not None and alone else None
