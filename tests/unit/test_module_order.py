"""The order of ops in a module means nothing to XLA, so no pass sets it (docs/memory-limit.md)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib.version
import pytest
from jaxlib.mlir import ir

from exla_opt.budget.fit import fit
from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.walk import main_function, terminator
from exla_opt.ir.write import serialise
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.runtime.memory import measure_memory

CHAINS = 5


def module_of(started: Callable[[Any, list[Any]], Any]) -> ir.Module:
    """Chains that share nothing but their arguments, each with a large tensor of its own and a small result."""

    def chains(x: Any, w: Any) -> list[Any]:
        results: list[Any] = []
        for number in range(CHAINS):
            y = started(w, results)
            results.append(((jnp.tanh(x @ y * (number + 1.0)) @ y.T) ** 2).sum(0))
        return results

    arguments = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((4000, 128), (128, 1000))]
    text = str(jax.jit(chains).lower(*arguments).compiler_ir("stablehlo"))
    module = parse_module("chains", text.encode(), new_context()).module
    run_pipeline(module, DEFAULT_PASSES[:2], Options())
    return module


def at_once(w: Any, results: list[Any]) -> Any:
    return w


def behind_a_barrier(w: Any, results: list[Any]) -> Any:
    return jax.lax.optimization_barrier((w, results[-1]))[0] if results else w


def behind_the_last_result(w: Any, results: list[Any]) -> Any:
    if not results:
        return w
    always = (jax.lax.bitcast_convert_type(results[-1][0], jnp.int32) | 1) != 0
    return jnp.where(always, w, 0)


def temp_of(module: ir.Module) -> int:
    return measure_memory(serialise(module, "bytecode")).temp


def shuffle(module: ir.Module, seed: int) -> None:
    """Another order of the ops of @main, each behind what it reads."""
    rng = random.Random(seed)
    block = main_function(module).regions[0].blocks[0]
    end = terminator(block)
    left = [view.operation for view in block.operations][:-1]
    while left:
        made = {value for op in left for value in op.results}
        ready = [op for op in left if made.isdisjoint(op.operands)]
        op = rng.choice(ready)
        op.move_before(end)
        left.remove(op)


@pytest.mark.parametrize("seed", range(2))
def test_the_order_in_a_module_changes_nothing(seed: int) -> None:
    module = module_of(at_once)
    before, text = temp_of(module), str(module)
    shuffle(module, seed)
    assert module.operation.verify() and str(module) != text
    assert temp_of(module) == before


def test_chains_run_at_once_on_a_cpu_unless_they_wait_by_data() -> None:
    before = temp_of(module_of(at_once))
    behind = temp_of(module_of(behind_a_barrier))
    # From jaxlib 0.12 on a barrier holds them back.
    assert behind == before if jaxlib.version.__version_info__ < (0, 12) else 3 * behind < before
    assert 3 * temp_of(module_of(behind_the_last_result)) < before


def test_slices_of_chains_need_less_than_one_chain_at_a_time() -> None:
    one = measure_memory(serialise(module_of(behind_the_last_result), "bytecode"))
    limit = one.peak - one.temp + one.temp // 2
    found = fit(module_of(at_once), DEFAULT_PASSES, Options(), limit, verify_each=False)
    assert found.fits and found.seconds <= 1.1 * found.before.seconds
