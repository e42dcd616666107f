"""What loops and scatters on an H200 start from, by the temp that XLA planned (jaxlib 0.10.2, no GPU)."""

from __future__ import annotations

import pytest

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.memory.machine import machine_of
from exla_opt.memory.peak import predict

X, PLACES, UPDATES = "tensor<20000x64xf32>", "tensor<200000x1xi32>", "tensor<200000x64xf32>"


def scatter(name: str, start: str, updates: str) -> str:
    """Sums of rows, added to a tensor."""
    return f"""%{name} = "stablehlo.scatter"(%{start}, %p, %{updates}) <{{scatter_dimension_numbers =
    #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],
    index_vector_dim = 1>}}> ({{
  ^bb0(%a{name}: tensor<f32>, %b{name}: tensor<f32>):
    %c{name} = stablehlo.add %a{name}, %b{name} : tensor<f32>
    stablehlo.return %c{name} : tensor<f32>
  }}) : ({X}, {PLACES}, {UPDATES}) -> {X}"""


def gathered(name: str, source: str) -> str:
    """Rows of a tensor."""
    return f"""%{name} = "stablehlo.gather"(%{source}, %p) <{{dimension_numbers = #stablehlo.gather<
    offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>,
    slice_sizes = array<i64: 1, 64>}}> : ({X}, {PLACES}) -> {UPDATES}"""


HEAD = f"func.func @main(%x: {X}, %p: {PLACES}) -> tensor<64xf32> {{"
ZEROS = f"""%zero = stablehlo.constant dense<0.0> : tensor<f32>
  %zeros = stablehlo.broadcast_in_dim %zero, dims = [] : (tensor<f32>) -> {X}"""
SUM = f"""stablehlo.reduce(%last init: %zero) applies stablehlo.add across dimensions = [0]
    : ({X}, tensor<f32>) -> tensor<64xf32>"""
PROGRAMS = {
    # Each scatter has zeros of its own, and what is compared with them has others: all are written at once.
    "several": f"""{HEAD}
  {ZEROS}
  {gathered("g", "x")}
  {scatter("s", "zeros", "g")}
  %m = stablehlo.maximum %s, %zeros : {X}
  {gathered("h", "m")}
  {scatter("t", "zeros", "h")}
  %n = stablehlo.minimum %t, %zeros : {X}
  {gathered("i", "n")}
  {scatter("u", "zeros", "i")}
  %last = stablehlo.maximum %u, %zeros : {X}
  %r = {SUM}
  return %r : tensor<64xf32>
}}""",
    # What is added to a scatter into zeros is what the scatter starts from.
    "added": f"""{HEAD}
  {ZEROS}
  {gathered("g", "x")}
  {scatter("s", "zeros", "g")}
  %e = stablehlo.tanh %x : {X}
  %last = stablehlo.add %e, %s : {X}
  %r = {SUM}
  return %r : tensor<64xf32>
}}""",
}
TEMPS = {"several": 25_600_032, "added": 5_152_000}


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_the_temp_of_what_starts_from_zeros(name: str) -> None:
    with new_context() as context:
        module = parse_module(name, PROGRAMS[name].encode(), context).module
        assert predict(module, machine_of("cuda:h200")).temp == pytest.approx(TEMPS[name], rel=0.05)
