"""Loops over dimensions of 2**31 indices and more count in i32 and read and write at places of i64.

Tensors that long take too much memory for a test: here every dimension is taken for one.
"""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.options import Options
from exla_opt.passes.tensor_splitter import emit
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.runtime.check import compare_results
from exla_opt.runtime.compile import compile_program, run_program
from tests.execute import random_arguments
from tests.programs import control, indexing, kernels, reductions
from tests.programs.model import Program, export_program

PROGRAMS = [program for module in (indexing, reductions, control, kernels) for program in module.PROGRAMS]


def rewritten(text: str, options: Options) -> str:
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        run_pipeline(module, DEFAULT_PASSES, options)
        return serialise(module, "text").decode()


@pytest.mark.parametrize("program", PROGRAMS[::4], ids=lambda program: program.name)
def test_places_of_64_bits_give_the_same_results(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    before, options = export_program(program), Options(size_threshold=64_000, split_size=16_000)
    narrow = rewritten(before, options)
    asked = Mock(wraps=emit._index_type)
    monkeypatch.setattr(emit, "_index_type", asked)
    monkeypatch.setattr(emit, "_MOST_I32", 0)
    wide = rewritten(before, options)
    # Where something is cut, its places are of another type; where nothing is, nothing is.
    assert (wide != narrow) == asked.called
    arrays = random_arguments(before)
    original = compile_program(before)
    expected, actual = run_program(original, arrays), run_program(compile_program(wide), arrays)
    for comparison in compare_results(expected, actual, lambda inputs: run_program(original, inputs), arrays):
        assert comparison.passed, comparison.problem


def test_a_dimension_of_33_bits_is_cut_at_places_of_64() -> None:
    kind = "tensor<8589934592xf32>"
    text = f"""
    func.func @main(%x: {kind}) -> tensor<f32> {{
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %n = stablehlo.iota dim = 0 : {kind}
      %y = stablehlo.multiply %x, %n : {kind}
      %e = stablehlo.exponential %y : {kind}
      %s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [0]
        : ({kind}, tensor<f32>) -> tensor<f32>
      return %s : tensor<f32>
    }}
    """
    after = rewritten(text, Options(size_threshold=2**30, split_size=2**30))
    assert "tensor<8589934592xf32>, tensor<i64>) -> tensor<268435456xf32>" in after
    assert "%iterArg: tensor<i64>" not in after and ": tensor<i32>, tensor<f32>" in after


def test_a_dimension_of_32_bits_inside_a_loop_is_met_at_places_of_64() -> None:
    """The rows of a matrix are cut; in the loop's body it is one long row for a while."""
    kind, row = "tensor<65536x65536xf32>", "tensor<4294967296xf32>"
    text = f"""
    func.func @main(%x: {kind}, %v: tensor<65536xf32>) -> tensor<65536xf32> {{
      %i0 = stablehlo.constant dense<0> : tensor<i32>
      %i1 = stablehlo.constant dense<1> : tensor<i32>
      %three = stablehlo.constant dense<3> : tensor<i32>
      %loop:2 = stablehlo.while(%i = %i0, %y = %x) : tensor<i32>, {kind}
        cond {{
          %go = stablehlo.compare LT, %i, %three, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %go : tensor<i1>
        }} do {{
          %n = stablehlo.add %i, %i1 : tensor<i32>
          %long = stablehlo.iota dim = 0 : {row}
          %square = stablehlo.reshape %long : ({row}) -> {kind}
          %z = stablehlo.add %y, %square : {kind}
          stablehlo.return %n, %z : tensor<i32>, {kind}
        }}
      %r = stablehlo.dot_general %loop#1, %v, contracting_dims = [1] x [0] : ({kind}, tensor<65536xf32>) -> tensor<65536xf32>
      return %r : tensor<65536xf32>
    }}
    """
    after = rewritten(text, Options(size_threshold=2**30, split_size=2**29))
    assert "tensor<i64>" in after and "stablehlo.iota dim = 0 : tensor<134217728xi32>" not in after
