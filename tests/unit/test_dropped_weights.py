"""Weights of an attention of which some are dropped: the mask is drawn in loops of its own, and stored."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.memory.timeline import read_timeline
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.runtime.memory import measure_memory
from tests.execute import assert_equal_results

BATCH, HEADS, LENGTH, FEATURES = 2, 4, 512, 64
WEIGHTS = 4 * BATCH * HEADS * LENGTH**2


def gradient(q: Any, k: Any, v: Any, key: Any) -> Any:
    def loss(q: Any, k: Any, v: Any) -> Any:
        weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / 8)
        keep = jax.random.bernoulli(jax.random.wrap_key_data(key), 0.9, weights.shape)
        return (jnp.einsum("bhqk,bkhd->bqhd", jnp.where(keep, weights / 0.9, 0.0), v) ** 2).sum()

    return jax.grad(loss, argnums=(0, 1, 2))(q, k, v)


@pytest.fixture(scope="module")
def text() -> str:
    some = jax.ShapeDtypeStruct((BATCH, LENGTH, HEADS, FEATURES), jnp.float32)
    key = jax.ShapeDtypeStruct((2,), jnp.uint32)
    return str(jax.jit(gradient).lower(some, some, some, key).compiler_ir("stablehlo"))


def test_the_mask_is_drawn_once_and_not_in_short_tiles_of_the_attention(text: str) -> None:
    """Tiles that draw the mask too have few rows, and take eight times as long."""
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        run_pipeline(module, ("normalise",), Options())
        before = read_timeline(module).seconds
        run_pipeline(module, DEFAULT_PASSES, Options(size_threshold=WEIGHTS // 2, split_size=WEIGHTS // 50))
        assert read_timeline(module).seconds < 2 * before
        after = serialise(module, "text").decode()
    assert measure_memory(after).temp < measure_memory(text).temp / 5
    assert_equal_results(text, after)
