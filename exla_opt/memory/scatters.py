"""Scatters that XLA rewrites: at one position, and of windows."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op

from .block import Operation
from .builder import Builder


def is_one_window(op: ir.Operation, types: Types) -> bool:
    """Whether a scatter writes at one position only."""
    numbers = stablehlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    shape = types.of(op.operands[1]).shape
    return prod(size for dim, size in enumerate(shape) if dim != numbers.index_vector_dim) == 1


def update_window(builder: Builder, op: ir.Operation, made: Operation) -> None:
    """XLA turns a scatter at one position into an update of a slice."""
    operand, indices, updates = made.operands
    builder.add_plain("dynamic_update_slice", (operand, updates, indices), made.results)


def is_transposed(op: ir.Operation, types: Types) -> bool:
    """Whether a scatter's updates have their positions behind dimensions of the windows, and are not one product.

    Such a product is computed transposed.
    """
    made = defining_op(op.operands[2])
    if made is not None and made.name == "stablehlo.dot_general":
        return False
    numbers = stablehlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    rank, windows = len(types.of(op.operands[2]).shape), list(numbers.update_window_dims)
    return windows != list(range(rank - len(windows), rank))


def scatter_transposed(builder: Builder, op: ir.Operation, made: Operation) -> None:
    """XLA:CPU transposes the updates, so that their positions come first."""
    numbers = stablehlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    windows, rank = list(numbers.update_window_dims), len(builder.types.of(op.operands[2]).shape)
    order = [dim for dim in range(rank) if dim not in windows] + windows
    turned = builder.transposed(op.results[0], op.operands[2], order)
    builder.add(replace(made, operands=(*made.operands[:2], turned)))


def scatter_of_windows(builder: Builder, op: ir.Operation, made: Operation) -> None:
    """XLA computes the index of each window's element, with an iota for each dimension, and scatters there."""
    origin, block = op.results[0], builder.block
    operand, updates, *init = made.operands
    shape, source = block.shapes[operand], block.shapes[updates]
    counters = tuple(builder.fresh(origin, shape) for _ in shape)
    for counter in counters:
        builder.add_plain("iota", (), (counter,))
    found = (builder.fresh(origin, source, updates), *(builder.fresh(origin, source) for _ in shape))
    builder.add_plain("reduce_window", (operand, *counters), found)
    places = builder.fresh(origin, (prod(source), len(shape)))
    builder.add_plain("concatenate", found[1:], (places,))
    start = builder.fresh(origin, shape, made.results[0])
    builder.add_plain("broadcast_in_dim", tuple(init), (start,))
    builder.add_plain("scatter", (start, places, updates), made.results)
