"""The definition of a big tensor: elementwise ops on smaller tensors that are broadcast to its shape.

Analysis only. Every value is placed on the dimensions of one big tensor, the space: a value's place names the dimension
of the space for each of its own, None for those of size 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.types import float_bits
from exla_opt.ir.values import Number, defining_op, has_discardable_attributes, splat_value
from exla_opt.ops.pointwise import STABLEHLO_POINTWISE
from exla_opt.passes.algebra.places import Place, place_below

# Elementwise ops can be applied to the smaller tensors as well as to the broadcast ones.
_ELEMENTWISE = STABLEHLO_POINTWISE | {"chlo.square"}
# A short formula does not nest deeper: the rest counts as one tensor.
_DEEPEST = 40


@dataclass(frozen=True, slots=True, eq=False)
class Expression:
    """One value of the formula. Equal objects are the same value at the same place.

    name: the elementwise op without its dialect, "constant" for one number, "" for a tensor that is not expanded.
    dims: the dimensions of the space on which the value depends.
    constant: the number of a "constant".
    """

    value: ir.Value
    place: Place
    name: str
    children: tuple[Expression, ...]
    dims: frozenset[int]
    constant: Number = 0


@dataclass(slots=True)
class Reader:
    """Reads expressions in one block, each value once. views: other values that hold the same elements."""

    block: ir.Block
    known: dict[tuple[ir.Value, Place], Expression] = field(default_factory=dict)
    views: dict[Expression, list[ir.Value]] = field(default_factory=dict)

    def read(self, value: ir.Value, place: Place, depth: int = 0) -> Expression:
        """The expression of `value`, whose dimensions have this place in the space."""
        key = (value, place)
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self._read(value, place, depth)
        return found

    def _read(self, value: ir.Value, place: Place, depth: int) -> Expression:
        dims = frozenset(dim for dim in place if dim is not None)
        whole = Expression(value, place, "", (), dims)
        op = defining_op(value)
        if op is None or depth > _DEEPEST or has_discardable_attributes(op):
            return whole
        name = op.name.rpartition(".")[2]
        if name == "constant":
            number = splat_value(value)
            return whole if number is None else Expression(value, place, name, (), frozenset(), number)
        below = place if name == "convert" else place_below(op, place)
        if below is not None:
            source = self.read(op.operands[0], below, depth + 1)
            if name == "convert" and not _keeps_numbers(op, source):
                return Expression(value, place, name, (source,), source.dims)
            self.views.setdefault(source, []).append(value)
            return source
        if name == "dot_general" and op.block == self.block and (places := _places_of_product(op, place)):
            sides = tuple(self.read(*pair, depth + 1) for pair in zip(op.operands, places, strict=True))
            return Expression(value, place, "multiply", sides, sides[0].dims | sides[1].dims)
        if op.name not in _ELEMENTWISE or op.block != self.block or len(op.results) != 1:
            return whole
        shape = build.shape_of(value)
        if any(build.shape_of(other) != shape for other in op.operands):
            return whole
        children = tuple(self.read(operand, place, depth + 1) for operand in op.operands)
        return Expression(value, place, name, children, frozenset[int]().union(*(child.dims for child in children)))


def _keeps_numbers(op: ir.Operation, source: Expression) -> bool:
    """Whether a conversion keeps the formula before it, computed in the wider type.

    Arithmetic rounds, or overflows, in the narrow type. For bfloat16 that does not count: it has the range of float32,
    in which XLA itself computes it if it fuses.
    """
    narrow, wide = (build.tensor_of(moved).element_type for moved in (op.operands[0], op.results[0]))
    if narrow == wide:
        return True
    plain = source.name in ("", "constant")
    if isinstance(narrow, ir.IntegerType) and isinstance(wide, ir.IntegerType):
        return plain and 1 < narrow.width < wide.width and narrow.is_unsigned == wide.is_unsigned
    return 0 < float_bits(narrow) < float_bits(wide) and (plain or str(narrow) == "bf16")


def _places_of_product(op: ir.Operation, place: Place) -> tuple[Place, Place] | None:
    """The places of the operands of a dot that sums nothing: a product of broadcast tensors. None for others."""
    numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    types = {build.tensor_of(value).element_type for value in (*op.operands, *op.results)}
    if list(numbers.lhs_contracting_dimensions) or len(types) > 1:
        return None
    following = iter(place[len(list(numbers.lhs_batching_dimensions)) :])
    places = []
    for operand, batch in zip(
        op.operands, (numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions), strict=True
    ):
        where = list(batch)
        rank = len(build.shape_of(operand))
        places.append(tuple(place[where.index(dim)] if dim in where else next(following) for dim in range(rank)))
    return places[0], places[1]
