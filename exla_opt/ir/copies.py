"""Drops copies that only control the order of XLA's passes, and reshapes to the same shape.

Their readers read the operand instead. TensorFlow writes such a reshape for what a loop returns unchanged, and
`mhlo.copy` for a result that is an assigned variable. Its own StableHLO reader, and portable artifacts, have no op of
that dialect; XLA itself copies buffers that may not be aliased.
"""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.values import has_discardable_attributes


def drop_copies(module: ir.Module) -> bool:
    """Replace the result of every `mhlo.copy`, or reshape, to the type of its operand by that operand.

    Returns whether there was one.
    """
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        drops = op.name == "mhlo.copy" or (op.name == "stablehlo.reshape" and not has_discardable_attributes(op))
        if drops and op.operands[0].type == op.results[0].type:
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for op in found:
        op.results[0].replace_all_uses_with(op.operands[0])
        op.erase()
    return bool(found)
