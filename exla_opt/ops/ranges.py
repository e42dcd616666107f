"""Ranges of a dimension: slices take them from a tensor, concatenations and sums of pads join them."""

from __future__ import annotations

from itertools import pairwise

from jaxlib.mlir import ir

from exla_opt.ir import build
from exla_opt.ir.attributes import integers

SLICE, JOIN, PAD, ADD = "stablehlo.slice", "stablehlo.concatenate", "stablehlo.pad", "stablehlo.add"
# A part is at least this fraction of the dimension: moves by less are finite differences (`shifts.py`).
_LEAST_PART = 8


def cut_dim(op: ir.Operation) -> int | None:
    """The only dimension of which a slice takes a part, without strides; None for any other slice."""
    before, after = (build.shape_of(value) for value in (op.operands[0], op.results[0]))
    dims = [dim for dim, (size, length) in enumerate(zip(before, after, strict=True)) if size != length]
    return dims[0] if len(dims) == 1 and set(integers(op, "strides", [])) == {1} else None


def parts_among(slices: list[ir.Operation]) -> list[ir.Operation]:
    """The slices of one tensor that take disjoint parts of one dimension, each of them no small one; or none."""
    by_dim: dict[int, dict[tuple[int, int], ir.Operation]] = {}
    for op in slices:
        if (dim := cut_dim(op)) is not None:
            start, stop = (integers(op, name, [])[dim] for name in ("start_indices", "limit_indices"))
            by_dim.setdefault(dim, {})[start, stop] = op
    for dim, found in by_dim.items():
        least = -(-build.shape_of(slices[0].operands[0])[dim] // _LEAST_PART)
        ranges = sorted(found)
        disjoint = all(one[1] <= other[0] for one, other in pairwise(ranges))
        if len(ranges) > 1 and disjoint and all(stop - start >= least for start, stop in ranges):
            return list(found.values())
    return []
