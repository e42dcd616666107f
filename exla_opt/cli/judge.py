"""Who says whether a program fits: the compiler of a machine, or the prediction where that cannot be asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from exla_opt.budget.measured import Measure, Measured
from exla_opt.cli.common import load_jax
from exla_opt.cli.supervise import COMPILING, doing

if TYPE_CHECKING:  # at run time this would load MLIR
    from exla_opt.sharding.partition import Partition

_THIS_CPU = "this machine's CPU"
_NO_PLUGIN = "compiling for a GPU needs jax's CUDA plugin: pip install 'exla-opt[cuda]'"


@dataclass(frozen=True, slots=True)
class Judge:
    """The machine that a program is to fit.

    name: of the machine, for a person. memory: its bytes, 0 where they are not known. measure: compiles a module that
    is given as bytecode and returns its peak bytes and, for an H200 or H100, the estimated seconds of a run; None where
    only a prediction can be had, and no_compiler says why.
    notes: what a compile had to leave out.
    """

    name: str
    memory: int
    measure: Measure | None
    no_compiler: str = ""
    notes: list[str] = field(default_factory=list)


def judge_of(target: str | None, source: str, partition: Partition | None = None) -> Judge:
    """The judge for a target as it stands on the command line; None stands for this machine's CPU.

    source: what the module is called. partition: whose programs of one device are given to `measure`; the memory is
    that of each device then. Only of a GPU that is named, a fault of the compiler is one of the run; else
    the prediction takes its place. Raises TargetError for an unknown target, and click's ClickException when jax
    cannot be loaded for one.
    """
    try:
        load_jax(uses_gpu=target == "cuda")
    except click.ClickException as error:
        if target is not None:
            raise
        return Judge(_THIS_CPU, 0, None, error.message)
    from exla_opt.budget.attempts import CannotCompile
    from exla_opt.ir.diagnostics import InputError
    from exla_opt.runtime.target import compiled_memory, has_gpu_compiler, parse_target
    from exla_opt.sharding.partition import joined_bytes

    machine = parse_target(target or "cpu")
    is_gpu = bool(machine.description)
    name = f"an H200 ({machine.name})" if target == "gpu" else machine.name if is_gpu else _THIS_CPU
    if target == "gpu" and not has_gpu_compiler():
        return Judge(name, machine.memory, None, _NO_PLUGIN)
    notes: list[str] = []

    def compiled(data: bytes) -> Measured:
        doing(COMPILING, source)
        data = data if partition is None else joined_bytes(partition, data)
        found = compiled_memory(data, machine)
        doing("working on it", source)
        if found.note and not notes:  # once is enough, for it differs with each program that is tried
            notes.append(found.note)
        return Measured(found.memory.peak, None if found.time is None else found.time.seconds)

    def leniently(data: bytes) -> Measured:
        try:
            return compiled(data)
        except InputError as error:
            raise CannotCompile(error.message) from None

    by_name = is_gpu and target != "gpu"
    return Judge(name, machine.memory, compiled if by_name else leniently, notes=notes)
