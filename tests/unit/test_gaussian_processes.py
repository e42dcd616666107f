"""How many matrices of all points a likelihood and its gradient hold, as XLA plans them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.gaussian_processes import LIMITS, by_both_triangles, by_triangle, by_upper_factor, export
from exla_opt.budget.fit import fit
from exla_opt.budget.measured import Measured
from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES
from exla_opt.runtime.memory import measure_memory

POINTS = 800


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
@pytest.mark.parametrize("function", [by_triangle, by_both_triangles, by_upper_factor])
def test_a_gradient_holds_three_matrices(function: Callable[..., Any], platform: str) -> None:
    """By LAPACK's calls and by stablehlo.cholesky."""
    module = parse_module("f", export(function, "gradient", POINTS, platform).encode(), new_context()).module
    limit = int(LIMITS["gradient"] * 4 * POINTS**2)
    found = fit(module, DEFAULT_PASSES, Options(), limit, lambda data: Measured(measure_memory(data).peak))
    assert found.fits and found.compiled
