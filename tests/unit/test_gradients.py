"""The example programs with large gradients: small, their results stay; middle-sized, no gradient has a second buffer."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from examples.gradients import PROGRAMS, text_of
from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.memory.peak import predict
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.runtime.compare import default_tolerance
from exla_opt.runtime.compile import compile_program
from tests.execute import assert_equal_results

# Of the middle-sized vocabulary: 256 x 16,000 f32.
WEIGHTS = 16_384_000


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_the_results_are_the_same(name: str) -> None:
    text = text_of(name, "small")
    with new_context() as context:
        module = parse_module(name, text.encode(), context).module
        run_pipeline(module, DEFAULT_PASSES, Options(size_threshold=1024, split_size=256))
        tolerance = default_tolerance(np.dtype(jnp.bfloat16)) if "bf16" in name else None
        assert_equal_results(parse_module(name, text.encode(), context).module, module, tolerance=tolerance)


@pytest.mark.parametrize("name", sorted(name for name in PROGRAMS if "cross_entropy" in name))
def test_no_gradient_has_a_second_buffer(name: str) -> None:
    """Neither a gradient that is returned nor one that a donated argument is updated by, in any of three tensors."""
    with new_context() as context:
        module = parse_module(name, text_of(name, "middle").encode(), context).module
        run_pipeline(module, DEFAULT_PASSES, Options(size_threshold=4_000_000, split_size=2_000_000))
        compiled = compile_program(serialise(module, "text").decode(), count_all_memory=True)
        assert compiled.executable.get_compiled_memory_stats().temp_size_in_bytes < WEIGHTS
        assert predict(module).temp < WEIGHTS
