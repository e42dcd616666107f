"""What XLA knows to be one number, by the temp that it planned for an H200 (jaxlib 0.10.2, no GPU)."""

from __future__ import annotations

import pytest

from tests.predictions import h200_temp

X, B = "tensor<4000000xf32>", "tensor<4000000xi1>"

# The head of what jax.random draws for a parameter of 2 everywhere: less than 1 is another case.
PARAMETER = f"""
  %two = stablehlo.constant dense<2.0> : tensor<f32>
  %one = stablehlo.constant dense<1.0> : tensor<f32>
  %third = stablehlo.constant dense<0.333333343> : tensor<f32>
  %a = stablehlo.broadcast_in_dim %two, dims = [] : (tensor<f32>) -> {X}
  %b = stablehlo.broadcast_in_dim %one, dims = [] : (tensor<f32>) -> {X}
  %c = stablehlo.broadcast_in_dim %third, dims = [] : (tensor<f32>) -> {X}
  %d = stablehlo.compare GE, %a, %b : ({X}, {X}) -> {B}
"""

PROGRAMS = {
    # What is chosen for the other case is never computed.
    "other_case": f"""
func.func @main(%x: {X}) -> tensor<f32> {{{PARAMETER}
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %s = "stablehlo.sort"(%x) <{{dimension = 0 : i64, is_stable = false}}> ({{
  ^bb0(%l: tensor<f32>, %r: tensor<f32>):
    %t = stablehlo.compare LT, %l, %r : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %t : tensor<i1>
  }}) : ({X}) -> {X}
  %u = stablehlo.compare EQ, %s, %b : ({X}, {X}) -> {B}
  %v = stablehlo.or %d, %u : {B}
  %w = stablehlo.select %v, %x, %s : {B}, {X}
  %y = stablehlo.reduce(%w init: %zero) applies stablehlo.add across dimensions = [0]
    : ({X}, tensor<f32>) -> tensor<f32>
  return %y : tensor<f32>
}}""",
    # What is computed of the parameter is no tensor that a loop reads.
    "read_by_loop": f"""
func.func @main(%x: {X}) -> {X} {{{PARAMETER}
  %e = stablehlo.add %a, %b : {X}
  %f = stablehlo.select %d, %a, %e : {B}, {X}
  %g = stablehlo.subtract %f, %c : {X}
  %h = stablehlo.sqrt %g : {X}
  %i = stablehlo.divide %c, %h : {X}
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %next = stablehlo.constant dense<1> : tensor<i32>
  %last = stablehlo.constant dense<10> : tensor<i32>
  %w:2 = stablehlo.while(%n = %zero, %s = %x) : tensor<i32>, {X}
    cond {{
      %t = stablehlo.compare LT, %n, %last : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %t : tensor<i1>
    }} do {{
      %t = stablehlo.add %n, %next : tensor<i32>
      %u = stablehlo.tanh %s : {X}
      %v = stablehlo.multiply %u, %g : {X}
      %y = stablehlo.add %v, %i : {X}
      stablehlo.return %t, %y : tensor<i32>, {X}
    }}
  return %w#1 : {X}
}}""",
}
TEMPS = {"other_case": 8_000, "read_by_loop": 513}


@pytest.mark.parametrize("name", PROGRAMS)
def test_temp_without_what_is_known_beforehand(name: str) -> None:
    assert h200_temp(PROGRAMS[name]) == pytest.approx(TEMPS[name], rel=0.01, abs=1000)
