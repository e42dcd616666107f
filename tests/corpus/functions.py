"""The public functions of JAX that take and return arrays, found by the names that its modules list."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

MODULES = """
    jax.numpy jax.numpy.linalg jax.numpy.fft jax.nn jax.nn.initializers jax.lax jax.lax.linalg jax.random jax.image
    jax.ops jax.scipy.special jax.scipy.linalg jax.scipy.stats jax.scipy.signal jax.scipy.ndimage jax.scipy.integrate
    jax.scipy.fft jax.scipy.cluster.vq jax.scipy.sparse.linalg
""".split()

Function = Callable[..., Any]


@cache
def public_functions() -> dict[str, Function]:
    """Every public function by its first name, as `jax.numpy.sort`; a second name of the same one is left out."""
    found: dict[str, Function] = {}
    known: set[int] = set()
    for module in _with_parts(MODULES):
        for name, function in _callables(module):
            if id(function) not in known:
                known.add(id(function))
                found[f"{module}.{name}"] = function
    return found


def _with_parts(modules: list[str]) -> Iterator[str]:
    """The modules, and those of one distribution each that jax.scipy.stats consists of."""
    for name in modules:
        yield name
        if name == "jax.scipy.stats":
            parts = pkgutil.iter_modules(importlib.import_module(name).__path__)
            yield from (f"{name}.{part.name}" for part in parts)


def _callables(name: str) -> Iterator[tuple[str, Function]]:
    module = importlib.import_module(name)
    for attribute in dir(module):
        value = getattr(module, attribute)
        # Types are no functions, and the scalar types of jax.numpy, which have a dtype, only look like them.
        if attribute.startswith("_") or isinstance(value, type) or hasattr(value, "dtype"):
            continue
        if callable(value) and attribute.islower():
            yield attribute, value
