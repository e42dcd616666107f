"""Blocks that are alike are simulated once, and only those."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest

from exla_opt.memory import alike
from exla_opt.memory.alike import peak_of, written_in
from exla_opt.memory.block import Block, Operation
from exla_opt.memory.fusion import fuse
from exla_opt.memory.machine import CPU, GPU
from exla_opt.memory.schedule import run_block
from exla_opt.ops.traits import traits_of

ROWS, COLUMNS = 64, 1000


def planned(columns: int = COLUMNS) -> Block:
    """A slice, its exponential, and that with the other sign."""
    block = Block()
    x, tile, powers, total = (block.add_tensor((ROWS, columns), 4 * ROWS * columns, "f32") for _ in range(4))
    for name, operand, result in (
        ("dynamic_slice", x, tile),
        ("exponential", tile, powers),
        ("negate", powers, total),
    ):
        block.ops.append(Operation(name, traits_of(f"stablehlo.{name}"), (operand,), (result,)))
    block.returned = [total]
    return block


# Another value for each field of an op.
OTHERS: dict[str, Any] = {
    "name": "tanh",
    "traits": traits_of("stablehlo.reduce"),
    "operands": (0,),
    "results": (3,),
    "captures": (0,),
    "lengths": (2,),
    "copied": (0,),
    "together": 2,
    "narrow": frozenset({1}),
    "scratch": 1,
    "is_library": True,
    "shared": (2,),
    "trips": 2,
    "order": (0,),
    "is_bare": True,
    "seconds": 1.0,
}


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Block]:
    """The blocks that are simulated."""
    found: list[Block] = []

    def run(block: Block, *others: Any, **named: Any) -> Any:
        found.append(block)
        return run_block(block, *others, **named)

    monkeypatch.setattr(alike, "run_block", run)
    monkeypatch.setattr(alike, "_peaks", {})
    return found


def test_a_block_like_another_is_not_simulated(counted: list[Block]) -> None:
    peaks = [peak_of(planned(), CPU, [3]) for _ in range(3)]
    assert len(counted) == 1 and peaks == [run_block(planned(), CPU, held=[3]).peak] * 3


@pytest.mark.parametrize("name", OTHERS)
def test_an_op_that_differs_in_one_field_is_another(name: str, counted: list[Block]) -> None:
    block = planned()
    peak_of(block, CPU, [3])
    block.ops[1] = replace(block.ops[1], **{name: OTHERS[name]})
    peak_of(block, CPU, [3])
    assert len(counted) == 2


def test_every_field_of_an_op_is_compared_or_keeps_the_block_from_it() -> None:
    assert {each.name for each in fields(Operation)} - OTHERS.keys() == {"bodies", "outside"}


CHANGES: dict[str, Callable[[Block], object]] = {
    "shape": lambda block: block.shapes.__setitem__(1, (1, 1)),
    "size": lambda block: block.sizes.__setitem__(1, 4),
    "type": lambda block: block.dtypes.__setitem__(1, "f16"),
    "results": lambda block: block.returned.append(1),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_block_with_other_tensors_is_another(change: Callable[[Block], object], counted: list[Block]) -> None:
    peak_of(planned(), CPU, [3])
    other = planned()
    change(other)
    peak_of(other, CPU, [3])
    assert len(counted) == 2


def test_machine_and_held_tensors_count(counted: list[Block]) -> None:
    for machine, held in ((CPU, [3]), (GPU, [3]), (CPU, [])):
        peak_of(planned(), machine, held)
    assert len(counted) == 3


def test_a_block_that_was_read_is_always_simulated(counted: list[Block]) -> None:
    for _ in range(2):
        block = planned()
        block.arguments = [0]
        peak_of(block, CPU, [3])
    assert len(counted) == 2


def test_what_is_written_is_as_without_it() -> None:
    assert written_in(planned(), CPU) == written_in(planned(), CPU) == fuse(planned(), CPU, sums_alone=True).tensors()


def test_there_is_an_end_to_what_is_kept(monkeypatch: pytest.MonkeyPatch, counted: list[Block]) -> None:
    monkeypatch.setattr(alike, "_MOST", 2)
    for columns in (1, 2, 3, 1):
        peak_of(planned(columns), CPU, [3])
    assert len(counted) == 4 and len(alike._peaks) == 2
