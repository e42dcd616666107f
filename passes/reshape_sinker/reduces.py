"""Reduces of transposed tensors; those of reshaped ones are rce's."""

from __future__ import annotations

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.analysis.op_rules.attributes import integers
from exla_opt.analysis.op_rules.bodies import body_of, componentwise, element_type
from exla_opt.ir import build
from exla_opt.ir.rewrite import clone_on

from .moved import TRANSPOSE, only_for

# What gives the same bits in any order, also of floats.
_ORDERLESS = frozenset({"maximum", "minimum", "and", "or", "xor"})


def reduce_of_transpose_in_any_order(op: ir.Operation) -> ir.Value | None:
    """reduce(transpose(x), p, d) = reduce(x, p[d]) to the bit: not for sums and products of floats"""
    names = set(componentwise(body_of(op)) or ("unknown",))
    if _ORDERLESS.issuperset(names) or isinstance(element_type(op.operands[0]), ir.IntegerType):
        return reduce_of_transpose(op)
    return None


def reduce_of_transpose(op: ir.Operation) -> ir.Value | None:
    """reduce(transpose(x, p), d) = reduce(x, p[d]), transposed where the rest is in another order"""
    inner = only_for(op.operands[0], TRANSPOSE, op) if len(op.results) == 1 else None
    if inner is None:
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
