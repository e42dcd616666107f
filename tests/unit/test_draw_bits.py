"""Random bits written out: those that XLA draws, to the last one, with the state after them."""

from __future__ import annotations

import numpy as np
import pytest
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.memory.machine import machine_of
from exla_opt.ops.draw_bits import draw
from exla_opt.options import Options
from exla_opt.passes import tensor_splitter
from exla_opt.runtime.compile import compile_program, run_program

LAST = 2**64 - 1
STATES = ((5 + (9 << 40), 7, 9), (5, LAST - 2, 9), (LAST, LAST - 2, LAST))
SHAPES = (
    *((6, 8), (7, 4), (40,), (3, 2, 8), (1, 4), (1, 1, 12)),
    *((5, 6), (6, 5), (2, 3, 1), (4, 3, 5), (2, 2, 3), (8, 1)),  # the last dimension alone leaves words over
    *((5, 7), (3, 5, 3), (7,), (1, 1), (2, 3, 3), (10, 3)),  # all leave some over
)


def program(algorithm: str, width: int, shape: tuple[int, ...], words: int) -> str:
    bits = f"tensor<{'x'.join(map(str, shape))}xui{width}>"
    state = f"tensor<{words}xui64>"
    return f"""func.func @main(%state: {state}) -> ({state}, {bits}) {{
      %next, %bits = stablehlo.rng_bit_generator %state, algorithm = {algorithm} : ({state}) -> ({state}, {bits})
      return %next, %bits : {state}, {bits}
    }}"""


def written_out(text: str) -> str | None:
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        [function] = module.body.operations
        op = function.operation.regions[0].blocks[0].operations[0].operation
        with ir.InsertionPoint(op), op.location:
            made = draw(op)
        if made is None:
            return None
        for result, value in zip(op.results, made, strict=True):
            result.replace_all_uses_with(value)
        op.erase()
        return serialise(module, "text").decode()


@pytest.mark.parametrize("width", [8, 16, 32, 64])
@pytest.mark.parametrize(("algorithm", "words"), [("PHILOX", 2), ("PHILOX", 3), ("DEFAULT", 2), ("THREE_FRY", 2)])
def test_the_bits_and_the_state_are_those_of_xla(algorithm: str, words: int, width: int) -> None:
    for shape in SHAPES if width >= 32 else SHAPES[::3]:
        text = program(algorithm, width, shape, words)
        other = written_out(text)
        assert other is not None
        one, two = compile_program(text), compile_program(other)
        for state in STATES:
            arrays = [np.array(state[:words], np.uint64)]
            for expected, actual in zip(run_program(one, arrays), run_program(two, arrays), strict=True):
                assert expected.dtype == actual.dtype and np.array_equal(expected, actual), (shape, state)


@pytest.mark.parametrize(
    ("algorithm", "width", "shape", "words"),
    [("PHILOX", 32, (4, 0), 3), ("THREE_FRY", 32, (0, 3), 2)],
    ids=["empty", "empty-odd"],
)
def test_what_is_not_written_out(algorithm: str, width: int, shape: tuple[int, ...], words: int) -> None:
    assert written_out(program(algorithm, width, shape, words)) is None


@pytest.mark.parametrize(("machine", "expands"), [("cpu", True), ("gpu", True), ("tpu", False)])
def test_only_where_the_compiler_expands_it_and_something_is_gained(machine: str, expands: bool) -> None:
    text = """func.func @main(%state: tensor<2xui64>) -> (tensor<2xui64>, tensor<64xui32>) {
      %zero = stablehlo.constant dense<0> : tensor<ui32>
      %next, %bits = stablehlo.rng_bit_generator %state, algorithm = PHILOX : (tensor<2xui64>) -> (tensor<2xui64>, tensor<64x4096xui32>)
      %most = stablehlo.reduce(%bits init: %zero) applies stablehlo.maximum across dimensions = [1] : (tensor<64x4096xui32>, tensor<ui32>) -> tensor<64xui32>
      return %next, %most : tensor<2xui64>, tensor<64xui32>
    }"""
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        remarks = tensor_splitter.run(module, Options(size_threshold=100_000, machine=machine_of(machine)))
        assert ("rng_bit_generator" not in str(module)) == expands
        assert ("EX001" in {remark.code for remark in remarks}) == expands


@pytest.mark.parametrize("algorithm", ["PHILOX", "THREE_FRY"])
@pytest.mark.parametrize("shape", ["4096x30", "4097x31", "301x5x83"], ids=["even", "odd", "cube"])
def test_words_that_are_left_over_are_drawn_slice_by_slice(algorithm: str, shape: str) -> None:
    *rows, last = shape.split("x")
    bits, wide, sums = (f"tensor<{'x'.join(dims)}>" for dims in ([shape, "ui32"], [shape, "f64"], [*rows, "8xf64"]))
    text = f"""func.func @main(%state: tensor<2xui64>) -> (tensor<2xui64>, {sums}) {{
      %ones = stablehlo.constant dense<1.0> : tensor<{last}x8xf64>
      %next, %bits = stablehlo.rng_bit_generator %state, algorithm = {algorithm} : (tensor<2xui64>) -> (tensor<2xui64>, {bits})
      %wide = stablehlo.convert %bits : ({bits}) -> {wide}
      %sums = stablehlo.dot_general %wide, %ones, contracting_dims = [{len(rows)}] x [0] : ({wide}, tensor<{last}x8xf64>) -> {sums}
      return %next, %sums : tensor<2xui64>, {sums}
    }}"""
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        tensor_splitter.run(module, Options(size_threshold=100_000, split_size=20_000))
        after = serialise(module, "text").decode()
    one, two = (compile_program(each, count_all_memory=True) for each in (text, after))
    arrays = [np.array(STATES[1][:2], np.uint64)]
    for expected, actual in zip(run_program(one, arrays), run_program(two, arrays), strict=True):
        assert np.array_equal(expected, actual)
    before, smaller = (each.executable.get_compiled_memory_stats().temp_size_in_bytes for each in (one, two))
    assert smaller < 0.3 * before
