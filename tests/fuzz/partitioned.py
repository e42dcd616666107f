"""The program of one device of a generated program for several."""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.diagnostics import InputError
from exla_opt.ir.rewrite import copy_of
from exla_opt.sharding import partition
from exla_opt.sharding.apart import ShardyFailed
from exla_opt.sharding.prepare import propagate


class NotPartitioned(Exception):
    """There is no program of one device; the text says why."""


def partitioned(module: ir.Module) -> partition.Partition:
    """The program of one device. Raises NotPartitioned."""
    try:
        return partition.partition(module)
    except partition.CannotPartition as error:
        raise NotPartitioned(str(error)) from None


def use_this_process() -> None:
    """Let Shardy run in this process: several times as fast, and gone where it crashes."""
    setattr(partition, "propagated", _propagated)  # noqa: B010, for a module has no such name to assign to


def _propagated(module: ir.Module, *, evenly: bool) -> ir.Module:
    copy = copy_of(module)
    try:
        propagate(copy, evenly=evenly)
    except ir.MLIRError as error:
        raise ShardyFailed(f"Shardy refuses it: {error.error_diagnostics[0].message}") from None
    except InputError as error:
        raise ShardyFailed(error.message) from None
    return copy
