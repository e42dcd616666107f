"""blocked-solve: triangular solves with big matrices, block by block in the memory of the right-hand sides.

    before:  %x = triangular_solve(%l, %b)
    after:   a while over blocks, which carries %b: %b_i becomes solve(%l_ii, %b_i - sum_k %l_ik %b_k)

XLA:CPU uses blocks too, with copies of half of the matrix, and of all right-hand sides if there are many. XLA:GPU has a
library, for which it copies operands that are not column-major: if a loop has written the matrix, its tiles are
transposed instead, and everything else is left to the library. The sums are rounded in another order than XLA's, so
with --no-reassociate nothing is done. Leaves alone batches of several matrices, complex and narrow floats, matrices
that XLA solves at once, and tensors up to the threshold.
"""

from __future__ import annotations

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir.attributes import boolean
from exla_opt.ir.clean_up import clean_up
from exla_opt.ir.locations import describe
from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op, has_discardable_attributes
from exla_opt.ir.walk import walk_functions
from exla_opt.options import Options
from exla_opt.remarks import Kind, Remark

from ..algebra.blocks import (
    as_before,
    as_matrix,
    blocks_of,
    is_by_columns,
    is_one_real_matrix,
    is_solved_here,
    longest_block,
)
from .solve import Solve

NAME = "blocked-solve"
# XLA solves a matrix of up to this many rows without copies.
_SOLVED_AT_ONCE = 128


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Rewrite the triangular solves with big tensors in `module`, in place; return the remarks."""
    if not is_solved_here(options):
        return []
    types = Types()
    solves = [op for op in walk_functions(module.operation) if op.name == "stablehlo.triangular_solve"]
    remarks = []
    for op in solves:
        if _is_legal(op, types) and _is_worthwhile(op, types, options):
            remarks.append(_passed(op, types))
            _rewrite(op, types, options)
    if remarks:
        clean_up(module)
    return remarks


def _is_legal(op: ir.Operation, types: Types) -> bool:
    """Whether it is one matrix of floats, without constraints on its layout or sharding."""
    known = _transpose(op) in ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")
    plain = all(is_one_real_matrix(types.of(value)) for value in op.operands)
    return known and plain and not has_discardable_attributes(op)


def _transpose(op: ir.Operation) -> str:
    how: str = stablehlo.TransposeAttr(op.attributes["transpose_a"]).value
    return how


def _is_worthwhile(op: ir.Operation, types: Types, options: Options) -> bool:
    """Whether XLA's copies, of the matrix or of the right-hand sides, would be big."""
    kinds = [types.of(value) for value in op.operands]
    if is_by_columns(options) and defining_op(op.operands[0], "stablehlo.while") is None:
        return False  # only a loop's result is certainly row-major: cuSOLVER writes column-major
    return kinds[0].shape[-1] > _SOLVED_AT_ONCE and max(kind.bytes for kind in kinds) > options.size_threshold


def _rewrite(op: ir.Operation, types: Types, options: Options) -> None:
    kind, left = types.of(op.operands[0]), boolean(op, "left_side")
    longest = longest_block(kind.shape[-1], options, kind.element_bytes)
    others = types.of(op.operands[1]).shape[-1 if left else -2]
    with ir.InsertionPoint(op), op.location:
        solve = Solve(
            matrix=as_matrix(op.operands[0]),
            blocks=blocks_of(kind.shape[-1], longest),
            sides=blocks_of(others, longest, least=1),
            left=left,
            lower=boolean(op, "lower"),
            transposed=_transpose(op) != "NO_TRANSPOSE",
            unit=boolean(op, "unit_diagonal"),
            by_columns=is_by_columns(options),
        )
        result = as_before(solve.build(as_matrix(op.operands[1])), op.results[0])
    op.results[0].replace_all_uses_with(result)
    op.erase()


def _passed(op: ir.Operation, types: Types) -> Remark:
    tensor = max((types.of(value) for value in op.operands), key=lambda kind: kind.bytes)
    message = "solved block by block in the memory of the right-hand sides"
    return Remark(Kind.PASSED, "EX010", NAME, str(tensor), tensor.bytes, describe(op), message)
