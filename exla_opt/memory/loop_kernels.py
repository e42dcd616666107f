"""Finds loops of tiles that XLA:CPU would compile into a single kernel; `ir.loops` then keeps their kernels separate.

Note [Why a loop of tiles sorts its counter]

XLA:CPU compiles a `while` into one kernel, which runs on one thread and calls no library, if it estimates that a trip
accesses few bytes. "Few" is less than 1,024 bytes up to jaxlib 0.11, and practically everything on jaxlib 0.12: a
Gaussian kernel matrix times a vector in slices of 4 MB then takes twice the time on two cores, and more cores lose
more. A module cannot set flags against it. Such a kernel never contains a loop that has, at any depth, an op that the
emitter of these kernels cannot write: a custom kernel, which most products of matrices and most sums of floats become
today, a custom call, a collective, an FFT, or a sort. So a loop of tiles computes one of its offsets from

    sort([counter, 2147483647])[0]

which always equals the counter, and which no simplifier of XLA looks through: a sort of one element vanishes, a sort of
a splat vanishes, and so do a replica's number and a scatter of one element on jaxlib 0.12. Its cost in a trip is too
small to measure, and it needs eight bytes. The counter that is incremented and compared stays as it was, so that XLA
still knows the trip count. Only the last op that reads an offset reads the sorted one: ops that wait for the sort are
scheduled later, and two slices of an input that were needed one after the other could be alive together.

A loop of small tiles is left unchanged: XLA:CPU gives no op less than 256 KiB for a thread of its own, so that one
kernel is no slower and saves the loop the cost of many. On a GPU the sort would be a separate kernel in every trip.
"""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.types import Types
from exla_opt.ir.walk import walk_regions
from exla_opt.ops.traits import Trait, has_trait

# Twice the minimum that XLA:CPU gives to a thread.
LEAST_TILE_BYTES = 2**19


def needs_separate_kernels(loop: ir.Operation, types: Types) -> bool:
    """Whether a single kernel for the loop would cost time: a tile is big, and no op of the body rules it out."""
    big = False
    for op in walk_regions(loop.regions[1].blocks[0]):
        if has_trait(op, Trait.LIBRARY):
            return False
        if not has_trait(op, Trait.IN_PLACE):  # loop-carried tensors are no work of a trip
            big = big or any(types.of(value).bytes >= LEAST_TILE_BYTES for value in op.results)
    return big
