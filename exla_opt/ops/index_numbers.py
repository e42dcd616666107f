"""The dimension numbers of gathers and scatters, under common names."""

from __future__ import annotations

from dataclasses import dataclass

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

GATHER, SCATTER = "stablehlo.gather", "stablehlo.scatter"


@dataclass(frozen=True, slots=True)
class IndexNumbers:
    """The dimension numbers of a gather or a scatter, under common names.

    windows: the window dimensions of the result, or of the updates. single: the operand dimensions in which windows
    have one element and no dimension. batching, at_index: the batching dimensions of the operand and, for each, of the
    indices. named: the operand dimension of each component of an index. vector: the dimension of the indices that holds
    the components; the rank if there is one component and no such dimension.
    """

    windows: tuple[int, ...]
    single: tuple[int, ...]
    batching: tuple[int, ...]
    at_index: tuple[int, ...]
    named: tuple[int, ...]
    vector: int


def numbers_of(op: ir.Operation) -> IndexNumbers:
    """The dimension numbers of a gather or a scatter."""
    if op.name == GATHER:
        gather = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
        return IndexNumbers(
            tuple(gather.offset_dims),
            tuple(gather.collapsed_slice_dims),
            tuple(gather.operand_batching_dims),
            tuple(gather.start_indices_batching_dims),
            tuple(gather.start_index_map),
            gather.index_vector_dim,
        )
    scatter = stablehlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    return IndexNumbers(
        tuple(scatter.update_window_dims),
        tuple(scatter.inserted_window_dims),
        tuple(scatter.input_batching_dims),
        tuple(scatter.scatter_indices_batching_dims),
        tuple(scatter.scattered_dims_to_operand_dims),
        scatter.index_vector_dim,
    )


def attribute_of(op: ir.Operation, numbers: IndexNumbers) -> tuple[str, ir.Attribute]:
    if op.name == GATHER:
        return "dimension_numbers", stablehlo.GatherDimensionNumbers.get(
            offset_dims=list(numbers.windows),
            collapsed_slice_dims=list(numbers.single),
            operand_batching_dims=list(numbers.batching),
            start_indices_batching_dims=list(numbers.at_index),
            start_index_map=list(numbers.named),
            index_vector_dim=numbers.vector,
        )
    return "scatter_dimension_numbers", stablehlo.ScatterDimensionNumbers.get(
        update_window_dims=list(numbers.windows),
        inserted_window_dims=list(numbers.single),
        input_batching_dims=list(numbers.batching),
        scatter_indices_batching_dims=list(numbers.at_index),
        scattered_dims_to_operand_dims=list(numbers.named),
        index_vector_dim=numbers.vector,
    )


def place_of(numbers: IndexNumbers, at: int) -> int:
    """The dimension of the result, or of the updates, for dimension `at` of the indices."""
    place, left = 0, at - (numbers.vector < at)
    while left or place in numbers.windows:
        left -= place not in numbers.windows
        place += 1
    return place


def indices_of(op: ir.Operation) -> ir.Value:
    """The indices of a gather or a scatter."""
    indices: ir.Value = op.operands[1 if op.name == GATHER else len(op.results)]
    return indices


def moved_of(op: ir.Operation) -> list[ir.Value]:
    """The result of a gather, or the updates of a scatter: there is a window for each index."""
    return list(op.results) if op.name == GATHER else list(op.operands)[len(op.results) + 1 :]
