"""What must hold with every jaxlib of the range: run by CI with the oldest and with the newest."""

from __future__ import annotations

import tomllib
from importlib.metadata import version
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.types import Types
from exla_opt.ir.walk import walk_functions
from exla_opt.ir.write import serialise
from exla_opt.memory.loop_kernels import LEAST_TILE_BYTES, needs_separate_kernels
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.runtime.compile import compile_program, run_program
from exla_opt.runtime.memory import measure_memory, memory_of

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
# How XLA:CPU marks the call of a loop that it compiles into one kernel.
ONE_KERNEL = "xla_cpu_small_call"
ROWS, COLUMNS = 256, 4096


def test_jax_is_within_the_range_that_is_promised() -> None:
    requirements = tomllib.loads(PYPROJECT.read_text())["project"]["dependencies"]
    for package in ("jax", "jaxlib"):
        assert f"{package}>=0.10,<0.13" in requirements
        release = tuple(map(int, version(package).split(".")[:2]))
        assert (0, 10) <= release < (0, 13)


def times_vector(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.exp(-((x[:, None] - y) ** 2)) @ y


def largest(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.max(jnp.sin(x[:, None] * y), axis=1)


def counted(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.sum((x[:, None] < y).astype(jnp.int32), axis=1)


def split(function: object, tile: int) -> str:
    shapes = [jax.ShapeDtypeStruct((length,), "float32") for length in (ROWS, COLUMNS)]
    text = jax.jit(function).lower(*shapes).as_text()  # type: ignore[call-overload]
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        run_pipeline(module, DEFAULT_PASSES, Options(size_threshold=tile))
        return serialise(module, "text").decode()


def optimised(text: str) -> str:
    hlo = compile_program(text, count_all_memory=True).executable.hlo_modules()[0].to_string()
    assert isinstance(hlo, str)
    return hlo


@pytest.mark.parametrize("function", [times_vector, largest, counted])
def test_a_loop_of_big_tiles_keeps_its_kernels(function: object) -> None:
    text = split(function, LEAST_TILE_BYTES)
    hlo = optimised(text)
    assert text.count("stablehlo.while") == text.count("stablehlo.sort") == 1
    assert " while(" in hlo
    assert ONE_KERNEL not in hlo
    assert '"known_trip_count":{"n":"8"}' in hlo.replace(" ", "")


def test_a_loop_of_small_tiles_sorts_nothing() -> None:
    text = split(times_vector, LEAST_TILE_BYTES // 2)
    assert "stablehlo.while" in text
    assert "stablehlo.sort" not in text


def test_the_sorted_counter_reads_the_same_slices() -> None:
    generator = np.random.default_rng(0)
    arrays = [generator.standard_normal(length, np.float32) for length in (ROWS, COLUMNS)]
    [sliced] = run_program(compile_program(split(counted, LEAST_TILE_BYTES)), arrays)
    assert np.array_equal(sliced, (arrays[0][:, None] < arrays[1]).sum(1))


LOOP = """
func.func @main(%x: tensor<200000xf32>) -> tensor<200000xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %loop:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, tensor<200000xf32>
  cond {
    %less = stablehlo.compare LT, %i, %i : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %less : tensor<i1>
  } do {
    %next = stablehlo.add %i, %i : tensor<i32>
    OP
    stablehlo.return %next, %z : tensor<i32>, tensor<200000xf32>
  }
  return %loop#1 : tensor<200000xf32>
}
"""


@pytest.mark.parametrize(
    ("op", "needed"),
    [
        ("%z = stablehlo.sine %y : tensor<200000xf32>", True),
        ('%z = stablehlo.custom_call @f(%y) : (tensor<200000xf32>) -> tensor<200000xf32>', False),
        ("%z = stablehlo.dynamic_update_slice %y, %y, %i : (tensor<200000xf32>, tensor<200000xf32>, tensor<i32>) -> tensor<200000xf32>", False),
    ],
)  # fmt: skip
def test_what_needs_separate_kernels(op: str, needed: bool) -> None:
    with new_context() as context:
        module = parse_module("<test>", LOOP.replace("OP", op).encode(), context).module
        [loop] = [one for one in walk_functions(module.operation) if one.name == "stablehlo.while"]
        assert isinstance(loop, ir.Operation)
        assert needs_separate_kernels(loop, Types()) is needed


def test_only_the_last_reader_waits_for_the_sort() -> None:
    with new_context() as context:
        module = parse_module("<test>", split(largest, LEAST_TILE_BYTES).encode(), context).module
        [loop] = [one for one in walk_functions(module.operation) if one.name == "stablehlo.while"]
        names = [view.operation.name.split(".")[1] for view in loop.regions[1].blocks[0].operations]
    assert (
        names.index("dynamic_slice") < names.index("reduce") < names.index("sort") < names.index("dynamic_update_slice")
    )


@pytest.mark.parametrize("function", [times_vector, largest, counted])
def test_the_plan_of_memory_is_made_before_the_code(function: object) -> None:
    """What `measure_memory` reads from a program that LLVM left as it was holds for the one that runs."""
    text = split(function, LEAST_TILE_BYTES)
    assert measure_memory(text) == memory_of(compile_program(text, count_all_memory=True).executable)
