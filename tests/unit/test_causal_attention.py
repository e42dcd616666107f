"""The gradient of a causal attention whose queries, keys and values are just over the threshold."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.types import Types
from exla_opt.ir.walk import main_function
from exla_opt.memory.machine import GPU
from exla_opt.memory.peak import predict
from exla_opt.memory.reading import read_block
from exla_opt.memory.seconds import seconds_of
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline

MB = 10**6
# 67 MB of bfloat16; the scores of all heads take 8.6 GB.
SHAPE = (16, 16_384, 128)


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("hqd,hkd->hqk", q, k) / jnp.sqrt(128).astype(q.dtype)
    scores = jnp.where(jnp.tril(jnp.ones(scores.shape[1:], bool)), scores, -1e9).astype(jnp.float32)
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores).astype(q.dtype), v)


def split_at(text: str, size: int) -> tuple[float, int]:
    """The seconds and the bytes of temporaries of the gradient on a GPU, split with one size for both."""
    with new_context() as context:
        module = parse_module("attention", text.encode(), context).module
        run_pipeline(module, DEFAULT_PASSES, Options(size_threshold=size, split_size=size, machine=GPU))
        block = main_function(module).regions[0].blocks[0]
        return seconds_of(read_block(block, Types(), GPU), GPU), predict(module, GPU).temp


def test_a_threshold_just_below_the_arguments_costs_no_time() -> None:
    """To split what is no larger than arguments and results gains nothing: it counted before time, and took 141 ms."""
    arguments = [jax.ShapeDtypeStruct(SHAPE, jnp.bfloat16)] * 3
    gradient = jax.grad(lambda *given: attention(*given).astype(jnp.float32).sum(), argnums=(0, 1, 2))
    text = str(jax.jit(gradient).lower(*arguments).compiler_ir("stablehlo"))
    below, above = split_at(text, 64 * MB), split_at(text, 70 * MB)
    assert below[0] <= 0.0755  # seconds: what 70 MB took before its tiles were twice as long
    assert below[0] <= 1.25 * above[0]
    assert below[1] <= 4 * 64 * MB and above[1] <= 4 * 70 * MB
