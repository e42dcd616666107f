"""The memory model, one test a rule, on hand-made records."""

from __future__ import annotations

from math import prod

import pytest

from exla_opt.memory.planned import Operation, materialised, peak_bytes

# Tensors are numbers; this is their shape unless a test says otherwise.
SQUARE = (64, 64)


def op(name: str, operands: list[int], *results: int, reduced: tuple[int, ...] = (), same: bool = False) -> Operation:
    return Operation(name, tuple(operands), results, reduced, same_type=same)


def written(ops: list[Operation], returned: set[int], **other: tuple[int, ...]) -> set[int]:
    """What the model expects in memory; other: shapes as t3=(64,)."""
    return set(materialised(ops, shapes_of(ops, other), returned).last_read)


def shapes_of(ops: list[Operation], other: dict[str, tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
    numbers = {value for one in ops for value in (*one.operands, *one.results)}
    return {value: other.get(f"t{value}", SQUARE) for value in numbers}


def test_a_chain_of_elementwise_ops_writes_its_end_only() -> None:
    assert written([op("exponential", [0], 1), op("negate", [1], 2), op("tanh", [2], 3)], {3}) == {3}


def test_a_dot_writes_its_result_and_wants_its_operands_written() -> None:
    assert written([op("negate", [0], 1), op("dot_general", [1, 9], 2), op("tanh", [2], 3)], {3}) == {1, 2, 3}


@pytest.mark.parametrize(("size", "expected"), [(32, {2}), (33, {1, 2})])
def test_a_reduce_takes_in_its_operand_up_to_32_elements(size: int, expected: set[int]) -> None:
    assert written([op("tanh", [0], 1), op("reduce", [1, 9], 2, reduced=(size,))], {2}) == expected


@pytest.mark.parametrize(("size", "expected"), [(32, {3}), (33, {2, 3})])
def test_a_short_reduce_goes_into_its_reader(size: int, expected: set[int]) -> None:
    ops = [op("reduce", [0, 9], 2, reduced=(size,)), op("negate", [2], 3)]
    assert written(ops, {3}, t2=(64,), t3=(64,)) == expected


def test_a_reduce_of_two_tensors_takes_in_any_operand_but_is_itself_written() -> None:
    ops = [op("negate", [0], 1), op("reduce", [1, 8, 9, 9], 2, 3, reduced=(5000,)), op("add", [2, 3], 4)]
    assert written(ops, {4}) == {2, 3, 4}


def test_what_is_cheap_is_repeated_for_each_reader() -> None:
    assert written([op("multiply", [0, 0], 1), op("negate", [1], 2), op("tanh", [1], 3)], {2, 3}) == {2, 3}


def test_what_is_expensive_is_written_for_two_readers() -> None:
    assert written([op("exponential", [0], 1), op("negate", [1], 2), op("abs", [1], 3)], {2, 3}) == {1, 2, 3}


def test_two_readers_in_one_fusion_are_one() -> None:
    ops = [op("exponential", [0], 1), op("negate", [1], 2), op("abs", [1], 3), op("add", [2, 3], 4)]
    assert written(ops, {4}) == {4}


def test_what_is_expensive_is_written_before_it_is_spread_out() -> None:
    ops = [op("exponential", [0], 1), op("broadcast_in_dim", [1], 2), op("add", [2, 9], 3)]
    assert written(ops, {3}, t0=(64,), t1=(64,)) == {1, 3}


def test_a_broadcast_is_not_written() -> None:
    assert written([op("broadcast_in_dim", [0], 1), op("add", [1, 9], 2)], {2}, t0=(64,)) == {2}


def test_a_view_has_no_buffer_and_keeps_that_of_its_operand() -> None:
    ops = [op("dot_general", [0, 0], 1), op("reshape", [1], 2), op("tanh", [0], 3), op("dot_general", [2, 3], 4)]
    buffers = materialised(ops, shapes_of(ops, {"t2": (4096,)}), {4}).last_read
    assert set(buffers) == {1, 3, 4}
    assert buffers[1] == 3, "it lives as long as the view"


@pytest.mark.parametrize(
    "view",
    [
        op("reshape", [1], 2),
        op("optimization_barrier", [1], 2),
        op("slice", [1], 2, same=True),
        op("convert", [1], 2, same=True),
    ],
)
def test_what_changes_nothing_is_a_view(view: Operation) -> None:
    assert written([op("dot_general", [0, 0], 1), view, op("dot_general", [2, 2], 3)], {3}) == {1, 3}


def test_a_broadcast_that_adds_a_unit_dimension_is_a_view() -> None:
    ops = [op("dot_general", [0, 0], 1), op("broadcast_in_dim", [1], 2), op("dot_general", [2, 2], 3)]
    assert written(ops, {3}, t2=(64, 1, 64)) == {1, 3}
    assert written(ops, {3}, t2=(64, 2, 64)) == {1, 2, 3}


def test_a_transpose_is_part_of_the_dot_that_reads_it() -> None:
    assert written([op("transpose", [0], 1), op("dot_general", [1, 9], 2)], {2}) == {2}
    assert written([op("transpose", [0], 1), op("sort", [1], 2)], {2}) == {1, 2}


def test_an_update_takes_in_what_it_writes_and_not_where() -> None:
    assert written([op("negate", [0], 1), op("dynamic_update_slice", [9, 1, 8], 2)], {2}) == {2}
    assert written([op("negate", [0], 1), op("dynamic_update_slice", [1, 9, 8], 2)], {2}) == {1, 2}


def test_what_is_returned_is_written() -> None:
    assert written([op("negate", [0], 1), op("abs", [1], 2)], {1, 2}) == {1, 2}


def peak(ops: list[Operation], returned: set[int], free: set[int] | None = None, **other: tuple[int, ...]) -> int:
    shapes = shapes_of(ops, other)
    sizes = {value: prod(shape) for value, shape in shapes.items()}
    return peak_bytes(ops, shapes, sizes, returned, free or set())


def test_a_buffer_is_freed_after_its_last_read() -> None:
    ops = [op("dot_general", [0, 0], 1), op("dot_general", [1, 9], 2), op("dot_general", [2, 9], 3)]
    assert peak(ops, {3}) == 2 * 4096


def test_results_in_somebody_elses_memory_are_not_counted() -> None:
    ops = [op("dot_general", [0, 0], 1), op("dot_general", [1, 9], 2)]
    assert peak(ops, {2}, free={2}) == 4096


def test_an_elementwise_op_writes_over_an_operand_that_dies() -> None:
    ops = [op("dot_general", [0, 0], 1), op("tanh", [1], 2), op("dot_general", [2, 2], 3)]
    assert peak(ops, {3}, t3=(1,)) == 4096 + 1
    late = [*ops, op("dot_general", [1, 1], 4)]
    assert peak(late, {3, 4}, t3=(1,), t4=(1,)) == 2 * 4096 + 1


def test_scratch_counts_while_the_op_runs() -> None:
    ops = [Operation("while", (0,), (1,), scratch=1000), op("dot_general", [1, 1], 2)]
    assert peak(ops, {2}, t0=(64,), t1=(64,), t2=(1,)) == 64 + 1000
