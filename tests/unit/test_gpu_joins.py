"""Which kernels for an H200 have several results, by the temp that XLA planned (jaxlib 0.10.2, no GPU)."""

from __future__ import annotations

import pytest

from tests.predictions import h200_temp

_ADD = "applies stablehlo.add across dimensions"
X, ROWS, COLUMNS = "tensor<4096x2048xf32>", "tensor<4096xf32>", "tensor<2048xf32>"
SQUARE = "tensor<4096x4096xf32>"
IMAGE = "tensor<4x1080x1920xf32>"


def readers(read: str, other: str) -> str:
    """Two readers of %x: a logarithm, of %x or of a sum, that is read twice; and what is returned."""
    return f"""
func.func @main(%x: {X}, %y: {COLUMNS}) -> ({X}, {COLUMNS}) {{
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %i = stablehlo.broadcast_in_dim %y, dims = [1] : ({COLUMNS}) -> {X}
  %j = stablehlo.add %x, %i : {X}
  %a = stablehlo.log {read} : {X}
  %b = stablehlo.{other} : {X}
  %d = stablehlo.reduce(%a init: %zero) {_ADD} = [0] : ({X}, tensor<f32>) -> {COLUMNS}
  %e = stablehlo.sine %d : {COLUMNS}
  %f = stablehlo.broadcast_in_dim %e, dims = [1] : ({COLUMNS}) -> {X}
  %g = stablehlo.multiply %a, %f : {X}
  %h = stablehlo.reduce(%g init: %zero) {_ADD} = [0] : ({X}, tensor<f32>) -> {COLUMNS}
  return %b, %h : {X}, {COLUMNS}
}}"""


HALVES = SQUARE.replace("f32", "f16")
# So many expensive ops that they are computed once, whoever reads their result.
_CHAIN = "\n".join(
    f"  %e{place + 1} = stablehlo.{('log_plus_one', 'tanh')[place % 2]} %e{place} : {SQUARE}" for place in range(24)
)
PROGRAMS = {
    # Two kernels of several ops that read one argument are one: what one writes cannot lie where the other writes.
    "readers_of_an_argument": readers("%j", "multiply %i, %x"),
    # Two kernels of one op are not.
    "single_readers": readers("%x", "negate %x"),
    # Sums of rows and sums of columns are two kernels; the product, which one of them needs, is not written in place.
    "rows_and_columns": f"""
func.func @main(%x: {X}) -> ({ROWS}, {COLUMNS}, {ROWS}) {{
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %a = stablehlo.tanh %x : {X}
  %b = stablehlo.sine %a : {X}
  %c = stablehlo.reduce(%a init: %zero) {_ADD} = [1] : ({X}, tensor<f32>) -> {ROWS}
  %d = stablehlo.reduce(%b init: %zero) {_ADD} = [0] : ({X}, tensor<f32>) -> {COLUMNS}
  %e = stablehlo.reduce(%b init: %zero) {_ADD} = [1] : ({X}, tensor<f32>) -> {ROWS}
  return %c, %d, %e : {ROWS}, {COLUMNS}, {ROWS}
}}""",
    # What a multiplication and a sum read is written over by the multiplication if nobody reads it later.
    "two_heads": f"""
func.func @main(%x: {X}, %y: {COLUMNS}, %z: {COLUMNS}) -> ({X}, {ROWS}, {COLUMNS}) {{
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %a = stablehlo.tanh %x : {X}
  %b = stablehlo.broadcast_in_dim %y, dims = [1] : ({COLUMNS}) -> {X}
  %c = stablehlo.broadcast_in_dim %z, dims = [1] : ({COLUMNS}) -> {X}
  %d = stablehlo.multiply %a, %b : {X}
  %e = stablehlo.multiply %a, %c : {X}
  %f = stablehlo.reduce(%e init: %zero) {_ADD} = [1] : ({X}, tensor<f32>) -> {ROWS}
  %g = stablehlo.reduce(%a init: %zero) {_ADD} = [0] : ({X}, tensor<f32>) -> {COLUMNS}
  return %d, %f, %g : {X}, {ROWS}, {COLUMNS}
}}""",
    # What is put together of parts that do not fill warps costs more to compute than to read.
    "crossed": f"""
func.func @main(%x: {IMAGE}) -> tensor<4x1080x1919xf32> {{
  %a = stablehlo.slice %x [0:4, 1:1080, 0:1920] : ({IMAGE}) -> tensor<4x1079x1920xf32>
  %b = stablehlo.slice %x [0:4, 0:1, 0:1920] : ({IMAGE}) -> tensor<4x1x1920xf32>
  %c = stablehlo.concatenate %a, %b, dim = 1 : (tensor<4x1079x1920xf32>, tensor<4x1x1920xf32>) -> {IMAGE}
  %d = stablehlo.slice %c [0:4, 0:1080, 0:1919] : ({IMAGE}) -> tensor<4x1080x1919xf32>
  %e = stablehlo.slice %c [0:4, 0:1080, 1:1920] : ({IMAGE}) -> tensor<4x1080x1919xf32>
  %f = stablehlo.subtract %d, %e : tensor<4x1080x1919xf32>
  return %f : tensor<4x1080x1919xf32>
}}""",
    # Normalised rows are written over what is only read element by element.
    "rows_in_place": f"""
func.func @main(%x: {X}, %y: {X}) -> {COLUMNS} {{
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %least = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %m = stablehlo.multiply %x, %y : {X}
  %a = stablehlo.tanh %m : {X}
  %n = stablehlo.reduce(%a init: %zero) {_ADD} = [0] : ({X}, tensor<f32>) -> {COLUMNS}
  %b = stablehlo.reduce(%x init: %least) applies stablehlo.maximum across dimensions = [1]
    : ({X}, tensor<f32>) -> {ROWS}
  %c = stablehlo.broadcast_in_dim %b, dims = [0] : ({ROWS}) -> {X}
  %d = stablehlo.subtract %x, %c : {X}
  %e = stablehlo.exponential %d : {X}
  %f = stablehlo.reduce(%e init: %zero) {_ADD} = [1] : ({X}, tensor<f32>) -> {ROWS}
  %g = stablehlo.broadcast_in_dim %f, dims = [0] : ({ROWS}) -> {X}
  %h = stablehlo.divide %e, %g : {X}
  %i = stablehlo.multiply %h, %a : {X}
  %j = stablehlo.transpose %i, dims = [1, 0] : ({X}) -> tensor<2048x4096xf32>
  %k = stablehlo.dot_general %j, %i, contracting_dims = [1] x [0]
    : (tensor<2048x4096xf32>, {X}) -> tensor<2048x2048xf32>
  %l = stablehlo.reduce(%k init: %zero) {_ADD} = [0] : (tensor<2048x2048xf32>, tensor<f32>) -> {COLUMNS}
  %o = stablehlo.add %l, %n : {COLUMNS}
  return %o : {COLUMNS}
}}""",
    # The order of kernels is chosen as if nothing were written over one of the results of another kernel.
    "branches": f"""
func.func @main(%x: {SQUARE}) -> ({SQUARE}, {SQUARE}, tensor<f32>) {{
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %a = stablehlo.exponential %x : {SQUARE}
  %b = stablehlo.reduce(%a init: %zero) {_ADD} = [1] : ({SQUARE}, tensor<f32>) -> {ROWS}
  %c = stablehlo.broadcast_in_dim %b, dims = [0] : ({ROWS}) -> {SQUARE}
  %d = stablehlo.divide %a, %c : {SQUARE}
  %e = stablehlo.reduce(%a init: %zero) {_ADD} = [0] : ({SQUARE}, tensor<f32>) -> {ROWS}
  %f = stablehlo.broadcast_in_dim %e, dims = [1] : ({ROWS}) -> {SQUARE}
  %g = stablehlo.divide %a, %f : {SQUARE}
  %h = stablehlo.reduce(%a init: %zero) {_ADD} = [0, 1] : ({SQUARE}, tensor<f32>) -> tensor<f32>
  %i = stablehlo.log %h : tensor<f32>
  return %d, %g, %i : {SQUARE}, {SQUARE}, tensor<f32>
}}""",
    # What the kernels that became one alone read is not written.
    "read_inside": f"""
func.func @main(%e0: {SQUARE}, %y: {SQUARE}) -> ({HALVES}, {HALVES}) {{
{_CHAIN}
  %p = stablehlo.multiply %e24, %y : {SQUARE}
  %q = stablehlo.add %p, %e24 : {SQUARE}
  %u = stablehlo.convert %p : ({SQUARE}) -> {HALVES}
  %v = stablehlo.convert %q : ({SQUARE}) -> {HALVES}
  return %u, %v : {HALVES}, {HALVES}
}}""",
    # What goes through each operand of a concatenation alone is no part of that.
    "concatenated": f"""
func.func @main(%x: {SQUARE}, %y: {SQUARE}) -> ({HALVES}, {HALVES}) {{
  %a = stablehlo.slice %x [0:4096, 1:4096] : ({SQUARE}) -> tensor<4096x4095xf32>
  %b = stablehlo.slice %x [0:4096, 0:1] : ({SQUARE}) -> tensor<4096x1xf32>
  %c = stablehlo.concatenate %a, %b, dim = 1 : (tensor<4096x4095xf32>, tensor<4096x1xf32>) -> {SQUARE}
  %d = stablehlo.subtract %c, %x : {SQUARE}
  %s = stablehlo.sqrt %c : {SQUARE}
  %p = stablehlo.multiply %d, %y : {SQUARE}
  %q = stablehlo.add %d, %s : {SQUARE}
  %u = stablehlo.convert %p : ({SQUARE}) -> {HALVES}
  %v = stablehlo.convert %q : ({SQUARE}) -> {HALVES}
  return %u, %v : {HALVES}, {HALVES}
}}""",
}
TEMPS = {
    "readers_of_an_argument": 67_108_880,
    "single_readers": 0,
    "rows_and_columns": 67_108_888,
    "two_heads": 16,
    "crossed": 33_177_600,
    "rows_in_place": 54_534_160,
    "branches": 67_125_520,
    "read_inside": 16,
    "concatenated": 67_108_864,
}


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_the_temp_of_kernels_with_several_results(name: str) -> None:
    assert h200_temp(PROGRAMS[name]) == pytest.approx(TEMPS[name], rel=0.05, abs=64)
