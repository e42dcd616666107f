"""Uses the compiler of a machine to decide whether programs fit."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache

from exla_opt.budget.judge import THIS_CPU, Judge
from exla_opt.budget.measured import Measured
from exla_opt.budget.search import CannotCompile
from exla_opt.ir.diagnostics import PARSER_FILE, InputError
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.runtime.target import Compiled, compiled_memory, has_gpu_compiler, parse_target
from exla_opt.runtime.tpus import SLOW
from exla_opt.runtime.workspace import workspace_of
from exla_opt.sharding.joined import instead_of
from exla_opt.sharding.partition import Partition
from exla_opt.sharding.rewrite import sends_more

_NO_PLUGIN = "compiling for a GPU needs jax's CUDA plugin: pip install 'exla-opt[cuda]'"


def judge_of(
    target: str | None,
    partition: Partition | None = None,
    compiling: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Judge:
    """Return the judge for a target in the spelling of the command line; None stands for this machine's CPU.

    partition: `measure` gets the local programs of this partition; the memory is then per device, and each is judged
    against the module as it came, as when it is written. compiling: a context
    manager around each compile. A compiler fault is an error only for a named device; otherwise the prediction is used
    instead. Raises TargetError for an unknown target.
    """
    machine = parse_target(target or "cpu")
    is_elsewhere = bool(machine.description) or machine.tpu is not None
    name = f"an H200 ({machine.name})" if target == "gpu" else machine.name if is_elsewhere else THIS_CPU
    if target == "gpu" and not has_gpu_compiler():
        return Judge(name, machine.memory, None, _NO_PLUGIN)

    @cache
    def original() -> Compiled | None:
        """The module of several devices as it came; None if XLA refuses it."""
        assert partition is not None
        try:
            return compiled_memory(serialise(partition.given, "bytecode"), machine)
        except InputError:
            return None

    def compiled(data: bytes) -> Measured:
        more_is_sent = False
        if partition is not None:
            local = parse_module(PARSER_FILE, data, partition.original.context).module
            more_is_sent = sends_more(partition, local)
            data = serialise(partition.joined(local), "bytecode")
        with compiling():
            found = compiled_memory(data, machine)
            before = None if partition is None else original()
        instead = None
        if before is not None:
            instead = instead_of(_share(found), _share(before), more_is_sent=more_is_sent)
        return Measured(found.memory.peak, None if found.time is None else found.time.seconds, found.note, instead)

    def leniently(data: bytes) -> Measured:
        try:
            return compiled(data)
        except InputError as error:
            raise CannotCompile(error.message) from None

    by_name = is_elsewhere and target != "gpu"
    note = "" if machine.tpu is None else SLOW
    workspace = 0 if machine.is_here else workspace_of(machine.description)
    return Judge(name, machine.memory, compiled if by_name else leniently, note=note, workspace=workspace)


def _share(found: Compiled) -> tuple[float | None, int]:
    """The bytes that a device sends, if known, and needs."""
    return None if found.traffic is None else found.traffic.bytes, found.memory.peak
