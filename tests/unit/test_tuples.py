"""Calls that return tuples, as TensorFlow writes them: no pass stumbles over them, and their tensors are split."""

from __future__ import annotations

import numpy as np
import pytest

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.ops.rules import read_rules
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.runtime.compile import compile_program, run_program

SHAPE = "32x24x24xf32"
PAIR = f"tuple<tensor<{SHAPE}>, tensor<32x24xf32>>"


def decomposition(target: str) -> str:
    return f"""func.func public @main(%x: tensor<{SHAPE}>) -> tensor<{SHAPE}> {{
      %a = stablehlo.exponential %x : tensor<{SHAPE}>
      %t = stablehlo.custom_call @{target}(%a) : (tensor<{SHAPE}>) -> {PAIR}
      %q = stablehlo.get_tuple_element %t[0] : ({PAIR}) -> tensor<{SHAPE}>
      %b = stablehlo.sine %q : tensor<{SHAPE}>
      return %b : tensor<{SHAPE}> }}"""


@pytest.mark.parametrize("target", ["Qr", "Eigh", "unheard_of"])
def test_a_call_that_returns_a_tuple_has_no_rule_and_stops_nothing(target: str) -> None:
    module = parse_module("m.mlir", decomposition(target).encode(), new_context()).module
    before = str(module)
    rules = read_rules(module)
    assert [bool(rule.factors) for rule in rules][:4] == [True, False, False, True]
    assert str(module) == before


@pytest.mark.parametrize(("target", "is_split"), [("Qr", True), ("Eigh", False)])
def test_only_decompositions_of_each_matrix_alone_are_split(target: str, is_split: bool) -> None:
    module = parse_module("m.mlir", decomposition(target).encode(), new_context()).module
    run_pipeline(module, DEFAULT_PASSES, Options(size_threshold=40_000, split_size=20_000))
    assert ("stablehlo.while" in str(module)) == is_split


def test_a_split_decomposition_computes_the_same() -> None:
    text = decomposition("Qr")
    module = parse_module("m.mlir", text.encode(), new_context()).module
    run_pipeline(module, DEFAULT_PASSES, Options(size_threshold=40_000, split_size=20_000))
    array = np.random.default_rng(0).standard_normal((32, 24, 24), np.float32)
    [expected] = run_program(compile_program(text), [array])
    [found] = run_program(compile_program(serialise(module, "text")), [array])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_tuple_of_one_tensor_stays_one() -> None:
    """XLA gives such a call another form of its result."""
    text = """func.func public @main(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
      %t = stablehlo.custom_call @foo(%x) : (tensor<8x4xf32>) -> tuple<tensor<8x4xf32>>
      %q = stablehlo.get_tuple_element %t[0] : (tuple<tensor<8x4xf32>>) -> tensor<8x4xf32>
      return %q : tensor<8x4xf32> }"""
    module = parse_module("m.mlir", text.encode(), new_context()).module
    run_pipeline(module, ("normalise",), Options())
    assert "get_tuple_element" in str(module)


def test_a_tuple_that_a_function_returns_is_unpacked_at_once() -> None:
    pair = "tuple<tensor<8x4xf32>, tensor<8xf32>>"
    text = f"""func.func private @f(%x: tensor<8x4xf32>) -> {pair} {{
      %t = stablehlo.custom_call @foo(%x) : (tensor<8x4xf32>) -> {pair}
      return %t : {pair} }}
    func.func public @main(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {{
      %t = call @f(%x) : (tensor<8x4xf32>) -> {pair}
      %q = stablehlo.get_tuple_element %t[0] : ({pair}) -> tensor<8x4xf32>
      return %q : tensor<8x4xf32> }}"""
    module = parse_module("m.mlir", text.encode(), new_context()).module
    run_pipeline(module, ("normalise",), Options())
    assert "tuple" not in str(module)
