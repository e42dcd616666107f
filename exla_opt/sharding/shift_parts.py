"""Which parts an op shifts along each dimension, and how many rows devices would send for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jaxlib.mlir import ir

from exla_opt.ir import build
from exla_opt.ir.attributes import integer, integers
from exla_opt.ops.shifts import Part, may_shift, parts_along

from .deliveries import Round, rounds_of, rows_sent
from .mesh import Mesh

_SLICE, _PAD, _UPDATE = "stablehlo.slice", "stablehlo.pad", "stablehlo.dynamic_update_slice"
EDGES = ("edge_padding_low", "edge_padding_high", "interior_padding")
BOUNDS = ("start_indices", "limit_indices", "strides")
# More than the neighbours, and both halves of a concatenation.
_MOST_ROUNDS = 8


def shifted_parts(op: ir.Operation) -> dict[int, tuple[Part, ...]]:
    """The parts that are shifted along each dimension that the op changes; empty if it changes one in another way."""
    if not may_shift(op.name) or any(0 in build.shape_of(value) for value in (*op.operands, *op.results)):
        return {}
    found = {dim: parts_along(op, dim) for dim in changed_dims(op)}
    if not all(found.values()):
        return {}
    if op.name == _UPDATE:  # the operand itself stays where it is
        return {dim: each[1:] for dim, each in found.items()}
    return found


def changed_dims(op: ir.Operation) -> list[int]:
    """The dimensions along which the op is more than a copy."""
    rank = range(len(build.shape_of(op.results[0])))
    if op.name == _SLICE:
        starts, limits, strides = (integers(op, name, []) for name in BOUNDS)
        size = build.shape_of(op.operands[0])
        return [dim for dim in rank if (starts[dim], limits[dim], strides[dim]) != (0, size[dim], 1)]
    if op.name == _PAD:
        edges = [integers(op, name, []) for name in EDGES]
        return [dim for dim in rank if any(each[dim] for each in edges)]
    if op.name == _UPDATE:
        operand, update = (build.shape_of(value) for value in list(op.operands)[:2])
        return [dim for dim in rank if operand[dim] != update[dim]]
    return [integer(op, "dimension")]


def is_sent(part: Part, sizes: tuple[int, int], counts: Sequence[int]) -> bool:
    """Whether few rounds deliver a part, in however many shards the dimensions are cut.

    sizes: of the dimension, in the operand and in the result.
    """
    return all(len(_rounds(part, sizes, count)) <= _MOST_ROUNDS for count in counts)


def _rounds(part: Part, sizes: tuple[int, int], count: int) -> list[Round]:
    has, wants = (-(-size // count) for size in sizes)
    return rounds_of(part, has, wants, count)


class Readers:
    """What all ops that shift a tensor would send of it, by tensor and dimension: it could be gathered once for all."""

    def __init__(self, counts: Sequence[int]) -> None:
        """counts: the numbers of shards that a dimension may be cut into."""
        self.counts = counts
        self._fewer: dict[tuple[ir.Value, int], bool] = {}

    def send_fewer(self, value: ir.Value, dim: int) -> bool:
        """Whether they send fewer rows than all, in however many shards the dimension is cut."""
        if (value, dim) not in self._fewer:
            size = build.shape_of(value)[dim]
            sent = dict.fromkeys(self.counts, 0)
            for use in value.uses:
                op = use.owner.operation
                if not may_shift(op.name):
                    continue
                made = build.shape_of(op.results[0])[dim]
                for part in shifted_parts(op).get(dim, ()):
                    for count in sent if part.operand == use.operand_number else ():
                        rows = rows_sent(_rounds(part, (size, made), count))
                        sent[count] += min(rows, 2 * made) if op.name == _SLICE else rows
            self._fewer[value, dim] = all(rows <= (count - 1) * -(-size // count) for count, rows in sent.items())
        return self._fewer[value, dim]


def shard_counts(meshes: Iterable[Mesh]) -> list[int]:
    """Into how many shards the axes of meshes cut a dimension, alone or together."""
    found = {1}
    for mesh in meshes:
        counts = {1}
        for _, size in mesh.axes:
            counts |= {count * size for count in counts}
        found |= counts
    return sorted(found - {1})
