"""Puts the batch first where a convolution reads it merged with parts of space, so that it can be cut along the batch.

TensorFlow writes a dilated convolution of x as one of x's phases, each of which is an image of its own:

    %p = transpose(reshape(%x)) : DxNxLxC     ->   %p = transpose(reshape(%x)) : NxDxLxC
    convolution(reshape(%p) : D*NxLxC)        ->   convolution(reshape(%p) : N*DxLxC)

A slice of the batch, which is dimension 0 of x, is spread over all of D * N, but one piece of N * D. The images of a
convolution are independent of each other, so they may be in any order, if the result is put back into the order of
before. That is one more transpose, which is moved behind elementwise ops and merges with the one that TensorFlow puts
there.

In the gradient of the filter, such a dimension is contracted. Its order is that of a sum, the same in both operands:
nothing is done with --no-reassociate.
"""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.types import Types
from exla_opt.ir.walk import walk_functions
from exla_opt.ops.batch_order import put_batches_first, reads_batch_last
from exla_opt.options import Options
from exla_opt.passes import reshape_sinker

# Each round reaches the convolutions that read what those of the round before compute.
_MOST_ROUNDS = 8


def merges_batches(module: ir.Module, options: Options) -> bool:
    """Whether a convolution of tensors over the threshold reads its batch behind other parts of a dimension."""
    types = Types()
    ops = walk_functions(module.operation)
    return any(reads_batch_last(op, options.size_threshold, options.reassociate, types) for op in ops)


def merge_in_order(module: ir.Module, options: Options) -> bool:
    """Put the batch first for such convolutions; return whether there were any."""
    for number in range(_MOST_ROUNDS):
        if not put_batches_first(module, options.size_threshold, options.reassociate):
            return number > 0
        # Elementwise ops behind a convolution are moved before the transpose that puts its result back into order, up
        # to the next transpose or convolution.
        reshape_sinker.run(module, options)
    return True
