"""Products of matrices that a loop can compute step by step: rows of the first operand times all of the second one.

A scan over the outputs of a layer, or over their gradients, reads one step of a product that was computed for all
steps at once. The product of one step takes as many operations of its own, but reads the second operand again.
"""

from __future__ import annotations

from math import prod

from jaxlib.mlir import ir

from exla_opt.ir.types import Types
from exla_opt.ir.values import has_discardable_attributes
from exla_opt.memory.dots import dot_dims

# A step of fewer rows is bound by reading the second operand: all steps at once are faster.
_LEAST_ROWS = 16


def is_by_rows(op: ir.Operation, types: Types) -> bool:
    """Whether each step of a product is that of a step of its first operand, of enough rows, with its second."""
    if op.name != "stablehlo.dot_general" or has_discardable_attributes(op):
        return False
    batches, summed = dot_dims(op, 0)
    shape = types.of(op.operands[0]).shape
    if batches or not shape or 0 in summed:
        return False
    return prod(size for dim, size in enumerate(shape) if dim and dim not in summed) >= _LEAST_ROWS
