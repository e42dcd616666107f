"""Copies that only an order of XLA's passes asks for: their readers read what is copied.

TensorFlow writes `mhlo.copy` where a result is a variable that is assigned. Its own reader of StableHLO, and a portable
artifact, know no op of that dialect; XLA copies by itself what may not be aliased.
"""

from __future__ import annotations

from jaxlib.mlir import ir


def drop_copies(module: ir.Module) -> None:
    """Replace what every `mhlo.copy` gives by its operand, of the same type."""
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "mhlo.copy" and op.operands[0].type == op.results[0].type:
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for op in found:
        op.results[0].replace_all_uses_with(op.operands[0])
        op.erase()
