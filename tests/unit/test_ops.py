"""Every op's definition is complete and has an example, and the tables of ops agree with each other."""

from __future__ import annotations

from dataclasses import fields

import pytest
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.types import Types
from exla_opt.ir.walk import CONTROL_FLOW, main_function, operations_of, walk
from exla_opt.ops import collectives, pointwise, random, traits
from exla_opt.ops.definition import NONE, ByShardy, Combination, OpDefinition, Stated
from exla_opt.ops.effects import has_order, has_side_effect, may_be_merged
from exla_opt.ops.rules import FAMILIES, OPS, read_rules
from exla_opt.ops.traits import Trait, traits_of
from exla_opt.ops.types import holds
from exla_opt.ops.views import is_view
from tests.unit.test_factors import REFUSALS, ROWS

# Ops without an example row, each with the reason.
NO_ROW = {
    **dict.fromkeys(("chlo.mulhi", "chlo._asin_acos_kernel"), "XLA:CPU does not run it; pointwise like its neighbours"),
    **dict.fromkeys(CONTROL_FLOW, "has blocks; tests/unit/test_dimensions.py and the loops of tests/lit have it"),
    **dict.fromkeys(("func.call", "func.return", "stablehlo.return"), "no op of a function that is one op"),
    **dict.fromkeys(collectives.OPS, "needs several devices; refused by the definition that all_reduce has too"),
    "stablehlo.set_dimension_size": "its result has no fixed shape",
}
ALLOWED = {
    "factors": (Stated.NONE, Stated.BY_TARGET, Stated.BY_BLOCKS, Stated.BY_PAIRS),
    "tile": (Stated.NONE, Stated.SAME_OP, Stated.BY_BLOCKS),
    "ties": (Stated.NONE, Stated.BY_FACTORS),
    "resize": (Stated.NONE,),
    "combination": (Stated.NONE,),
}


@pytest.mark.parametrize("name", sorted(OPS))
def test_a_definition_gives_or_states_every_rule(name: str) -> None:
    definition = OPS[name]
    assert {field.name for field in fields(OpDefinition)} == {*ALLOWED, "reason"}
    for rule, allowed in ALLOWED.items():
        given = getattr(definition, rule)
        assert given in allowed or callable(given) or isinstance(given, (ByShardy, Combination))
    # What is cut has a tile, and what is not has none.
    assert (definition.factors is NONE) == (definition.tile is NONE)


@pytest.mark.parametrize("name", sorted(OPS))
def test_an_op_has_an_example_row(name: str) -> None:
    rows = {row.name for row in (ROWS if OPS[name].factors is not NONE else [row for row, _ in REFUSALS])}
    assert name in rows or name in NO_ROW


def test_an_op_belongs_to_one_family() -> None:
    assert sum(map(len, FAMILIES)) == len(OPS)


def test_all_names_are_names_of_ops() -> None:
    names = [*OPS, *(f"stablehlo.{name}" for name in traits.STABLEHLO), *(f"chlo.{name}" for name in traits.CHLO)]
    with new_context() as context:
        assert [name for name in names if not context.is_registered_operation(name)] == []


def test_traits_agree_with_the_families() -> None:
    def with_trait(trait: Trait) -> set[str]:
        names = {*OPS, *(f"stablehlo.{name}" for name in traits.STABLEHLO), *(f"chlo.{name}" for name in traits.CHLO)}
        return {name for name in names if trait in traits_of(name)}

    assert with_trait(Trait.POINTWISE) == set(pointwise.OPS)
    assert with_trait(Trait.COLLECTIVE) == set(collectives.OPS)
    assert with_trait(Trait.RANDOM) == set(random.OPS)
    assert with_trait(Trait.CONTROL_FLOW) == CONTROL_FLOW
    assert with_trait(Trait.VIEW) <= with_trait(Trait.REARRANGES) <= with_trait(Trait.MOVES)
    assert with_trait(Trait.SLOW) <= with_trait(Trait.EXPENSIVE)


VIEWS = """
func.func @main(%x: tensor<4x1x3xf32>, %i: tensor<i32>) -> tensor<4x3xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %yes0 = stablehlo.reshape %x : (tensor<4x1x3xf32>) -> tensor<12xf32>
  %yes1 = stablehlo.transpose %x, dims = [1, 0, 2] : (tensor<4x1x3xf32>) -> tensor<1x4x3xf32>
  %no0 = stablehlo.transpose %x, dims = [2, 1, 0] : (tensor<4x1x3xf32>) -> tensor<3x1x4xf32>
  %yes2 = stablehlo.broadcast_in_dim %x, dims = [0, 1, 3] : (tensor<4x1x3xf32>) -> tensor<4x1x1x3xf32>
  %no1 = stablehlo.broadcast_in_dim %x, dims = [0, 1, 2] : (tensor<4x1x3xf32>) -> tensor<4x2x3xf32>
  %yes3 = stablehlo.slice %x [0:4, 0:1, 0:3] : (tensor<4x1x3xf32>) -> tensor<4x1x3xf32>
  %no2 = stablehlo.slice %x [0:2, 0:1, 0:3] : (tensor<4x1x3xf32>) -> tensor<2x1x3xf32>
  %no3 = stablehlo.convert %x : (tensor<4x1x3xf32>) -> tensor<4x1x3xi32>
  %yes4 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<4x1x3xf32>, tensor<f32>) -> tensor<4x3xf32>
  %no4 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<4x1x3xf32>, tensor<f32>) -> tensor<4x1xf32>
  %yes5 = stablehlo.optimization_barrier %x : tensor<4x1x3xf32>
  return %yes4 : tensor<4x3xf32>
}
"""


def test_a_view_is_the_buffer_of_its_operand() -> None:
    with new_context() as context:
        module = ir.Module.parse(VIEWS, context)
        types = Types()
        found = [is_view(op, types) for op in walk(module.body.operations[0].regions[0].blocks[0])][1:-1]
    names = [line.split("=")[0].strip() for line in VIEWS.splitlines() if line.strip().startswith(("%yes", "%no"))]
    assert found == [name.startswith("%yes") for name in names]


EFFECTS = """
func.func @main(%x: tensor<4xf32>, %s: tensor<2xui64>, %c: tensor<i1>) -> tensor<4xf32> {
  %pure = stablehlo.add %x, %x : tensor<4xf32>
  %foreign = stablehlo.custom_call @f(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %effect = stablehlo.custom_call @f(%x) {has_side_effect = true} : (tensor<4xf32>) -> tensor<4xf32>
  %drawn:2 = "stablehlo.rng_bit_generator"(%s) {rng_algorithm = #stablehlo<rng_algorithm THREE_FRY>} : (tensor<2xui64>) -> (tensor<2xui64>, tensor<4xui32>)
  %inside = "stablehlo.if"(%c) ({
    %y = stablehlo.custom_call @f(%x) {has_side_effect = true} : (tensor<4xf32>) -> tensor<4xf32>
    stablehlo.return %y : tensor<4xf32>
  }, {
    stablehlo.return %x : tensor<4xf32>
  }) : (tensor<i1>) -> tensor<4xf32>
  return %pure : tensor<4xf32>
}
"""


def test_effects_are_found_and_those_inside_regions_too() -> None:
    with new_context() as context:
        module = ir.Module.parse(EFFECTS, context)
        ops = [view.operation for view in module.body.operations[0].regions[0].blocks[0].operations][:-1]
        assert [has_side_effect(op) for op in ops] == [False, False, True, True, False]
        assert [has_order(op) for op in ops] == [False, False, True, True, True]
        assert [may_be_merged(op) for op in ops] == [True, False, False, False, True]


@pytest.mark.parametrize(
    ("wide", "narrow", "answer"),
    [
        ("f32", "f32", True), ("f32", "bf16", True), ("f16", "bf16", False), ("bf16", "f16", False), ("f32", "f64", False),
        ("f16", "f8E4M3FN", True), ("f16", "f8E8M0FNU", False), ("bf16", "f8E8M0FNU", True), ("f32", "i16", True),
        ("f32", "i32", False), ("f64", "i32", True), ("f16", "ui16", False), ("i32", "ui16", True), ("ui32", "i16", False),
        ("ui8", "i1", True), ("i16", "i16", True), ("i16", "ui16", False), ("complex<f32>", "f32", False),
    ],
)  # fmt: skip
def test_one_type_holds_another(wide: str, narrow: str, answer: bool) -> None:
    with new_context():
        assert holds(ir.Type.parse(wide), ir.Type.parse(narrow)) == answer


def test_a_rule_without_shardy_is_there_when_loops_are_written() -> None:
    text = """
    func.func @main(%x: tensor<8xf32>) -> tensor<8x9xi32> {
      %0 = stablehlo.iota dim = 1 : tensor<8x9xi32>
      %1 = stablehlo.abs %x : tensor<8xf32>
      return %0 : tensor<8x9xi32>
    }"""
    module = ir.Module.parse(text, new_context())
    rules = read_rules(module)
    operations_of(main_function(module).regions[0].blocks[0])[1].erase()
    assert [factor.size for factor in rules[0].factors] == [8, 9]
