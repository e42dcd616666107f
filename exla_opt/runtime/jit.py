"""JAX functions whose big tensors are computed in slices: export, rewrite, call."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
from jax import export

from exla_opt.api import optimize
from exla_opt.options import Options


def split_jit(function: Callable[..., Any], options: Options) -> Callable[..., Any]:
    """The function with every module that it lowers to rewritten; one export and one compile per signature."""
    lowered = jax.jit(function)
    compiled: dict[Any, Callable[..., Any]] = {}

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        leaves, structure = jax.tree.flatten((arguments, named))
        key = (structure, tuple((jax.numpy.shape(leaf), jax.numpy.result_type(leaf)) for leaf in leaves))
        if key not in compiled:
            exported = export.export(lowered)(*arguments, **named)
            smaller = optimize(exported.mlir_module_serialized, options)
            assert isinstance(smaller, bytes)
            compiled[key] = jax.jit(dataclasses.replace(exported, mlir_module_serialized=smaller).call)
        return compiled[key](*arguments, **named)

    return call
