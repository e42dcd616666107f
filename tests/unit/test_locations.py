"""What is said of a tensor names a line of the user's program, also where `jnp` functions made it."""

from __future__ import annotations

import inspect
from typing import Any

import jax
import jax.numpy as jnp
from jax import export

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.memory.timeline import read_timeline
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline


def block(x: Any, weights: Any, key: Any) -> Any:
    """A step with functions of `jnp` that are jitted themselves: their ops have no line of their own."""
    centred = (x - jnp.mean(x, axis=-1, keepdims=True)) / jnp.sqrt(jnp.var(x, axis=-1, keepdims=True) + 1e-5)
    scores = jax.nn.softmax(jnp.where(jnp.tri(x.shape[0]) > 0, centred @ centred.T, -1e9), axis=-1)
    kept = jnp.where(jax.random.bernoulli(key, 0.9, scores.shape), scores, 0.0)
    hidden = jax.nn.gelu(kept @ x @ weights)
    order = jnp.argsort(hidden, axis=-1)
    return jnp.take_along_axis(hidden, order, axis=-1).std(), jnp.cumsum(hidden, axis=0).sum(), jnp.linalg.norm(scores)


def exported() -> str:
    types = [jnp.zeros((128, 32)), jnp.zeros((32, 96)), jax.random.key_data(jax.random.key(0))]
    return str(export.export(jax.jit(block))(*types).mlir_module())


def test_all_that_is_said_names_a_line_of_this_file() -> None:
    lines, first = inspect.getsourcelines(block)
    own = {f"{__file__}:{number}" for number in range(first, first + len(lines))}
    with new_context() as context:
        module = parse_module("<block>", exported().encode(), context).module
        remarks = run_pipeline(module, DEFAULT_PASSES, Options(size_threshold=16_000)).remarks
        timeline = read_timeline(module)
    places = [remark.location for remark in remarks] + [remark.stopped_at for remark in remarks if remark.stopped_at]
    tensors = [tensor.location for tensor in timeline.tensors if tensor.bytes > 1_000]
    assert places and tensors
    named = {place.rpartition(":")[0] for place in (*places, *tensors)}
    assert named <= own and len(named) >= 3
