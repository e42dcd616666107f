"""Faults of the kinds that a splitter could make, planted in rewritten programs: the comparison must find them.

At least a hundred in all, of which at most one in a hundred may be missed. A fault that leaves every bit of the results as it
was (a shift of a tile that is the same everywhere, say) is none.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
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

OPTIONS = Options(size_threshold=64_000, split_size=16_000)
EVERY = 4
PROGRAMS = [
    program
    for module in (kernels, networks, indexing, reductions, values)
    for program in module.PROGRAMS
    if program.temp < 1 and not program.remark
][::EVERY]
LEAST = 100
# Faults that move a result by less than its rounding: a row of 60,013 numbers read one place further is another sum by
# three millionths, nudged inputs move a maximum in f8e5, of two bits, as far as a row written elsewhere, and the last
# rows of a band around the diagonal are 1e-30 where the others are 1.
BELOW_ROUNDING = {
    ("one_row", "shift_what_is_read"),
    ("elementwise_f8e5", "shift_what_is_written"),
    ("outer_index", "drop_last_trip"),
    ("l1_kernel_gradient", "drop_last_trip"),  # the three rows of that trip are a 30,000th of the largest
}


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


FAULTS: tuple[Callable[[ir.Operation], bool], ...] = (
    drop_last_trip,
    shift_what_is_read,
    shift_what_is_written,
    add_twice,
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
    missed = []
    for name, text in planted(rewritten).items():
        results = run(text, inputs)
        if all(
            np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
            for one, other in zip(right, results, strict=True)
        ):
            continue
        if judge(results) and (program.name, name) not in BELOW_ROUNDING:
            missed.append(name)
    assert not missed


def test_there_are_enough_of_them() -> None:
    assert sum(len(planted(split(export_program(program)))) for program in PROGRAMS) >= LEAST
