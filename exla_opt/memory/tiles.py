"""A body of control flow as it is in one tile: the block that was read of it, with its cut tensors smaller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from jaxlib.mlir import ir

from .block import Block
from .fusion import fuse
from .machine import Machine


def tile_of(block: Block, dims: Mapping[ir.Value, int], tile: int, length: int) -> Block:
    """The block with `tile` of `length` indices of each cut tensor. dims: the dimension along which each is cut.

    What XLA makes of a cut tensor, a copy in another layout say, is smaller by as much.
    """
    made = block.copied()
    for number, value in block.values.items():
        if value not in dims:
            continue
        made.sizes[number] = block.sizes[number] * tile // length
        shape, dim = list(block.shapes[number]), dims[value]
        if shape == list(ir.RankedTensorType(value.type).shape):
            shape[dim] = max(shape[dim] * tile // length, 1)
            made.shapes[number] = tuple(shape)
    made.ops = [
        replace(op, bodies=tuple(tile_of(body, dims, tile, length) for body in op.bodies)) if op.bodies else op
        for op in block.ops
    ]
    return made


def most_written(block: Block, dims: Mapping[ir.Value, int], machine: Machine) -> int:
    """The bytes of the largest cut tensor that the block, or one inside it, writes to memory."""
    written = fuse(block, machine).tensors()
    most = max((block.sizes[number] for number in written if block.values.get(number) in dims), default=0)
    inner = (most_written(body, dims, machine) for op in block.ops for body in op.bodies)
    return max(most, *inner, 0)
