"""unit-dims: on a CPU, ops in loops without the dimensions of size 1 that tiles of one row or one head leave behind.

before:  %s = dot_general %q, %k, batching_dims = [1] x [1], contracting_dims = [2] x [2] : (Mx1xK, Nx1xK) -> 1xMxN
         %e = exponential %s : 1xMxN
after:   %s = dot_general (reshape %q), (reshape %k), contracting_dims = [1] x [1] : (MxK, NxK) -> MxN
         %e = exponential %s : MxN

Without them, XLA:CPU's library of kernels takes less time for products, for sums, and for the ops around them; and a
matrix whose dimension of 1 stands between others is not copied before each product. Such a reshape moves nothing, and
every op computes the same elements from the same elements. But for a product of another shape XLA may choose a kernel
that adds in another order: nothing is done with --no-reassociate. Nor for other machines, outside of loops, next to a
convolution, which needs its batch, for functions of elements that update what the loop carries, in place, for products
with vectors and outer products, unless their operands were reshaped, and for ops with attributes of other dialects.

Then transposes behind products in loops swap the products' operands instead: dot(y, x) for transpose(dot(x, y)).
Terminates: an op that was rewritten has no dimension of size 1, and a product that was turned no transpose behind it.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir.clean_up import clean_up
from exla_opt.ir.rewrite import Pattern, apply_patterns
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import inside_out, is_in_loop
from exla_opt.options import Options
from exla_opt.passes.rce.shapes import (
    reshape_of_reshape,
    same_reshape,
    transpose_of_broadcast,
    transpose_of_transpose,
)
from exla_opt.passes.reshape_sinker.dots import dot_of_transpose
from exla_opt.remarks import Remark

from .squeezed import SQUEEZED, has_units
from .turned import transpose_of_product
from .updates import updates_of

_LOOP, _CONVOLUTION = "stablehlo.while", "stablehlo.convolution"
# What the ops without dimensions of 1 give rise to.
_AFTERWARDS: dict[str, tuple[Pattern, ...]] = {
    "stablehlo.reshape": (same_reshape, reshape_of_reshape),
    "stablehlo.transpose": (transpose_of_transpose, transpose_of_broadcast, transpose_of_product),
    "stablehlo.dot_general": (dot_of_transpose,),
}


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Drop dimensions of size 1 from the ops in loops of `module`, in place, if it is for a CPU."""
    if options.machine.kind != "cpu" or not options.reassociate:
        return []
    # Between convolutions, reshapes gain nothing, and training steps of small images took up to a tenth longer.
    found = inside_out(module, _CONVOLUTION, _LOOP)
    convolving = {op.block for op in found if op.name == _CONVOLUTION}
    updates = {value for op in found if op.name == _LOOP for value in updates_of(op)}

    def applies(op: ir.Operation) -> bool:
        return op.block not in convolving and is_in_loop(op)

    def in_loops(pattern: Pattern) -> Pattern:
        return lambda op: pattern(op) if applies(op) else None

    def squeezed(pattern: Pattern) -> Pattern:
        return lambda op: pattern(op) if has_units(op) and op.results[0] not in updates and applies(op) else None

    apply_patterns(module, {name: (squeezed(pattern),) for name, pattern in SQUEEZED.items()})
    clean_up(module)
    rewrites = {name: tuple(map(in_loops, patterns)) for name, patterns in _AFTERWARDS.items()}
    while apply_patterns(module, rewrites):
        clean_up(module)
    _move_up([op for op in inside_out(module, "stablehlo.reshape") if has_units(op) and applies(op)])
    return []


def _move_up(reshapes: Sequence[ir.Operation]) -> None:
    """Put reshapes behind what they read, with its location, so that a second run changes nothing."""
    for op in reversed(reshapes):
        source = defining_op(op.operands[0])
        if source is None or source.block != op.block:
            continue
        with source.location, ir.InsertionPoint(op):
            made = stablehlo.reshape(op.results[0].type, op.operands[0])
        op.results[0].replace_all_uses_with(made)
        op.erase()
        moved = defining_op(made)
        assert moved is not None
        moved.move_after(source)
