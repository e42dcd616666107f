"""Memory over the program: what is alive at each kernel of the main function."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.types import Types
from exla_opt.ir.walk import main_function
from exla_opt.memory.machine import CPU, GPU, Machine
from exla_opt.memory.peak import Memory, predict
from exla_opt.memory.reading import read_block
from exla_opt.memory.schedule import run_block
from exla_opt.memory.timeline import Timeline, read_timeline
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from tests.execute import calls_of

ROOT = Path(__file__).parents[2]
SQUARE = "tensor<64x64xf32>"
SQUARE_BYTES = 64 * 64 * 4


def timeline(text: str) -> Timeline:
    return read_timeline(parse_module("m.mlir", text.encode(), new_context()).module)


def dot(result: str, left: str, right: str) -> str:
    dims = "contracting_dims = [1] x [0]"
    return f"%{result} = stablehlo.dot_general %{left}, %{right}, {dims} : ({SQUARE}, {SQUARE}) -> {SQUARE}\n"


def alive(found: Timeline) -> list[tuple[str, list[str]]]:
    """For each point the op, and the ops that made what is alive there; the small ones are left out."""
    return [
        (
            point.op.removeprefix("stablehlo."),
            [tensor.op.removeprefix("stablehlo.") for tensor in found.alive_at(number) if tensor.bytes >= SQUARE_BYTES],
        )
        for number, point in enumerate(found.points)
    ]


def test_tensors_live_from_their_op_to_their_last_reader() -> None:
    found = timeline(
        f"func.func @main(%x: {SQUARE}) -> {SQUARE} {{\n"
        + dot("a", "x", "x")
        + dot("b", "a", "x")
        + dot("c", "b", "a")
        + dot("d", "c", "c")
        + f"return %d : {SQUARE} }}"
    )
    # The first lies in the buffer of the result, which nobody has written yet.
    assert [[tensor.location for tensor in found.alive_at(point)] for point in range(4)] == [
        [],
        ["<stdin>:3:6"],
        ["<stdin>:3:6", "<stdin>:4:6"],
        ["<stdin>:4:6"],
    ]
    assert [point.bytes // SQUARE_BYTES for point in found.points] == [0, 1, 2, 1]
    assert (found.peak, found.memory) == (2, Memory(SQUARE_BYTES, SQUARE_BYTES, 0, 2 * SQUARE_BYTES))
    assert found.points[1].location == "<stdin>:3:6"


def test_what_is_fused_has_no_point_and_what_takes_over_a_buffer_is_not_counted_twice() -> None:
    found = timeline(
        f"func.func @main(%x: {SQUARE}) -> {SQUARE} {{\n"
        + dot("a", "x", "x")
        + f"%n = stablehlo.negate %a : {SQUARE}\n%e = stablehlo.exponential %n : {SQUARE}\n"
        + dot("b", "e", "x")
        + f"return %b : {SQUARE} }}"
    )
    assert alive(found) == [
        ("dot_general", []),  # in the buffer of the result
        ("exponential", ["exponential"]),
        ("dot_general", ["exponential"]),
    ]


LOOP = f"""func.func @main(%x: {SQUARE}) -> {SQUARE} {{
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %init = stablehlo.sort_free
  %ten = stablehlo.constant dense<10> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %c = %init) : tensor<i32>, {SQUARE}
  cond {{
    %go = stablehlo.compare LT, %i, %ten : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %go : tensor<i1>
  }} do {{
    %one = stablehlo.constant dense<1> : tensor<i32>
    %j = stablehlo.add %i, %one : tensor<i32>
    DOTS
    stablehlo.return %j, %n : tensor<i32>, {SQUARE}
  }}
  AFTER
  return %y : {SQUARE}
}}
""".replace("%init = stablehlo.sort_free", dot("init", "x", "x").strip())


def test_a_loop_stands_at_its_place_and_takes_over_what_it_carries() -> None:
    dots = dot("m", "c", "x") + dot("n", "m", "m")
    found = timeline(LOOP.replace("DOTS", dots).replace("AFTER", dot("y", "r#1", "x")))
    listed = [(op, point.depth, made) for (op, made), point in zip(alive(found), found.points, strict=True)]
    assert [one for one in listed if one[0] in ("dot_general", "while")] == [
        ("dot_general", 0, ["dot_general"]),
        ("while", 0, ["dot_general"]),  # the copy of the number that it counts from
        ("while", 0, ["while"]),
        ("dot_general", 1, ["while"]),  # in the buffer of the function's result, which is written behind the loop
        ("dot_general", 1, ["while"]),
        ("dot_general", 0, ["while"]),
    ]


def test_what_a_loop_captures_lives_to_its_end() -> None:
    text = LOOP.replace("DOTS", dot("n", "c", "k")).replace("AFTER", dot("y", "r#1", "x"))
    text = text.replace("  %ten =", f"  {dot('k', 'x', 'x')}  %ten =")
    inside, behind = alive(timeline(text))[-2:]
    # What it captures lies in the buffer of the result; what it carries is copied, for the product cannot be in place.
    assert (inside, behind) == (("dot_general", ["while", "copy"]), ("dot_general", ["while"]))


@pytest.mark.parametrize(
    ("body", "points"),
    [
        ("func.func @main() { return }", 0),
        (f"func.func @main(%x: {SQUARE}) -> {SQUARE} {{ return %x : {SQUARE} }}", 0),
        (
            "func.func @main() -> tensor<0xf32> { %0 = stablehlo.iota dim = 0 : tensor<0xf32>\nreturn %0 : tensor<0xf32> }",
            1,
        ),
    ],
)
def test_little_or_nothing(body: str, points: int) -> None:
    found = timeline(body)
    assert len(found.points) == points
    assert (found.memory.temp, found.peak) == (0, 0 if points else None)


def test_the_main_function_is_told() -> None:
    other = f"func.func @other(%x: {SQUARE}) -> {SQUARE} {{\n{dot('y', 'x', 'x')} return %y : {SQUARE} }}\n"
    main = f"func.func @main(%x: {SQUARE}) -> {SQUARE} {{ return %x : {SQUARE} }}\n"
    assert len(timeline(other).points) == 1
    assert len(timeline(other + main).points) == 0


def products(ops: int) -> ir.Module:
    """A chain in which half of the results are read again, each by the op of twice its number."""
    lines = [dot(f"v{number + 1}", f"v{number}", f"v{number // 2}") for number in range(ops)]
    text = f"func.func @main(%v0: {SQUARE}) -> {SQUARE} {{\n{''.join(lines)} return %v{ops} : {SQUARE} }}"
    return parse_module("m.mlir", text.encode(), new_context()).module


def test_ten_thousand_ops() -> None:
    found = read_timeline(products(10_000))
    assert len(found.points) == 10_000
    assert found.memory.temp == 2_501 * SQUARE_BYTES


def shifted(ops: int) -> ir.Module:
    """A chain that each time adds the result before and the same one moved down by a row: much is recomputed."""
    high = SQUARE.replace("64x", "65x", 1)
    lines = [
        f"%p{number} = stablehlo.pad %v{number}, %zero, low = [1, 0], high = [0, 0], interior = [0, 0]"
        f" : ({SQUARE}, tensor<f32>) -> {high}\n"
        f"%s{number} = stablehlo.slice %p{number} [0:64, 0:64] : ({high}) -> {SQUARE}\n"
        f"%v{number + 1} = stablehlo.add %s{number}, %v{number} : {SQUARE}\n"
        for number in range(ops // 3)
    ]
    zero = "%zero = stablehlo.constant dense<0.0> : tensor<f32>\n"
    text = f"func.func @main(%v0: {SQUARE}) -> {SQUARE} {{\n{zero}{''.join(lines)} return %v{ops // 3} : {SQUARE} }}"
    return parse_module("m.mlir", text.encode(), new_context()).module


@pytest.mark.parametrize("chain", [products, shifted])
def test_the_work_grows_as_the_ops(chain: Callable[[int], ir.Module]) -> None:
    few, many = chain(600), chain(2400)
    assert calls_of(lambda: read_timeline(many)) <= 4.5 * calls_of(lambda: read_timeline(few))


@pytest.mark.parametrize("path", sorted(ROOT.glob("tests/lit/tensor-splitter/*.mlir")), ids=lambda path: path.stem)
def test_the_peak_is_the_one_that_is_predicted(path: Path) -> None:
    for passes in ((), DEFAULT_PASSES):
        with new_context() as context:
            module = parse_module(path.name, path.read_bytes(), context).module
            run_pipeline(module, passes, Options(size_threshold=64_000, split_size=32_000))
            found, expected = read_timeline(module), predict(module)
        assert found.memory == expected
        assert max((point.bytes for point in found.points), default=0) == expected.temp
        for number, point in enumerate(found.points):
            known = sum(tensor.bytes for tensor in found.alive_at(number))
            assert known <= point.bytes or point.depth, "only what a loop carries lends its buffer in between"


def test_a_wider_copy_has_the_type_that_it_is_a_copy_of() -> None:
    found = timeline("""
func.func @main(%t: tensor<1000x64xf8E4M3FN>, %i: tensor<9x1xi32>, %u: tensor<9x64xf8E4M3FN>) -> tensor<1000x64xf8E4M3FN> {
  %0 = "stablehlo.scatter"(%t, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1],
    inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%a: tensor<f8E4M3FN>, %b: tensor<f8E4M3FN>):
    %1 = stablehlo.add %a, %b : tensor<f8E4M3FN>
    stablehlo.return %1 : tensor<f8E4M3FN>
  }) : (tensor<1000x64xf8E4M3FN>, tensor<9x1xi32>, tensor<9x64xf8E4M3FN>) -> tensor<1000x64xf8E4M3FN>
  return %0 : tensor<1000x64xf8E4M3FN>
}""")
    assert found.peak is not None
    largest = found.alive_at(found.peak)[0]
    assert (largest.name, largest.bytes) == ("a copy of 1000x64xf8E4M3FN in f16", 1000 * 64 * 2)


def test_what_is_widened_before_a_loop_is_a_tensor() -> None:
    found = timeline("""
func.func @main(%t: tensor<64x64xf8E4M3FN>) -> tensor<64xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %many = stablehlo.constant dense<64> : tensor<i32>
  %sums = stablehlo.constant dense<0.0> : tensor<64xf32>
  %0:2 = stablehlo.while(%i = %zero, %sum = %sums) : tensor<i32>, tensor<64xf32>
  cond {
    %1 = stablehlo.compare LT, %i, %many : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.dynamic_slice %t, %i, %zero, sizes = [1, 64] :
      (tensor<64x64xf8E4M3FN>, tensor<i32>, tensor<i32>) -> tensor<1x64xf8E4M3FN>
    %2 = stablehlo.convert %1 : (tensor<1x64xf8E4M3FN>) -> tensor<1x64xf32>
    %3 = stablehlo.reshape %2 : (tensor<1x64xf32>) -> tensor<64xf32>
    %4 = stablehlo.add %sum, %3 : tensor<64xf32>
    %5 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %5, %4 : tensor<i32>, tensor<64xf32>
  }
  return %0#1 : tensor<64xf32>
}""")
    assert found.peak is not None
    [point, largest] = found.points[found.peak], found.alive_at(found.peak)[0]
    assert (largest.name, largest.bytes) == ("a copy of 64x64xf8E4M3FN in f16", SQUARE_BYTES // 2)
    assert point.bytes >= sum(tensor.bytes for tensor in found.alive_at(found.peak))


def test_an_op_without_results_reads_what_it_is_given() -> None:
    found = timeline(f"""func.func @main(%x: {SQUARE}) -> {SQUARE} {{
  %y = stablehlo.sine %x : {SQUARE}
  stablehlo.custom_call @print(%y) {{has_side_effect = true}} : ({SQUARE}) -> ()
  return %x : {SQUARE}
}}""")
    assert found.memory.temp >= SQUARE_BYTES


@pytest.mark.parametrize("machine", [CPU, GPU], ids=lambda machine: machine.kind)
def test_a_run_leaves_the_block_as_it_is(machine: Machine) -> None:
    # The body of a loop that swaps its carries gets copies in a run; a second run starts from the same block.
    text = """
    func.func @main(%a: tensor<64x64xf32>, %b: tensor<64x64xf32>) -> tensor<64x64xf32> {
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %ten = stablehlo.constant dense<10> : tensor<i32>
      %0:3 = stablehlo.while(%i = %zero, %x = %a, %y = %b) : tensor<i32>, tensor<64x64xf32>, tensor<64x64xf32>
        cond {
          %1 = stablehlo.compare LT, %i, %ten : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %1 : tensor<i1>
        } do {
          %1 = stablehlo.add %i, %one : tensor<i32>
          %2 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
          stablehlo.return %1, %y, %2 : tensor<i32>, tensor<64x64xf32>, tensor<64x64xf32>
        }
      return %0#2 : tensor<64x64xf32>
    }
    """  # noqa: E501
    module = parse_module("m.mlir", text.encode(), new_context()).module
    block = read_block(main_function(module).regions[0].blocks[0], Types(), machine)
    [body] = next(op.bodies for op in block.ops if op.bodies)
    ops = list(body.ops)
    first, second = run_block(body, machine), run_block(body, machine)
    assert body.ops == ops and first.peak == second.peak
