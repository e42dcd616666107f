"""The example programs with loops of their own, small: every pass, under a forced tiny threshold, leaves the results."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from examples.scans import PROGRAMS, text_of
from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.memory.peak import predict
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.runtime.compare import default_tolerance
from tests.execute import assert_equal_results

# Written another way, or of other sizes only.
LIKE_ANOTHER = {"gpt_unrolled", "gpt_unrolled_long", "gpt_scan_long"}


@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - LIKE_ANOTHER))
def test_the_results_are_the_same(name: str) -> None:
    text = text_of(name, "small")
    with new_context() as context:
        module = parse_module(name, text.encode(), context).module
        run_pipeline(module, DEFAULT_PASSES, Options(size_threshold=1024, split_size=256))
        tolerance = default_tolerance(np.dtype(jnp.bfloat16)) if name.endswith("bf16") else None
        assert_equal_results(parse_module(name, text.encode(), context).module, module, tolerance=tolerance)


def test_a_loop_is_not_cut_where_what_its_tiles_sum_up_takes_more() -> None:
    """Cut along its batch, the backward loop would keep the gradients of all layers once more, for each tile."""
    options = Options(size_threshold=1_000_000, split_size=1_000_000)
    with new_context() as context:
        module = parse_module("gpt", text_of("gpt_scan", "middle").encode(), context).module
        run_pipeline(module, DEFAULT_PASSES, options)
        found = predict(module, options.machine)
    assert found.temp < 2.4 * found.results


def test_sums_that_are_larger_than_slices_do_not_stop_a_cut_of_the_whole_network() -> None:
    """Cut along the batch in one loop, all is in slices but the gradients of the weights, which are added up."""
    options = Options(size_threshold=500_000, split_size=500_000)
    with new_context() as context:
        module = parse_module("gpt", text_of("gpt_unrolled", "middle").encode(), context).module
        before = predict(module, options.machine)
        run_pipeline(module, DEFAULT_PASSES, options)
        assert predict(module, options.machine).temp < 0.31 * before.temp
