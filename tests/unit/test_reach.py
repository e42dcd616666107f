"""A limit that not even the smallest slices come near ends the search early, and takes nothing away from it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jaxlib.mlir import ir

from exla_opt.budget import fit as fit_of_budget
from exla_opt.budget.fit import Fit, fit
from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES


def ranked(x: Any) -> Any:
    """A sort of all that it computes, which no loop takes apart."""
    return jnp.sort(jnp.sin(x[:, None] * x).ravel())[::1000]


def kernel(x: Any) -> Any:
    return jnp.exp(-((x[:, None] - x) ** 2)) @ x


def parsed(function: Any) -> ir.Module:
    text = str(jax.jit(function).lower(jax.ShapeDtypeStruct((2000,), jnp.float32)).compiler_ir("stablehlo"))
    return parse_module("module", text.encode(), new_context()).module


def searched(function: Any, limit: int) -> tuple[Fit, list[Options]]:
    tried: list[Options] = []
    found = fit(parsed(function), DEFAULT_PASSES, Options(), limit, tried=lambda sizes, _: tried.append(sizes))
    return found, tried


def searched_on(function: Any, limit: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Fit, list[Options]]:
    with monkeypatch.context() as patch:
        patch.setattr(fit_of_budget, "is_out_of_reach", lambda search, sizes: False)
        return searched(function, limit)


@pytest.mark.parametrize("limit", [50_000, 1_000_000])
def test_what_is_far_out_of_reach_ends_the_search_with_the_same_program(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything, all_tried = searched_on(ranked, limit, monkeypatch)
    found, tried = searched(ranked, limit)
    assert not found.fits and not everything.fits
    assert len(tried) < len(all_tried)
    assert found.peak <= everything.peak and found.seconds <= 1.1 * everything.seconds
    assert found.bound is not None and "stablehlo.sort" in found.bound.reason


@pytest.mark.parametrize(("function", "limit"), [(ranked, 30_000_000), (kernel, 1_000_000), (kernel, 100_000)])
def test_a_limit_within_reach_is_searched_as_ever(function: Any, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    everything, all_tried = searched_on(function, limit, monkeypatch)
    found, tried = searched(function, limit)
    assert tried == all_tried
    assert (found.fits, found.peak, found.options) == (everything.fits, everything.peak, everything.options)
