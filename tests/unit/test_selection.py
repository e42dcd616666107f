"""Which plans are built in one round."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

import pytest
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ops.rules import DimMapping, read_rules
from exla_opt.passes.tensor_splitter.graph import Graph, read_graphs
from exla_opt.passes.tensor_splitter.plans.loop_plan import LoopPlan
from exla_opt.passes.tensor_splitter.plans.plan import Plan
from exla_opt.passes.tensor_splitter.plans.selection import Selection, join_plans
from exla_opt.passes.tensor_splitter.regions.region import Output, Stage

# Ops 0 to 6; op 2 asks which elements are at a bound. {} is EQ or LT.
_TEXT = """
func.func @main(%a: tensor<8x8xf32>, %bound: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %0 = stablehlo.dot %a, %a : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = stablehlo.add %0, %bound : tensor<8x8xf32>
  %2 = stablehlo.compare COMPARISON, %1, %bound : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xi1>
  %3 = stablehlo.select %2, %1, %bound : tensor<8x8xi1>, tensor<8x8xf32>
  %4 = stablehlo.exponential %3 : tensor<8x8xf32>
  %5 = stablehlo.negate %4 : tensor<8x8xf32>
  %6 = stablehlo.sine %5 : tensor<8x8xf32>
  return %4, %6 : tensor<8x8xf32>, tensor<8x8xf32>
}
"""


@pytest.fixture(params=["EQ", "LT"])
def graph(request: pytest.FixtureRequest) -> Iterator[Graph]:
    with new_context() as context:
        module = ir.Module.parse(_TEXT.replace("COMPARISON", request.param), context)
        [found] = read_graphs(module, read_rules(module))
        yield found


def _asks(graph: Graph) -> bool:
    return "EQ" in str(graph.nodes[2].op)


def _plan(
    graph: Graph,
    nodes: set[int],
    outputs: set[int],
    copies: Collection[int] = (),
    vanished: Collection[int] | None = None,
) -> Plan:
    if vanished is None:
        vanished = {value for node in nodes - outputs - set(copies) for value in graph.nodes[node].results}
    mapping = DimMapping(0, 8, 1)
    stage = Stage(0, tuple(sorted(nodes)), tuple(Output(node, 0, mapping) for node in sorted(outputs)))
    seed = graph.nodes[max(nodes)].results[0]
    return Plan(
        seed, mapping, {}, (LoopPlan(stage, (), {}),), frozenset(copies), frozenset(vanished), 0, 0, 0.0, 1, 0.0
    )


def test_plans_that_share_nothing_are_built_together(graph: Graph) -> None:
    selected = Selection(graph)
    assert selected.add(_plan(graph, {0, 1}, {1}))
    assert selected.add(_plan(graph, {2, 3}, {3}))
    assert len(selected.plans) == 2


def test_a_plan_that_makes_all_of_another_takes_its_place(graph: Graph) -> None:
    selected = Selection(graph)
    larger = _plan(graph, {1, 2, 3, 4}, {4})
    assert selected.add(_plan(graph, {2, 3}, {3}))
    assert selected.add(larger)
    assert list(selected.plans.values()) == [larger]


def test_a_plan_with_which_all_is_gone_computes_small_things_before_its_loops(graph: Graph) -> None:
    """The earlier one computes op 0 in slices, where the later one takes it for something small."""
    selected = Selection(graph)
    first, second = (graph.nodes[node].results[0] for node in (3, 4))
    larger = _plan(graph, {3, 4, 5}, {5}, vanished={first, second})
    assert selected.add(_plan(graph, {0, 3, 4}, {4}, vanished={first}))
    assert selected.add(larger)
    assert list(selected.plans.values()) == [larger]


def test_a_plan_that_would_leave_more_whole_takes_no_other_ones_place(graph: Graph) -> None:
    selected = Selection(graph)
    [value] = graph.nodes[1].results
    assert selected.add(_plan(graph, {0, 1}, {0}, vanished={value}))
    selected.add(_plan(graph, {0, 1, 3}, {3}, vanished=()))
    assert value in selected.plans


def test_a_later_plan_of_a_tensor_takes_the_place_of_the_first(graph: Graph) -> None:
    selected = Selection(graph)
    first = _plan(graph, {0, 1}, {1})
    later = replace(_plan(graph, {3, 4}, {4}), seed=first.seed)
    assert selected.add(first)
    assert selected.add(later)
    assert list(selected.plans.values()) == [later]
    assert selected.add(_plan(graph, {0, 1, 2}, {2}))
    assert len(selected.plans) == 2


def test_one_plan_takes_the_place_of_several_that_take_longer(graph: Graph) -> None:
    first, second = (graph.nodes[node].results[0] for node in (1, 3))
    one = replace(_plan(graph, {0, 1}, {1}, vanished={first}), seconds=2.0)
    other = replace(_plan(graph, {2, 3}, {3}, vanished={second}), seconds=2.0)
    both = replace(_plan(graph, {0, 1, 2, 3}, {3}, vanished={first, second}), seconds=3.0)
    assert join_plans(graph, [one, other], [one, other, both], 100) == [both]
    assert join_plans(graph, [one], [one, both], 100) == [one]
    for worse in (replace(both, seconds=5.0), replace(both, remaining=1), replace(both, peak=10_000)):
        assert join_plans(graph, [one, other], [one, worse], 100) == [one, other]


def test_two_loops_do_not_both_ask_for_equality(graph: Graph) -> None:
    selected = Selection(graph)
    assert selected.add(_plan(graph, {1, 2, 3}, {3}))
    # Makes 2 anew, but not 1: with LT the worst is a rounding, with EQ the two answers may differ.
    assert selected.add(_plan(graph, {0, 2, 4}, {4})) == (not _asks(graph))


def test_what_only_stands_beside_the_question_makes_it_wait_too(graph: Graph) -> None:
    selected = Selection(graph)
    assert selected.add(_plan(graph, {0, 1, 2, 3}, {3}))
    # Makes 1 anew, whose elements the other plan compares.
    assert selected.add(_plan(graph, {1, 4}, {4})) == (not _asks(graph))


def test_a_cheap_op_that_both_repeat_is_no_reason_to_wait(graph: Graph) -> None:
    selected = Selection(graph)
    assert selected.add(_plan(graph, {1, 2, 3}, {3}, copies={1}))
    assert selected.add(_plan(graph, {1, 4}, {4}, copies={1}))


def test_loops_that_would_stand_between_each_other_wait(graph: Graph) -> None:
    selected = Selection(graph)
    first = _plan(graph, {2, 5}, {2})
    assert selected.add(first)
    assert not selected.add(_plan(graph, {3, 4}, {4}))
    assert not selected.add(_plan(graph, {0, 1, 6}, {1}))
    assert selected.add(_plan(graph, {0, 1}, {1}))


def test_a_plan_that_must_wait_leaves_all_as_it_was(graph: Graph) -> None:
    selected = Selection(graph)
    small, other = _plan(graph, {1}, {1}), _plan(graph, {3, 4}, {3})
    assert selected.add(small)
    assert selected.add(other)
    # Would replace the small one, but its loop would stand around that of the other.
    assert not selected.add(_plan(graph, {1, 5}, {1}))
    assert sorted(selected.plans) == sorted([small.seed, other.seed])
    assert not selected.add(_plan(graph, {0, 2}, {0}))  # meets the small one, which is still there
