"""Counters of loops: which are merged, and which lists of positions are read back; each with the same results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.walk import inside_out
from exla_opt.ir.write import serialise
from exla_opt.options import Options
from exla_opt.passes import normalise
from exla_opt.passes.normalise.counters import read_counters
from exla_opt.runtime.compile import compile_program, run_program
from tests.execute import calls_of

TEXT = (Path(__file__).parents[1] / "lit" / "normalise" / "counters.mlir").read_text()

# What is replaced in the golden's text, by what; the carries of both loops; and whether the positions are read back.
CASES = {
    "as it is": ("", "", (3, 3), True),
    "another start": ("%k = %zero, %positions", "%k = %one, %positions", (4, 4), True),
    "another step": ("stablehlo.add %k, %one", "stablehlo.add %k, %k", (4, 4), True),
    "positions later in the list": ("%positions = %none, %l = %zero", "%positions = %none, %l = %one", (4, 4), False),
    "a position that is not the counter": (
        "reshape %j : (tensor<i32>)",
        "reshape %five : (tensor<i32>)",
        (3, 3),
        False,
    ),
    "fewer trips": ("LT, %j, %five", "LT, %j, %one", (3, 3), False),
}


# A loop that fills a list of all positions, of which some are read.
FILLED = """func.func public @main(%m: tensor<i32>) -> tensor<{size}xi32> {{
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %five = stablehlo.constant dense<5> : tensor<i32>
  %none = stablehlo.constant dense<7> : tensor<5xi32>
  %0:2 = stablehlo.while(%i = %zero, %list = %none) : tensor<i32>, tensor<5xi32>
  cond {{
    %1 = stablehlo.compare LT, %i, %five : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }} do {{
    %1 = stablehlo.reshape %i : (tensor<i32>) -> tensor<1xi32>
    %2 = stablehlo.dynamic_update_slice %list, %1, %i : (tensor<5xi32>, tensor<1xi32>, tensor<i32>) -> tensor<5xi32>
    %3 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %3, %2 : tensor<i32>, tensor<5xi32>
  }}
  %r = stablehlo.dynamic_slice %0#1, %m, sizes = [{size}] : (tensor<5xi32>, tensor<i32>) -> tensor<{size}xi32>
  return %r : tensor<{size}xi32> }}"""


@pytest.mark.parametrize("size", [1, 2, 5])
def test_one_position_is_read_back_and_several_are_not(size: int) -> None:
    text = FILLED.format(size=size)
    module = parse_module("m.mlir", text.encode(), new_context()).module
    normalise.run(module, Options())
    assert ("stablehlo.clamp" in str(module)) == (size == 1)
    for position in (-3, 0, 2, 4, 9):
        array = np.array(position, np.int32)
        [expected] = run_program(compile_program(text), [array])
        [found] = run_program(compile_program(serialise(module, "text")), [array])
        np.testing.assert_array_equal(found, expected)


def test_the_work_grows_as_the_carries() -> None:
    def loop_of(count: int) -> ir.Module:
        places = range(count)
        types = ", ".join(["tensor<i32>"] * (count + 1))
        starts = "".join(f"%s{place} = stablehlo.constant dense<{place + 9}> : tensor<i32>\n" for place in places)
        carried = ", ".join(["%i = %zero", *(f"%c{place} = %s{place}" for place in places)])
        added = "".join(f"%a{place} = stablehlo.add %c{place}, %one : tensor<i32>\n" for place in places)
        text = f"""func.func public @main(%m: tensor<i32>) -> ({types}) {{
          %zero = stablehlo.constant dense<0> : tensor<i32>
          %one = stablehlo.constant dense<1> : tensor<i32>
          {starts}
          %0:{count + 1} = stablehlo.while({carried}) : {types}
          cond {{
            %1 = stablehlo.compare LT, %i, %s0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
            stablehlo.return %1 : tensor<i1>
          }} do {{
            %1 = stablehlo.add %i, %one : tensor<i32>
            {added}
            stablehlo.return {", ".join(["%1", *(f"%a{place}" for place in places)])} : {types}
          }}
          return {", ".join(f"%0#{place}" for place in range(count + 1))} : {types} }}"""
        return parse_module("m.mlir", text.encode(), new_context()).module

    few, many = loop_of(100), loop_of(400)
    assert calls_of(lambda: read_counters(many)) <= 4.5 * calls_of(lambda: read_counters(few))


@pytest.mark.parametrize("name", CASES)
def test_counters_are_merged_where_they_are_equal(name: str) -> None:
    old, new, carries, is_read_back = CASES[name]
    assert old in TEXT
    text = TEXT.replace(old, new)
    module = parse_module("m.mlir", text.encode(), new_context()).module
    normalise.run(module, Options())
    module.operation.verify()
    assert tuple(len(loop.operands) for loop in inside_out(module, "stablehlo.while")) == carries
    assert ("stablehlo.clamp" in str(module)) == is_read_back
    array = np.random.default_rng(0).standard_normal((5, 3), np.float32)
    [expected] = run_program(compile_program(text), [array])
    [found] = run_program(compile_program(serialise(module, "text")), [array])
    np.testing.assert_array_equal(found, expected)
