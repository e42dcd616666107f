"""The memory model, one test a rule, on hand-made records."""

from __future__ import annotations

from math import prod

import pytest

from exla_opt.memory.block import Block, Operation
from exla_opt.memory.fusion import fuse
from exla_opt.memory.machine import CPU, GPU, machine_of
from exla_opt.memory.schedule import run_block
from exla_opt.ops.traits import traits_of

# Tensors are numbers; this is their shape unless a test says otherwise.
SQUARE = (64, 64)


def op(name: str, operands: list[int], *results: int, reduced: tuple[int, ...] = (), scratch: int = 0) -> Operation:
    return Operation(name, traits_of(f"stablehlo.{name}"), tuple(operands), results, lengths=reduced, scratch=scratch)


def block_of(ops: list[Operation], returned: set[int], other: dict[str, tuple[int, ...]]) -> Block:
    """other: shapes as t3=(64,); sizes are numbers of elements."""
    count = max(value for one in ops for value in (*one.operands, *one.results)) + 1
    shapes = [other.get(f"t{value}", SQUARE) for value in range(count)]
    return Block(ops, shapes, [prod(shape) for shape in shapes], returned=sorted(returned), dtypes=["f32"] * count)


def written(ops: list[Operation], returned: set[int], **other: tuple[int, ...]) -> set[int]:
    """What the model expects in memory."""
    return fuse(block_of(ops, returned, other), CPU).tensors()


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


def test_an_update_takes_in_what_it_writes_and_not_where() -> None:
    assert written([op("negate", [0], 1), op("dynamic_update_slice", [9, 1, 8], 2)], {2}) == {2}
    assert written([op("negate", [0], 1), op("dynamic_update_slice", [1, 9, 8], 2)], {2}) == {1, 2}


def test_what_is_returned_is_written() -> None:
    assert written([op("negate", [0], 1), op("abs", [1], 2)], {1, 2}) == {1, 2}


def peak(ops: list[Operation], returned: set[int], free: set[int] | None = None, **other: tuple[int, ...]) -> int:
    return run_block(block_of(ops, returned, other), CPU, held=free or set()).peak


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
    ops = [op("while", [0], 1, scratch=1000), op("dot_general", [1, 1], 2)]
    assert peak(ops, {2}, t0=(64,), t1=(64,), t2=(1,)) == 64 + 1000


@pytest.mark.parametrize("name", ["cpu", "gpu", "cuda:h100", "cuda:h200", "tpu", "tpu:v6e", "tpu:v5e:2x2"])
def test_machines_have_names(name: str) -> None:
    machine = machine_of(name)
    assert machine.name == {"gpu": "cuda:h200"}.get(name, name)
    assert machine.kind == {"c": "cpu", "g": "gpu", "t": "tpu"}[name[0]] if ":" not in name else machine.kind != "cpu"
    assert machine.fitted == (machine.kind != "tpu")


def test_no_machine_has_another_name() -> None:
    with pytest.raises(ValueError, match="'abacus'"):
        machine_of("abacus")


def test_a_long_reduction_takes_in_its_operand_on_a_gpu() -> None:
    ops = [op("tanh", [0], 1), op("reduce", [1, 9], 2, reduced=(5000,))]
    assert fuse(block_of(ops, {2}, {}), GPU).tensors() == {2}


def test_what_is_read_by_very_many_ops_is_not_one_kernel() -> None:
    """Each sum is returned and read by the next: a kernel that repeats all before it would read everything."""
    ops = [op("add", [number, number + 1001], number + 1) for number in range(1000)]
    fusion = fuse(block_of(ops, set(range(1, 1001)), {}), CPU)
    assert max(len(read) for read in fusion.inputs) <= 64
