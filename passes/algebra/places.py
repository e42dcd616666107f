"""The positions of a tensor's dimensions in a larger formula, through ops that only move it."""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir import build
from exla_opt.ir.attributes import integers

# For each dimension of a tensor, the dimension of the formula; None for one of size 1.
Place = tuple[int | None, ...]


def place_below(op: ir.Operation, place: Place) -> Place | None:
    """The place of the operand of a transpose, a broadcast or a reshape that only adds or removes sizes of 1.

    place: of the result. None for every other op.
    """
    name = op.name.rpartition(".")[2]
    if name not in ("broadcast_in_dim", "transpose", "reshape"):
        return None
    before, after = build.shape_of(op.operands[0]), build.shape_of(op.results[0])
    if name == "broadcast_in_dim":
        where = integers(op, "broadcast_dimensions", [])
        return tuple(None if size == 1 else place[dim] for size, dim in zip(before, where, strict=True))
    if name == "transpose":
        permutation = integers(op, "permutation", [])
        return tuple(place[permutation.index(dim)] for dim in range(len(place)))
    if [size for size in before if size != 1] != [size for size in after if size != 1]:
        return None
    kept = iter([dim for dim, size in zip(place, after, strict=True) if size != 1])
    return tuple(None if size == 1 else next(kept) for size in before)
