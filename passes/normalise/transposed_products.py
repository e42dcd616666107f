"""Swaps the operands of a product of which only the transpose is read, so that nothing is transposed.

before:  %t = transpose (dot_general %a, %b, contracting_dims = [0] x [0] : (KxM, KxN) -> MxN)
after:   %t = dot_general %b, %a, contracting_dims = [0] x [0] : (KxN, KxM) -> NxM

JAX writes the gradients of weights so. XLA swaps them too, but not once they are added up in a loop: then sums would
be transposed behind it, and could not be in the memory of the results.
"""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.attributes import integers
from exla_opt.ir.values import defining_op, has_discardable_attributes
from exla_opt.ir.walk import inside_out
from exla_opt.passes.algebra.swapped_products import is_plain, may_swap, order_of_swapped, swapped


def swap_transposed_products(module: ir.Module) -> bool:
    """Swap the operands of each such product; return whether there was one."""
    changed = False
    for op in inside_out(module, "stablehlo.transpose"):
        product = defining_op(op.operands[0], "stablehlo.dot_general")
        if product is not None and _is_swappable(product, op):
            with product.location, ir.InsertionPoint(product):
                op.results[0].replace_all_uses_with(swapped(product))
            op.erase()
            product.erase()
            changed = True
    return changed


def _is_swappable(product: ir.Operation, transpose: ir.Operation) -> bool:
    """Whether nothing else reads the product, and the swapped one is what is read.

    Swapped, a plain product would be one of two transposed matrices, which is slow on a CPU.
    """
    if len(list(product.results[0].uses)) > 1 or has_discardable_attributes(transpose) or not may_swap(product):
        return False
    return integers(transpose, "permutation", []) == order_of_swapped(product) and not is_plain(product)
