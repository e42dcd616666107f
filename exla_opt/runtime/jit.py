"""JAX functions whose big tensors are computed in slices: export, rewrite, call."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
from jax import export


def split_jit(function: Callable[..., Any], rewrite: Callable[[bytes], bytes]) -> Callable[..., Any]:
    """The function with every module that it lowers to rewritten; one export and one compile per signature.

    rewrite: from a module as a portable artifact to one of the same signature.
    """
    lowered = jax.jit(function)
    compiled: dict[Any, Callable[..., Any]] = {}

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        leaves, structure = jax.tree.flatten((arguments, named))
        key = (structure, tuple(map(_kind, leaves)))
        if key not in compiled:
            exported = export.export(lowered)(*arguments, **named)
            smaller = rewrite(exported.mlir_module_serialized)
            compiled[key] = jax.jit(dataclasses.replace(exported, mlir_module_serialized=smaller).call)
        return compiled[key](*arguments, **named)

    return call


def _kind(leaf: Any) -> tuple[Any, ...]:
    """What a program depends on: shape, type, and over which devices the array is spread."""
    sharding = leaf.sharding if isinstance(leaf, jax.Array) and leaf.committed else None
    return jax.numpy.shape(leaf), jax.numpy.result_type(leaf), sharding
