"""What a test program is: a JAX function, the types of its arguments, and what its big tensors come to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import export

_DTYPES = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "c64": "complex64",
    "c128": "complex128",
    "i1": "bool",
    "i4": "int4",
    "i8": "int8",
    "i32": "int32",
    "u32": "uint32",
    "i64": "int64",
    "u8": "uint8",
    "f8": "float8_e4m3fn",
    "f8e5": "float8_e5m2",
}


@dataclass(frozen=True, slots=True)
class Program:
    """One function to split.

    specs: the arguments' types, as in "256x4xf32 256xi32".
    temp: the most temporary memory after the split, as a part of what it was before.
    remark: words that a remark must have, which says why something big stays; "" when something must be split.
    donated: arguments whose memory the results may take.
    """

    name: str
    function: Callable[..., Any]
    specs: str
    temp: float = 0.2
    remark: str = ""
    donated: tuple[int, ...] = ()


def gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient of the sum of squares of the function's inexact results, by all arguments that are inexact."""

    def loss(*arguments: Any) -> Any:
        leaves = jax.tree.leaves(function(*arguments))
        return sum((abs(leaf) ** 2).sum() for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.inexact))

    def differentiated(*arguments: Any) -> Any:
        numbers = tuple(i for i, x in enumerate(arguments) if jnp.issubdtype(x.dtype, jnp.inexact))
        return jax.grad(loss, numbers)(*arguments)

    return differentiated


def both(name: str, function: Callable[..., Any], specs: str, temp: float = 0.2) -> list[Program]:
    """The function and its gradient."""
    return [
        Program(name, function, specs, temp),
        Program(f"{name}_gradient", gradient(function), specs, temp),
    ]


def _spec(text: str) -> jax.ShapeDtypeStruct:
    *sizes, dtype = text.split("x")
    return jax.ShapeDtypeStruct(tuple(map(int, sizes)), jnp.dtype(_DTYPES[dtype]))


def export_program(program: Program) -> str:
    """The program as StableHLO text."""
    wide = any(kind in program.specs for kind in ("f64", "i64", "c128"))
    with jax.enable_x64(wide):
        specs = [_spec(text) for text in program.specs.split()]
        function = jax.jit(program.function, donate_argnums=program.donated)
        return str(export.export(function)(*specs).mlir_module())
