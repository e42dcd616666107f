"""blocked-top-k: the k largest of long rows on a CPU, out of the k blocks with the largest elements.

before:  %values, %places = chlo.top_k(%x, k = 10) : 64x20000xf32 -> 64x10xf32, 64x10xi32
after:   %blocks = reshape %x : 64x625x32xf32
         %_, %best = chlo.top_k(reduce maximum of %blocks, k = 10)
         %values, %of = chlo.top_k(%blocks at %best, rising : 64x320xf32, k = 10), and their places

XLA:CPU compares all elements of a row, one by one, with the k largest so far. Most of them are in none of the k blocks
with the largest maxima, and the maximum of 32 is found with vector instructions. An element of another block has k
elements before it, the maxima of those k blocks: each is larger, or equal and earlier. So results are the same to the
bit, equal elements included. Floats are compared as integers, in the total order of top_k: there -0 is less than 0, and
NaNs are at the ends.

The smallest or the largest element of a row and its index (argmin, argmax) are those of the first block with the
smallest or the largest. Blocks are read twice: rows that were fused and would have to be written for that are left
alone. Nothing is done for other machines, if rows are short, or if k is large.
"""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.options import Options
from exla_opt.remarks import Remark

from .places import rewrite_places
from .rows import rewrite_rows


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Rewrite the largest elements of long rows in `module`, in place, when it is for a CPU."""
    if options.machine.kind == "cpu":
        rewrite_rows(module)
        rewrite_places(module, options.machine)
    return []
