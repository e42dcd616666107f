"""What is made of no operand and cut in two ways: each tile makes its own part, and the results stay."""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.write import serialise
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from tests.execute import assert_equal_results

BOTH_WAYS = """
func.func @main(%x: tensor<300xf32>, %w: tensor<300x300xf32>) -> tensor<300xf32> {
  %i = stablehlo.iota dim = 0 : tensor<300x300xi32>
  %j = stablehlo.iota dim = 1 : tensor<300x300xi32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %zeros = stablehlo.constant dense<0.0> : tensor<300x300xf32>
  %one = stablehlo.constant dense<1> : tensor<300x300xi32>
  %a = stablehlo.broadcast_in_dim %x, dims = [0] : (tensor<300xf32>) -> tensor<300x300xf32>
  %b = stablehlo.broadcast_in_dim %x, dims = [1] : (tensor<300xf32>) -> tensor<300x300xf32>
  %c = stablehlo.multiply %a, %b : tensor<300x300xf32>
  %s = stablehlo.sine %c : tensor<300x300xf32>
  %k = stablehlo.add %i, %one : tensor<300x300xi32>
  %below = stablehlo.compare GT, %k, %j, SIGNED : (tensor<300x300xi32>, tensor<300x300xi32>) -> tensor<300x300xi1>
  %l = stablehlo.select %below, %s, %zeros : tensor<300x300xi1>, tensor<300x300xf32>
  %t = stablehlo.transpose %l, dims = [1, 0] : (tensor<300x300xf32>) -> tensor<300x300xf32>
  %above = stablehlo.compare GE, %i, %j, SIGNED : (tensor<300x300xi32>, tensor<300x300xi32>) -> tensor<300x300xi1>
  %u = stablehlo.select %above, %t, %zeros : tensor<300x300xi1>, tensor<300x300xf32>
  %e = stablehlo.exponential %u : tensor<300x300xf32>
  %p = stablehlo.dot_general %e, %x, contracting_dims = [1] x [0] : (tensor<300x300xf32>, tensor<300xf32>) -> tensor<300xf32>
  return %p : tensor<300xf32>
}"""


def test_an_iota_that_is_cut_along_both_dimensions_is_not_captured() -> None:
    # With a last tile that is shorter, and with all of one length.
    for split_size in (40_000, 47_000):
        with new_context() as context:
            module = ir.Module.parse(BOTH_WAYS, context)
            run_pipeline(module, DEFAULT_PASSES, Options(size_threshold=50_000, split_size=split_size))
            after = serialise(module, "text").decode()
        assert "stablehlo.while" in after
        assert "300x300" not in after.partition("func.func")[2].partition("\n")[2]
        assert_equal_results(BOTH_WAYS, after)
