"""What the memory model predicts for a program that stands in a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.memory.machine import machine_of
from exla_opt.memory.peak import Memory, predict
from exla_opt.options import Options
from exla_opt.pipeline import run_pipeline
from exla_opt.runtime.memory import measure_memory


def h200_temp(program: str) -> int:
    """The bytes of temporaries on an H200."""
    with new_context() as context:
        return predict(parse_module("program", program.encode(), context).module, machine_of("cuda:h200")).temp


def cpu_memories(name: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Memory, Memory]:
    """What is predicted for a function of JAX, jitted or not, and what XLA:CPU plans. arguments: their shapes."""
    jitted: Any = function if hasattr(function, "lower") else jax.jit(function, keep_unused=True)
    text = str(jitted.lower(*arguments).compiler_ir("stablehlo"))
    with new_context() as context:
        module = parse_module(name, text.encode(), context).module
        run_pipeline(module, ("normalise",), Options())
        return predict(module), measure_memory(serialise(module, "bytecode"))
