"""Rows as blocks of which the extreme elements are found first, and parts of rows that are read then."""

from __future__ import annotations

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build

# XLA:CPU finds the extreme of up to 32 elements in the loop that computes them, and of more with a slower kernel.
_LONGEST, _SHORTEST = 32, 8


def block_length(length: int) -> int:
    """The longest block that divides a row, or that of rows that are filled up."""
    lengths = range(_LONGEST, _SHORTEST - 1, -1)
    return next((each for each in lengths if length % each == 0), _LONGEST)


def in_blocks(operand: ir.Value, fill: ir.Value) -> ir.Value:
    """The rows of [..., n] as blocks, [..., ceil(n / width), width]; the last one is filled up with `fill`, 0-d."""
    kind = build.tensor_of(operand)
    *rows, size = kind.shape
    width = block_length(size)
    if size % width:
        rank = len(rows) + 1
        operand = stablehlo.pad(operand, fill, [0] * rank, [0] * (rank - 1) + [-size % width], [0] * rank)
    return stablehlo.reshape(build.with_shape(kind, [*rows, -(-size // width), width]), operand)


def slices_at(value: ir.Value, places: ir.Value, width: int) -> ir.Value:
    """Some slices of every row: result[..., j, i] = value[..., places[..., j] + i]."""
    *rows, _ = build.shape_of(value)
    batch = list(range(len(rows)))
    numbers = stablehlo.GatherDimensionNumbers.get(
        offset_dims=[len(rows) + 1],
        collapsed_slice_dims=[],
        operand_batching_dims=batch,
        start_indices_batching_dims=batch,
        start_index_map=[len(rows)],
        index_vector_dim=len(rows) + 1,
    )
    return stablehlo.gather(value, places, numbers, ir.DenseI64ArrayAttr.get([1] * len(rows) + [width]))
