"""What a big tensor is made of: elementwise ops over smaller tensors that were repeated to its shape.

Analysis only. Every value is seen on the dimensions of one big tensor, the space: a value's place names the
dimension of the space on which each of its own lies, None where it has size 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from jaxlib.mlir import ir

from exla_opt.analysis.op_rules.attributes import integers, is_splat
from exla_opt.analysis.op_rules.bodies import float_bits
from exla_opt.ir import build

Place = tuple[int | None, ...]

# Ops on one element at a time that can be done on the smaller tensors as well as on the repeated ones.
_ELEMENTWISE = frozenset(
    "abs add cosine divide exponential exponential_minus_one log log_plus_one logistic maximum minimum multiply negate "
    "power rsqrt sine sqrt square subtract tanh".split()
)
# A program nests deeper than this only where it is no short formula: the rest counts as one tensor.
_DEEPEST = 40


@dataclass(frozen=True, slots=True, eq=False)
class Expression:
    """One value of the formula. Equal objects are the same value at the same place.

    name: the elementwise op without its dialect, "constant" for one number, "" for a tensor that is taken as it is.
    dims: the dimensions of the space on which the value depends.
    constant: the number of a "constant".
    """

    value: ir.Value
    place: Place
    name: str
    children: tuple[Expression, ...]
    dims: frozenset[int]
    constant: float = 0.0


@dataclass(slots=True)
class Reader:
    """Reads expressions in one block, each value once. views: other values that hold the same elements."""

    block: ir.Block
    known: dict[tuple[ir.Value, Place], Expression] = field(default_factory=dict)
    views: dict[Expression, list[ir.Value]] = field(default_factory=dict)

    def read(self, value: ir.Value, place: Place, depth: int = 0) -> Expression:
        """The expression of `value`, whose dimensions lie on those of the space that `place` names."""
        key = (value, place)
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self._read(value, place, depth)
        return found

    def _read(self, value: ir.Value, place: Place, depth: int) -> Expression:
        dims = frozenset(dim for dim in place if dim is not None)
        whole = Expression(value, place, "", (), dims)
        op = maker(value)
        if op is None or depth > _DEEPEST:
            return whole
        name = op.name.rpartition(".")[2]
        if name == "constant":
            number = splat_number(op)
            return whole if number is None else Expression(value, place, name, (), frozenset(), number)
        below = _place_below(op, name, place)
        if below is not None:
            source = self.read(op.operands[0], below, depth + 1)
            self.views.setdefault(source, []).append(value)
            return source
        if name not in _ELEMENTWISE or op.block != self.block or len(op.results) != 1:
            return whole
        if any(other.type != value.type for other in op.operands):
            return whole
        children = tuple(self.read(operand, place, depth + 1) for operand in op.operands)
        return Expression(value, place, name, children, frozenset[int]().union(*(child.dims for child in children)))


def maker(value: ir.Value) -> ir.Operation | None:
    """The op whose result the value is; None for an argument of a block."""
    owner = value.owner
    return None if isinstance(owner, ir.Block) else owner.operation


def splat_number(op: ir.Operation) -> float | None:
    """The one real number of a constant op; None for any other constant."""
    element = ir.RankedTensorType(op.results[0].type).element_type
    if isinstance(element, ir.ComplexType) or not is_splat(op):
        return None
    value = ir.DenseElementsAttr(op.attributes["value"]).get_splat_value()
    return float(value.value) if isinstance(value, (ir.FloatAttr, ir.IntegerAttr)) else None


def _place_below(op: ir.Operation, name: str, place: Place) -> Place | None:
    """The place of the operand of an op that only moves it; None for every other op."""
    if name not in ("broadcast_in_dim", "transpose", "reshape", "convert"):
        return None
    before, after = build.shape_of(op.operands[0]), build.shape_of(op.results[0])
    if name == "broadcast_in_dim":
        where = integers(op, "broadcast_dimensions", [])
        return tuple(None if size == 1 else place[dim] for size, dim in zip(before, where, strict=True))
    if name == "transpose":
        below: list[int | None] = [None] * len(before)
        for dim, source in enumerate(integers(op, "permutation", [])):
            below[source] = place[dim]
        return tuple(below)
    if name == "convert":
        narrow, made = (build.tensor_of(moved).element_type for moved in (op.operands[0], op.results[0]))
        widens = 0 < float_bits(narrow) < float_bits(made)  # exact: the number stays what it was
        return place if narrow == made or widens else None
    if [size for size in before if size != 1] != [size for size in after if size != 1]:
        return None
    kept = iter([dim for dim, size in zip(place, after, strict=True) if size != 1])
    return tuple(None if size == 1 else next(kept) for size in before)
