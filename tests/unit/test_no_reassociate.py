"""Sums of f16 that overflow on the way: kept to the bit with --no-reassociate, finite where they are summed in tiles."""

from __future__ import annotations

import numpy as np
import pytest

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.runtime.compile import compile_program, run_program

_SIZE = 512
MATRIX, FLAT, ROW, NUMBER = (f"tensor<{shape}f16>" for shape in (f"{_SIZE}x{_SIZE}x", f"{_SIZE**2}x", f"{_SIZE}x", ""))


def _sum(name: str, operand: str, dims: str, before: str, after: str) -> str:
    return f"{name} = stablehlo.reduce({operand} init: %zero) applies stablehlo.add across dimensions = [{dims}] : ({before}, {NUMBER}) -> {after}"


def _dot(dim: int) -> str:
    return f"%s = stablehlo.dot_general %e, %v, contracting_dims = [{dim}] x [0] : ({MATRIX}, {ROW}) -> {ROW}"


# By name: what makes %s of the matrix %e, and its type.
SUMS = {
    "all": (_sum("%s", "%e", "0, 1", MATRIX, NUMBER), NUMBER),
    "flat": (f"%f = stablehlo.reshape %e : ({MATRIX}) -> {FLAT}\n" + _sum("%s", "%f", "0", FLAT, NUMBER), NUMBER),
    "rows": (_sum("%s", "%e", "1", MATRIX, ROW), ROW),
    "columns": (_sum("%s", "%e", "0", MATRIX, ROW), ROW),
    "dot of rows": (_dot(1), ROW),
    "dot of columns": (_dot(0), ROW),
}


def module_text(name: str) -> bytes:
    """A matrix of numbers near 60,000 of either sign, and its sum."""
    body, kind = SUMS[name]
    return f"""
    func.func @main(%a: {ROW}, %b: {ROW}, %v: {ROW}) -> {kind} {{
      %zero = stablehlo.constant dense<0.0> : {NUMBER}
      %x = stablehlo.broadcast_in_dim %a, dims = [0] : ({ROW}) -> {MATRIX}
      %y = stablehlo.broadcast_in_dim %b, dims = [1] : ({ROW}) -> {MATRIX}
      %signs = stablehlo.multiply %x, %y : {MATRIX}
      %k = stablehlo.constant dense<6.0e4> : {MATRIX}
      %near = stablehlo.tanh %signs : {MATRIX}
      %e = stablehlo.multiply %near, %k : {MATRIX}
      {body}
      return %s : {kind}
    }}""".encode()


def run_both(name: str, reassociate: bool, by_row: bool) -> tuple[np.ndarray, np.ndarray]:
    """The sum as it was and as it is rewritten; the sign changes half way down the rows, or along them."""
    text = module_text(name)
    with new_context() as context:
        module = parse_module("test", text, context).module
        run_pipeline(module, DEFAULT_PASSES, Options(60_000, 20_000, reassociate=reassociate))
        after = serialise(module, "bytecode")
    signs = np.where(np.arange(_SIZE) < _SIZE // 2, 3, -3).astype(np.float16)
    ones = np.ones(_SIZE, np.float16)
    arguments = [signs, ones * 3, ones] if by_row else [ones * 3, signs, ones]
    [expected] = run_program(compile_program(text), arguments)
    [found] = run_program(compile_program(after), arguments)
    return expected, found


@pytest.mark.parametrize("by_row", [True, False])
@pytest.mark.parametrize("name", SUMS)
def test_no_reassociate_keeps_what_overflows(name: str, by_row: bool) -> None:
    expected, found = run_both(name, False, by_row)
    assert not np.all(np.isfinite(expected)) or np.all(expected == 0), "half of it overflows, unless it cancels"
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ["all", "flat"])
def test_a_sum_in_tiles_is_finite_where_f16_overflows(name: str) -> None:
    """The exception that the README states: what XLA adds up in f16 is kept in f32 from tile to tile."""
    expected, found = run_both(name, True, True)
    assert np.isnan(expected)
    assert found == 0
