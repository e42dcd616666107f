"""The output for a module for several devices after its local program is rewritten, and its remarks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jaxlib.mlir import ir

from exla_opt.ops.sent import MORE, bytes_sent
from exla_opt.remarks import Kind, Remark

from .equal import merge_equal_collectives
from .partition import Partition

_MORE_SENT, _NOTHING_GAINED = "EX312", "EX305"
_WRITTEN_IN_SLICES = "EX104"  # names a loop, which a module that is left unchanged does not have
# Passes that name the big tensors of a module that is left unchanged.
NAMING = ("normalise", "tensor-splitter")


def refused(remarks: Sequence[Remark], why: str) -> tuple[Remark, ...]:
    """The remarks on a module without a local program. why: a clause."""
    return tuple(
        replace(remark, message=f"not split: {why}") if remark.code == "EX311" else remark for remark in remarks
    )


def joined_if_gained(
    partition: Partition, local: ir.Module, remarks: Sequence[Remark], *, even_unchanged: bool = False
) -> tuple[ir.Module | None, list[Remark]]:
    """The module of all devices, and its remarks; None if the original should be kept.

    It is kept if no pass changed a tensor that one device holds, unless `even_unchanged`, or if the devices would
    exchange more bytes.
    """
    said = [replace(remark, devices=partition.mesh.count) for remark in remarks]
    if not even_unchanged and not is_changed(said):
        return None, said
    if sends_more(partition, local):
        return None, too_much_sent(said, bytes_sent(partition.local), bytes_sent(local))
    return partition.joined(local), said


def sends_more(partition: Partition, local: ir.Module) -> bool:
    """Whether a device would send more by a rewritten local program, counted on the ops; equal collectives merge."""
    merge_equal_collectives(local)
    return bytes_sent(local) > MORE * bytes_sent(partition.local)


def is_changed(remarks: Sequence[Remark]) -> bool:
    """Whether any pass changed a tensor."""
    return any(remark.kind is Kind.PASSED for remark in remarks)


def too_much_sent(remarks: Sequence[Remark], before: float, after: float) -> list[Remark]:
    """The remarks on a module that goes out as it came because its devices would send more. before, after: bytes."""
    why = f"left unchanged: each device would send {after:,.0f} bytes instead of {before:,.0f}"
    return _left(remarks, _MORE_SENT, why)


def more_needed(remarks: Sequence[Remark], before: float, after: float) -> list[Remark]:
    """The remarks on a module left unchanged because its devices would need more. before, after: bytes.

    The partitioner that compiles a module need not shard it as Shardy does.
    """
    why = f"left unchanged: each device would need {after:,.0f} bytes instead of {before:,.0f}"
    return _left(remarks, _NOTHING_GAINED, why)


def _left(remarks: Sequence[Remark], code: str, why: str) -> list[Remark]:
    return [
        replace(remark, kind=Kind.MISSED, code=code, message=why)
        if remark.kind is Kind.PASSED or remark.code == _WRITTEN_IN_SLICES
        else remark
        for remark in remarks
    ]
