"""The order of what loops read on an H200, by the temp that XLA planned (jaxlib 0.10.2, no GPU)."""

from __future__ import annotations

import pytest

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.memory.machine import machine_of
from exla_opt.memory.peak import predict

Q, NUMBER = "tensor<8x1024x8x64xf32>", "tensor<i32>"


def loop(sizes: str, part: str, body: str) -> str:
    """A loop of 8 trips over parts %q and %k of two arguments, of some sizes, that leaves sums of %r.

    part: the type of both parts.
    """
    return f"""
func.func @main(%x: {Q}, %y: {Q}) -> tensor<f32> {{
  %zero = stablehlo.constant dense<0> : {NUMBER}
  %one = stablehlo.constant dense<1> : {NUMBER}
  %end = stablehlo.constant dense<8> : {NUMBER}
  %start = stablehlo.constant dense<0.0> : tensor<f32>
  %out:2 = stablehlo.while(%i = %zero, %sum = %start) : {NUMBER}, tensor<f32>
  cond {{
    %more = stablehlo.compare LT, %i, %end : ({NUMBER}, {NUMBER}) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  }} do {{
    %q = stablehlo.dynamic_slice %x, {sizes} : ({Q}, {", ".join([NUMBER] * 4)}) -> {part}
    %k = stablehlo.dynamic_slice %y, {sizes} : ({Q}, {", ".join([NUMBER] * 4)}) -> {part}
    {body}
    %new = stablehlo.add %sum, %r : tensor<f32>
    %next = stablehlo.add %i, %one : {NUMBER}
    stablehlo.return %next, %new : {NUMBER}, tensor<f32>
  }}
  return %out#1 : tensor<f32>
}}"""


def scores(left: str, right: str, dims: str, found: str) -> str:
    """A product of two tensors that is reduced to one number. dims: those of the product."""
    places = ", ".join(map(str, range(found.count("x"))))
    return f"""%s = stablehlo.dot_general %q, %k, {dims} : ({left}, {right}) -> {found}
    %e = stablehlo.exponential %s : {found}
    %r = stablehlo.reduce(%e init: %start) applies stablehlo.add across dimensions = [{places}]
      : ({found}, tensor<f32>) -> tensor<f32>"""


HEADS, BATCH = "tensor<8x1024x1x64xf32>", "tensor<1x1024x8x64xf32>"
DIMS = "batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3]"
REDUCED = f"""%p = stablehlo.dynamic_slice %x, %i, %zero, %zero, %zero, sizes = [1, 1024, 8, 64]
      : ({Q}, {", ".join([NUMBER] * 4)}) -> {BATCH}
    %a = stablehlo.abs %p : {BATCH}
    %b = stablehlo.reduce(%a init: %start) applies stablehlo.add across dimensions = [1, 2]
      : ({BATCH}, tensor<f32>) -> tensor<1x64xf32>"""
PROGRAMS = {
    # The heads stand between rows and columns: both arguments are copied, with the heads in front of the rows.
    "heads": loop(
        "%zero, %zero, %i, %zero, sizes = [8, 1024, 1, 64]",
        HEADS,
        scores(HEADS, HEADS, DIMS, "tensor<8x1x1024x1024xf32>"),
    ),
    # That there is one of the batch in a part makes no difference.
    "batch": loop(
        "%i, %zero, %zero, %zero, sizes = [1, 1024, 8, 64]",
        BATCH,
        scores(BATCH, BATCH, DIMS, "tensor<1x8x1024x1024xf32>"),
    ),
    # Without heads nothing is copied.
    "in_order": loop(
        "%i, %zero, %zero, %zero, sizes = [1, 1024, 8, 64]",
        BATCH,
        scores(
            BATCH,
            BATCH,
            "batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [3]",
            "tensor<1x1024x8x8xf32>",
        ),
    ),
    # What is only reduced over dimensions in the middle has them last, if the order of what is left is known.
    "reduced": f"""
func.func @main(%x: {Q}) -> tensor<8x64xf32> {{
  %zero = stablehlo.constant dense<0> : {NUMBER}
  %one = stablehlo.constant dense<1> : {NUMBER}
  %end = stablehlo.constant dense<8> : {NUMBER}
  %start = stablehlo.constant dense<0.0> : tensor<f32>
  %all = stablehlo.constant dense<0.0> : tensor<8x64xf32>
  %out:2 = stablehlo.while(%i = %zero, %found = %all) : {NUMBER}, tensor<8x64xf32>
  cond {{
    %more = stablehlo.compare LT, %i, %end : ({NUMBER}, {NUMBER}) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  }} do {{
    {REDUCED}
    %new = stablehlo.dynamic_update_slice %found, %b, %i, %zero
      : (tensor<8x64xf32>, tensor<1x64xf32>, {NUMBER}, {NUMBER}) -> tensor<8x64xf32>
    %next = stablehlo.add %i, %one : {NUMBER}
    stablehlo.return %next, %new : {NUMBER}, tensor<8x64xf32>
  }}
  return %out#1 : tensor<8x64xf32>
}}""",
    "reduced_to_a_number": loop(
        "%i, %zero, %zero, %zero, sizes = [1, 1024, 8, 64]",
        BATCH,
        f"""{REDUCED}
    %e = stablehlo.exponential %b : tensor<1x64xf32>
    %r = stablehlo.reduce(%e init: %start) applies stablehlo.add across dimensions = [0, 1]
      : (tensor<1x64xf32>, tensor<f32>) -> tensor<f32>""",
    ),
}
TEMPS = {
    "heads": 58_720_800,
    "batch": 75_498_016,
    "in_order": 8_651_296,
    "reduced": 16_777_752,
    "reduced_to_a_number": 16_920,
}


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_the_temp_of_loops_that_read_arguments(name: str) -> None:
    with new_context() as context:
        module = parse_module(name, PROGRAMS[name].encode(), context).module
        assert predict(module, machine_of("cuda:h200")).temp == pytest.approx(TEMPS[name], rel=0.05)
