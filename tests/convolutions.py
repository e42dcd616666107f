"""Programs of convolutions in tests: rewritten by convolution-layout, and their temporary memory."""

from __future__ import annotations

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.memory.machine import CPU, as_written
from exla_opt.memory.peak import predict
from exla_opt.options import Options
from exla_opt.pipeline import run_pipeline
from exla_opt.runtime.compile import compile_program


def rewritten(text: str, options: Options | None = None) -> str:
    """The program after normalise and convolution-layout, for a CPU if no options say otherwise."""
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        run_pipeline(module, ["normalise", "convolution-layout"], options or Options(machine=CPU))
        return serialise(module, "text").decode()


def temp_of(text: str) -> tuple[int, int]:
    """The bytes of temporary memory, as predicted and as compiled."""
    with new_context() as context:
        predicted = predict(parse_module("<program>", text.encode(), context).module, as_written(CPU)).temp
    compiled: int = compile_program(text).executable.get_compiled_memory_stats().temp_size_in_bytes
    return predicted, compiled
