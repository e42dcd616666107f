"""Loops that overwrite a tensor wait for others that read it, and the compiler then makes no copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.loops import Counting, counting
from exla_opt.ir.opaque import known_later, once_known
from exla_opt.ir.read import parse_module
from exla_opt.ir.values import splat_value
from exla_opt.ir.walk import inside_out, main_function, terminator
from exla_opt.ir.write import serialise
from exla_opt.memory.machine import GPU
from exla_opt.memory.peak import predict
from exla_opt.options import Options
from exla_opt.pipeline import run_pipeline
from exla_opt.runtime.memory import measure_memory
from tests.execute import assert_equal_results

ROWS, TILE = 1000, 100
WAITS = "EX019"


def updated(weights: Any, turn: Callable[[Any], Any] = jnp.sin) -> Any:
    """The weights, tile by tile, in place."""

    def step(number: Any, current: Any) -> Any:
        tile = lax.dynamic_slice(current, (number * TILE, 0), (TILE, ROWS))
        return lax.dynamic_update_slice(current, turn(tile), (number * TILE, 0))

    return lax.fori_loop(0, ROWS // TILE, step, weights)


def summed(weights: Any) -> Any:
    """The sum of squares, tile by tile."""

    def step(number: Any, total: Any) -> Any:
        tile = lax.dynamic_slice(weights, (number * TILE, 0), (TILE, ROWS))
        return total + (tile * tile).sum()

    return lax.fori_loop(0, ROWS // TILE, step, jnp.zeros((), weights.dtype))


WAITING: dict[str, Callable[[Any], Any]] = {
    "a loop reads it": lambda w: (updated(w), summed(w)),
    "a reduction reads it": lambda w: (updated(w), w.sum()),
    "two read it": lambda w: (updated(w), w.sum(0), w.max()),
    "an earlier op reads it, too": lambda w: (lambda s: (updated(w, lambda tile: tile * s), w.max()))(w.sum()),
    "another tensor than an argument": lambda w: (lambda v: (updated(v), v.sum()))(w @ w),
    "numbers of other types": lambda w: (updated(w), w.sum(0).astype("int8")),
}
KEPT = "another tensor than an argument"
LEFT: dict[str, Callable[[Any], Any]] = {
    "a reader needs the loop": lambda w: (lambda new: (new, (new * w).sum()))(updated(w)),
    "a reader needs another that does": lambda w: (lambda new: (new, (new[0] @ w).sum()))(updated(w)),
    "only a boolean is read": lambda w: (updated(w), (w > 0.5).all()),
    "all readers come first": lambda w: (lambda s: updated(w, lambda tile: tile * s))(w.sum()),
    "the loop reads the old values": lambda w: (updated(w, lambda tile: tile * w.sum()), w.max()),
    "elements are read one by one": lambda w: (updated(w), w + 1),
    "two loops overwrite it": lambda w: (updated(w), updated(w, jnp.cos)),
}


def module_of(program: Callable[..., Any], count: int = 1) -> ir.Module:
    weights = jax.ShapeDtypeStruct((ROWS, ROWS), jnp.float32)
    given = () if program is WAITING[KEPT] else tuple(range(count))
    lowered = jax.jit(program, donate_argnums=given).lower(*[weights] * count)
    return parse_module("program", str(lowered.compiler_ir("stablehlo")).encode(), new_context()).module


def rewritten(program: Callable[..., Any], count: int = 1, **options: Any) -> tuple[ir.Module, ir.Module, list[str]]:
    """The module, and what recompute makes of it for a limit that leaves no room for a copy; its remarks' codes.

    count: of donated weights.
    """
    before, after = module_of(program, count), module_of(program, count)
    for module in (before, after):
        run_pipeline(module, ("normalise",), Options())
    memory = predict(before)
    limit = memory.peak - memory.temp + memory.temp // 4
    remarks = run_pipeline(after, ("recompute", "normalise"), Options(memory_limit=limit, **options)).remarks
    return before, after, [remark.code for remark in remarks]


@pytest.mark.parametrize("name", WAITING)
def test_the_loop_waits_and_overwrites_without_a_copy(name: str) -> None:
    before, after, codes = rewritten(WAITING[name])
    assert WAITS in codes
    true = [measure_memory(serialise(module, "text")) for module in (before, after)]
    assert true[1].temp <= true[0].temp - 0.95 * 4 * ROWS * ROWS
    for module, memory in zip((before, after), true, strict=True):
        assert abs(predict(module).temp - memory.temp) <= 0.02 * memory.peak + 4096
    assert_equal_results(before, after)


def updated_both(one: Any, other: Any) -> Any:
    """Two matrices of weights, tile by tile, in place."""

    def step(number: Any, current: Any) -> Any:
        tiles = [lax.dynamic_slice(each, (number * TILE, 0), (TILE, ROWS)) for each in current]
        new = jnp.sin(tiles[0]), jnp.cos(tiles[1])
        return tuple(
            lax.dynamic_update_slice(each, tile, (number * TILE, 0)) for each, tile in zip(current, new, strict=True)
        )

    return lax.fori_loop(0, ROWS // TILE, step, (one, other))


def test_each_tensor_that_is_not_copied_has_a_remark() -> None:
    assert rewritten(lambda a, b: (updated_both(a, b), a.sum(), b.max()), 2)[2].count(WAITS) == 2
    assert rewritten(lambda a, b: (updated_both(a, b), (a @ b).sum()), 2)[2].count(WAITS) == 2
    assert rewritten(lambda a, b: (updated_both(a, b), b.max()), 2)[2].count(WAITS) == 1


def test_other_loops_wait_although_two_read_what_each_other_overwrites() -> None:
    def program(a: Any, b: Any, c: Any) -> Any:
        return updated(a, lambda tile: tile @ b), updated(b, lambda tile: tile @ a), updated(c), c.sum()

    before, after, codes = rewritten(program, 3)
    assert codes.count(WAITS) == 2
    true = [measure_memory(serialise(module, "text")).temp for module in (before, after)]
    assert true[1] <= true[0] - 1.75 * 4 * ROWS * ROWS
    assert_equal_results(before, after)


def test_the_last_of_a_chain_of_readers_is_enough() -> None:
    def program(weights: Any) -> Any:
        loss = jnp.zeros(ROWS, weights.dtype)
        for _ in range(20):
            loss = weights @ loss + 1
        return updated(weights), loss

    before, after, codes = rewritten(program)
    answers = [sum(1 for _ in inside_out(module, "stablehlo.bitcast_convert")) for module in (before, after)]
    assert WAITS in codes and answers == [0, 1]
    assert_equal_results(before, after)


@pytest.mark.parametrize("name", LEFT)
def test_other_loops_are_left(name: str) -> None:
    before, after, codes = rewritten(LEFT[name])
    assert WAITS not in codes
    assert_equal_results(before, after)


def test_a_copy_in_the_memory_of_what_is_computed_from_it_costs_nothing() -> None:
    before, after, codes = rewritten(lambda w: (lambda o: (updated(w), o))(w + 1))
    true = measure_memory(serialise(before, "text"))
    assert WAITS not in codes and abs(predict(before).temp - true.temp) <= 0.02 * true.peak + 4096
    assert_equal_results(before, after)


def test_a_loop_that_waits_in_vain_takes_no_more() -> None:
    """Of the weights, XLA writes the squares over the copy, as no prediction says: the loop need not have waited."""
    before, after, _ = rewritten(lambda w: (lambda o: (updated(w), o))(w.var(0)))
    assert measure_memory(serialise(after, "text")).peak <= measure_memory(serialise(before, "text")).peak
    assert_equal_results(before, after)


def test_a_gpu_orders_the_ops_before_it_looks_for_copies() -> None:
    _, _, codes = rewritten(WAITING["a loop reads it"], machine=GPU)
    assert WAITS not in codes


def test_the_loop_still_counts() -> None:
    before, after, _ = rewritten(WAITING["a reduction reads it"])
    counts = [[counting(loop) for loop in inside_out(module, "stablehlo.while")] for module in (before, after)]
    assert counts[0] == counts[1] == [Counting(0, 0, 1, ROWS // TILE)]


@pytest.mark.parametrize("number", [0, 1, -3])
def test_a_number_that_is_known_later_is_the_same_number(number: int) -> None:
    text = f"""func.func @main(%a: tensor<4xf32>, %b: tensor<i8>) -> tensor<i32> {{
      %c = stablehlo.constant dense<{number}> : tensor<i32>
      return %c : tensor<i32> }}"""
    before, after = (parse_module("program", text.encode(), new_context()).module for _ in range(2))
    block = main_function(after).regions[0].blocks[0]
    last = terminator(block)
    constant = last.operands[0]
    with ir.InsertionPoint(last), last.location:
        later = once_known(constant, list(block.arguments))
        again = once_known(later, list(block.arguments[:1]))
    assert splat_value(later) is None and known_later(later) == constant and known_later(constant) == constant
    assert known_later(again) == constant
    last.operands[0] = again
    assert_equal_results(before, after)
