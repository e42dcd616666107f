"""A big join of tensors of which one is a reshape: cut in the steps that the reshape asks for, on every machine."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.memory.machine import CPU, GPU, Machine
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from tests.execute import assert_equal_results
from tests.programs.model import Program, export_program


def gram_of_gradients(x: Any, a: Any, b: Any) -> Any:
    """The kernel of a network's gradients: one row of all weights for each point."""
    outer = (x[:, :, None] * jnp.tanh(a)[:, None, :]).reshape(len(x), -1)
    rows = jnp.concatenate([outer, b], 1)
    return rows @ rows.T


@pytest.mark.parametrize("machine", [CPU, GPU], ids=["cpu", "gpu"])
def test_what_is_joined_is_made_in_the_tiles_of_the_join(machine: Machine) -> None:
    text = export_program(Program("joined", gram_of_gradients, "90x64xf32 90x128xf32 90x128xf32"))
    with new_context() as context:
        module = parse_module("joined", text.encode(), context).module
        run_pipeline(module, DEFAULT_PASSES, Options(size_threshold=400_000, split_size=100_000, machine=machine))
        after = serialise(module, "text").decode()
        assert "90x64x128" in text and "90x64x128" not in after and "90x8320" not in after
        assert_equal_results(parse_module("joined", text.encode(), context).module, module)
