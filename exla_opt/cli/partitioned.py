"""exla-opt for a module for several devices: the program of one of them, the module to write, and its remarks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from exla_opt.cli.common import as_it_came, load_jax
from exla_opt.cli.supervise import COMPILING, doing

if TYPE_CHECKING:  # at run time these are imported inside the functions, for they load MLIR and jax
    from collections.abc import Sequence

    from jaxlib.mlir import ir

    from exla_opt.ir.read import Source
    from exla_opt.remarks import Remark
    from exla_opt.runtime.memory import Memory
    from exla_opt.runtime.traffic import Traffic
    from exla_opt.sharding.partition import Partition


def program_of_one(source: Source) -> tuple[ir.Module, Partition | None]:
    """Return the local program of one device and its partition; the module itself and None if it is for one device.

    Raises InputError if there is no such program.
    """
    from exla_opt.ir.attributes import devices_of
    from exla_opt.ir.diagnostics import InputError
    from exla_opt.sharding.partition import CannotPartition, is_partitioned, partition

    if not is_partitioned(source.module):
        return source.module, None
    doing("asking Shardy", source.name)
    try:
        found = partition(source.module)
    except CannotPartition as error:
        raise InputError(f"it is for {devices_of(source.module)} devices, and {error}", file=source.name) from None
    return found.local_copy(), found


def joined(
    partition: Partition, source: Source, remarks: Sequence[Remark], target: str | None
) -> tuple[ir.Module, tuple[Remark, ...]]:
    """Return the module of all devices around the rewritten local program, or the original, and the remarks.

    source: holds the local program. If a compiler is available, traffic and memory per device are those that it plans,
    for `target` or for a CPU; otherwise they are counted on the ops.
    """
    from exla_opt.sharding.rewrite import MORE, joined_if_gained, more_needed, too_much_sent

    module, said = joined_if_gained(partition, source.module, remarks)
    original = as_it_came(source)
    if module is None:
        return original, tuple(said)
    shares = _shares(source.name, original, module, target)
    if shares is None:
        return module, tuple(said)
    (sent, needed), (sends, needs) = ((traffic.bytes, memory.peak) for traffic, memory in shares)
    if sends > MORE * sent:
        return original, tuple(too_much_sent(said, sent, sends))
    if needs > MORE * needed:
        return original, tuple(more_needed(said, needed, needs))
    return module, tuple(said)


def _shares(name: str, before: ir.Module, after: ir.Module, target: str | None) -> list[tuple[Traffic, Memory]] | None:
    """The traffic and memory per device of two modules, as compiled; None if no compiler is available."""
    try:
        load_jax(uses_gpu=target == "cuda")
    except click.ClickException:
        return None
    from exla_opt.ir.diagnostics import InputError
    from exla_opt.ir.write import serialise
    from exla_opt.runtime.target import compiled_share, parse_target

    doing(COMPILING, name)
    try:
        machine = parse_target(target or "cpu")
        return [compiled_share(serialise(module, "bytecode"), machine) for module in (before, after)]
    except InputError:
        return None
    finally:
        doing("working on it", name)
