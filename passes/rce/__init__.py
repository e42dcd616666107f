"""rce: redundant reshapes, transposes, broadcasts, converts and the like -> nothing, or one op instead of two.

    reshape(reshape(x))       ->   reshape(x)          transpose(transpose(x))   ->   transpose(x), or x
    broadcast(reshape(x))     ->   broadcast(x)        reduce over sizes of 1    ->   reshape(x)
    first k of sort(x)        ->   top_k(x, k)         select(p, select(p, x, y), z)   ->   select(p, x, z)
    x == max(x, y)            ->   x >= y

Applies everywhere. Every pattern is one equation, exact in every bit but the sign of a zero that is added to zero. Has
no refusals and no remarks: other ops stay. Terminates: every rewrite lowers the number of ops, or keeps it and turns a
transpose or a broadcast into a reshape, a reshape before a reduce into a smaller one after it, or a test for equality
into one of order.
"""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.clean_up import clean_up
from exla_opt.ir.rewrite import Pattern, apply_patterns
from exla_opt.options import Options
from exla_opt.remarks import Remark

from .comparisons import equal_to_extreme
from .parts import (
    concatenate_of_nothing,
    concatenate_of_one,
    full_update,
    pad_of_pad,
    reverse_of_reverse,
    same_dynamic_slice,
    same_pad,
    same_reverse,
    same_slice,
    slice_of_pad,
    slice_of_slice,
)
from .reduces import reduce_of_broadcast, reduce_of_reshape, reduce_of_units
from .selects import select_of_select
from .shapes import (
    broadcast_of_broadcast,
    broadcast_of_reshape,
    broadcast_of_transpose,
    convert_of_wider,
    reshape_of_reshape,
    same_broadcast,
    same_convert,
    same_reshape,
    same_transpose,
    transpose_of_broadcast,
    transpose_of_transpose,
    transpose_of_units,
)
from .sorts import slice_of_sort

# One line of algebra each; those that remove an op come first.
PATTERNS: dict[str, tuple[Pattern, ...]] = {
    "stablehlo.broadcast_in_dim": (
        same_broadcast,
        broadcast_of_broadcast,
        broadcast_of_transpose,
        broadcast_of_reshape,
    ),
    "stablehlo.compare": (equal_to_extreme,),
    "stablehlo.concatenate": (concatenate_of_one, concatenate_of_nothing),
    "stablehlo.convert": (same_convert, convert_of_wider),
    "stablehlo.dynamic_slice": (same_dynamic_slice,),
    "stablehlo.dynamic_update_slice": (full_update,),
    "stablehlo.pad": (same_pad, pad_of_pad),
    "stablehlo.reduce": (reduce_of_units, reduce_of_reshape, reduce_of_broadcast),
    "stablehlo.reshape": (same_reshape, reshape_of_reshape),
    "stablehlo.reverse": (same_reverse, reverse_of_reverse),
    "stablehlo.select": (select_of_select,),
    "stablehlo.slice": (same_slice, slice_of_slice, slice_of_pad, slice_of_sort),
    "stablehlo.transpose": (same_transpose, transpose_of_transpose, transpose_of_broadcast, transpose_of_units),
}


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Apply the patterns until none matches."""
    while apply_patterns(module, PATTERNS):
        clean_up(module)
    return []
