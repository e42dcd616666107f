"""The compiler of a machine as the judge of what fits."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from exla_opt.budget.attempts import CannotCompile
from exla_opt.budget.judge import THIS_CPU, Judge
from exla_opt.budget.measured import Measured
from exla_opt.ir.diagnostics import InputError
from exla_opt.runtime.target import compiled_memory, has_gpu_compiler, parse_target
from exla_opt.runtime.tpus import SLOW
from exla_opt.sharding.partition import Partition, joined_bytes

_NO_PLUGIN = "compiling for a GPU needs jax's CUDA plugin: pip install 'exla-opt[cuda]'"


def judge_of(
    target: str | None,
    partition: Partition | None = None,
    compiling: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Judge:
    """The judge for a target as it stands on the command line; None stands for this machine's CPU.

    partition: whose programs of one device are given to `measure`; the memory is that of each device then. compiling:
    what surrounds each compile. Only of a device that is named, a fault of the compiler is one of the run; else the
    prediction takes its place. Raises TargetError for an unknown target.
    """
    machine = parse_target(target or "cpu")
    is_elsewhere = bool(machine.description) or machine.tpu is not None
    name = f"an H200 ({machine.name})" if target == "gpu" else machine.name if is_elsewhere else THIS_CPU
    if target == "gpu" and not has_gpu_compiler():
        return Judge(name, machine.memory, None, _NO_PLUGIN)
    notes: list[str] = [] if machine.tpu is None else [SLOW]

    def compiled(data: bytes) -> Measured:
        with compiling():
            found = compiled_memory(data if partition is None else joined_bytes(partition, data), machine)
        if found.note and not notes:  # once is enough, for it differs with each program that is tried
            notes.append(found.note)
        return Measured(found.memory.peak, None if found.time is None else found.time.seconds)

    def leniently(data: bytes) -> Measured:
        try:
            return compiled(data)
        except InputError as error:
            raise CannotCompile(error.message) from None

    by_name = is_elsewhere and target != "gpu"
    return Judge(name, machine.memory, compiled if by_name else leniently, notes=notes)
