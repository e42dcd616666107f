"""Faults of the kinds that a splitter could make, planted in rewritten programs: the comparison must find them.

Of those that change a bit of the results, a hundred at least, it may miss one in a hundred. A fault that leaves every bit
as it was (a shift of a tile that is the same everywhere, say) is none and does not count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import inside_out, operations_of, terminator
from exla_opt.ir.write import serialise
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.runtime.check import compare_results
from exla_opt.runtime.compile import compile_program, run_program
from exla_opt.runtime.draws import choose_inputs
from exla_opt.runtime.inputs import Array
from tests.programs import indexing, kernels, networks, reductions, values
from tests.programs.model import Program, export_program
from tests.programs.reductions import XY, big

OPTIONS = Options(size_threshold=64_000, split_size=16_000)
EVERY = 4


def _bins(x: Any, y: Any) -> Any:
    return (big(x, y) * 10).astype(jnp.int32) % 50


def _steps(by: Callable[[Any, Any], Any], made: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Three steps of a loop of the program's, each of which puts what it makes to the sum or product so far."""

    def function(x: Any, y: Any, s: Any) -> Any:
        return lax.scan(lambda total, part: (by(total, made(part, y)), None), s, jnp.stack([x, x + 1, x * 0.5]))[0]

    return function


# What these start from counts once, and not once for each tile or step. (How often reduce counts its start is up to XLA.)
STARTS = [
    Program("histogram_from", lambda x, y, s: s.at[_bins(x, y)].add(1), XY + " 50xi32"),
    Program("weights_of_bins_from", lambda x, y, s: s.at[_bins(x, y)].add(big(x, y)), XY + " 50xf32"),
    Program("doubles_of_bins_from", lambda x, y, s: s.at[_bins(x, y)].add(big(x, y)), "401x5xf64 307x5xf64 50xf64"),
    Program("products_of_bins_from", lambda x, y, s: s.at[_bins(x, y)].multiply(1 - 1e-3 * big(x, y)), XY + " 50xf32"),
    Program("steps_from_numbers", _steps(jnp.add, lambda x, y: big(x, y).sum(0)), XY + " 307xf32"),
    Program("steps_from_a_number", _steps(jnp.add, lambda x, y: big(x, y).mean()), XY + " f32"),
    Program("steps_of_rows", _steps(jnp.add, lambda x, y: big(x, y) @ y), XY + " 401x5xf32"),
    Program("steps_of_whole_numbers", _steps(jnp.add, lambda x, y: _bins(x, y).sum(0)), XY + " 307xi32"),
    Program("steps_of_products", _steps(jnp.multiply, lambda x, y: big(x, y).mean(1)), XY + " 401xf32"),
    Program("steps_of_parities", _steps(jnp.bitwise_xor, lambda x, y: _bins(x, y).max(0)), XY + " 307xi32"),
]
PROGRAMS = (
    STARTS
    + [
        program
        for module in (kernels, networks, indexing, reductions, values)
        for program in module.PROGRAMS
        if program.temp < 1 and not program.remark
    ][::EVERY]
)
LEAST = 100
IDENTITIES = {"stablehlo.add": 0, "stablehlo.multiply": 1, "stablehlo.xor": 0, "stablehlo.scatter": 0}
# Planted faults that change no bit: what a tile reads is the same everywhere, or is read again behind it.
SAME = {
    ("any_kernel_c64", "count_start_again"),
    ("embedding_sum", "count_start_again"),
    ("steps_of_rows", "shift_what_is_written"),
    ("steps_of_products", "shift_what_is_written"),
    ("sinkhorn_checkpointed", "shift_what_is_read"),
    ("sinkhorn_checkpointed", "shift_what_is_written"),
    ("sinkhorn_until", "shift_what_is_read"),
    ("sinkhorn_until", "shift_what_is_written"),
    ("chamfer_gradient", "shift_what_is_read"),
    ("elementwise_u8", "shift_what_is_written"),
    ("ones_and_zeros_gradient", "drop_last_trip"),
}
# What is not found: the rows of that trip are 1e-30, those around the diagonal 1.
MISSED = {("outer_index", "drop_last_trip")}


def number(value: int, like: ir.Value) -> ir.Value:
    """A constant of the type of an index or a limit, before the op that is being built."""
    kind = ir.RankedTensorType(like.type)
    attribute = ir.DenseElementsAttr.get_splat(kind, ir.IntegerAttr.get(kind.element_type, value))
    constant: ir.Value = ir.Operation.create("stablehlo.constant", [kind], attributes={"value": attribute}).results[0]
    return constant


def moved(op: ir.Operation, operand: int, distance: int) -> None:
    """Let an op read an integer that is off by a distance."""
    value = op.operands[operand]
    with op.location, ir.InsertionPoint(op):
        other = ir.Operation.create("stablehlo.add", [value.type], [value, number(distance, value)])
        op.operands[operand] = other.results[0]


def is_constant(value: ir.Value) -> bool:
    return defining_op(value, "stablehlo.constant") is not None


def is_number(value: ir.Value, number: int) -> bool:
    """Whether a tensor is this number everywhere."""
    if (spread := defining_op(value, "stablehlo.broadcast_in_dim")) is not None:
        value = spread.operands[0]
    op = defining_op(value, "stablehlo.constant")
    if op is None or isinstance(ir.RankedTensorType(value.type).element_type, ir.ComplexType):
        return False
    numbers = ir.DenseElementsAttr(op.attributes["value"])
    return bool(numbers.is_splat and getattr(numbers.get_splat_value(), "value", None) == number)


def drop_last_trip(loop: ir.Operation) -> bool:
    """The loop ends a trip before its end."""
    for op in operations_of(loop.regions[0].blocks[0]):
        if op.name == "stablehlo.compare" and is_constant(op.operands[1]):
            moved(op, 1, -1)
            return True
    return False


def _shift(loop: ir.Operation, name: str, first: int) -> bool:
    for op in operations_of(loop.regions[1].blocks[0]):
        if op.name != name:
            continue
        for index in range(first, len(op.operands)):
            if not is_constant(op.operands[index]):
                moved(op, index, 1)
                return True
    return False


def shift_what_is_read(loop: ir.Operation) -> bool:
    """The first tile that is read begins one too late."""
    return _shift(loop, "stablehlo.dynamic_slice", 1)


def shift_what_is_written(loop: ir.Operation) -> bool:
    """The first tile that is written lands one too late."""
    return _shift(loop, "stablehlo.dynamic_update_slice", 2)


def add_twice(loop: ir.Operation) -> bool:
    """What a trip adds to a sum is added once more in each."""
    body = loop.regions[1].blocks[0]
    last = terminator(body)
    for place, value in enumerate(last.operands):
        op = defining_op(value, "stablehlo.add")
        if op is None or is_constant(op.operands[0]) or is_constant(op.operands[1]):
            continue
        carried = [side for side in (0, 1) if op.operands[side] == body.arguments[place]]
        if carried:
            with last.location, ir.InsertionPoint(last):
                added = op.operands[1 - carried[0]]
                last.operands[place] = ir.Operation.create("stablehlo.add", [value.type], [value, added]).results[0]
            return True
    return False


def count_start_again(loop: ir.Operation) -> bool:
    """What a sum or product starts from is put to it once more in each trip."""
    body = loop.regions[1].blocks[0]
    last = terminator(body)
    for place, value in enumerate(last.operands):
        op = defining_op(value)
        if op is None or op.name not in IDENTITIES or any(is_constant(side) for side in op.operands):
            continue
        if body.arguments[place] not in op.operands or is_number(loop.operands[place], IDENTITIES[op.name]):
            continue
        with last.location, ir.InsertionPoint(last):
            name = "stablehlo.add" if op.name == "stablehlo.scatter" else op.name
            again = ir.Operation.create(name, [value.type], [value, loop.operands[place]])
            last.operands[place] = again.results[0]
        return True
    return False


FAULTS: tuple[Callable[[ir.Operation], bool], ...] = (
    drop_last_trip,
    shift_what_is_read,
    shift_what_is_written,
    add_twice,
    count_start_again,
)


def planted(rewritten: str) -> dict[str, str]:
    """The rewritten program with each fault that it has a place for, in its last loop that has one, by name."""
    found = {}
    for fault in FAULTS:
        with new_context() as context:
            module = parse_module("<rewritten>", rewritten.encode(), context).module
            if any(fault(loop) for loop in reversed(inside_out(module, "stablehlo.while"))):
                found[fault.__name__] = serialise(module, "text").decode()
    return found


def split(text: str) -> str:
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        run_pipeline(module, DEFAULT_PASSES, OPTIONS)
        return serialise(module, "text").decode()


def run(text: str, arrays: list[Array]) -> list[Array]:
    return run_program(compile_program(text, count_all_memory=True), arrays)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_planted_faults_are_found(program: Program) -> None:
    before = export_program(program)
    original = compile_program(before, count_all_memory=True)
    with new_context() as context:
        module = parse_module("<program>", before.encode(), context).module
        inputs, expected = choose_inputs(module, 0, lambda arrays: run_program(original, arrays))
    rewritten = split(before)

    def judge(results: list[Array]) -> bool:
        comparisons = compare_results(expected, results, lambda arrays: run_program(original, arrays), inputs)
        return all(one.passed for one in comparisons)

    right = run(rewritten, inputs)
    assert judge(right)
    same, missed = set(), set()
    for name, text in planted(rewritten).items():
        results = run(text, inputs)
        if all(map(_equal, right, results)):
            same.add((program.name, name))
        elif judge(results):
            missed.add((program.name, name))
    assert same <= SAME
    assert missed <= MISSED


def _equal(one: Array, other: Array) -> bool:
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def test_all_but_one_in_a_hundred_are_found() -> None:
    """The tests above hold every fault to be found that is in neither list."""
    counted = {(program.name, name) for program in PROGRAMS for name in planted(split(export_program(program)))} - SAME
    assert len(counted) >= LEAST
    assert len(counted & MISSED) * LEAST <= len(counted)
    for fault in FAULTS:
        assert sum(name == fault.__name__ for _, name in counted) >= len(STARTS)
