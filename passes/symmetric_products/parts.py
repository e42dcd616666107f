"""How a tile of a matrix is computed: for every op between it and small tensors, the op that computes a tile.

Analysis only. A dimension of a tensor is cut if it is the matrix's rows or columns.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxlib.mlir import ir

from exla_opt.ir import build
from exla_opt.ir.attributes import integer, integers
from exla_opt.ir.values import Number, defining_op, has_discardable_attributes, splat_value
from exla_opt.ops.pointwise import STABLEHLO_POINTWISE
from exla_opt.ops.reducers import monoid_of
from exla_opt.passes.algebra.dots import contracted_sizes, operand_places
from exla_opt.passes.algebra.nodes import Placed
from exla_opt.passes.algebra.places import Place, place_below

ROWS, COLUMNS = 0, 1
_POINTWISE = STABLEHLO_POINTWISE | {"chlo.square"}


@dataclass(frozen=True, slots=True)
class Whole:
    """A tensor without the matrix's rows and columns."""


@dataclass(frozen=True, slots=True)
class Splat:
    """One number everywhere."""

    number: Number


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice along dimension `dim`, which has `label`, of an existing tensor."""

    dim: int
    label: int


@dataclass(frozen=True, slots=True)
class Count:
    """An iota along dimension `dim`, which has `label`."""

    dim: int
    label: int


@dataclass(frozen=True, slots=True)
class Clone:
    """The same op on the tiles of its operands."""

    op: ir.Operation
    operands: tuple[Placed, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """How the tile of one tensor is computed, at its place."""

    value: ir.Value
    place: Place
    how: Whole | Splat | Slice | Count | Clone

    @property
    def operands(self) -> tuple[Placed, ...]:
        """The tensors of whose tiles it is computed."""
        return self.how.operands if isinstance(self.how, Clone) else ()

    @property
    def is_matrix(self) -> bool:
        """Whether it has both rows and columns."""
        return ROWS in self.place and COLUMNS in self.place


def parts_of(matrix: ir.Value, block: ir.Block) -> list[Part] | None:
    """How the tiles of a matrix that `block` computes are computed, each part after its operands.

    None if an op between the matrix and small tensors is unknown, or is in another block.
    """
    parts: list[Part] = []
    seen: set[Placed] = set()
    stack: list[tuple[Placed, Part | None]] = [((matrix, (ROWS, COLUMNS)), None)]
    while stack:
        placed, part = stack.pop()
        if part is not None:
            parts.append(part)
            continue
        if placed in seen:
            continue
        seen.add(placed)
        found = _part(*placed, block)
        if found is None:
            return None
        stack.append((placed, found))
        stack += [(operand, None) for operand in found.operands]
    return parts


def _part(value: ir.Value, place: Place, block: ir.Block) -> Part | None:
    how = _how(value, place, block)
    return None if how is None else Part(value, place, how)


def _how(value: ir.Value, place: Place, block: ir.Block) -> Whole | Splat | Slice | Count | Clone | None:
    cut = [(dim, label) for dim, label in enumerate(place) if label is not None]
    if not cut:
        return Whole()
    if (number := splat_value(value)) is not None:
        return Splat(number)
    op = defining_op(value)
    if op is not None and (len(op.results) != 1 or has_discardable_attributes(op)):
        op = None
    if op is not None and op.name == "stablehlo.iota":
        dim = integer(op, "iota_dimension")
        label = place[dim]
        return Clone(op) if label is None else Count(dim, label)
    is_repeated = op is not None and op.name == "stablehlo.broadcast_in_dim"
    if len(cut) == 1 and not is_repeated:
        return Slice(*cut[0])
    if op is None or not (is_repeated or op.block == block):
        return None
    operands = _operands(op, place)
    return None if operands is None else Clone(op, operands)


def _operands(op: ir.Operation, place: Place) -> tuple[Placed, ...] | None:
    """The places of the operands of an op that has the same elements in a tile as unsplit."""
    if (below := place_below(op, place)) is not None:
        return ((op.operands[0], below),)
    match op.name:
        case "stablehlo.dot_general":
            places = operand_places(op, place, [None] * len(contracted_sizes(op)))
            return tuple(zip(op.operands, places, strict=True))
        case "stablehlo.reduce" if len(op.operands) == 2 and monoid_of(op) is not None:
            away, kept = integers(op, "dimensions", []), iter(place)
            rank = len(build.shape_of(op.operands[0]))
            where = tuple(None if dim in away else next(kept) for dim in range(rank))
            return ((op.operands[0], where), (op.operands[1], ()))
        case name if name in _POINTWISE:
            shape = build.shape_of(op.results[0])
            if any(build.shape_of(operand) not in (shape, []) for operand in op.operands):
                return None
            return tuple((operand, place if build.shape_of(operand) else ()) for operand in op.operands)
    return None
