"""What is chosen in a block is remembered as long as the block stays as it is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.types import Types
from exla_opt.ir.walk import all_blocks
from exla_opt.memory.fusion import fuse
from exla_opt.memory.machine import CPU
from exla_opt.memory.reading import read_numbered
from exla_opt.ops.rules import read_rules
from exla_opt.options import Options
from exla_opt.passes.tensor_splitter.graph import Graph, read_graphs
from exla_opt.passes.tensor_splitter.plans.allowance import Allowance
from exla_opt.passes.tensor_splitter.plans.body import WorkOf, work_of
from exla_opt.passes.tensor_splitter.plans.choices import Choices

# Two loops, one inside the other; the inner one makes a big tensor and adds it up.
_TEXT = """
func.func @main(%x: tensor<300xf32>) -> tensor<f32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %end = stablehlo.constant dense<3> : tensor<i32>
  %none = stablehlo.constant dense<0.0> : tensor<f32>
  %strange = stablehlo.constant dense<(1.0,2.0)> : tensor<complex<f32>>
  %outer:2 = stablehlo.while(%i = %zero, %a = %none) : tensor<i32>, tensor<f32>
    cond {
      %go = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %kept = stablehlo.constant dense<(1.0,2.0)> : tensor<complex<f32>>
      %inner:2 = stablehlo.while(%j = %zero, %b = %a) : tensor<i32>, tensor<f32>
        cond {
          %go = stablehlo.compare LT, %j, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %go : tensor<i1>
        } do {
          %rows = stablehlo.reshape %x : (tensor<300xf32>) -> tensor<300x1xf32>
          %big = stablehlo.dot_general %rows, %rows, contracting_dims = [1] x [1] : (tensor<300x1xf32>, tensor<300x1xf32>) -> tensor<300x300xf32>
          %most = stablehlo.reduce(%big init: %none) applies stablehlo.maximum across dimensions = [1] : (tensor<300x300xf32>, tensor<f32>) -> tensor<300xf32>
          %wide = stablehlo.broadcast_in_dim %most, dims = [0] : (tensor<300xf32>) -> tensor<300x300xf32>
          %more = stablehlo.subtract %big, %wide : tensor<300x300xf32>
          %all = stablehlo.dot_general %more, %rows, contracting_dims = [1] x [0] : (tensor<300x300xf32>, tensor<300x1xf32>) -> tensor<300x1xf32>
          %sum = stablehlo.reduce(%all init: %b) applies stablehlo.add across dimensions = [0, 1] : (tensor<300x1xf32>, tensor<f32>) -> tensor<f32>
          %next = stablehlo.add %j, %one : tensor<i32>
          stablehlo.return %next, %sum : tensor<i32>, tensor<f32>
        }
      %next = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %next, %inner#1 : tensor<i32>, tensor<f32>
    }
  return %outer#1 : tensor<f32>
}
"""
_OPTIONS = Options(size_threshold=64_000, split_size=16_000)


@pytest.fixture
def module() -> Iterator[ir.Module]:
    with new_context() as context:
        yield ir.Module.parse(_TEXT, context)


def _graphs(module: ir.Module) -> list[Graph]:
    return read_graphs(module, read_rules(module))


def _bodies(module: ir.Module) -> tuple[ir.Block, ir.Block]:
    """The bodies of the outer loop and of the inner one."""
    outer, inner = (
        block for block in all_blocks(module) if len(block.arguments) == 2 and len(list(block.operations)) > 2
    )
    return outer, inner


def test_a_block_that_stays_is_not_looked_at_again(module: ir.Module) -> None:
    choices = Choices(_OPTIONS, Allowance(_graphs(module), CPU))
    first, second = choices.of(_graphs(module)), choices.of(_graphs(module))
    assert sum(len(choice.plans) for choice in first) == 1
    assert all(one is other for one, other in zip(first, second, strict=True))


def test_a_change_inside_is_seen_by_a_thorough_look_alone(module: ir.Module) -> None:
    choices = Choices(_OPTIONS, Allowance(_graphs(module), CPU))
    outer, inner = _bodies(module)
    places = {graph.block: place for place, graph in enumerate(_graphs(module))}
    before = choices.of(_graphs(module))
    next(view for view in inner.operations if view.operation.name == "stablehlo.subtract").operation.attributes[
        "note"
    ] = ir.UnitAttr.get(module.context)
    quick, thorough = choices.of(_graphs(module), thorough=False), choices.of(_graphs(module))
    assert quick[places[inner]] is not before[places[inner]]
    assert quick[places[outer]] is before[places[outer]]
    assert thorough[places[outer]] is not before[places[outer]]


def test_what_is_known_of_a_captured_value_counts(module: ir.Module) -> None:
    choices = Choices(_OPTIONS, Allowance(_graphs(module), CPU))
    _, inner = _bodies(module)
    before = choices.text_of(inner, {})
    one = next(view for view in module.body.operations).regions[0].blocks[0].operations[1]
    value = ir.DenseElementsAttr.get_splat(
        one.operation.results[0].type, ir.IntegerAttr.get(ir.IntegerType.get_signless(32, module.context), 2)
    )
    one.operation.attributes["value"] = value
    assert choices.text_of(inner, {}) != before


def test_a_block_that_captures_nan_is_known_again() -> None:
    text = _TEXT.replace("%none = stablehlo.constant dense<0.0>", "%none = stablehlo.constant dense<0x7FC00000>")
    with new_context() as context:
        module = ir.Module.parse(text, context)
        choices = Choices(_OPTIONS, Allowance(_graphs(module), CPU))
        before, after = choices.of(_graphs(module)), choices.of(_graphs(module))
        assert any(choice.plans for choice in before)
        assert all(one is other for one, other in zip(before, after, strict=True) if one.plans)


def test_what_is_written_around_loops_is_found_without_a_look_inside(module: ir.Module) -> None:
    outer, _ = _bodies(module)
    deep, shallow = (fuse(read_numbered(outer, Types(), CPU, is_deep=each)[0], CPU) for each in (True, False))
    assert any(op.bodies for op in deep.block.ops) and not any(op.bodies for op in shallow.block.ops)
    assert deep.tensors() == shallow.tensors() and deep.inputs == shallow.inputs


def test_work_is_the_same_op_by_op(module: ir.Module) -> None:
    for one, other in zip(_graphs(module), _graphs(module), strict=True):
        work = WorkOf(one, CPU)
        assert len(work) and {position: work[position] for position in work} == work_of(other, CPU)


def test_other_captures_are_a_reason_to_look_again(module: ir.Module) -> None:
    """The tensors of a block are numbered where they are read first, in its loops too: a choice names others then."""
    choices = Choices(_OPTIONS, Allowance(_graphs(module), CPU))
    outer, inner = _bodies(module)
    places = {graph.block: place for place, graph in enumerate(_graphs(module))}
    before = choices.of(_graphs(module))
    *_, addition, _ = (view.operation for view in inner.operations)
    addition.operands[0] = outer.arguments[0]
    quick = choices.of(_graphs(module), thorough=False)
    assert quick[places[outer]] is not before[places[outer]]


# Differences of the rows of a product: only tiles that overlap remove it.
_DIFFERENCES = """
          %rows = stablehlo.reshape %x : (tensor<30000xf32>) -> tensor<30000x1xf32>
          %first = stablehlo.slice %rows [0:1, 0:1] : (tensor<30000x1xf32>) -> tensor<1x1xf32>
          %big = stablehlo.dot_general %rows, %first, contracting_dims = [1] x [1] : (tensor<30000x1xf32>, tensor<1x1xf32>) -> tensor<30000x1xf32>
          %above = stablehlo.slice %big [1:30000, 0:1] : (tensor<30000x1xf32>) -> tensor<29999x1xf32>
          %below = stablehlo.slice %big [0:29999, 0:1] : (tensor<30000x1xf32>) -> tensor<29999x1xf32>
          %less = stablehlo.subtract %above, %below : tensor<29999x1xf32>
          %bend = stablehlo.tanh %less : tensor<29999x1xf32>
          %all = stablehlo.reduce(%bend init: %none) applies stablehlo.add across dimensions = [0, 1] : (tensor<29999x1xf32>, tensor<f32>) -> tensor<f32>
          %sum = stablehlo.add %all, %b : tensor<f32>
"""


def test_a_search_without_shifts_keeps_what_does_not_depend_on_them(module: ir.Module) -> None:
    with_shifts = Choices(_OPTIONS, Allowance(_graphs(module), CPU))
    before = with_shifts.of(_graphs(module))
    without = Choices(_OPTIONS, Allowance(_graphs(module), CPU), shifts=False, before=with_shifts)
    assert all(one is other for one, other in zip(before, without.of(_graphs(module)), strict=True))


def test_a_search_without_shifts_finds_again_what_depends_on_them() -> None:
    text = _TEXT.replace("%x: tensor<300xf32>", "%x: tensor<30000xf32>")
    start, end = text.index("          %rows"), text.index("          %next = stablehlo.add %j")
    with new_context() as context:
        module = ir.Module.parse(text[:start] + _DIFFERENCES + text[end:], context)
        _, inner = _bodies(module)
        place = [graph.block for graph in _graphs(module)].index(inner)
        with_shifts = Choices(_OPTIONS, Allowance(_graphs(module), CPU))
        before = with_shifts.of(_graphs(module))[place]
        assert any(plan.shifts for plan in before.plans) and before.shifts
        found = [
            Choices(_OPTIONS, Allowance(_graphs(module), CPU), shifts=False, before=known).of(_graphs(module))[place]
            for known in (with_shifts, None)
        ]
    assert not any(plan.shifts for choice in found for plan in choice.plans)
    assert found[0].refusals == found[1].refusals and found[0].plans == found[1].plans
