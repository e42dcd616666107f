"""Scatters that XLA writes otherwise: at one place, of windows, and into floats that XLA:CPU cannot add up."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir.types import Types
from exla_opt.ir.walk import captured_values

from .block import Operation
from .builder import Builder
from .operation import widened_type
from .products import add_rounded, is_read_wide


def is_one_window(op: ir.Operation, types: Types) -> bool:
    """Whether a scatter writes at one place only."""
    numbers = stablehlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    shape = types.of(op.operands[1]).shape
    return prod(size for dim, size in enumerate(shape) if dim != numbers.index_vector_dim) == 1


def update_window(builder: Builder, op: ir.Operation, made: Operation) -> None:
    """A scatter at one place is an update of a slice to XLA."""
    operand, indices, updates = made.operands
    builder.add_plain("dynamic_update_slice", (operand, updates, indices), made.results)


def scatter_of_windows(builder: Builder, op: ir.Operation, made: Operation) -> None:
    """XLA finds where each window's element is, with a counter for each dimension, and scatters there."""
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


def scatter_of_windows_wide(builder: Builder, op: ir.Operation, made: Operation) -> None:
    """As `scatter_of_windows`, into wider floats where XLA:CPU wants those."""
    scatter_of_windows(builder, op, made)
    scatter = builder.block.ops.pop()
    if widened_type(builder.block.dtypes[scatter.results[0]]):
        scatter_wide(builder, op, scatter)
    else:
        builder.add(scatter)


def scatter_wide(builder: Builder, op: ir.Operation, made: Operation) -> None:
    """XLA:CPU widens all of the tensor that a scatter writes into, scatters wider updates, and rounds all of it."""
    block = builder.block
    count = len(made.results)
    operands = list(made.operands)
    results = list(made.results)
    for side, result in enumerate(made.results):
        dtype = widened_type(block.dtypes[result])
        if not dtype:
            continue
        if dtype == "f32" and result == builder.of(op.results[side]) and is_read_wide(op.results[side]):
            builder.make_wide(result)  # nothing is rounded in between
        else:
            results[side] = builder.fresh_wide(result, op.results[side], dtype)
        for place in (side, count + 1 + side):
            narrow = operands[place]
            operands[place] = builder.widened(narrow, op.results[side], dtype)
            if narrow in builder.viewed:  # it is the copy that is read in another shape
                builder.viewed.add(operands[place])
                builder.plain.add(narrow)
    captures = builder.all_of(captured_values(op))
    builder.add(replace(made, operands=tuple(operands), results=tuple(results), captures=captures, narrow=frozenset()))
    for wide, result in zip(results, made.results, strict=True):
        if wide != result:
            add_rounded(builder, wide, result)
