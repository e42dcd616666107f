"""unit-dims: on a CPU, ops in loops without the dimensions of size 1 that tiles of one row or one head leave behind.

before:  %s = dot_general %q, %k, batching_dims = [1] x [1], contracting_dims = [2] x [2] : (Mx1xK, Nx1xK) -> 1xMxN
         %e = exponential %s : 1xMxN
after:   %s = dot_general (reshape %q), (reshape %k), contracting_dims = [1] x [1] : (MxK, NxK) -> MxN
         %e = exponential %s : MxN

Without them, XLA:CPU's library of kernels takes less time for products, for sums, and for the ops around them; and a
matrix whose dimension of 1 stands between others is not copied before each product. Such a reshape moves nothing, and
every op computes the same elements from the same elements. But for a product of another shape XLA may choose a kernel
that adds in another order: nothing is done with --no-reassociate. Nor for other machines, outside of loops, next to a
convolution, which needs its batch, for products with vectors, and for ops with attributes of other dialects.

Then transposes that are left behind products swap the products' operands instead: dot(y, x) for transpose(dot(x, y)).
Terminates: an op that was rewritten has no dimension of size 1, and a product that was turned no transpose behind it.
"""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.clean_up import clean_up
from exla_opt.ir.rewrite import Pattern, apply_patterns
from exla_opt.ir.walk import inside_out
from exla_opt.options import Options
from exla_opt.remarks import Remark

from .squeezed import SQUEEZED, has_units
from .turned import transpose_of_product


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Drop dimensions of size 1 from the ops in loops of `module`, in place, if it is for a CPU."""
    if options.machine.kind != "cpu" or not options.reassociate:
        return []
    # Between convolutions, reshapes gain nothing, and training steps of small images took up to a tenth longer.
    convolving = {op.block for op in inside_out(module, "stablehlo.convolution")}

    def in_loops(pattern: Pattern) -> Pattern:
        return lambda op: pattern(op) if op.block not in convolving and _is_in_loop(op) else None

    def squeezed(pattern: Pattern) -> Pattern:
        in_loop = in_loops(pattern)
        return lambda op: in_loop(op) if has_units(op) else None

    if apply_patterns(module, {name: (squeezed(pattern),) for name, pattern in SQUEEZED.items()}):
        clean_up(module)
        apply_patterns(module, {"stablehlo.transpose": (in_loops(transpose_of_product),)})
        clean_up(module)
    return []


def _is_in_loop(op: ir.Operation) -> bool:
    outer = op.parent
    while outer is not None and outer.name != "stablehlo.while":
        outer = outer.parent
    return outer is not None
