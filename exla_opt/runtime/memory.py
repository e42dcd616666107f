"""The memory of a compiled module, as planned by XLA itself."""

from __future__ import annotations

from typing import Any

from exla_opt.memory.peak import Memory
from exla_opt.runtime import pjrt
from exla_opt.runtime.compile import Device, compile_to_measure

__all__ = ["Memory", "measure_memory", "memory_of"]


def measure_memory(module: str | bytes, device: Device = "cpu") -> Memory:
    """Compile `module` (text, bytecode or portable artifact) and read its memory; nothing is run or allocated.

    For a CPU it is compiled twice, with XLA's YNN fusions and without, and the larger peak is reported. With them, as
    every user has it, no statistic counts scratch memory; without them, XLA keeps some tensors out of memory that these
    fusions write. Both compiles run at once. Raises InputError when there is no such device and when XLA refuses the
    module.
    """
    programs = compile_to_measure(module, device)
    return max((memory_of(program.executable) for program in programs), key=lambda memory: memory.peak)


def memory_of(executable: Any, gemm: str = "") -> Memory:
    """The memory of a PJRT executable; `gemm` as in Memory."""
    statistics = pjrt.statistics(executable)
    return Memory(
        arguments=statistics.argument_size_in_bytes,
        results=statistics.output_size_in_bytes,
        aliased=statistics.alias_size_in_bytes,
        temp=statistics.temp_size_in_bytes,
        gemm=gemm,
    )
