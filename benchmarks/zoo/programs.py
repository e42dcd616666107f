"""What a zoo is made of: programs by name, and the shapes that they take."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import jax.numpy as jnp

Array = jax.Array
Tree = Any
Function = Callable[..., Any]
Example = tuple[Function, tuple[Tree, ...]]
Half = Literal["fitting", "held out"]


@dataclass(frozen=True, slots=True)
class Program:
    """A program that is exported and compiled, never run.

    make: gives the function and the shapes of its arguments, arrays or trees of them.
    wide: whether it is traced with 64-bit numbers.
    """

    make: Callable[[], Example]
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Field:
    """The programs of one field, by name."""

    programs: dict[str, Program] = field(default_factory=dict)

    def add(self, *shapes: Tree, wide: bool = False) -> Callable[[Function], Function]:
        """Take in the function below, with arguments of these shapes; under its own name."""

        def take(function: Function) -> Function:
            self.programs[_name(function)] = Program(lambda: (function, shapes), wide)
            return function

        return take

    def make(self, function: Callable[[], Example]) -> Callable[[], Example]:
        """Take in what the function below returns when it is called; under the function's name."""
        self.programs[_name(function)] = Program(function)
        return function


def half(name: str) -> Half:
    """Whether rules may be fitted to the program of this name; a hash decides, so that nobody does."""
    return "held out" if hashlib.sha256(name.encode()).digest()[0] % 2 else "fitting"


def shape(dtype: Any, *sizes: int) -> jax.ShapeDtypeStruct:
    """An array of any type."""
    return jax.ShapeDtypeStruct(sizes, dtype)


def f32(*sizes: int) -> jax.ShapeDtypeStruct:
    """An array of float32."""
    return shape(jnp.float32, *sizes)


def bf16(*sizes: int) -> jax.ShapeDtypeStruct:
    """An array of bfloat16."""
    return shape(jnp.bfloat16, *sizes)


def i32(*sizes: int) -> jax.ShapeDtypeStruct:
    """An array of int32."""
    return shape(jnp.int32, *sizes)


# The key of a random generator, as old programs pass it.
KEY = shape(jnp.uint32, 2)


def sgd(loss: Function, rate: float = 1e-3) -> Function:
    """A step of gradient descent on loss(parameters, ...): the new parameters and the loss."""

    def step(parameters: Tree, *batch: Tree) -> tuple[Tree, Array]:
        value, gradient = jax.value_and_grad(loss)(parameters, *batch)
        return jax.tree.map(lambda old, slope: old - rate * slope, parameters, gradient), value

    return step


def adam(loss: Function, rate: float = 1e-3) -> Function:
    """A step of Adam on loss(parameters, ...), which takes and gives (parameters, first, second moments)."""

    def step(state: Tree, count: Array, *batch: Tree) -> tuple[Tree, Array]:
        parameters, first, second = state
        value, gradient = jax.value_and_grad(loss)(parameters, *batch)
        first = jax.tree.map(lambda old, slope: 0.9 * old + 0.1 * slope, first, gradient)
        second = jax.tree.map(lambda old, slope: 0.999 * old + 0.001 * slope**2, second, gradient)
        one, two = 1 - 0.9**count, 1 - 0.999**count
        parameters = jax.tree.map(
            lambda old, mean, square: old - rate * (mean / one) / (jnp.sqrt(square / two) + 1e-8),
            parameters,
            first,
            second,
        )
        return (parameters, first, second), value

    return step


def adam_state(parameters: Tree) -> Tree:
    """The shapes of Adam's state for parameters of these shapes."""
    return (parameters, parameters, parameters)


def _name(function: Function) -> str:
    name: str = function.__name__
    return name
