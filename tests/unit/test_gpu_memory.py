"""What the model says of small programs for an H200, against the temp that XLA planned (jaxlib 0.10.2, no GPU)."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.memory.gpu.priority_fusion import PriorityFusion
from exla_opt.memory.machine import GPU
from exla_opt.memory.peak import predict
from tests.predictions import h200_temp

TraceFunction = Callable[[FrameType, str, Any], Any]

_ADD = "applies stablehlo.add across dimensions"
PROGRAMS = {
    # A tanh costs more cycles than writing and reading it costs: it is not computed by both of its readers.
    "costly": f"""
func.func @main(%x: tensor<4096x4096xf32>) -> (tensor<4096xf32>, tensor<4096xf32>) {{
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %t = stablehlo.tanh %x : tensor<4096x4096xf32>
  %u = stablehlo.multiply %t, %x : tensor<4096x4096xf32>
  %a = stablehlo.reduce(%t init: %zero) {_ADD} = [0] : (tensor<4096x4096xf32>, tensor<f32>) -> tensor<4096xf32>
  %b = stablehlo.reduce(%u init: %zero) {_ADD} = [1] : (tensor<4096x4096xf32>, tensor<f32>) -> tensor<4096xf32>
  return %a, %b : tensor<4096xf32>, tensor<4096xf32>
}}""",
    # The same with what costs next to nothing.
    "cheap": f"""
func.func @main(%x: tensor<4096x4096xf32>) -> (tensor<4096xf32>, tensor<4096xf32>) {{
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %t = stablehlo.abs %x : tensor<4096x4096xf32>
  %u = stablehlo.multiply %t, %x : tensor<4096x4096xf32>
  %a = stablehlo.reduce(%t init: %zero) {_ADD} = [0] : (tensor<4096x4096xf32>, tensor<f32>) -> tensor<4096xf32>
  %b = stablehlo.reduce(%u init: %zero) {_ADD} = [1] : (tensor<4096x4096xf32>, tensor<f32>) -> tensor<4096xf32>
  return %a, %b : tensor<4096xf32>, tensor<4096xf32>
}}""",
    # A top_k of more than 16 is a sort of all elements and of their places, over what it sorts where that dies.
    "large_top": """
func.func @main(%x: tensor<512x8192xf32>) -> (tensor<512x64xf32>, tensor<512x64xi32>) {
  %n = stablehlo.abs %x : tensor<512x8192xf32>
  %v, %i = chlo.top_k(%n, k = 64) : tensor<512x8192xf32> -> (tensor<512x64xf32>, tensor<512x64xi32>)
  return %v, %i : tensor<512x64xf32>, tensor<512x64xi32>
}""",
    # Gaps between the elements of an image are written out.
    "transposed_convolution": """
func.func @main(%x: tensor<4x64x64x32xf32>, %w: tensor<4x4x32x8xf32>) -> tensor<4x128x128x8xf32> {
  %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {pad = [[2, 2], [2, 2]], lhs_dilate = [2, 2]}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<4x64x64x32xf32>, tensor<4x4x32x8xf32>) -> tensor<4x128x128x8xf32>
  return %y : tensor<4x128x128x8xf32>
}""",
    # The updates of a scatter are computed inside it.
    "scattered": """
func.func @main(%s: tensor<4000000xf32>, %p: tensor<4000000x1xi32>) -> tensor<1000xf32> {
  %z = stablehlo.constant dense<0.0> : tensor<1000xf32>
  %u = stablehlo.multiply %s, %s : tensor<4000000xf32>
  %y = "stablehlo.scatter"(%z, %p, %u) <{scatter_dimension_numbers = #stablehlo.scatter<
    inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }) : (tensor<1000xf32>, tensor<4000000x1xi32>, tensor<4000000xf32>) -> tensor<1000xf32>
  return %y : tensor<1000xf32>
}""",
    # An iota of more than one dimension is one that is repeated: a stable sort of rows makes places of its own.
    "stable_sort_of_rows": """
func.func @main(%x: tensor<512x8192xf32>) -> tensor<512x8192xi32> {
  %i = stablehlo.iota dim = 1 : tensor<512x8192xi32>
  %v, %p = "stablehlo.sort"(%x, %i) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>):
    %e = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %e : tensor<i1>
  }) : (tensor<512x8192xf32>, tensor<512x8192xi32>) -> (tensor<512x8192xf32>, tensor<512x8192xi32>)
  return %p : tensor<512x8192xi32>
}""",
    # The library writes channels last, so what the function returns is turned.
    "channels_first": """
func.func @main(%x: tensor<16x1x16384xf32>, %w: tensor<32x1x63xf32>) -> tensor<16x32x8192xf32> {
  %y = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0],
    window = {stride = [2], pad = [[30, 31]]}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<16x1x16384xf32>, tensor<32x1x63xf32>) -> tensor<16x32x8192xf32>
  return %y : tensor<16x32x8192xf32>
}""",
    # A loop carries once what it stacks twice.
    "stacked_twice": """
func.func @main(%x: tensor<1024x4096xf32>) -> tensor<4096xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %end = stablehlo.constant dense<1024> : tensor<i32>
  %none = stablehlo.constant dense<0.0> : tensor<f32>
  %empty = stablehlo.constant dense<0.0> : tensor<1024x4096xf32>
  %i, %a, %b = stablehlo.while(%j = %zero, %p = %empty, %q = %empty)
      : tensor<i32>, tensor<1024x4096xf32>, tensor<1024x4096xf32>
  cond {
    %c = stablehlo.compare LT, %j, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %s = stablehlo.dynamic_slice %x, %j, %zero, sizes = [1, 4096]
      : (tensor<1024x4096xf32>, tensor<i32>, tensor<i32>) -> tensor<1x4096xf32>
    %t = stablehlo.tanh %s : tensor<1x4096xf32>
    %u = stablehlo.dynamic_update_slice %p, %t, %j, %zero
      : (tensor<1024x4096xf32>, tensor<1x4096xf32>, tensor<i32>, tensor<i32>) -> tensor<1024x4096xf32>
    %v = stablehlo.dynamic_update_slice %q, %t, %j, %zero
      : (tensor<1024x4096xf32>, tensor<1x4096xf32>, tensor<i32>, tensor<i32>) -> tensor<1024x4096xf32>
    %n = stablehlo.add %j, %one : tensor<i32>
    stablehlo.return %n, %u, %v : tensor<i32>, tensor<1024x4096xf32>, tensor<1024x4096xf32>
  }
  %w = stablehlo.multiply %a, %b : tensor<1024x4096xf32>
  %y = stablehlo.reduce(%w init: %none) applies stablehlo.add across dimensions = [0]
    : (tensor<1024x4096xf32>, tensor<f32>) -> tensor<4096xf32>
  return %y : tensor<4096xf32>
}""",
    # A softmax is one kernel, also where its narrow floats are widened between its two sums.
    "softmax": f"""
func.func @main(%x: tensor<4096x2048xbf16>) -> tensor<4096x2048xbf16> {{
  %low = stablehlo.constant dense<0xFF80> : tensor<bf16>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %m = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [1]
    : (tensor<4096x2048xbf16>, tensor<bf16>) -> tensor<4096xbf16>
  %ms = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<4096xbf16>) -> tensor<4096x2048xbf16>
  %d = stablehlo.subtract %x, %ms : tensor<4096x2048xbf16>
  %e = stablehlo.exponential %d : tensor<4096x2048xbf16>
  %w = stablehlo.convert %e : (tensor<4096x2048xbf16>) -> tensor<4096x2048xf32>
  %s = stablehlo.reduce(%w init: %zero) {_ADD} = [1] : (tensor<4096x2048xf32>, tensor<f32>) -> tensor<4096xf32>
  %n = stablehlo.convert %s : (tensor<4096xf32>) -> tensor<4096xbf16>
  %ns = stablehlo.broadcast_in_dim %n, dims = [0] : (tensor<4096xbf16>) -> tensor<4096x2048xbf16>
  %y = stablehlo.divide %e, %ns : tensor<4096x2048xbf16>
  return %y : tensor<4096x2048xbf16>
}}""",
    # A concatenation is written before a kernel that normalises rows, which takes in only what goes along them.
    "normalised_rows": f"""
func.func @main(%a: tensor<4096x512xf32>, %b: tensor<4096x512xf32>) -> tensor<4096x1024xf32> {{
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %x = stablehlo.concatenate %a, %b, dim = 1
    : (tensor<4096x512xf32>, tensor<4096x512xf32>) -> tensor<4096x1024xf32>
  %q = stablehlo.multiply %x, %x : tensor<4096x1024xf32>
  %s = stablehlo.reduce(%q init: %zero) {_ADD} = [1] : (tensor<4096x1024xf32>, tensor<f32>) -> tensor<4096xf32>
  %r = stablehlo.sqrt %s : tensor<4096xf32>
  %t = stablehlo.broadcast_in_dim %r, dims = [0] : (tensor<4096xf32>) -> tensor<4096x1024xf32>
  %y = stablehlo.divide %x, %t : tensor<4096x1024xf32>
  return %y : tensor<4096x1024xf32>
}}""",
    # A kernel that transposes computes what it transposes.
    "transposed_product": """
func.func @main(%x: tensor<2048x1024xf32>, %y: tensor<2048x1024xf32>) -> tensor<1024x2048xf32> {
  %p = stablehlo.multiply %x, %y : tensor<2048x1024xf32>
  %t = stablehlo.transpose %p, dims = [1, 0] : (tensor<2048x1024xf32>) -> tensor<1024x2048xf32>
  return %t : tensor<1024x2048xf32>
}""",
    # The sum of two scatters into zeros is one scatter.
    "scatters": """
func.func @main(%i: tensor<1000x1xi32>, %j: tensor<1000x1xi32>, %u: tensor<1000xf32>) -> tensor<2000000xf32> {
  %z = stablehlo.constant dense<0.0> : tensor<2000000xf32>
  %a = "stablehlo.scatter"(%z, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<
    inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %s = stablehlo.add %p, %q : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<2000000xf32>, tensor<1000x1xi32>, tensor<1000xf32>) -> tensor<2000000xf32>
  %b = "stablehlo.scatter"(%z, %j, %u) <{scatter_dimension_numbers = #stablehlo.scatter<
    inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %s = stablehlo.add %p, %q : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<2000000xf32>, tensor<1000x1xi32>, tensor<1000xf32>) -> tensor<2000000xf32>
  %y = stablehlo.add %a, %b : tensor<2000000xf32>
  return %y : tensor<2000000xf32>
}""",
    # What is one number everywhere is written for no loop that only reads it, whoever else reads it.
    "read_by_a_loop_and_others": """
func.func @main(%x: tensor<4000000xf32>, %n: tensor<i32>) -> tensor<4000000xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %half = stablehlo.constant dense<0.5> : tensor<f32>
  %h = stablehlo.broadcast_in_dim %half, dims = [] : (tensor<f32>) -> tensor<4000000xf32>
  %s = stablehlo.multiply %x, %h : tensor<4000000xf32>
  %w:2 = stablehlo.while(%i = %zero, %v = %s) : tensor<i32>, tensor<4000000xf32>
  cond {
    %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %j = stablehlo.add %i, %one : tensor<i32>
    %t = stablehlo.power %v, %h : tensor<4000000xf32>
    stablehlo.return %j, %t : tensor<i32>, tensor<4000000xf32>
  }
  return %w#1 : tensor<4000000xf32>
}""",
    # cuBLAS solves by columns, over a copy of the right sides; the other copy is of the triangle.
    "solved": """
func.func @main(%a: tensor<1000x1000xf32>, %b: tensor<1000x1000xf32>) -> tensor<1000x1000xf32> {
  %x = "stablehlo.triangular_solve"(%a, %b) <{left_side = true, lower = true, unit_diagonal = false,
    transpose_a = #stablehlo<transpose NO_TRANSPOSE>}>
    : (tensor<1000x1000xf32>, tensor<1000x1000xf32>) -> tensor<1000x1000xf32>
  return %x : tensor<1000x1000xf32>
}""",
}

# Bytes of temp, the larger of those with Triton's and with cuBLAS's products.
TEMPS = {
    "costly": 67_108_880,
    "cheap": 0,
    "large_top": 33_554_448,
    "transposed_convolution": 8_803_072,
    "scattered": 0,
    "stable_sort_of_rows": 33_554_456,
    "channels_first": 16_777_472,
    "stacked_twice": 16_777_496,
    "softmax": 0,
    "normalised_rows": 16_777_216,
    "transposed_product": 0,
    "scatters": 0,
    "read_by_a_loop_and_others": 513,
    "solved": 8_000_256,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_temp_is_what_the_compiler_planned(name: str) -> None:
    assert h200_temp(PROGRAMS[name]) == pytest.approx(TEMPS[name], rel=0.01, abs=1000)


# Two layers relu(x @ a) @ b of which the gradient computes x @ a again behind a barrier, as jax.checkpoint writes them.
# X is the type of x and b, A that of a, H that of x @ a.
RECOMPUTED = """
func.func @main(%a: A, %b: X, %c: A, %d: X, %x: X) -> (A, X, A, X) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %zeros = stablehlo.broadcast_in_dim %zero, dims = [] : (tensor<f32>) -> H
  %0 = stablehlo.dot_general %x, %a, contracting_dims = [1] x [0] : (X, A) -> H
  %1 = stablehlo.maximum %0, %zeros : H
  %2 = stablehlo.dot_general %1, %b, contracting_dims = [1] x [0] : (H, X) -> X
  %3 = stablehlo.dot_general %2, %c, contracting_dims = [1] x [0] : (X, A) -> H
  %4 = stablehlo.maximum %3, %zeros : H
  %5 = stablehlo.dot_general %4, %d, contracting_dims = [1] x [0] : (H, X) -> X
  %6:4 = stablehlo.optimization_barrier %2, %c, %d, %5 : X, A, X, X
  %7 = stablehlo.dot_general %6#0, %6#1, contracting_dims = [1] x [0] : (X, A) -> H
  %8 = stablehlo.maximum %7, %zeros : H
  %9 = stablehlo.compare GT, %7, %zeros : (H, H) -> tensor<2048x2048xi1>
  %10 = stablehlo.dot_general %8, %6#3, contracting_dims = [0] x [0] : (H, X) -> X
  %11 = stablehlo.dot_general %6#3, %6#2, contracting_dims = [1] x [1] : (X, X) -> H
  %12 = stablehlo.select %9, %11, %zeros : tensor<2048x2048xi1>, H
  %13 = stablehlo.dot_general %6#0, %12, contracting_dims = [0] x [0] : (X, H) -> A
  %14 = stablehlo.dot_general %12, %6#1, contracting_dims = [1] x [1] : (H, A) -> X
  %15:4 = stablehlo.optimization_barrier %x, %a, %b, %14 : X, A, X, X
  %16 = stablehlo.dot_general %15#0, %15#1, contracting_dims = [1] x [0] : (X, A) -> H
  %17 = stablehlo.maximum %16, %zeros : H
  %18 = stablehlo.compare GT, %16, %zeros : (H, H) -> tensor<2048x2048xi1>
  %19 = stablehlo.dot_general %17, %15#3, contracting_dims = [0] x [0] : (H, X) -> X
  %20 = stablehlo.dot_general %15#3, %15#2, contracting_dims = [1] x [1] : (X, X) -> H
  %21 = stablehlo.select %18, %20, %zeros : tensor<2048x2048xi1>, H
  %22 = stablehlo.dot_general %15#0, %21, contracting_dims = [0] x [0] : (X, H) -> A
  return %22, %19, %13, %10 : A, X, A, X
}"""


def test_what_is_behind_a_barrier_waits_for_all_that_goes_in() -> None:
    text = RECOMPUTED
    for name, kind in (("A", "256x2048xf32"), ("X", "2048x256xf32"), ("H", "2048x2048xf32")):
        text = re.sub(rf"\b{name}\b", f"tensor<{kind}>", text)
    assert h200_temp(text) == pytest.approx(69_210_368, rel=0.05)


@pytest.mark.parametrize("refused", [False, True])
def test_a_constant_of_many_readers_is_asked_about_those_that_changed(refused: bool) -> None:
    kind = "tensor<64x64xf32>"
    dot = f"contracting_dims = [1] x [0] : ({kind}, {kind}) -> {kind}"

    def lines_for(length: int) -> int:
        lines = [f"func.func @main(%v0: {kind}) -> {kind} {{", f"%c = stablehlo.constant dense<3.0> : {kind}"]
        for k in range(length):
            lines.append(f"%s{k} = stablehlo.sine %v{k} : {kind}")
            lines.append(f"%w{k} = stablehlo.add %s{k}, %c : {kind}")
            lines.append(f"%v{k + 1} = stablehlo.dot_general %w{k}, %w{k}, {dot}")
        last = f"%y = stablehlo.dot_general %v{length}, %{'c' if refused else f'v{length}'}, {dot}"
        with new_context():
            module = ir.Module.parse("\n".join([*lines, last, f"return %y : {kind}", "}"]))
            return executed_lines(PriorityFusion.gain, lambda: predict(module, GPU))

    assert lines_for(200) < 5 * lines_for(50)


def executed_lines(function: Callable[..., Any], work: Callable[[], Any]) -> int:
    """How many lines of a function run, all its calls together, while something is done."""
    found = 0

    def inside(frame: FrameType, event: str, _: object) -> TraceFunction | None:
        nonlocal found
        found += event == "line"
        return inside

    def outside(frame: FrameType, event: str, _: object) -> TraceFunction | None:
        return inside if frame.f_code is function.__code__ else None

    before = sys.gettrace()
    sys.settrace(outside)
    try:
        work()
    finally:
        sys.settrace(before)
    return found
