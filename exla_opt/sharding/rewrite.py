"""What goes out of a module for several devices once the program of one is rewritten, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from jaxlib.mlir import ir

from exla_opt.remarks import Kind, Remark

from .equal import merge_equal_collectives
from .partition import CannotPartition, Partition, is_partitioned, partition
from .sent import bytes_sent

# Of the bytes that devices send to each other: what a compiler makes of equal programs may differ by as much.
MORE = 1.02
_MORE_SENT = "EX312"


def rewrite_each_device(module: ir.Module, run: Callable[[ir.Module], Sequence[Remark]]) -> ir.Module:
    """The module with its passes run: in place, or of one for several devices on the program of one of them.

    run: rewrites a module in place, and says what it did.
    """
    if not is_partitioned(module):
        run(module)
        return module
    try:
        found = partition(module)
    except CannotPartition:
        return module
    local = found.local_copy()
    written, _ = joined_if_gained(found, local, run(local))
    return module if written is None else written


def joined_if_gained(
    partition: Partition, local: ir.Module, remarks: Sequence[Remark]
) -> tuple[ir.Module | None, list[Remark]]:
    """The module of all devices, and the remarks on it; None where it should go out as it came.

    It should where no pass has changed anything that one device keeps, and where the devices would send more to each
    other than they did.
    """
    said = [replace(remark, devices=partition.mesh.count) for remark in remarks]
    if not any(remark.kind is Kind.PASSED for remark in said):
        return None, said
    merge_equal_collectives(local)
    before, after = bytes_sent(partition.local), bytes_sent(local)
    if after > MORE * before:
        return None, too_much_sent(said, before, after)
    return partition.joined(local), said


def too_much_sent(remarks: Sequence[Remark], before: float, after: float) -> list[Remark]:
    """The remarks on a module that goes out as it came because its devices would send more. before, after: bytes."""
    why = f"left as it came: each device would send {after:,.0f} bytes in the place of {before:,.0f}"
    return [
        replace(remark, kind=Kind.MISSED, code=_MORE_SENT, message=why) if remark.kind is Kind.PASSED else remark
        for remark in remarks
    ]
