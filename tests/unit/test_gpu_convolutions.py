"""What the model says of convolutions on an H200, against the temp that XLA planned (jaxlib 0.10.2, no GPU)."""

from __future__ import annotations

import pytest

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.memory.machine import machine_of
from exla_opt.memory.peak import predict


def convolution(
    name: str, operands: str, kinds: str, *, numbers: str = "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]", **more: str
) -> str:
    """One convolution of a program; more: window and groups."""
    window, groups = more.get("window", "pad = [[1, 1], [1, 1]]"), more.get("groups", "1")
    return (
        f"%{name} = stablehlo.convolution({operands}) dim_numbers = {numbers}, window = {{{window}}} "
        f"{{batch_group_count = 1 : i64, feature_group_count = {groups} : i64}} : {kinds}"
    )


def loop(body: str, result: str, captured: str) -> str:
    """A loop of 4 trips whose body makes %part, a quarter of a result; captured: what the function has."""
    quarter = result.replace("tensor<8", "tensor<2")
    number, rank = "tensor<i32>", result.count("x")
    return f"""
func.func @main({captured}) -> {result} {{
  %zero = stablehlo.constant dense<0> : {number}
  %two = stablehlo.constant dense<2> : {number}
  %end = stablehlo.constant dense<8> : {number}
  %start = stablehlo.constant dense<0.0> : {result}
  %out:2 = stablehlo.while(%i = %zero, %all = %start) : {number}, {result}
  cond {{
    %more = stablehlo.compare LT, %i, %end : ({number}, {number}) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  }} do {{
    {body}
    %next = stablehlo.add %i, %two : {number}
    %new = stablehlo.dynamic_update_slice %all, %part, %i{", %zero" * (rank - 1)}
      : ({result}, {quarter}, {", ".join([number] * rank)}) -> {result}
    stablehlo.return %next, %new : {number}, {result}
  }}
  return %out#1 : {result}
}}"""


def part_of(kind: str) -> str:
    """A quarter of %x, which has four dimensions, in a loop."""
    part = kind.replace("tensor<8", "tensor<2")
    sizes = ", ".join(part.removeprefix("tensor<").split("x")[:-1])
    numbers = ", ".join(["tensor<i32>"] * 4)
    return (
        f"%p = stablehlo.dynamic_slice %x, %i, %zero, %zero, %zero, sizes = [{sizes}] : ({kind}, {numbers}) -> {part}"
    )


X, W = "tensor<8x64x64x32xf32>", "tensor<3x3x32x32xf32>"
SAME = f"({X}, {W}) -> {X}"
CHAIN = f"func.func @main(%x: {X}, %v: {W}, %w: {W}) -> {X} {{\n"
GRADIENT = "[f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f]"
HALF, ROWS = "tensor<8x32x32x32xf32>", "tensor<8x32x64x64xf32>"
STRIDED = "stride = [2, 2], pad = [[0, 1], [0, 1]]"
VOLUME, CUBE = "tensor<2x32x32x32x16xf32>", "tensor<3x3x3x16x16xf32>"
WIDE, WIDE_W = X.replace("f32", "f64"), W.replace("f32", "f64")
QUARTER, QUARTER_ROWS = "tensor<2x64x64x32xf32>", "tensor<2x32x64x64xf32>"
NARROW, NARROW_W = X.replace("f32", "bf16"), W.replace("f32", "bf16")
CHANNELS_FIRST = "[b, f, 0, 1]x[0, 1, i, o]->[b, f, 0, 1]"
PROGRAMS = {
    # cuDNN returns its result and its workspace: what reads a part of a tuple does not write over it.
    "tanh": f"""{CHAIN}
  {convolution("a", "%x, %v", SAME)}
  %b = stablehlo.tanh %a : {X}
  {convolution("c", "%b, %w", SAME)}
  return %c : {X}
}}""",
    # cuDNN adds a tensor of the shape of its result.
    "residual": f"""{CHAIN}
  {convolution("a", "%x, %v", SAME)}
  %b = stablehlo.tanh %a : {X}
  {convolution("c", "%b, %w", SAME)}
  %d = stablehlo.add %b, %c : {X}
  {convolution("e", "%d, %v", SAME)}
  return %e : {X}
}}""",
    # It scales what it finds.
    "scaled": f"""{CHAIN}
  %two = stablehlo.constant dense<2.0> : {X}
  {convolution("a", "%x, %v", SAME)}
  %b = stablehlo.multiply %a, %two : {X}
  {convolution("c", "%b, %w", SAME)}
  return %c : {X}
}}""",
    # It does neither where each channel has windows of its own.
    "depthwise": f"""
func.func @main(%x: {X}, %v: tensor<3x3x1x32xf32>, %w: {W}) -> {X} {{
  %zero = stablehlo.constant dense<0.0> : {X}
  {convolution("a", "%x, %v", f"({X}, tensor<3x3x1x32xf32>) -> {X}", groups="32")}
  %b = stablehlo.maximum %a, %zero : {X}
  {convolution("c", "%b, %w", SAME)}
  return %c : {X}
}}""",
    # Convolutions of float64 want their channels in front of what the windows move over.
    "float64": f"""{CHAIN.replace("f32", "f64")}
  {convolution("a", "%x, %v", f"({WIDE}, {WIDE_W}) -> {WIDE}")}
  {convolution("b", "%a, %w", f"({WIDE}, {WIDE_W}) -> {WIDE}")}
  return %b : {WIDE}
}}""",
    # So do those of three dimensions.
    "volume": f"""
func.func @main(%x: {VOLUME}, %v: {CUBE}) -> {VOLUME} {{
  {
        convolution(
            "a",
            "%x, %v",
            f"({VOLUME}, {CUBE}) -> {VOLUME}",
            numbers="[b, 0, 1, 2, f]x[0, 1, 2, i, o]->[b, 0, 1, 2, f]",
            window="pad = [[1, 1], [1, 1], [1, 1]]",
        )
    }
  return %a : {VOLUME}
}}""",
    # One padded copy serves a convolution and its gradient.
    "padded_once": f"""
func.func @main(%x: {X}, %v: {W}) -> ({HALF}, {W}) {{
  {convolution("a", "%x, %v", f"({X}, {W}) -> {HALF}", window=STRIDED)}
  %b = stablehlo.tanh %a : {HALF}
  {
        convolution(
            "c",
            "%x, %b",
            f"({X}, {HALF}) -> {W}",
            numbers=GRADIENT,
            window="pad = [[0, 1], [0, 1]], rhs_dilate = [2, 2]",
        )
    }
  return %a, %c : {HALF}, {W}
}}""",
    # A transpose that puts the channels last, as cuDNN has left them, is a view.
    "channels_last": f"""
func.func @main(%x: {ROWS}, %v: {W}, %w: {W}) -> {X} {{
  {convolution("a", "%x, %v", f"({ROWS}, {W}) -> {ROWS}", numbers=CHANNELS_FIRST)}
  %b = stablehlo.transpose %a, dims = [0, 2, 3, 1] : ({ROWS}) -> {X}
  {convolution("c", "%b, %w", SAME)}
  return %c : {X}
}}""",
    # A dot reads what cuDNN has left in the dot's order as it is.
    "dot_of_channels": f"""
func.func @main(%x: {ROWS}, %v: {W}, %w: tensor<32x64xf32>) -> tensor<8x64x64x64xf32> {{
  {convolution("a", "%x, %v", f"({ROWS}, {W}) -> {ROWS}", numbers=CHANNELS_FIRST)}
  %b = stablehlo.dot_general %a, %w, contracting_dims = [1] x [0]
    : ({ROWS}, tensor<32x64xf32>) -> tensor<8x64x64x64xf32>
  return %b : tensor<8x64x64x64xf32>
}}""",
    # Where narrow floats make float32, cuDNN reads float32.
    "widened": f"""
func.func @main(%x: {NARROW}, %w: {NARROW_W}) -> {NARROW} {{
  {convolution("a", "%x, %w", f"({NARROW}, {NARROW_W}) -> {X}")}
  %b = stablehlo.tanh %a : {X}
  %c = stablehlo.convert %b : ({X}) -> {NARROW}
  return %c : {NARROW}
}}""",
    # What convolutions of a loop read is in their order in front of it, and what they write behind it.
    "loop": loop(
        f"""{part_of(ROWS)}
    {convolution("part", "%p, %w", f"({QUARTER_ROWS}, {W}) -> {QUARTER_ROWS}", numbers=CHANNELS_FIRST)}""",
        ROWS,
        f"%x: {ROWS}, %w: {W}",
    ),
    # Transposes inside the loop are views of it.
    "loop_of_transposes": loop(
        f"""{part_of(ROWS)}
    %t = stablehlo.transpose %p, dims = [0, 2, 3, 1] : ({QUARTER_ROWS}) -> {QUARTER}
    {convolution("a", "%t, %w", f"({QUARTER}, {W}) -> {QUARTER}")}
    %part = stablehlo.transpose %a, dims = [0, 3, 1, 2] : ({QUARTER}) -> {QUARTER_ROWS}""",
        ROWS,
        f"%x: {ROWS}, %w: {W}",
    ),
    # Windows as large as an image that jump are no gradient of a kernel, and their result is in order.
    "large_windows": f"""
func.func @main(%x: {X}, %w: tensor<16x16x32x256xf32>) -> tensor<8x4x4x256xf32> {{
  {
        convolution(
            "a",
            "%x, %w",
            f"({X}, tensor<16x16x32x256xf32>) -> tensor<8x4x4x256xf32>",
            window="stride = [16, 16]",
        )
    }
  return %a : tensor<8x4x4x256xf32>
}}""",
}
TEMPS = {
    "tanh": 4_231_680,
    "residual": 4_268_928,
    "scaled": 4_231_808,
    "depthwise": 4_231_680,
    "float64": 16_777_728,
    "volume": 4_222_208,
    "padded_once": 5_412_352,
    "channels_last": 4_231_680,
    "dot_of_channels": 8_389_120,
    "loop": 6_328_836,
    "loop_of_transposes": 6_328_836,
    "large_windows": 8_388_864,
    "widened": 8_388_864,
}


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_the_temp_of_convolutions(name: str) -> None:
    with new_context() as context:
        module = parse_module(name, PROGRAMS[name].encode(), context).module
        assert predict(module, machine_of("cuda:h200")).temp == pytest.approx(TEMPS[name], rel=0.05)
