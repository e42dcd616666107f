"""Selects by one predicate, of which one reads the other."""

from __future__ import annotations

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir.values import plain_defining_op

_SELECT = "stablehlo.select"


def select_of_select(op: ir.Operation) -> ir.Value | None:
    """select(p, select(p, x, y), z) = select(p, x, z), and select(p, x, select(p, y, z)) = select(p, x, z)"""
    predicate, *sides = op.operands
    kept = list(sides)
    for side, value in enumerate(sides):
        inner = plain_defining_op(value, _SELECT)
        if inner is not None and inner.operands[0] == predicate:
            kept[side] = inner.operands[1 + side]
    return None if kept == sides else stablehlo.select(predicate, *kept)
