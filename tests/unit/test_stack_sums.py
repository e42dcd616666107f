"""Stacks that are summed over tiles: added where they are written, unless an element is written twice or read."""

from __future__ import annotations

import numpy as np
import pytest
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.walk import walk_functions
from exla_opt.ir.write import serialise
from exla_opt.ops.stack_sums import add_in_place
from tests.execute import random_arguments, run_module

# A loop of six steps; in each, one of two slices a step of an inner loop. START, AT, INNER and READ are put in.
_TEXT = """
func.func @main(%total: tensor<12x3xf32>, %x: tensor<3xf32>, %p: tensor<i32>) -> tensor<12x3xf32> {
  %zero = stablehlo.constant dense<START> : tensor<12x3xf32>
  %i0 = stablehlo.constant dense<0> : tensor<i32>
  %i1 = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %five = stablehlo.constant dense<5> : tensor<i32>
  %six = stablehlo.constant dense<6> : tensor<i32>
  %outer:3 = stablehlo.while(%i = %i0, %s = %zero, %v = %x) : tensor<i32>, tensor<12x3xf32>, tensor<3xf32>
    cond {
      %go = stablehlo.compare LT, %i, %six, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %first = stablehlo.multiply %i, %two : tensor<i32>
      %back = stablehlo.subtract %five, %i : tensor<i32>
      %inner:4 = stablehlo.while(%j = %i0, %t = %s, %w = %v, %k = %first)
        : tensor<i32>, tensor<12x3xf32>, tensor<3xf32>, tensor<i32>
        cond {
          %go = stablehlo.compare LT, %j, %two, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %go : tensor<i1>
        } do {
          %y = stablehlo.cosine %w : tensor<3xf32>
          %row = stablehlo.reshape %y : (tensor<3xf32>) -> tensor<1x3xf32>
          %at = AT : tensor<i32>
          %u = stablehlo.dynamic_update_slice %t, %row, %at, %i0
            : (tensor<12x3xf32>, tensor<1x3xf32>, tensor<i32>, tensor<i32>) -> tensor<12x3xf32>
          %next = stablehlo.add %j, %i1 : tensor<i32>
          %place = stablehlo.add %k, %i1 : tensor<i32>
          stablehlo.return %next, %u, %y, %place : tensor<i32>, tensor<12x3xf32>, tensor<3xf32>, tensor<i32>
        }
      %m = stablehlo.add %i, %i1 : tensor<i32>
      READ
      stablehlo.return %m, %inner#1, %inner#2 : tensor<i32>, tensor<12x3xf32>, tensor<3xf32>
    }
  %sum = stablehlo.add %total, %outer#1 : tensor<12x3xf32>
  return %sum : tensor<12x3xf32>
}
"""


def accumulated(at: str, start: str = "0.0", read: str = "") -> tuple[bool, str, str]:
    """Whether the stack was added in place; the module as it was, and as it is then."""
    text = _TEXT.replace("AT :", f"{at} :").replace("START", start).replace("READ", read)
    with new_context() as context, ir.Location.unknown(context):
        module = parse_module("<stack>", text.encode(), context).module
        before = serialise(module, "text").decode()
        [addition] = [
            op for op in walk_functions(module.operation) if op.name == "stablehlo.add" and "12x3" in str(op.results[0])
        ]
        done = add_in_place(addition.operands[0], addition.operands[1])
        if done:
            addition.results[0].replace_all_uses_with(addition.operands[1])
            addition.erase()
        assert module.operation.verify()
        return done, before, serialise(module, "text").decode()


@pytest.mark.parametrize(
    "at",
    [
        "stablehlo.add %k, %i0",  # one behind the other
        "stablehlo.subtract %k, %i0",
        "stablehlo.multiply %k, %i1",
    ],
)
def test_what_is_written_once_is_added_where_it_is_written(at: str) -> None:
    done, before, after = accumulated(at)
    assert done and "stablehlo.dynamic_slice" in after
    arrays = random_arguments(before)
    for one, other in zip(run_module(before, arrays), run_module(after, arrays), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("at", "start", "read"),
    [
        ("stablehlo.remainder %k, %six", "0.0", ""),  # every second half writes over the first
        ("stablehlo.add %k, %k", "0.0", ""),  # beyond the end: moved inside, onto another one
        ("stablehlo.add %k, %p", "0.0", ""),  # nobody knows where
        ("stablehlo.multiply %i, %i1", "0.0", ""),  # the inner loop writes one twice
        ("stablehlo.add %k, %i0", "1.0", ""),  # begins with something
        ("stablehlo.add %k, %i0", "0.0", "%read = stablehlo.negate %s : tensor<12x3xf32>"),  # is read
        ("stablehlo.add %k, %i0", "0.0", "%read = stablehlo.negate %inner#1 : tensor<12x3xf32>"),
    ],
)
def test_what_is_written_twice_read_or_begun_with_stays(at: str, start: str, read: str) -> None:
    done, before, after = accumulated(at, start, read)
    assert not done and before == after


def test_another_type_is_added_as_a_whole() -> None:
    text = _TEXT.replace("AT :", "stablehlo.add %k, %i0 :").replace("START", "0.0").replace("READ", "")
    with new_context() as context, ir.Location.unknown(context):
        module = parse_module("<stack>", text.encode(), context).module
        [addition] = [
            op for op in walk_functions(module.operation) if op.name == "stablehlo.add" and "12x3" in str(op.results[0])
        ]
        wide = ir.RankedTensorType.get([12, 3], ir.F64Type.get())
        with ir.InsertionPoint(addition):
            total = stablehlo.convert(wide, addition.operands[0])
        assert not add_in_place(total, addition.operands[1])


def test_a_carry_that_is_only_passed_on_is_no_stack() -> None:
    """Two carries change places in every step; one of them is a sum."""
    text = """
    func.func @main(%total: tensor<4xf32>, %x: tensor<4xf32>) -> tensor<4xf32> {
      %zero = stablehlo.constant dense<0.0> : tensor<4xf32>
      %i0 = stablehlo.constant dense<0> : tensor<i32>
      %i1 = stablehlo.constant dense<1> : tensor<i32>
      %three = stablehlo.constant dense<3> : tensor<i32>
      %loop:3 = stablehlo.while(%i = %i0, %s = %zero, %v = %x) : tensor<i32>, tensor<4xf32>, tensor<4xf32>
        cond {
          %go = stablehlo.compare LT, %i, %three, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %go : tensor<i1>
        } do {
          %n = stablehlo.add %i, %i1 : tensor<i32>
          stablehlo.return %n, %v, %s : tensor<i32>, tensor<4xf32>, tensor<4xf32>
        }
      %sum = stablehlo.add %total, %loop#1 : tensor<4xf32>
      return %sum : tensor<4xf32>
    }
    """
    with new_context() as context, ir.Location.unknown(context):
        module = parse_module("<stack>", text.encode(), context).module
        [addition] = [
            op for op in walk_functions(module.operation) if op.name == "stablehlo.add" and "4xf32" in str(op)
        ]
        assert not add_in_place(addition.operands[0], addition.operands[1])
