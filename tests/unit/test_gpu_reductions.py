"""What the model says of reductions on an H200, against the temp that XLA planned (jaxlib 0.10.2, no GPU)."""

from __future__ import annotations

import pytest

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.memory.gpu.reductions import steps
from exla_opt.memory.machine import machine_of
from exla_opt.memory.peak import predict

_ADD = "applies stablehlo.add across dimensions"


def spread(rows: int, columns: int, result: str, reduced: str) -> str:
    """The sum, along some dimensions, of a table that is never written: products of one number each of two vectors."""
    table = f"tensor<{rows}x{columns}xf32>"
    return f"""
func.func @main(%x: tensor<{rows}xf32>, %y: tensor<{columns}xf32>) -> {result} {{
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %a = stablehlo.broadcast_in_dim %x, dims = [0] : (tensor<{rows}xf32>) -> {table}
  %b = stablehlo.broadcast_in_dim %y, dims = [1] : (tensor<{columns}xf32>) -> {table}
  %c = stablehlo.multiply %a, %b : {table}
  %d = stablehlo.exponential %c : {table}
  %e = stablehlo.reduce(%d init: %zero) {_ADD} = [{reduced}] : ({table}, tensor<f32>) -> {result}
  return %e : {result}
}}"""


def of_four(reduced: str, result: str) -> str:
    """The sum of a tensor of four dimensions along some of them."""
    kind = "tensor<20x30x40x50xf32>"
    return f"""
func.func @main(%x: {kind}) -> {result} {{
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %a = stablehlo.exponential %x : {kind}
  %b = stablehlo.reduce(%a init: %zero) {_ADD} = [{reduced}] : ({kind}, tensor<f32>) -> {result}
  return %b : {result}
}}"""


def short_rows(length: int) -> str:
    """Sums of short rows of products, exponentiated, added to one, and their sums along columns."""
    kind, table = f"tensor<1000x3000x{length}xf32>", "tensor<1000x3000xf32>"
    return f"""
func.func @main(%x: {kind}, %y: {kind}) -> tensor<1000xf32> {{
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %one = stablehlo.constant dense<1.0> : {table}
  %a = stablehlo.multiply %x, %y : {kind}
  %b = stablehlo.reduce(%a init: %zero) {_ADD} = [2] : ({kind}, tensor<f32>) -> {table}
  %c = stablehlo.exponential %b : {table}
  %d = stablehlo.add %c, %one : {table}
  %e = stablehlo.reduce(%d init: %zero) {_ADD} = [1] : ({table}, tensor<f32>) -> tensor<1000xf32>
  return %e : tensor<1000xf32>
}}"""


ROW, COLUMN = "tensor<1000xf32>", "tensor<3000xf32>"
POINTS, OTHERS, PAIRS = "tensor<1000x8xf32>", "tensor<3000x8xf32>", "tensor<1000x3000xf32>"
DIFFERENCES = "tensor<1000x3000x8xf32>"
# The gradient of a sum of functions of distances: differences are summed along two dimensions.
FORCES = f"""
func.func @main(%x: {POINTS}, %y: {OTHERS}) -> {POINTS} {{
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %a = stablehlo.broadcast_in_dim %x, dims = [0, 2] : ({POINTS}) -> {DIFFERENCES}
  %b = stablehlo.broadcast_in_dim %y, dims = [1, 2] : ({OTHERS}) -> {DIFFERENCES}
  %c = stablehlo.subtract %a, %b : {DIFFERENCES}
  %d = stablehlo.multiply %c, %c : {DIFFERENCES}
  %e = stablehlo.reduce(%d init: %zero) {_ADD} = [2] : ({DIFFERENCES}, tensor<f32>) -> {PAIRS}
  %f = stablehlo.exponential %e : {PAIRS}
  %g = stablehlo.broadcast_in_dim %f, dims = [0, 1] : ({PAIRS}) -> {DIFFERENCES}
  %h = stablehlo.multiply %c, %g : {DIFFERENCES}
  %i = stablehlo.reduce(%h init: %zero) {_ADD} = [1] : ({DIFFERENCES}, tensor<f32>) -> {POINTS}
  return %i : {POINTS}
}}"""
PROGRAMS = {
    # A row of more than 16,384 elements is reduced in parts, 180 of 200 each.
    "long_rows": spread(1000, 36000, ROW, "1"),
    "rows": spread(1000, 16384, ROW, "1"),
    # Columns are from 4,097 rows on.
    "long_columns": spread(5000, 3000, COLUMN, "0"),
    "columns": spread(4096, 3000, COLUMN, "0"),
    # All of a table is one row.
    "all": spread(3000, 3000, "tensor<f32>", "0, 1"),
    # Dimensions that others stand between are reduced one after the other, the longest first.
    "apart": of_four("0, 2", "tensor<30x50xf32>"),
    "rows_apart": of_four("1, 3", "tensor<20x40xf32>"),
    # Of more than eight tables each is reduced by itself before.
    "batches": of_four("0, 2, 3", "tensor<30xf32>"),
    # What is only computed to be reduced has in rows what is reduced last.
    "forces": FORCES,
    # A row of 8, which a part of a warp reduces, is written before ops of several operands; one of 12 is a loop.
    "eight": short_rows(8),
    "twelve": short_rows(12),
}
TEMPS = {
    "long_rows": 720_000,
    "rows": 0,
    "long_columns": 600_000,
    "columns": 49_152_000,
    "all": 12_000,
    "apart": 120_000,
    "rows_apart": 96_000,
    "batches": 2_400,
    "eight": 12_000_000,
    "twelve": 0,
    "forces": 12_096_000,
}


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_the_temp_of_reductions(name: str) -> None:
    with new_context() as context:
        module = parse_module(name, PROGRAMS[name].encode(), context).module
        assert predict(module, machine_of("cuda:h200")).temp == pytest.approx(TEMPS[name], rel=0.05, abs=64)


def test_the_steps_of_a_length_without_divisors_are_padded() -> None:
    assert steps(((4099, True), (3000, False))) == [
        ((50, False), (82, True), (3000, False)),
        ((50, True), (3000, False)),
    ]


def test_reductions_of_several_tensors_are_not_taken_apart() -> None:
    runs = ((30, True), (20, False), (40, True), (50, False))
    assert len(steps(runs)) == 2
    assert steps(runs, is_variadic=True) == [runs]
