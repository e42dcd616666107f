"""Decides whether the multiplications of a product may be reordered at all."""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.types import element_type, float_bits
from exla_opt.options import Options
from exla_opt.remarks import Reason

from .tree import Tree

# Narrower floats round every intermediate tensor so much that another order gives another result.
_ENOUGH_BITS = 32


def refusal(tree: Tree, options: Options) -> Reason | None:
    """Why the order must stay; None if it need not. Integers are exact, modulo 2^n, in any order."""
    kind = element_type(tree.root.results[0])
    if isinstance(kind, ir.IntegerType):
        return None
    bits = float_bits(ir.ComplexType(kind).element_type if isinstance(kind, ir.ComplexType) else kind)
    if bits < _ENOUGH_BITS:
        return Reason("EX501", f"every product of {kind} is rounded, and another order rounds other tensors")
    if not options.reassociate:
        return Reason("EX310", "another order of the multiplications is forbidden (--no-reassociate)")
    return None
