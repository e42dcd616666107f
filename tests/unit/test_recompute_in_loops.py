"""recompute in the bodies of loops: what a step holds from its forward part to its backward part."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.memory.peak import predict
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.remarks import Remark
from exla_opt.runtime.memory import measure_memory
from tests.execute import assert_equal_results

LAYERS, TILES, ROWS, WIDTH = 8, 4, 4096, 16
RECOMPUTE = ("recompute", "normalise")

Network = Callable[[jax.Array, jax.Array], jax.Array]


@pytest.fixture(autouse=True)
def context() -> Iterator[ir.Context]:
    with new_context() as made:
        yield made


def network(x: jax.Array, w: jax.Array) -> jax.Array:
    """The loss of a tile."""
    for _ in range(LAYERS):
        x = jnp.tanh(x @ w)
    return (x**2).sum()


def in_tiles(loss: Network) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """The gradient by a weight that is made before the loop, summed over the tiles of a batch."""

    def step(v: jax.Array, x: jax.Array) -> jax.Array:
        w = jnp.sin(v)
        return lax.scan(lambda total, tile: (total + jax.grad(loss, 1)(tile, w), None), jnp.zeros_like(w), x)[0]

    return step


def exported(function: Callable[..., jax.Array], *shapes: tuple[int, ...]) -> str:
    given = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    return str(jax.export.export(jax.jit(function), platforms=["cpu"])(*given).mlir_module())


def rewritten(
    text: str, part: float, names: tuple[str, ...] = RECOMPUTE, options: Options | None = None
) -> tuple[ir.Module, ir.Module, tuple[Remark, ...]]:
    """The module, what becomes of it under a limit of a part of its temporaries, and the remarks."""
    before = ir.Module.parse(text)
    run_pipeline(before, ("normalise",), Options())
    memory = predict(before)
    limit = memory.peak - memory.temp + int(part * memory.temp)
    module = ir.Module.parse(str(before))
    given = options or Options()
    outcome = run_pipeline(module, names, Options(given.size_threshold, given.split_size, memory_limit=limit))
    return before, module, outcome.remarks


def test_a_step_recomputes_what_waits_in_it() -> None:
    text = exported(in_tiles(network), (WIDTH, WIDTH), (TILES, ROWS, WIDTH))
    before, module, remarks = rewritten(text, 0.6)
    assert remarks and {remark.code for remark in remarks} == {"EX013"}
    assert predict(module).temp <= 0.7 * predict(before).temp
    compiled = [measure_memory(str(each)).temp for each in (before, module)]
    assert compiled[1] <= 0.75 * compiled[0]
    assert_equal_results(before, module)


def test_a_second_run_changes_nothing() -> None:
    text = exported(in_tiles(network), (WIDTH, WIDTH), (TILES, ROWS, WIDTH))
    before, module, _ = rewritten(text, 0.6)
    memory = predict(before)
    limit = memory.peak - memory.temp + int(0.6 * memory.temp)
    once = str(module)
    assert run_pipeline(module, RECOMPUTE, Options(memory_limit=limit)).remarks == ()
    assert str(module) == once


def test_a_loop_in_a_loop() -> None:
    def step(v: jax.Array, x: jax.Array) -> jax.Array:
        inner = in_tiles(network)
        mapped: jax.Array = lax.map(lambda batch: inner(v, batch), x)
        return mapped

    before, module, remarks = rewritten(exported(step, (WIDTH, WIDTH), (2, TILES, ROWS, WIDTH)), 0.6)
    assert remarks
    assert predict(module).temp <= 0.75 * predict(before).temp
    assert_equal_results(before, module)


def test_what_a_step_writes_over_is_not_read_again() -> None:
    # The next state lies where this one did, and the segments begin with it.
    def step(w: jax.Array, x: jax.Array) -> jax.Array:
        def move(_: jax.Array, place: jax.Array) -> jax.Array:
            moved: jax.Array = place - 0.1 * jax.grad(network)(place, w)
            return moved

        last: jax.Array = lax.fori_loop(0, TILES, move, x)
        return last

    before, module, remarks = rewritten(exported(step, (WIDTH, WIDTH), (ROWS, WIDTH)), 0.6)
    assert remarks
    compiled = [measure_memory(str(each)).temp for each in (before, module)]
    assert compiled[1] <= 0.75 * compiled[0]
    assert_equal_results(before, module)


def test_what_a_step_asks_about_stays() -> None:
    def loss(x: jax.Array, w: jax.Array) -> jax.Array:
        for _ in range(4):
            x = jnp.tanh(x @ w)
            x = x * (x == x.max(1, keepdims=True))
        return (x**2).sum()

    before, module, remarks = rewritten(exported(in_tiles(loss), (WIDTH, WIDTH), (TILES, ROWS, WIDTH)), 0.5)
    assert remarks
    again = re.findall(r"optimization_barrier(.*?)stablehlo\.return", str(module), re.DOTALL)
    questions = [asked for each in again for asked in re.findall(r"compare  ?EQ, (%\S+),", each)]
    assert all("#" in asked for asked in questions)  # of what was stored, which comes out of the barrier
    assert_equal_results(before, module)


def test_what_is_split_along_its_batch_recomputes_in_each_tile() -> None:
    # One example holds more than the limit, so that no tile is small enough.
    def loss(w: jax.Array, x: jax.Array) -> jax.Array:
        for _ in range(LAYERS):
            y = x - x.mean((1, 2), keepdims=True)
            x = x + jax.nn.gelu(y * lax.rsqrt((y**2).mean((1, 2), keepdims=True) + 1e-5)) @ w
        return (x**2).sum()

    text = exported(jax.grad(loss), (WIDTH, WIDTH), (TILES, ROWS, WIDTH))
    sizes = Options(4 * ROWS * WIDTH, 4 * ROWS * WIDTH)
    before, module, remarks = rewritten(text, 0.12, DEFAULT_PASSES, sizes)
    assert {"tensor-splitter", "recompute"} <= {remark.pass_name for remark in remarks if remark.kind.name == "PASSED"}
    split = rewritten(text, 1e3, DEFAULT_PASSES, sizes)[1]
    compiled = [measure_memory(str(each)).temp for each in (split, module)]
    assert compiled[1] <= 0.85 * compiled[0]
    assert_equal_results(before, module)
