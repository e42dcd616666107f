"""Products as one formula: the leaves of a tree of dots, sums, transposes and scalar factors, by letters.

Analysis only. A letter is the number of an index; the product is summed over every letter that its result lacks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integers
from exla_opt.ir.types import element_type
from exla_opt.ir.values import Number, defining_op, has_discardable_attributes, splat_value
from exla_opt.ops.reducers import body_of, componentwise
from exla_opt.passes.algebra.contraction import Dims
from exla_opt.passes.algebra.dots import contracted_sizes, operand_places
from exla_opt.passes.algebra.places import Place, place_below

from .diagonal import diagonal_of, masked_diagonal
from .factor import product

_DEEPEST = 200
# Ops that cost next to nothing: a product includes them even if others read them too.
MOVING = frozenset({"stablehlo.transpose", "stablehlo.reshape", "stablehlo.broadcast_in_dim"})
FREE = MOVING | {"stablehlo.negate"}
_REST = frozenset("stablehlo." + name for name in ("dot_general", "reduce", "multiply", "divide", "gather"))
_DOT_ATTRIBUTES = {"dot_dimension_numbers", "precision_config", "algorithm"}


@dataclass(slots=True)
class Tree:
    """The product that computes one value.

    root: the op. place: the letters of the result's dimensions, None for those of size 1. leaves: tensors and their
    letters. absorbed: the values between the leaves and the root. sizes: of the letters. coefficient: a scalar factor.
    flops, largest: the cost of the current order, in scalar multiplications and additions, and in elements of its
    largest intermediate tensor. precision, algorithm: of the dots, the highest and the only one.
    """

    root: ir.Operation
    place: Place = ()
    leaves: list[tuple[ir.Value, Place]] = field(default_factory=list)
    absorbed: list[ir.Value] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)
    coefficient: Number = 1
    flops: int = 0
    largest: int = 0
    precision: str = "DEFAULT"
    algorithm: ir.Attribute | None = None
    dots: int = 0
    diagonals: bool = True

    @property
    def output(self) -> Dims:
        """The letters of the result."""
        return frozenset(letter for letter in self.place if letter is not None)

    @property
    def has_diagonal_leaf(self) -> bool:
        """Whether it reads the diagonal of an existing tensor."""
        return any(len(letters_of(place)) < sum(letter is not None for letter in place) for _, place in self.leaves)

    @property
    def repeats(self) -> int:
        """How often the product is added to itself: the size of the summed letters that no leaf has."""
        known = self.output.union(*(letters_of(place) for _, place in self.leaves))
        return prod(size for letter, size in self.sizes.items() if letter not in known)

    def scale(self, number: Number) -> bool:
        """Multiply by a scalar factor; False if that is not allowed."""
        scaled = product(build.tensor_of(self.root.results[0]).element_type, self.coefficient, number)
        if scaled is not None:
            self.coefficient = scaled
        return scaled is not None

    def new_letter(self, size: int) -> int | None:
        """A letter for a dimension; None for one of size 1."""
        if size == 1:
            return None
        self.sizes[len(self.sizes)] = size
        return len(self.sizes) - 1


def is_root(op: ir.Operation) -> bool:
    """Whether a product may end here: it multiplies or sums, and has no unknown attributes."""
    return not has_discardable_attributes(op) and (_is_dot(op) or _is_sum(op) or diagonal_of(op) is not None)


def _is_dot(op: ir.Operation) -> bool:
    if op.name != "stablehlo.dot_general":
        return False
    types = {build.tensor_of(value).element_type for value in (*op.operands, *op.results)}
    names = {op.attributes[place].name for place in range(len(op.attributes))}
    return len(types) == 1 and names <= _DOT_ATTRIBUTES


def _is_sum(op: ir.Operation) -> bool:
    if op.name != "stablehlo.reduce" or len(op.results) != 1 or len(op.attributes) != 1:
        return False
    if element_type(op.operands[0]) != element_type(op.results[0]):
        return False
    return componentwise(body_of(op)) == ("add",) and splat_value(op.operands[1]) == 0


# Whether a product includes an op, given whether others also read it, through ops that cost nothing.
Absorbs = Callable[[ir.Operation, bool], bool]


def is_absorbed(op: ir.Operation, shared: bool) -> bool:
    """Whether a product includes the op by default: it costs nothing, or only the product reads it."""
    if op.name in FREE:
        return True
    return op.name in _REST and len(op.results) == 1 and not shared and not is_read_again(op)


def is_read_again(op: ir.Operation) -> bool:
    """Whether the single result of the op has more than one use."""
    return len(list(islice(op.results[0].uses, 2))) > 1


def read_tree(root: ir.Operation, absorbs: Absorbs = is_absorbed) -> Tree:
    """The product that `root` computes."""
    tree = _read_tree(root, absorbs, True)
    return _read_tree(root, absorbs, False) if tree.has_diagonal_leaf else tree


def _read_tree(root: ir.Operation, absorbs: Absorbs, diagonals: bool) -> Tree:
    tree = Tree(root, diagonals=diagonals)
    tree.place = tuple(map(tree.new_letter, build.shape_of(root.results[0])))
    stack: list[tuple[ir.Value, Place, int, bool]] = [(root.results[0], tree.place, 0, False)]
    while stack:
        value, place, depth, shared = stack.pop()
        op = defining_op(value)
        joins = op is not None and not has_discardable_attributes(op) and depth <= _DEEPEST
        if op is None or not joins or (op != root and (op.block != root.block or not absorbs(op, shared))):
            tree.leaves.append((value, place))
            continue
        parts = _parts(tree, op, place)
        if parts is None:
            tree.leaves.append((value, place))
            continue
        tree.absorbed.append(value)
        below = op.name in FREE and (shared or is_read_again(op))
        stack += [(part, where, depth + 1, below) for part, where in reversed(parts)]
    if tree.repeats != 1 and not tree.scale(tree.repeats):
        tree.dots = 0  # no valid factor: treated as no product
    return tree


def _parts(tree: Tree, op: ir.Operation, place: Place) -> list[tuple[ir.Value, Place]] | None:
    """The tensors that the op multiplies and the letters of their dimensions; None for any other op."""
    name = op.name.rpartition(".")[2]
    if name == "dot_general":
        return _dot_parts(tree, op, place) if _is_dot(op) else None
    if name == "reduce":
        return _sum_parts(tree, op, place) if _is_sum(op) else None
    if op.name in MOVING:
        below = place_below(op, place)
        return None if below is None else [(op.operands[0], below)]
    if name == "gather":
        return _diagonal_parts(op, place) if tree.diagonals else None
    return _scaled_parts(tree, op, place)


def _diagonal_parts(op: ir.Operation, place: Place) -> list[tuple[ir.Value, Place]] | None:
    found = diagonal_of(op)
    if found is None:
        return None
    matrix, (one, other) = found
    rest = iter(place[:-1])
    size = len(build.shape_of(matrix))
    below = [place[-1] if dim in (one, other) else next(rest) for dim in range(size)]
    return [(matrix, tuple(below))]


def _scaled_parts(tree: Tree, op: ir.Operation, place: Place) -> list[tuple[ir.Value, Place]] | None:
    """For an elementwise multiplication, by a scalar or not, a division by a scalar, or a negation."""
    name = op.name.rpartition(".")[2]
    exact = isinstance(build.tensor_of(op.results[0]).element_type, ir.IntegerType)
    if name == "negate":
        return [(op.operands[0], place)] if tree.scale(-1) else None
    if name == "divide":
        number = None if exact else splat_value(op.operands[1])  # integers are truncated after each division
        return [(op.operands[0], place)] if number and tree.scale(1 / number) else None
    if name != "multiply":
        return None
    for index in (0, 1):
        number = splat_value(op.operands[index])
        if number is not None:
            return [(op.operands[1 - index], place)] if tree.scale(number) else None
    return [(operand, place) for operand in op.operands]


def _dot_parts(tree: Tree, op: ir.Operation, place: Place) -> list[tuple[ir.Value, Place]] | None:
    algorithm = _algorithm(op)
    if tree.dots and not _same(tree.algorithm, algorithm):
        return None
    tree.algorithm = algorithm
    sizes = contracted_sizes(op)
    places = operand_places(op, place, [tree.new_letter(size) for size in sizes])
    tree.dots += 1
    tree.flops += prod(build.shape_of(op.results[0])) * prod(sizes)
    tree.largest = max(tree.largest, prod(build.shape_of(op.results[0])) if op != tree.root else 0)
    tree.precision = _higher(tree.precision, op)
    return list(zip(op.operands, places, strict=True))


def _algorithm(op: ir.Operation) -> ir.Attribute | None:
    if "algorithm" not in op.attributes:
        return None
    return op.attributes["algorithm"]


def _same(one: ir.Attribute | None, other: ir.Attribute | None) -> bool:
    """Compares attributes, which cannot be compared with None."""
    if one is None or other is None:
        return one is other
    return bool(one == other)


def _higher(precision: str, op: ir.Operation) -> str:
    order = ["DEFAULT", "HIGH", "HIGHEST"]
    if "precision_config" not in op.attributes:
        return precision
    names = [stablehlo.PrecisionAttr(each).value for each in ir.ArrayAttr(op.attributes["precision_config"])]
    return max((precision, *names), key=order.index)


def _sum_parts(tree: Tree, op: ir.Operation, place: Place) -> list[tuple[ir.Value, Place]]:
    """The sum of a tensor; if only its diagonal counts, of the diagonal."""
    shape = build.shape_of(op.operands[0])
    away = integers(op, "dimensions", [])
    value, twin = op.operands[0], None
    found = masked_diagonal(value) if tree.diagonals else None
    if found is not None and not set(found[1]).isdisjoint(away):
        value, twin = found[0], sorted(found[1], key=lambda dim: dim in away)  # summed dimensions come last
    letters = iter(place)
    below: list[int | None] = []
    for dim, size in enumerate(shape):
        if dim not in away:
            below.append(next(letters))
        else:
            below.append(None if twin is not None and dim == twin[1] else tree.new_letter(size))
    if twin is not None:
        below[twin[1]] = below[twin[0]]
    tree.flops += prod(shape)
    tree.largest = max(tree.largest, prod(shape))
    return [(value, tuple(below))]


def letters_of(place: Place) -> Dims:
    """The letters of a tensor's dimensions."""
    return frozenset(letter for letter in place if letter is not None)
