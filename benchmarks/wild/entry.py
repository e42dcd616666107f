"""What an entry of the bench is: a function after a report, and the sizes at which it is looked at."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

Array = Any
# The types of arrays; a number among them is one that the function is compiled for.
Sizes = tuple[jax.ShapeDtypeStruct | int, ...]

_WIDE = ("float64", "int64", "complex128")
_LINK = re.compile(r"https://\S+")


@dataclass(frozen=True, slots=True)
class Entry:
    """One function, whose docstring has the report's link, size and cause, and what people did by hand.

    reported: as in the report, only compiled. small: run before and after a split by force, and compared. middle: run
    and timed, under two seconds a run. by_hand: the same results, written as people write it to save memory.
    gradient: the arguments to differentiate a scalar by; none where the function is used as it is. limit: bytes, where
    it is not arguments + results + 1 GB.
    """

    function: Callable[..., Array]
    reported: Sizes
    small: Sizes
    middle: Sizes
    by_hand: Callable[..., Array] | None = None
    gradient: tuple[int, ...] = ()
    limit: int | None = None

    @property
    def name(self) -> str:
        """The function's name."""
        return self.function.__name__

    @property
    def link(self) -> str:
        """Where the report stands. Raises ValueError when the docstring does not say so."""
        found = _LINK.search(self.function.__doc__ or "")
        if found is None:
            raise ValueError(f"{self.name} has no link")
        return found.group()


def export(function: Callable[..., Array], sizes: Sizes, gradient: tuple[int, ...] = ()) -> str:
    """The function at these sizes, or its gradient by some arguments, as StableHLO text for a CPU."""
    arrays = [size for size in sizes if not isinstance(size, int)]
    numbers = [size for size in sizes if isinstance(size, int)]

    def called(*given: Array) -> Array:
        return function(*given, *numbers)

    program = jax.grad(called, gradient) if gradient else called
    with jax.enable_x64(any(array.dtype.name in _WIDE for array in arrays)):
        return str(jax.export.export(jax.jit(program), platforms=["cpu"])(*arrays).mlir_module())


def tiles(array: Array, most: int) -> Array:
    """The array, [n, ...], as [n / length, length, ...] with the largest length up to `most` that divides n."""
    length = next(length for length in range(most, 0, -1) if array.shape[0] % length == 0)
    return array.reshape(-1, length, *array.shape[1:])


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    """An array of this type and shape; the others below likewise."""
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def f64(*shape: int) -> jax.ShapeDtypeStruct:
    with jax.enable_x64(True):
        return jax.ShapeDtypeStruct(shape, jnp.float64)


def bf16(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16)


def i32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def u32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.uint32)
