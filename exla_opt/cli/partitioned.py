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
    from exla_opt.sharding.joined import Joined
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
    partition: Partition, source: Source, remarks: Sequence[Remark], target: str | None, limit: int | None
) -> Joined:
    """As `exla_opt.sharding.joined.joined`, with the compiler of `target`, or of this machine's CPU, if there is one.

    source: holds the local program.
    """
    from exla_opt.sharding.joined import joined

    try:
        load_jax(uses_gpu=target == "cuda")
    except click.ClickException:
        return joined(partition, as_it_came(source), source.module, remarks, limit, None)
    from exla_opt.runtime.target import share_of

    doing(COMPILING, source.name)
    try:
        return joined(partition, as_it_came(source), source.module, remarks, limit, share_of(target))
    finally:
        doing("working on it", source.name)
