"""reshape-sinker: reshapes and transposes before dots, reduces and elementwise ops -> behind them, or gone.

    dot(reshape(x), y)    ->   reshape(dot(x, y))         f(reshape(x), reshape(y))   ->   reshape(f(x, y))
    dot(transpose(x), y)  ->   dot(x, y), other numbers   reduce(transpose(x))        ->   reduce(x), other numbers
    transpose(dot(x, y))  ->   dot(y, x)

Applies if the op needs what it contracts or sums, or each element, in the same groups before and after the reshape.
Elementwise ops only above the threshold, where a merged or split dimension obstructs the splitter; and transposed
products, which would exist in two buffers, or of what may be split. Leaves alone a reshape that others read as well,
sums of transposed and merged floats of fewer than 32 bits, and with --no-reassociate all of floats. Adjacent
movements are merged as in rce.
Terminates: every rewrite moves a reshape or transpose behind one more op, or removes it, and adds none.
"""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.clean_up import clean_up
from exla_opt.ir.rewrite import Pattern, apply_patterns
from exla_opt.ir.walk import number_of_ops
from exla_opt.ops.pointwise import STABLEHLO_POINTWISE
from exla_opt.options import Options
from exla_opt.passes import rce
from exla_opt.passes.rce.reduces import reduce_of_reshape_in_another_order
from exla_opt.remarks import Remark

from .dots import dot_of_reshape, dot_of_reshapes, dot_of_transpose, transpose_of_dot
from .elementwise import elementwise_of
from .moved import RESHAPE, TRANSPOSE
from .reduces import reduce_of_transpose, reduce_of_transpose_in_any_order

_REDUCES = (reduce_of_transpose, reduce_of_reshape_in_another_order)


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Sink reshapes and transposes until none sinks further; adjacent ones are merged, or cancel."""
    patterns = make_patterns(options)
    changed = True
    while changed:
        ops = number_of_ops(module)
        changed = apply_patterns(module, patterns)
        changed = apply_patterns(module, rce.PATTERNS) or changed
        clean_up(module)
        changed = changed or number_of_ops(module) < ops  # what an op had read may sink without it
    return []


def make_patterns(options: Options) -> dict[str, tuple[Pattern, ...]]:
    """The patterns by op. The options decide which elementwise ops are moved, and whether sums may be reordered."""
    elementwise = (
        elementwise_of(RESHAPE, None, options.size_threshold),
        elementwise_of(TRANSPOSE, "permutation", options.size_threshold),
    )
    return {
        **dict.fromkeys(STABLEHLO_POINTWISE, elementwise),
        "stablehlo.dot_general": (dot_of_transpose, dot_of_reshape, dot_of_reshapes),
        TRANSPOSE: (transpose_of_dot(options.size_threshold),),
        "stablehlo.reduce": _REDUCES if options.reassociate else (reduce_of_transpose_in_any_order,),
    }
