"""Draws of jax.random's older threefry, whose words are joined in halves: in slices, to the bit, on CPU and GPU exports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.walk import walk_functions
from exla_opt.ir.write import serialise
from exla_opt.ops.joined_halves import halves_of
from exla_opt.options import Options
from exla_opt.passes import normalise
from exla_opt.passes.tensor_splitter.draws import why_not_split
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.remarks import Reason
from exla_opt.runtime.compile import compile_program, run_program

KEYS = ((0, 0), (1, 2), (2**32 - 1, 2**32 - 5))
Drawn = Callable[[Any], Any]


def _bits(shape: tuple[int, ...], width: int) -> Drawn:
    return lambda key: jax.random.bits(key, shape, dtype=f"uint{width}")


def _dropout(key: Any) -> Any:
    def loss(x: Any) -> Any:
        return (jnp.where(jax.random.bernoulli(key, 0.5, x.shape), x, 0) ** 2).sum()

    return jax.grad(loss)(jnp.arange(2405.0).reshape(65, 37))


def _rows(key: Any) -> Any:
    return jax.vmap(lambda own: jax.random.bits(own, (33, 31)), out_axes=1)(jax.random.split(key, 3)).max(0)


def _picked(numbers: Any) -> Any:
    """Only behind the draw's own loop does anybody know of rows."""
    return jnp.take_along_axis(numbers, (numbers[:, :2] * 10).astype(jnp.int32), axis=1, mode="clip")


def _steps(key: Any) -> Any:
    def step(most: Any, own: Any) -> Any:
        return jnp.maximum(most, jax.random.bits(own, (61, 37)).max(0)), None

    return jax.lax.scan(step, jnp.zeros(37, jnp.uint32), jax.random.split(key, 4))[0]


def _folded(key: Any) -> Any:
    return jax.random.key_data(jax.vmap(lambda number: jax.random.fold_in(key, number))(jnp.arange(1001)))


PROGRAMS: dict[str, Drawn] = {
    **{f"{width} bits, even": _bits((64, 38), width) for width in (8, 16, 32)},
    **{f"{width} bits, odd": _bits((61, 37), width) for width in (8, 16, 32)},
    "line": _bits((2001,), 32),
    "middle dimension": lambda key: _bits((5, 21, 31), 32)(key).max(1),
    "largest": lambda key: _bits((61, 37), 32)(key).max(0),
    "uniform": lambda key: jax.random.uniform(key, (61, 37)),
    "normal": lambda key: jax.random.normal(key, (61, 37)).max(0),
    "bfloat16": lambda key: jax.random.normal(key, (61, 37), dtype=jnp.bfloat16),
    "bernoulli": lambda key: jax.random.bernoulli(key, 0.3, (61, 37)).sum(1),
    "randint": lambda key: jax.random.randint(key, (61, 37), 3, 1000),
    "split": lambda key: jax.random.key_data(jax.random.split(key, 1001)),
    "fold_in": _folded,
    "permutation": lambda key: jax.random.permutation(key, 1001),
    "dropout": _dropout,
    "rows": _rows,
    "steps": _steps,
}


def program(function: Drawn, platform: str, is_new: bool) -> str:
    with jax.threefry_partitionable(is_new):
        made = jax.export.export(jax.jit(lambda key: function(jax.random.wrap_key_data(key))), platforms=[platform])
        return str(made(jax.ShapeDtypeStruct((2,), jnp.uint32)).mlir_module())


def rewritten(text: str, threshold: int, slice_bytes: int) -> str:
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        run_pipeline(module, DEFAULT_PASSES, Options(size_threshold=threshold, split_size=slice_bytes))
        return serialise(module, "text").decode()


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_numbers_are_those_of_jax(name: str) -> None:
    for is_new in (False, True):
        with jax.threefry_partitionable(is_new):
            drawn = jax.jit(lambda key: PROGRAMS[name](jax.random.wrap_key_data(key)))
            expected = [np.asarray(drawn(np.array(key, np.uint32))) for key in KEYS]
        for platform in ("cpu",) if is_new else ("cpu", "cuda"):
            after = compile_program(rewritten(program(PROGRAMS[name], platform, is_new), 1000, 500))
            for key, numbers in zip(KEYS, expected, strict=True):
                [actual] = run_program(after, [np.array(key, np.uint32)])
                assert np.array_equal(numbers, actual), (platform, is_new, key)


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
@pytest.mark.parametrize("name", ["normal", "bernoulli", "bytes", "integers", "picked"])
def test_a_big_draw_is_in_slices(name: str, platform: str) -> None:
    shape = (1999, 501)
    draws: dict[str, Drawn] = {
        "normal": lambda key: jnp.sin(jax.random.normal(key, shape)).max(1),
        "bernoulli": lambda key: jax.random.bernoulli(key, 0.3, shape).astype(jnp.float32).sum(),
        "bytes": lambda key: jax.random.bits(key, (2000, 500), dtype="uint8").max(1),
        "integers": lambda key: jax.random.randint(key, shape, 3, 1000).max(1),
        "picked": lambda key: _picked(jax.random.uniform(key, shape)),
    }
    text = program(draws[name], platform, False)
    after = rewritten(text, 250_000, 100_000)
    one, two = (compile_program(each, count_all_memory=True) for each in (text, after))
    before, smaller = (each.executable.get_compiled_memory_stats().temp_size_in_bytes for each in (one, two))
    # The words that bytes are cut from are a quarter as many.
    assert smaller < (0.6 if name == "bytes" and platform == "cuda" else 0.3) * before, (before, smaller)
    for key in KEYS:
        for expected, actual in zip(
            *(run_program(each, [np.array(key, np.uint32)]) for each in (one, two)), strict=True
        ):
            assert np.allclose(expected, actual, rtol=1e-5, atol=0)


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
@pytest.mark.parametrize("shape", [(512, 200), (511, 201), (102_001,)], ids=["even", "odd", "line"])
def test_words_of_64_bits_are_in_slices(shape: tuple[int, ...], platform: str) -> None:
    """Of both halves one word each: what counts them is one iota, of which each reads a part."""
    with jax.enable_x64(True):
        for draw in (jax.random.bits, jax.random.uniform):
            dtype = jnp.uint64 if draw is jax.random.bits else jnp.float64

            def largest(key: jax.Array, draw: Any = draw, dtype: Any = dtype) -> Any:
                return draw(key, shape, dtype).max()

            text = program(largest, platform, False)
            after = rewritten(text, 100_000, 50_000)
            one, two = (compile_program(each, count_all_memory=True) for each in (text, after))
            before, smaller = (each.executable.get_compiled_memory_stats().temp_size_in_bytes for each in (one, two))
            assert smaller < 0.2 * before, (before, smaller)
            for key in KEYS:
                results = [run_program(each, [np.array(key, np.uint32)])[0] for each in (one, two)]
                assert results[0].tobytes() == results[1].tobytes()


def joins(body: str, results: str = "tensor<2000xui32>") -> list[bool]:
    """Of every join of a program, whether its elements follow from their places."""
    text = f"func.func @main(%x: tensor<1000xui32>, %k: tensor<ui32>) -> {results} {{ {body} }}"
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        normalise.run(module, Options())
        ops = [op for op in walk_functions(module.operation) if op.name == "stablehlo.concatenate"]
        return [halves_of(op) is not None for op in ops]


COUNTED = """
  %counts = stablehlo.iota dim = 0 : tensor<2000xui32>
  %first = stablehlo.slice %counts [0:1000] : (tensor<2000xui32>) -> tensor<1000xui32>
  %second = stablehlo.slice %counts [1000:2000] : (tensor<2000xui32>) -> tensor<1000xui32>
"""
JOINED = """
  %mixed = stablehlo.xor %a, %b : tensor<1000xui32>
  %words = stablehlo.add %mixed, %b : tensor<1000xui32>
  %all = stablehlo.concatenate %mixed, %words, dim = 0 : (tensor<1000xui32>, tensor<1000xui32>) -> tensor<2000xui32>
  return %all : tensor<2000xui32>
"""


def named(a: str, b: str) -> str:
    return JOINED.replace("%a,", f"{a},").replace("%b :", f"{b} :")


def test_halves_of_what_counts() -> None:
    assert joins(COUNTED + named("%first", "%second")) == [True]


def test_halves_of_complex_constants() -> None:
    """Their values cannot be read through the bindings; their text can."""
    text = """func.func @main(%x: tensor<20000xcomplex<f32>>) -> tensor<complex<f32>> {
      %zero = stablehlo.constant dense<(0.0, 0.0)> : tensor<complex<f32>>
      %half = stablehlo.constant dense<(0.5, -1.25)> : tensor<10000xcomplex<f32>>
      %two = stablehlo.constant dense<(2.0, 0.75)> : tensor<10000xcomplex<f32>>
      %a = stablehlo.multiply %half, %two : tensor<10000xcomplex<f32>>
      %b = stablehlo.add %a, %two : tensor<10000xcomplex<f32>>
      %all = stablehlo.concatenate %a, %b, dim = 0
        : (tensor<10000xcomplex<f32>>, tensor<10000xcomplex<f32>>) -> tensor<20000xcomplex<f32>>
      %much = stablehlo.multiply %all, %x : tensor<20000xcomplex<f32>>
      %sum = stablehlo.reduce(%much init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<20000xcomplex<f32>>, tensor<complex<f32>>) -> tensor<complex<f32>>
      return %sum : tensor<complex<f32>>
    }"""
    with new_context() as context:
        ops = walk_functions(parse_module("<program>", text.encode(), context).module.operation)
        assert [halves_of(op) is not None for op in ops if op.name == "stablehlo.concatenate"] == [True]
    numbers = np.random.default_rng(0).normal(size=(2, 20_000)).astype(np.float32)
    programs = [compile_program(each) for each in (text, rewritten(text, 20_000, 10_000))]
    one, two = (run_program(program, [numbers[0] + 1j * numbers[1]])[0] for program in programs)
    np.testing.assert_allclose(one, two, rtol=1e-5)


@pytest.mark.parametrize(
    "body",
    [
        COUNTED + named("%first", "%x"),  # numbers that are given do not follow from their places
        COUNTED
        + """
        %all = stablehlo.concatenate %first, %x, dim = 0 : (tensor<1000xui32>, tensor<1000xui32>) -> tensor<2000xui32>
        return %all : tensor<2000xui32>
        """,
        COUNTED  # nothing is computed for both
        + """
        %a = stablehlo.not %first : tensor<1000xui32>
        %b = stablehlo.not %second : tensor<1000xui32>
        %all = stablehlo.concatenate %a, %b, dim = 0 : (tensor<1000xui32>, tensor<1000xui32>) -> tensor<2000xui32>
        return %all : tensor<2000xui32>
        """,
        COUNTED  # an element from another place
        + "%turned = stablehlo.reverse %first, dims = [0] : tensor<1000xui32>"
        + named("%turned", "%second"),
    ],
)
def test_what_is_left_alone(body: str) -> None:
    assert joins(body) == [False]


def test_a_loop_whose_steps_mix_places_is_left_alone() -> None:
    loop = """
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %five = stablehlo.constant dense<5> : tensor<i32>
      %w:3 = stablehlo.while(%i = %zero, %u = %first, %v = %second) : tensor<i32>, tensor<1000xui32>, tensor<1000xui32>
      cond {
        %c = stablehlo.compare LT, %i, %five, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      } do {
        %n = stablehlo.add %i, %one : tensor<i32>
        %s = STEP : tensor<1000xui32>
        %t = stablehlo.xor %u, %s : tensor<1000xui32>
        stablehlo.return %n, %t, %s : tensor<i32>, tensor<1000xui32>, tensor<1000xui32>
      }
    """
    for step, is_legal in (("stablehlo.add %u, %v", True), ("stablehlo.reverse %v, dims = [0]", False)):
        assert joins(COUNTED + loop.replace("STEP", step) + named("%w#1", "%w#2")) == [is_legal]


def test_a_draw_that_stays_is_called_random_numbers() -> None:
    text = """func.func @main(%x: tensor<2001xui32>, %y: tensor<2001xui32>) -> tensor<2001xui32> {
      %nine = stablehlo.constant dense<9> : tensor<2001xui32>
      %left = stablehlo.shift_left %x, %nine : tensor<2001xui32>
      %right = stablehlo.shift_right_logical %x, %nine : tensor<2001xui32>
      %turned = stablehlo.or %left, %right : tensor<2001xui32>
      %mixed = stablehlo.xor %turned, %y : tensor<2001xui32>
      %other = stablehlo.xor %left, %y : tensor<2001xui32>
      return %mixed : tensor<2001xui32>
    }"""
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        mixed, other = [op.results[0] for op in walk_functions(module.operation) if op.name == "stablehlo.xor"]
        reason = Reason("EX201", "a sort needs it whole")
        said = why_not_split(mixed, reason)
        assert (said.code, said.text) == ("EX313", f"random numbers of jax.random, not split: {reason.text}")
        assert why_not_split(other, reason) == Reason("EX201", f"not split: {reason.text}")
        assert why_not_split(mixed, Reason("EX101", "fused")).code == "EX101"
