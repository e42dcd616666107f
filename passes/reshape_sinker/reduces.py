"""Reduces of transposed tensors; those of reshaped ones are rce's, which leaves sums of floats to this pass."""

from __future__ import annotations

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integers
from exla_opt.ir.rewrite import clone_on
from exla_opt.ops.reducers import is_orderless
from exla_opt.passes.rce.reduces import may_be_summed_otherwise

from .moved import TRANSPOSE, only_for


def reduce_of_transpose_in_any_order(op: ir.Operation) -> ir.Value | None:
    """reduce(transpose(x), p, d) = reduce(x, p[d]) to the bit: not for sums and products of floats"""
    return reduce_of_transpose(op) if is_orderless(op) else None


def reduce_of_transpose(op: ir.Operation) -> ir.Value | None:
    """reduce(transpose(x, p), d) = reduce(x, p[d]), transposed where the rest is in another order"""
    inner = only_for(op.operands[0], TRANSPOSE, op) if len(op.results) == 1 else None
    if inner is None or not may_be_summed_otherwise(op):
        return None
    permutation = integers(inner, "permutation", [])
    away = integers(op, "dimensions", [])
    dims = sorted(permutation[dim] for dim in away)
    source = build.shape_of(inner.operands[0])
    rest = [dim for dim in range(len(source)) if dim not in dims]
    wanted = [dim for place, dim in enumerate(permutation) if place not in away]
    made = clone_on(
        op, [inner.operands[0], *list(op.operands)[1:]], [source[dim] for dim in rest], {"dimensions": dims}
    )
    if rest == wanted:
        return made
    return stablehlo.transpose(made, ir.DenseI64ArrayAttr.get([rest.index(dim) for dim in wanted]))
