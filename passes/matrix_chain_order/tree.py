"""Products as one formula: the leaves of a tree of dots, sums, transposes and scalar factors, by letters.

Analysis only. A letter is the number of an index; the product is summed over every letter that its result has not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.analysis.contraction import Dims
from exla_opt.analysis.op_rules.attributes import integers
from exla_opt.analysis.op_rules.bodies import body_of, componentwise
from exla_opt.ir import build

from .diagonal import diagonal_of, masked_diagonal, splat_of

Place = tuple[int | None, ...]
_DEEPEST = 200


@dataclass(slots=True)
class Tree:
    """The product that makes one value.

    root: the op. place: the letters of the result's dimensions, None for those of size 1. leaves: tensors and the
    letters of theirs. absorbed: the values between the leaves and the root. sizes: of the letters. coefficient: a
    scalar factor. flops, largest: what the product costs as it stands, in scalar multiplications and additions, and
    in elements of its largest intermediate tensor.
    """

    root: ir.Operation
    place: Place = ()
    leaves: list[tuple[ir.Value, Place]] = field(default_factory=list)
    absorbed: list[ir.Value] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)
    coefficient: float = 1.0
    flops: int = 0
    largest: int = 0
    precision: str = "DEFAULT"
    dots: int = 0

    @property
    def output(self) -> Dims:
        """The letters of the result."""
        return frozenset(letter for letter in self.place if letter is not None)

    def new_letter(self, size: int) -> int | None:
        """A letter for a dimension; None for one of size 1."""
        if size == 1:
            return None
        self.sizes[len(self.sizes)] = size
        return len(self.sizes) - 1


def is_root(op: ir.Operation) -> bool:
    """Whether a product may end here: it multiplies or sums, and carries nothing that we do not know."""
    return _is_dot(op) or _is_sum(op) or diagonal_of(op) is not None


def _is_dot(op: ir.Operation) -> bool:
    if op.name != "stablehlo.dot_general":
        return False
    types = {build.tensor_of(value).element_type for value in (*op.operands, *op.results)}
    known = {"dot_dimension_numbers", "precision_config"}
    names = {op.attributes[place].name for place in range(len(op.attributes))}
    return len(types) == 1 and names <= known


def _is_sum(op: ir.Operation) -> bool:
    if op.name != "stablehlo.reduce" or len(op.results) != 1 or len(op.attributes) != 1:
        return False
    return componentwise(body_of(op)) == ("add",) and splat_of(op.operands[1]) == 0


def read_tree(root: ir.Operation, absorbs: Callable[[ir.Operation], bool]) -> Tree:
    """The product that `root` makes. absorbs: whether an op that others read as well is taken into it."""
    tree = Tree(root)
    tree.place = tuple(map(tree.new_letter, build.shape_of(root.results[0])))
    stack: list[tuple[ir.Value, Place, int]] = [(root.results[0], tree.place, 0)]
    while stack:
        value, place, depth = stack.pop()
        op = _maker(value)
        if op is None or (op != root and (depth > _DEEPEST or op.block != root.block or not absorbs(op))):
            parts = None
        else:
            parts = _parts(tree, op, place)
        if parts is None:
            tree.leaves.append((value, place))
        else:
            tree.absorbed.append(value)
            stack += [(part, below, depth + 1) for part, below in reversed(parts)]
    return tree


def _maker(value: ir.Value) -> ir.Operation | None:
    owner = value.owner
    return None if isinstance(owner, ir.Block) else owner.operation


def _parts(tree: Tree, op: ir.Operation, place: Place) -> list[tuple[ir.Value, Place]] | None:
    """The tensors that the op multiplies and the letters of their dimensions; None for an op that is no part."""
    name = op.name.rpartition(".")[2]
    if _is_dot(op):
        return _dot_parts(tree, op, place)
    if _is_sum(op):
        return _sum_parts(tree, op, place)
    if name == "transpose":
        permutation = integers(op, "permutation", [])
        below = [place[permutation.index(dim)] for dim in range(len(place))]
        return [(op.operands[0], tuple(below))]
    if name == "negate":
        tree.coefficient = -tree.coefficient
        return [(op.operands[0], place)]
    if name == "multiply":
        return _scaled(tree, op, place) or [(operand, place) for operand in op.operands]
    if name == "divide" and (number := splat_of(op.operands[1])):
        tree.coefficient /= number
        return [(op.operands[0], place)]
    if name == "reshape":
        before, after = build.shape_of(op.operands[0]), build.shape_of(op.results[0])
        if [size for size in before if size != 1] != [size for size in after if size != 1]:
            return None
        kept = iter([letter for letter, size in zip(place, after, strict=True) if size != 1])
        return [(op.operands[0], tuple(None if size == 1 else next(kept) for size in before))]
    diagonal = diagonal_of(op)
    if diagonal is not None and len(place) == 1:
        return [(diagonal, (place[0], place[0]))]
    return None


def _scaled(tree: Tree, op: ir.Operation, place: Place) -> list[tuple[ir.Value, Place]] | None:
    for index in (0, 1):
        number = splat_of(op.operands[index])
        if number is not None:
            tree.coefficient *= number
            return [(op.operands[1 - index], place)]
    return None


def _dot_parts(tree: Tree, op: ir.Operation, place: Place) -> list[tuple[ir.Value, Place]]:
    numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    left, right = (build.shape_of(operand) for operand in op.operands)
    places: list[list[int | None]] = [[None] * len(left), [None] * len(right)]
    batch = list(zip(numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions, strict=True))
    contracted = list(zip(numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions, strict=True))
    letters = iter(place)
    for one, other in batch:
        places[0][one] = places[1][other] = next(letters)
    for one, other in contracted:
        places[0][one] = places[1][other] = tree.new_letter(left[one])
    bound = [{pair[side] for pair in (*batch, *contracted)} for side in (0, 1)]
    for side, shape in enumerate((left, right)):
        for dim in range(len(shape)):
            if dim not in bound[side]:
                places[side][dim] = next(letters)
    tree.dots += 1
    tree.flops += prod(build.shape_of(op.results[0])) * prod(left[one] for one, _ in contracted)
    tree.largest = max(tree.largest, prod(build.shape_of(op.results[0])) if op != tree.root else 0)
    tree.precision = _higher(tree.precision, op)
    return [(operand, tuple(where)) for operand, where in zip(op.operands, places, strict=True)]


def _higher(precision: str, op: ir.Operation) -> str:
    order = ["DEFAULT", "HIGH", "HIGHEST"]
    if "precision_config" not in op.attributes:
        return precision
    names = [stablehlo.PrecisionAttr(each).value for each in ir.ArrayAttr(op.attributes["precision_config"])]
    return max((precision, *names), key=order.index)


def _sum_parts(tree: Tree, op: ir.Operation, place: Place) -> list[tuple[ir.Value, Place]]:
    """The sum of a tensor; of one in which only the diagonal counts, its diagonal."""
    shape = build.shape_of(op.operands[0])
    away = integers(op, "dimensions", [])
    letters = iter(place)
    below: list[int | None] = [
        tree.new_letter(size) if dim in away else next(letters) for dim, size in enumerate(shape)
    ]
    tree.flops += prod(shape)
    tree.largest = max(tree.largest, prod(shape))
    found = masked_diagonal(op.operands[0])
    if found is None:
        return [(op.operands[0], tuple(below))]
    value, (one, other) = found
    kept, gone = (one, other) if other in away else (other, one)
    if gone not in away:
        return [(op.operands[0], tuple(below))]
    below[gone] = below[kept]
    return [(value, tuple(below))]


def letters_of(place: Place) -> Dims:
    """The letters of a tensor's dimensions."""
    return frozenset(letter for letter in place if letter is not None)
