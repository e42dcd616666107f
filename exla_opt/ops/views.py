"""Ops that compute and write nothing: their results are their operands' own buffers."""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.attributes import integers
from exla_opt.ir.types import Types


def is_view(op: ir.Operation, types: Types) -> bool:
    """Whether the results are the buffers of the first operands, one for one: the same elements in the same order.

    Like XLA, it assumes that the init of a reduce over dimensions of 1 is the identity of its body.
    """
    name = op.name
    if name == "stablehlo.optimization_barrier":
        return True
    if not len(op.operands) or len(op.results) != 1:
        return False
    before, after = types.of(op.operands[0]), types.of(op.results[0])
    if name in ("stablehlo.convert", "stablehlo.slice", "stablehlo.dynamic_slice"):
        return before == after
    if name == "stablehlo.pad":
        paddings = ("edge_padding_low", "edge_padding_high", "interior_padding")
        return before == after and not any(any(integers(op, padding, [])) for padding in paddings)
    if name == "stablehlo.transpose":
        moved = [dim for dim in integers(op, "permutation", []) if before.shape[dim] != 1]
        return moved == sorted(moved)
    if name == "stablehlo.broadcast_in_dim":
        where = integers(op, "broadcast_dimensions", [])
        placed = [dim for dim, size in zip(where, before.shape, strict=True) if size != 1]
        return placed == sorted(placed) and _without_units(before.shape) == _without_units(after.shape)
    if name == "stablehlo.reduce":
        return all(before.shape[dim] == 1 for dim in integers(op, "dimensions", []))
    return name == "stablehlo.reshape"


def _without_units(shape: tuple[int, ...]) -> list[int]:
    return [size for size in shape if size != 1]
