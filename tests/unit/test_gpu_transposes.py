"""Where an H200 has its transposes, as in the HLO that XLA makes (jaxlib 0.10.2, no GPU)."""

from __future__ import annotations

import pytest

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.types import Types
from exla_opt.ir.walk import main_function
from exla_opt.memory.machine import machine_of
from exla_opt.memory.reading import read_block
from exla_opt.memory.timeline import read_timeline

X, T = "tensor<1024x784xf32>", "tensor<784x1024xf32>"


def transpose(name: str, source: str, back: bool = False) -> str:
    kind = f"({T}) -> {X}" if back else f"({X}) -> {T}"
    return f"%{name} = stablehlo.transpose %{source}, dims = [1, 0] : {kind}"


TURNED = transpose("t", "x")
NUMBER = f"""%c = stablehlo.constant dense<0.1> : tensor<f32>
  %b = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> {T}"""
PROGRAMS = {
    # Both sines are one, and all that is left of the transposes is one behind the product.
    "merged": (
        f"""%s = stablehlo.sine %x : {X}
  {TURNED}
  %v = stablehlo.sine %t : {T}
  %w = stablehlo.multiply %v, %v : {T}
  %r = stablehlo.add %w, %y : {T}
  return %s, %r : {X}, {T}""",
        X,
        ["sine", "multiply", "transpose", "add"],
    ),
    # Two transposes undo each other over what stands between them.
    "undone": (
        f"""{TURNED}
  %v = stablehlo.cosine %t : {T}
  {transpose("u", "v", back=True)}
  %w = stablehlo.add %u, %x : {X}
  return %w, %y : {X}, {T}""",
        X,
        ["cosine", "add"],
    ),
    # Behind the square, in front of what multiplies with a number, and in front of what adds one.
    "numbers": (
        f"""{NUMBER}
  %s = stablehlo.sine %x : {X}
  {transpose("t", "s")}
  %v = stablehlo.multiply %t, %b : {T}
  %w = stablehlo.multiply %t, %t : {T}
  %u = stablehlo.add %w, %b : {T}
  %r = stablehlo.add %u, %y : {T}
  return %v, %r : {T}, {T}""",
        T,
        ["sine", "transpose", "multiply", "multiply", "transpose", "add", "add"],
    ),
    # What another op reads transposed stays where it is.
    "read": (
        f"""{TURNED}
  %v = stablehlo.cosine %t : {T}
  %r = stablehlo.add %t, %y : {T}
  return %v, %r : {T}, {T}""",
        T,
        ["transpose", "cosine", "add"],
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_transposes_stand_where_xla_has_them(name: str) -> None:
    body, first, expected = PROGRAMS[name]
    text = f"func.func @main(%x: {X}, %y: {T}) -> ({first}, {T}) {{\n  {body}\n}}"
    with new_context() as context:
        module = parse_module("transposes.mlir", text.encode(), context).module
        block = read_block(main_function(module).regions[0].blocks[0], Types(), machine_of("cuda:h200"))
    assert [op.name for op in block.ops if op.name not in ("splat", "broadcast_in_dim", "constant")] == expected
    made = {*block.arguments, *(value for op in block.ops for value in op.results)}
    assert made.issuperset(value for op in block.ops for value in op.operands)
    assert made.issuperset(block.returned)


def test_products_that_write_transposes_are_merged_with_their_batch() -> None:
    """Two products with a shared operand, each of which writes its result in the order of a transpose."""
    x, w, out = "tensor<16x8x2xf32>", "tensor<2x32x8xf32>", "tensor<2x16x32xf32>"
    dims = "batching_dims = [2] x [0], contracting_dims = [1] x [2]"
    turned = "tensor<16x2x32xf32>"
    text = f"""func.func @main(%x: {x}, %y: {x}, %w: {w}) -> ({turned}, {turned}) {{
      %0 = stablehlo.dot_general %x, %w, {dims} : ({x}, {w}) -> {out}
      %1 = stablehlo.transpose %0, dims = [1, 0, 2] : ({out}) -> {turned}
      %2 = stablehlo.dot_general %y, %w, {dims} : ({x}, {w}) -> {out}
      %3 = stablehlo.transpose %2, dims = [1, 0, 2] : ({out}) -> {turned}
      return %1, %3 : {turned}, {turned}
    }}"""
    with new_context() as context:
        module = parse_module("transposes.mlir", text.encode(), context).module
        block = read_block(main_function(module).regions[0].blocks[0], Types(), machine_of("cuda:h200"))
        assert read_timeline(module, machine_of("cuda:h200")).seconds > 0
    [product] = [op for op in block.ops if op.name == "dot_general"]
    assert (block.shapes[product.results[0]], product.shared) == ((2, 32 * 32), (0,))
