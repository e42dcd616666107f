"""blocked-cholesky: Cholesky factors of big matrices, block by block in the memory of the matrix.

    before:  %l = cholesky(%k); select(row >= column, %l, 0)
    after:   a while over columns of blocks, which carries %k; who reads the lower triangle reads all of %l

XLA:CPU uses blocks too, but with a second matrix and copies of its parts: 2.29 matrices, where loops need one. Their
result is zero in the other triangle, as XLA's is: if all readers select the triangle, the selections are dropped. A
factor that does not exist is NaN, as in XLA. XLA:GPU has no library for the op and does as XLA:CPU does. An upper
factor that is written as the transpose of the lower one is computed directly. The sums are rounded in another order
than XLA's, so with --no-reassociate nothing is done. Leaves alone batches of several matrices, complex and narrow
floats, and matrices up to the threshold.
"""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.attributes import boolean
from exla_opt.ir.clean_up import clean_up
from exla_opt.ir.locations import describe
from exla_opt.ir.types import Types
from exla_opt.ir.values import has_discardable_attributes
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
    transpose,
)
from .factor import Factor
from .masks import drop_masks, is_masked
from .transposes import read_untransposed, transpose_of

NAME = "blocked-cholesky"


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Rewrite the factorisations of big matrices in `module`, in place; return the remarks."""
    if not is_solved_here(options):
        return []
    types = Types()
    factors = [op for op in walk_functions(module.operation) if op.name == "stablehlo.cholesky"]
    remarks = []
    for op in factors:
        if _is_legal(op, types) and _is_worthwhile(op, types, options):
            remarks.append(_passed(op, types))
            _rewrite(op, types, options)
    if remarks:
        clean_up(module)
    return remarks


def _is_legal(op: ir.Operation, types: Types) -> bool:
    """Whether it is one matrix of floats, without constraints on its layout or sharding."""
    return is_one_real_matrix(types.of(op.operands[0])) and not has_discardable_attributes(op)


def _is_worthwhile(op: ir.Operation, types: Types, options: Options) -> bool:
    """Whether XLA's second matrix would be big."""
    return types.of(op.operands[0]).bytes > options.size_threshold


def _rewrite(op: ir.Operation, types: Types, options: Options) -> None:
    kind, lower = types.of(op.operands[0]), boolean(op, "lower")
    size, masked = kind.shape[-1], len(kind.shape) == 2 and is_masked(op.results[0], lower)
    by_columns = is_by_columns(options)
    blocks = blocks_of(size, longest_block(size, options, kind.element_bytes))
    # The upper factor written as the transpose of the lower one is that of the transpose: the same numbers.
    original = transpose_of(op.operands[0])
    with ir.InsertionPoint(op), op.location:
        if original is None:
            builder = Factor(size, blocks, lower, masked, by_columns)
            factor = result = builder.build(as_matrix(op.operands[0]))
        else:
            factor = Factor(size, blocks, not lower, masked, by_columns).build(as_matrix(original))
            result = transpose(factor)
        result = as_before(result, op.results[0])
    op.results[0].replace_all_uses_with(result)
    op.erase()
    if masked:
        drop_masks(result, lower)
    if original is not None and len(kind.shape) == 2:
        read_untransposed(result, factor)


def _passed(op: ir.Operation, types: Types) -> Remark:
    tensor = types.of(op.results[0])
    message = "factored block by block in the memory of the matrix"
    return Remark(Kind.PASSED, "EX009", NAME, str(tensor), tensor.bytes, describe(op), message)
