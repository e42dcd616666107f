"""Ops that are computed by row: the op on any rows of its operands has those rows of its results. All are executed."""

from __future__ import annotations

import numpy as np
import pytest
from jaxlib.mlir import ir

from exla_opt.ir import build
from exla_opt.ops import tiling
from exla_opt.ops.alike import is_by_row
from exla_opt.ops.factor import DimMapping, Factor
from tests.unit.test_factors import (
    ROWS,
    TOLERANCE,
    Row,
    assert_same,
    compile_and_run,
    fill,
    lapack_ready,
    last_op,
    letters,
    new_context,
    read_rule,
    split_spec,
)

__all__ = ["lapack_ready"]  # for the session

# Independent along some factor, yet a tile may depend on its start.
_NEVER = {"chlo.constant", "stablehlo.optimization_barrier", "stablehlo.scatter"}


def positions(size: int) -> list[int]:
    """In another order, one of them twice, and not all of them if there are enough."""
    return [size - 1, 0, size // 2, 0, *range(3, size - 2)]


def rows_of(value: ir.Value, mapping: DimMapping | None, read: list[int]) -> ir.Value:
    if mapping is None:
        return value
    parts = [
        build.slice_along(value, mapping.dim, build.scalar_i32(row * mapping.inner), mapping.inner) for row in read
    ]
    made = parts[0]
    for part in parts[1:]:
        made = build.join(made, part, mapping.dim)
    return made


def by_row(op: ir.Operation, factor: Factor) -> tuple[list[ir.Value], list[ir.Value]]:
    """The op on some rows of its operands, and those rows of its results."""
    read = positions(factor.size)
    place = (0, len(read))
    made = tiling.build_tile(
        op,
        factor,
        [rows_of(value, mapping, read) for value, mapping in zip(op.operands, factor.operands, strict=True)],
        build.scalar_i32(0),
        [None if mapping is None else place for mapping in factor.operands],
        [None if mapping is None else place for mapping in factor.results],
    )
    return made, [rows_of(value, mapping, read) for value, mapping in zip(op.results, factor.results, strict=True)]


def factors_by_row(row: Row) -> tuple[ir.Module, list[Factor]]:
    module = ir.Module.parse(row.text)
    rule = read_rule(module)
    op, _ = last_op(module)
    return module, [factor for factor in rule.factors if is_by_row(op, factor)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_rows_of_the_result_are_results_of_the_rows(row: Row) -> None:
    context = new_context()
    with context, ir.Location.unknown():
        module, factors = factors_by_row(row)
        if not factors:
            return
        op, terminator = last_op(module)
        outputs: list[ir.Value] = []
        with ir.InsertionPoint(terminator), op.location:
            for factor in factors:
                made, expected = by_row(op, factor)
                outputs += [*made, *expected]
            ir.Operation.create("func.return", operands=outputs)
        terminator.erase()
        function = module.body.operations[0].operation
        old = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
        kind = ir.FunctionType.get(old.inputs, [value.type for value in outputs])
        function.attributes["function_type"] = ir.TypeAttr.get(kind)
        assert module.operation.verify()
        random = np.random.default_rng(7)
        found = compile_and_run(module, [fill(spec, random) for spec in row.operands.split() if "=" not in spec])
    specs = row.results.split()
    for number, factor in enumerate(factors):
        for result, spec in enumerate(specs):
            first = number * 2 * len(specs) + result
            dtype = split_spec(spec)[1]
            what = f"{row.id}: result {result} along {letters(factor)}"
            assert_same(found[first + len(specs)], found[first], row.close and dtype in TOLERANCE, dtype, what)


def test_most_ops_are_computed_by_row() -> None:
    """Every op that has an independent factor is by row along one, in one of its examples, or known not to be."""
    independent, alike = set(), set()
    for row in ROWS:
        with new_context(), ir.Location.unknown():
            if "i" in row.expected:
                independent.add(row.name)
            if factors_by_row(row)[1]:
                alike.add(row.name)
    assert independent - alike == _NEVER
