"""What is complete where something else is added up in tiles: no branch and no loop counts it once for each tile."""

from __future__ import annotations

import numpy as np
import pytest

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.walk import walk_functions
from exla_opt.ir.write import serialise
from exla_opt.ops.control_factors import ControlRule
from exla_opt.ops.rules import read_rules
from exla_opt.options import Options
from exla_opt.pipeline import run_pipeline
from exla_opt.runtime.compile import compile_program, run_program

ROWS, ROW, LINE = "tensor<256x200xf32>", "tensor<200xf32>", "tensor<256xf32>"


def sum_of(rows: str) -> str:
    return (
        f"stablehlo.reduce({rows} init: %zero) applies stablehlo.add across dimensions = [0]"
        f" : ({ROWS}, tensor<f32>) -> {ROW}"
    )


def loop(start: str, other: str, step: str) -> str:
    """Three steps, which carry %s and %t; they become what the step calls %u and %w."""
    return f"""
      %l:3 = stablehlo.while(%i = %first, %s = {start}, %t = {other}) : tensor<i32>, {ROW}, {ROW}
      cond {{
        %n = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %n : tensor<i1>
      }} do {{
        %n = stablehlo.add %i, %one : tensor<i32>
        {step}
        stablehlo.return %n, %u, %w : tensor<i32>, {ROW}, {ROW}
      }}
    """


# The sum of a small tensor of as many numbers as there are rows, which differs from step to step.
SUM_IN_STEP = f"""
  %f = stablehlo.convert %i : (tensor<i32>) -> tensor<f32>
  %many = stablehlo.broadcast_in_dim %f, dims = [] : (tensor<f32>) -> {LINE}
  %product = stablehlo.multiply %line, %many : {LINE}
  %whole = stablehlo.reduce(%product init: %zero) applies stablehlo.add across dimensions = [0]
    : ({LINE}, tensor<f32>) -> tensor<f32>
  %added = stablehlo.broadcast_in_dim %whole, dims = [] : (tensor<f32>) -> {ROW}
  %u = stablehlo.add %s, %added : {ROW}
  %w = stablehlo.cosine %t : {ROW}
"""
COUNTED = f"%line = stablehlo.iota dim = 0 : {LINE}\n"
ADDS_OTHER = f"%u = stablehlo.add %s, %t : {ROW}\n %w = stablehlo.add %t, %t : {ROW}"
FIRST = f"%sum = {sum_of('%c')}\n %other = stablehlo.cosine %v : {ROW}\n stablehlo.return %sum, %other : {ROW}, {ROW}"
ADDS_COMPLETE = f"%u = stablehlo.add %s, %v : {ROW}\n %w = stablehlo.cosine %t : {ROW}"
# The other branch.
BRANCHES = {
    "a loop that adds what is complete": f"""
      {loop("%nothing", "%v", ADDS_COMPLETE)}
      stablehlo.return %l#1, %v : {ROW}, {ROW}""",
    "a sum that is needed complete as well": f"""
      %sum = {sum_of("%x")}
      %less = stablehlo.negate %sum : {ROW}
      %square = stablehlo.multiply %less, %less : {ROW}
      stablehlo.return %less, %square : {ROW}, {ROW}""",
    "a loop that adds what another carry starts from": f"""
      {loop("%nothing", "%v", ADDS_OTHER)}
      stablehlo.return %l#1, %v : {ROW}, {ROW}""",
    "a loop of its own that sums in each step": f"""
      %line = stablehlo.dot_general %x, %v, contracting_dims = [1] x [0] : ({ROWS}, {ROW}) -> {LINE}
      {loop("%nothing", "%v", SUM_IN_STEP)}
      stablehlo.return %l#1, %v : {ROW}, {ROW}""",
    "a loop on the sum that sums in each step what it counts itself": f"""
      %sum = {sum_of("%c")}
      {loop("%sum", "%v", COUNTED + SUM_IN_STEP)}
      stablehlo.return %l#1, %v : {ROW}, {ROW}""",
}


def program(branch: str) -> str:
    return f"""func.func @main(%a: {ROWS}, %x: {ROWS}, %v: {ROW}, %which: tensor<i32>) -> ({LINE}, {ROW}, {ROW}) {{
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %nothing = stablehlo.constant dense<0.0> : {ROW}
      %first = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %end = stablehlo.constant dense<3> : tensor<i32>
      %c = stablehlo.cosine %a : {ROWS}
      %b:2 = "stablehlo.case"(%which) ({{ {FIRST} }}, {{ {branch} }}) : (tensor<i32>) -> ({ROW}, {ROW})
      %sorted = "stablehlo.sort"(%c) <{{dimension = 1 : i64}}> ({{
      ^bb0(%p: tensor<f32>, %q: tensor<f32>):
        %less = stablehlo.compare LT, %p, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %less : tensor<i1>
      }}) : ({ROWS}) -> {ROWS}
      %r = stablehlo.dot_general %sorted, %v, contracting_dims = [1] x [0] : ({ROWS}, {ROW}) -> {LINE}
      return %r, %b#0, %b#1 : {LINE}, {ROW}, {ROW}
    }}"""


@pytest.mark.parametrize("name", BRANCHES)
def test_the_numbers_are_the_same(name: str) -> None:
    text = program(BRANCHES[name])
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        names = ("normalise", "tensor-splitter", "normalise")
        run_pipeline(module, names, Options(size_threshold=64_000, split_size=64_000))
        after = serialise(module, "text").decode()
    programs = [compile_program(each) for each in (text, after)]
    rng = np.random.default_rng(0)
    numbers = [rng.integers(-3, 4, shape).astype(np.float32) for shape in ((256, 200), (256, 200), (200,))]
    for which in (0, 1):
        for one, two in zip(
            *(run_program(each, [*numbers, np.array(which, np.int32)]) for each in programs), strict=True
        ):
            np.testing.assert_allclose(one, two, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", BRANCHES)
def test_the_branches_are_not_cut(name: str) -> None:
    with new_context() as context:
        module = parse_module("<program>", program(BRANCHES[name]).encode(), context).module
        rules, ops = read_rules(module), list(walk_functions(module.operation))
        [rule] = [rules[number] for number, op in enumerate(ops) if op.name == "stablehlo.case"]
        [rows] = [op.results[0] for op in ops if op.name == "stablehlo.cosine" and str(op.results[0].type) == ROWS]
        assert isinstance(rule, ControlRule)
        assert rule.at_operand(rule.values.index(rows), 0) is None
