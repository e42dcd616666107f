"""Loops that stack for others, with counters of narrow and unsigned types, and with turned slices."""

from __future__ import annotations

import numpy as np
import pytest

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.options import Options
from exla_opt.pipeline import run_pipeline
from tests.execute import run_module

ROW = "tensor<64xf32>"
MATRIX, SLICE, STACK = "tensor<16x16xf32>", "tensor<1x16x16xf32>", "tensor<12x16x16xf32>"


def counted(kind: str, start: int, trips: int) -> str:
    """A loop that counts in a type from `start`, stacks what it makes, and one that reads it from the last step on."""
    index, stack = f"tensor<{kind}>", f"tensor<{trips}x64xf32>"
    return f"""func.func @main(%h: {ROW}, %g: {ROW}) -> {ROW} {{
      %first = stablehlo.constant dense<{start}> : {index}
      %one = stablehlo.constant dense<1> : {index}
      %end = stablehlo.constant dense<{start + trips}> : {index}
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %step = stablehlo.constant dense<1> : tensor<i32>
      %trips = stablehlo.constant dense<{trips}> : tensor<i32>
      %last = stablehlo.constant dense<{trips - 1}> : tensor<i32>
      %before = stablehlo.constant dense<{-start}> : tensor<i32>
      %nothing = stablehlo.constant dense<0.0> : {stack}
      %half = stablehlo.constant dense<0.5> : {ROW}
      %l:3 = stablehlo.while(%i = %first, %c = %h, %s = %nothing) : {index}, {ROW}, {stack}
      cond {{
        %n = stablehlo.compare LT, %i, %end : ({index}, {index}) -> tensor<i1>
        stablehlo.return %n : tensor<i1>
      }} do {{
        %wide = stablehlo.convert %i : ({index}) -> tensor<i32>
        %at = stablehlo.add %wide, %before : tensor<i32>
        %v = stablehlo.cosine %c : {ROW}
        %part = stablehlo.reshape %v : ({ROW}) -> tensor<1x64xf32>
        %u = stablehlo.dynamic_update_slice %s, %part, %at, %zero
          : ({stack}, tensor<1x64xf32>, tensor<i32>, tensor<i32>) -> {stack}
        %d = stablehlo.add %c, %v : {ROW}
        %n = stablehlo.add %i, %one : {index}
        stablehlo.return %n, %d, %u : {index}, {ROW}, {stack}
      }}
      %r:2 = stablehlo.while(%j = %zero, %sum = %g) : tensor<i32>, {ROW}
      cond {{
        %n = stablehlo.compare LT, %j, %trips : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %n : tensor<i1>
      }} do {{
        %at = stablehlo.subtract %last, %j : tensor<i32>
        %part = stablehlo.dynamic_slice %l#2, %at, %zero, sizes = [1, 64]
          : ({stack}, tensor<i32>, tensor<i32>) -> tensor<1x64xf32>
        %v = stablehlo.reshape %part : (tensor<1x64xf32>) -> {ROW}
        %less = stablehlo.multiply %sum, %half : {ROW}
        %more = stablehlo.add %less, %v : {ROW}
        %n = stablehlo.add %j, %step : tensor<i32>
        stablehlo.return %n, %more : tensor<i32>, {ROW}
      }}
      return %r#1 : {ROW}
    }}"""


TURNED = f"""func.func @main(%h: {MATRIX}, %g: {MATRIX}) -> {MATRIX} {{
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %end = stablehlo.constant dense<12> : tensor<i32>
  %nothing = stablehlo.constant dense<0.0> : {STACK}
  %half = stablehlo.constant dense<0.5> : {MATRIX}
  %l:4 = stablehlo.while(%i = %zero, %c = %h, %s = %nothing, %t = %nothing) : tensor<i32>, {MATRIX}, {STACK}, {STACK}
  cond {{
    %n = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %n : tensor<i1>
  }} do {{
    %v = stablehlo.cosine %c : {MATRIX}
    %w = stablehlo.sine %c : {MATRIX}
    %turned = stablehlo.broadcast_in_dim %v, dims = [2, 1] : ({MATRIX}) -> {SLICE}
    %part = stablehlo.reshape %w : ({MATRIX}) -> {SLICE}
    %u = stablehlo.dynamic_update_slice %s, %turned, %i, %zero, %zero
      : ({STACK}, {SLICE}, tensor<i32>, tensor<i32>, tensor<i32>) -> {STACK}
    %x = stablehlo.dynamic_update_slice %t, %part, %i, %zero, %zero
      : ({STACK}, {SLICE}, tensor<i32>, tensor<i32>, tensor<i32>) -> {STACK}
    %d = stablehlo.add %v, %g : {MATRIX}
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %d, %u, %x : tensor<i32>, {MATRIX}, {STACK}, {STACK}
  }}
  %r:2 = stablehlo.while(%j = %zero, %sum = %g) : tensor<i32>, {MATRIX}
  cond {{
    %n = stablehlo.compare LT, %j, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %n : tensor<i1>
  }} do {{
    %v = stablehlo.dynamic_slice %l#2, %j, %zero, %zero, sizes = [1, 16, 16]
      : ({STACK}, tensor<i32>, tensor<i32>, tensor<i32>) -> {SLICE}
    %w = stablehlo.dynamic_slice %l#3, %j, %zero, %zero, sizes = [1, 16, 16]
      : ({STACK}, tensor<i32>, tensor<i32>, tensor<i32>) -> {SLICE}
    %both = stablehlo.add %v, %w : {SLICE}
    %part = stablehlo.reshape %both : ({SLICE}) -> {MATRIX}
    %less = stablehlo.multiply %sum, %half : {MATRIX}
    %more = stablehlo.add %less, %part : {MATRIX}
    %n = stablehlo.add %j, %one : tensor<i32>
    stablehlo.return %n, %more : tensor<i32>, {MATRIX}
  }}
  return %r#1 : {MATRIX}
}}"""


def check(text: str, shape: tuple[int, ...], threshold: int) -> list[str]:
    """Assert that the results are the same; returns what was done."""
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        remarks = run_pipeline(module, ("normalise", "loop-residuals"), Options(size_threshold=threshold)).remarks
        after = serialise(module, "text").decode()
    rng = np.random.default_rng(0)
    numbers = [rng.standard_normal(shape).astype(np.float32) for _ in range(2)]
    for one, other in zip(run_module(text, numbers), run_module(after, numbers), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    return [remark.code for remark in remarks]


@pytest.mark.parametrize(
    ("kind", "start", "trips"),
    [("i8", 0, 120), ("i8", -100, 200), ("ui8", 0, 250), ("i16", 0, 120), ("ui32", 0, 100)],
)
def test_what_a_counter_may_not_hold_is_not_computed_in_its_type(kind: str, start: int, trips: int) -> None:
    assert "EX005" not in check(counted(kind, start, trips), (64,), 6_000)


def test_a_counter_that_holds_all_is_followed() -> None:
    assert "EX005" in check(counted("i32", -50, 100), (64,), 6_000)


def test_a_slice_that_is_turned_is_no_view() -> None:
    assert "EX005" in check(TURNED, (16, 16), 14_000)
