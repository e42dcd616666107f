"""dot-order: on a CPU, products of two transposed matrices as the transpose of one of plain matrices.

before:  %y = dot_general %a, %b, contracting_dims = [0] x [1] : (KxM, NxK) -> MxN
after:   %t = optimization_barrier (dot_general %b, %a, contracting_dims = [1] x [0] : (NxK, KxM) -> NxM)
         %y = transpose %t

XLA:CPU multiplies transposed matrices up to 20 times slower than plain ones. In that order einsum multiplies weights
with values in attention on [batch, tokens, heads, width]. XLA itself turns the transpose of a product into that order:
hence the barrier. Applies if the result is smaller than the operands, as it is written once more. Nothing is done for
other machines, for types other than floats of 32 and 64 bits, for batches of several products (on jaxlib 0.12 they are
no faster), if an operand has no dimension of its own, and with --no-reassociate: the same products are added, in an
order that may differ.
"""

from __future__ import annotations

from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.types import element_type
from exla_opt.ir.walk import inside_out
from exla_opt.options import Options
from exla_opt.passes.algebra.swapped_products import (
    is_transposed_twice,
    may_swap,
    numbers_of,
    order_of_swapped,
    swapped,
)
from exla_opt.remarks import Remark

_TYPES = ("f32", "f64")
# The elements of the result over those of both operands. Chosen on 25 sizes of 8 to 4,096 in the tiles of a loop: below
# a half the plain product takes 0.05 to 0.8 of the time, above 0.5 to 2.3. On 16 others, in loops and outside, f32 and
# f64, it takes 0.41 to 0.94 of it below a half, and 0.38 to 0.97 on jaxlib 0.12.
_MOST_OF_OPERANDS = 0.5


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Rewrite the products of transposed matrices of `module`, in place, if it is for a CPU."""
    if options.machine.kind != "cpu" or not options.reassociate:
        return []
    for op in inside_out(module, "stablehlo.dot_general"):
        if _is_legal(op) and _gains(op):
            _rewrite(op)
    return []


def _is_legal(op: ir.Operation) -> bool:
    """Whether operands may be swapped, and are of a type for which it was measured."""
    return may_swap(op) and all(str(element_type(value)) in _TYPES for value in (*op.operands, op.results[0]))


def _gains(op: ir.Operation) -> bool:
    """Whether both operands are transposed, from XLA:CPU's view, and the result is small."""
    left, right = (build.shape_of(value) for value in op.operands)
    is_batch = any(left[dim] != 1 for dim in numbers_of(op).lhs_batching_dimensions)
    is_small = prod(build.shape_of(op.results[0])) < _MOST_OF_OPERANDS * (prod(left) + prod(right))
    return not is_batch and is_small and is_transposed_twice(op)


def _rewrite(op: ir.Operation) -> None:
    order = order_of_swapped(op)
    with op.location, ir.InsertionPoint(op):
        [held] = stablehlo.OptimizationBarrierOp([swapped(op)]).results
        back = [order.index(dim) for dim in range(len(order))]
        op.results[0].replace_all_uses_with(stablehlo.transpose(held, ir.DenseI64ArrayAttr.get(back)))
    op.erase()
