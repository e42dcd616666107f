"""Several slices in one trip of a loop: the same bits, fewer trips, and a limit decides how many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib.version
import numpy as np
import pytest
from jax import export, lax

from exla_opt.budget import order as order_of_budget
from exla_opt.budget.fit import fit
from exla_opt.ir.context import new_context
from exla_opt.ir.loops import trip_count
from exla_opt.ir.read import parse_module
from exla_opt.ir.walk import inside_out
from exla_opt.ir.write import serialise
from exla_opt.memory.machine import CPU, GPU
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from tests.execute import assert_equal_results, random_arguments, run_module


def softmax_attention(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("hqd,hkd->hqk", q, k) / 4
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores, axis=-1), v)


PROGRAM = """
func.func @main(%x: tensor<24x8xf32>) -> tensor<24x8xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %four = stablehlo.constant dense<4> : tensor<i32>
  %last = stablehlo.constant dense<20> : tensor<i32>
  %down = stablehlo.constant dense<-4> : tensor<i32>
  %trips = stablehlo.constant dense<TRIPS> : tensor<i32>
  %out:2 = stablehlo.while(%i = %zero, %o = %x) : tensor<i32>, tensor<24x8xf32>
  cond {
    %more = stablehlo.compare LT, %i, %trips, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %place = stablehlo.multiply %i, %four : tensor<i32>
    %rows = stablehlo.dynamic_slice %x, %place, %zero, sizes = [4, 8] : (tensor<24x8xf32>, tensor<i32>, tensor<i32>) -> tensor<4x8xf32>
    STEP
    %written = stablehlo.dynamic_update_slice %o, %part, %start, %zero : (tensor<24x8xf32>, tensor<4x8xf32>, tensor<i32>, tensor<i32>) -> tensor<24x8xf32>
    %next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %next, %written : tensor<i32>, tensor<24x8xf32>
  }
  return %out#1 : tensor<24x8xf32>
}
"""
SINE = "%part = stablehlo.sine %rows : tensor<4x8xf32>"
FROM = "%start = stablehlo.add %place, {} : tensor<i32>"
BACK = """
    %near = stablehlo.dynamic_slice %o, %place, %zero, sizes = [4, 8] : (tensor<24x8xf32>, tensor<i32>, tensor<i32>) -> tensor<4x8xf32>
    %sum = stablehlo.add %near, %rows : tensor<4x8xf32>
    %part = stablehlo.sine %sum : tensor<4x8xf32>
"""
HALVES = """
    %inner:2 = stablehlo.while(%j = %zero, %p = %rows) : tensor<i32>, tensor<4x8xf32>
    cond {
      %again = stablehlo.compare LT, %j, %two, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %again : tensor<i1>
    } do {
      %at = stablehlo.multiply %j, %two : tensor<i32>
      %half = stablehlo.dynamic_slice %rows, %at, %zero, sizes = [2, 8] : (tensor<4x8xf32>, tensor<i32>, tensor<i32>) -> tensor<2x8xf32>
      %waves = stablehlo.cosine %half : tensor<2x8xf32>
      %filled = stablehlo.dynamic_update_slice %p, %waves, %at, %zero : (tensor<4x8xf32>, tensor<2x8xf32>, tensor<i32>, tensor<i32>) -> tensor<4x8xf32>
      %then = stablehlo.add %j, %one : tensor<i32>
      stablehlo.return %then, %filled : tensor<i32>, tensor<4x8xf32>
    }
    %part = stablehlo.add %inner#1, %rows : tensor<4x8xf32>
"""


def program(step: str, trips: int = 6) -> str:
    return PROGRAM.replace("STEP", step).replace("TRIPS", str(trips))


PARTS = program(FROM.format("%zero") + SINE)
NESTED = program(FROM.format("%zero") + HALVES)
PROGRAMS = {
    "parts": (PARTS, True),
    "parts from the fourth row on": (program(FROM.format("%three") + SINE, 4), True),
    "loops in loops": (NESTED, True),
    "parts that overlap": (program("%start = stablehlo.multiply %i, %two : tensor<i32>" + SINE), False),
    "parts with gaps": (program("%start = stablehlo.add %place, %i : tensor<i32>" + SINE, 4), False),
    "one place": (program("%start = stablehlo.add %two, %two : tensor<i32>" + SINE), False),
    "read back": (program(FROM.format("%four") + BACK, 4), False),
    "from the end": (
        program(
            "%up = stablehlo.multiply %i, %down : tensor<i32> %start = stablehlo.add %up, %last : tensor<i32>" + SINE
        ),
        False,
    ),
    "beyond the end": (program(FROM.format("%two") + SINE), False),
    "before the beginning": (program(FROM.format("%down") + SINE), False),
    "which are moved by what is read": (
        program(
            """%first = stablehlo.slice %rows [0:1, 0:1] : (tensor<4x8xf32>) -> tensor<1x1xf32>
            %number = stablehlo.reshape %first : (tensor<1x1xf32>) -> tensor<f32>
            %moved = stablehlo.convert %number : (tensor<f32>) -> tensor<i32>
            %start = stablehlo.add %place, %moved : tensor<i32>"""
            + SINE
        ),
        False,
    ),
}


def exported(function: Callable[..., Any], *shapes: tuple[int, ...]) -> str:
    specs = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    return str(export.export(jax.jit(function), platforms=["cuda"])(*specs).mlir_module())


def rewritten(text: str, slices: int, passes: tuple[str, ...] = ("normalise", "joined-trips", "normalise")) -> str:
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        run_pipeline(module, passes, Options(machine=GPU, slices_a_trip=slices))
        return serialise(module, "text").decode()


def trips_of(text: str) -> list[int | None]:
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        return [trip_count(loop) for loop in inside_out(module, "stablehlo.while")]


def assert_same_bits(before: str, after: str) -> None:
    arrays = random_arguments(before)
    for one, other in zip(run_module(before, arrays), run_module(after, arrays), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("slices", [2, 3, 8])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_bits_stay(name: str, slices: int) -> None:
    before, joined = PROGRAMS[name]
    after = rewritten(before, slices)
    assert sum(filter(None, trips_of(after))) < sum(filter(None, trips_of(before)))
    assert ("stablehlo.concatenate" in after) == (joined and trips_of(after) != trips_of(before))
    assert_same_bits(before, after)


def test_as_many_as_divide_the_trips_and_not_all_of_them() -> None:
    assert [trips_of(rewritten(PARTS, slices)) for slices in (1, 2, 3, 5, 6)] == [[6], [3], [2], [2], [2]]
    assert trips_of(rewritten(program(FROM.format("%zero") + SINE, 5), 4)) == [5]


def test_what_is_written_in_a_trip_is_written_at_once() -> None:
    after = rewritten(PARTS, 3)
    assert after.count("stablehlo.dynamic_update_slice") == 1
    assert "-> tensor<12x8xf32>" in after


def test_a_loop_of_few_trips_in_another_is_written_out() -> None:
    after = rewritten(NESTED, 2)
    assert trips_of(after) == [3]
    assert after.count("stablehlo.dynamic_update_slice") == 1


def test_a_trip_that_computes_long_stays() -> None:
    wide = PARTS.replace("x8xf32", "x800000000xf32").replace(", 8]", ", 800000000]")
    assert trips_of(rewritten(wide, 2)) == [6]


def test_the_loops_of_a_program_are_joined_too() -> None:
    def steps(x: Any) -> Any:
        return lax.scan(lambda h, row: (jnp.sin(h + row), h * 2), x[0], x)

    before = exported(steps, (24, 8))
    after = rewritten(before, 4)
    assert trips_of(after) == [6]
    assert_same_bits(before, after)


def fitted(limit: int, machine: Any = GPU) -> tuple[str, int]:
    text = exported(softmax_attention, *[(16, 512, 16)] * 3)
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        found = fit(module, DEFAULT_PASSES, Options(machine=machine), limit)
        assert found.fits
        return serialise(found.module, "text").decode(), found.options.slices_a_trip


def test_a_limit_decides_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        order_of_budget, "try_nested", lambda search, sizes, **_: iter(())
    )  # one of these would be as fast
    found, slices = fitted(9_000_000)
    assert slices > 1
    # From jaxlib 0.12 on XLA:CPU rounds products of other shapes otherwise.
    same = assert_same_bits if jaxlib.version.__version_info__ < (0, 12) else assert_equal_results
    same(exported(softmax_attention, *[(16, 512, 16)] * 3), found)


def test_the_loops_of_a_cpu_stay() -> None:
    assert fitted(9_000_000, CPU)[1] == 1
