"""What a block keeps in memory with some plans, and whether one more could lower it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from unittest.mock import patch

import pytest
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.memory.block import Operation
from exla_opt.memory.machine import CPU
from exla_opt.ops.rules import read_rules
from exla_opt.options import Options
from exla_opt.passes.tensor_splitter.graph import Graph, read_graphs
from exla_opt.passes.tensor_splitter.plans import choose as choosing
from exla_opt.passes.tensor_splitter.plans.allowance import Allowance
from exla_opt.passes.tensor_splitter.plans.block import run_planned
from exla_opt.passes.tensor_splitter.plans.choose import Choice, choose

_SMALL, _BIG = "tensor<500x500xf32>", "tensor<1000x1000xf32>"


def _loop(name: str, start: str, kind: str) -> str:
    return f"""
      {name}:2 = stablehlo.while(%i = %zero, %c = {start}) : tensor<i32>, {kind}
        cond {{
          %go = stablehlo.compare LT, %i, %three, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %go : tensor<i1>
        }} do {{
          %n = stablehlo.add %i, %one : tensor<i32>
          %e = stablehlo.sine %c : {kind}
          stablehlo.return %n, %e : tensor<i32>, {kind}
        }}
    """


def _sum(name: str, of: str, kind: str) -> str:
    return f"""
      {name} = stablehlo.reduce({of} init: %none) applies stablehlo.add across dimensions = [0, 1]
        : ({kind}, tensor<f32>) -> tensor<f32>
    """


def _program(small: int) -> str:
    """Loops over small tensors, one after the other, and one over a big one; each is summed up."""
    ops = [_loop("%b", "%big", _BIG), _sum("%total0", "%b#1", _BIG)]
    for number in range(small):
        ops += [
            f"%x{number} = stablehlo.slice %x [{number}:{number + 500}] : (tensor<1000xf32>) -> tensor<500xf32>",
            f"%f{number} = stablehlo.broadcast_in_dim %total{number}, dims = [] : (tensor<f32>) -> tensor<500xf32>",
            f"%y{number} = stablehlo.multiply %x{number}, %f{number} : tensor<500xf32>",
            f"%row{number} = stablehlo.dot_general %y{number}, %x{number}, contracting_dims = [] x []"
            f" : (tensor<500xf32>, tensor<500xf32>) -> {_SMALL}",
            _loop(f"%s{number}", f"%row{number}", _SMALL),
            _sum(f"%t{number}", f"%s{number}#1", _SMALL),
            f"%total{number + 1} = stablehlo.add %total{number}, %t{number} : tensor<f32>",
        ]
    return f"""
    func.func @main(%x: tensor<1000xf32>) -> tensor<f32> {{
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %three = stablehlo.constant dense<3> : tensor<i32>
      %none = stablehlo.constant dense<0.0> : tensor<f32>
      %big = stablehlo.dot_general %x, %x, contracting_dims = [] x [] : (tensor<1000xf32>, tensor<1000xf32>) -> {_BIG}
      {"".join(line + chr(10) for line in ops)}
      return %total{small} : tensor<f32>
    }}
    """


@pytest.fixture
def graph() -> Iterator[Graph]:
    with new_context() as context:
        module = ir.Module.parse(_program(12), context)
        yield read_graphs(module, read_rules(module))[0]


def _chosen(graph: Graph) -> Choice:
    options = Options(size_threshold=500_000, split_size=100_000)
    allowance = Allowance([graph], CPU)
    allowance.start([graph])
    return choose(graph, options, allowance)


def test_a_block_is_run_once_for_all_plans_that_are_not_at_its_peak(graph: Graph) -> None:
    with patch.object(choosing, "run_planned", wraps=run_planned) as runs:
        _chosen(graph)
    assert runs.call_count < 12


def test_a_plan_is_at_the_peak_only_with_what_is_alive_there(graph: Graph) -> None:
    plans = _chosen(graph).plans
    assert plans
    before = run_planned(graph, [], CPU, 100_000)
    for plan in plans:
        known = before.peak_without(graph, plan.tiled, plan.vanished)
        assert known <= before.peak
        assert known <= run_planned(graph, [plan], CPU, 100_000).peak
    assert before.peak_without(graph, (), ()) == before.peak


def test_without_anything_left_out_a_gpu_needs_what_its_layout_takes(graph: Graph) -> None:
    found = run_planned(graph, [], CPU, 100_000)
    packed = replace(found, peak=2 * found.peak)
    assert packed.peak_without(graph, (), ()) == 2 * found.peak


def test_a_renumbered_op_keeps_everything_but_its_tensors() -> None:
    names = [each.name for each in fields(Operation)]
    op = Operation(*names)  # type: ignore[arg-type]
    made = op.renumbered((1,), (2,), (3,), frozenset((4,)), 5)
    changed = {"operands": (1,), "results": (2,), "captures": (3,), "narrow": frozenset((4,)), "scratch": 5}
    assert {name: getattr(made, name) for name in names} == {name: name for name in names} | changed
