"""Drops copies that only control the order of XLA's passes: their readers read the operand instead.

TensorFlow writes `mhlo.copy` for a result that is an assigned variable. Its own StableHLO reader, and portable
artifacts, have no op of that dialect; XLA itself copies buffers that may not be aliased.
"""

from __future__ import annotations

from jaxlib.mlir import ir


def drop_copies(module: ir.Module) -> None:
    """Replace the result of every `mhlo.copy` by its operand, of the same type."""
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "mhlo.copy" and op.operands[0].type == op.results[0].type:
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for op in found:
        op.results[0].replace_all_uses_with(op.operands[0])
        op.erase()
