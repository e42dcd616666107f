"""Loop invariants that XLA moves out of loops, and merges: predicted as compiled."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.memory.machine import CPU
from exla_opt.memory.peak import predict
from exla_opt.options import Options
from exla_opt.pipeline import run_pipeline
from exla_opt.runtime.memory import measure_memory

Array = Any
_TOKENS = 256


def layers(x: Array, mask: Array, *, low: float) -> Array:
    """Loops in one loop, in each of which the same mask selects the same two numbers, or two others."""

    def of_batch(x: Array) -> Array:
        for number in range(4):

            def of_head(x: Array, number: int = number) -> Array:
                scores = x @ x.T + jnp.where(mask, 0.0, -1e9 - low * number)
                return x + jax.nn.softmax(scores) @ x

            x = jax.lax.map(of_head, x)
        return x

    return jax.lax.map(of_batch, x)


@pytest.mark.parametrize("low", [0.0, 1e8])
def test_equal_invariants_of_several_loops_are_one_tensor(low: float) -> None:
    shapes = jax.ShapeDtypeStruct((3, 4, _TOKENS, 16), "float32"), jax.ShapeDtypeStruct((_TOKENS, _TOKENS), "bool")
    exported = jax.export.export(jax.jit(lambda x, mask: layers(x, mask, low=low)), platforms=["cpu"])(*shapes)
    with new_context() as context:
        module = parse_module("<program>", exported.mlir_module().encode(), context).module
        run_pipeline(module, ["normalise"], Options(machine=CPU))
        predicted = predict(module, CPU).temp
        compiled = measure_memory(str(module)).temp
    assert predicted == pytest.approx(compiled, rel=0.1)
