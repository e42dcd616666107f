"""Decides which sums over a big tensor can be computed without it: legality and benefit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integers
from exla_opt.ir.types import Types, float_bits
from exla_opt.ir.values import has_discardable_attributes, splat_value
from exla_opt.ops.reducers import body_of, componentwise, selects
from exla_opt.ops.traits import Trait, has_trait
from exla_opt.passes.algebra.contraction import Step, largest, plan_steps
from exla_opt.passes.algebra.places import Place
from exla_opt.remarks import Reason

from .expression import Expression, Reader
from .squares import Square, squares_of
from .terms import Expansion, Term

# Up to this many elements are added one by one, as exactly as before, and XLA fuses it all. Expanded products cancel.
FEW = 16
# XLA:CPU passes the minimum or maximum of a row to a library, with at most 100 instructions of its operand: sums of 12
# squared differences, written out, have more, and some of their terms are written to memory (jaxlib 0.10 and 0.12).
_FEW_IN_A_ROW = 10
# The maximum ops of a formula that is written once for each summed element.
_LONGEST = 16
# Order-independent reducers that keep NaN, by which few elements can be combined as well.
_EXTREMES = (("maximum",), ("minimum",))
_SINGLE = 32


@dataclass(frozen=True, slots=True, eq=False)
class Sum:
    """The sum that a reduce or a dot computes.

    sizes: of the dimensions of the space, without those of size 1. output: the dimensions that are not summed, in the
    order of the result. big: the operand that should not be computed.
    """

    root: ir.Operation
    sizes: dict[int, int]
    output: frozenset[int]
    formula: Expression
    big: ir.Value

    @property
    def space(self) -> frozenset[int]:
        """All dimensions."""
        return frozenset(self.sizes)

    @property
    def summed(self) -> int:
        """The number of summed elements."""
        return prod(size for dim, size in self.sizes.items() if dim not in self.output)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One summand of a formula: a square, or anything else.

    terms: those of a square first, `selves` of them, then those of either sign. steps: how each term is contracted.
    """

    square: Square | None
    selves: int
    terms: tuple[Term, ...]
    steps: tuple[tuple[Step, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A sum that can be written as a sum of contractions.

    parts: empty if the formula is kept. short: whether it is computed for each of the few summed elements.
    columns: the dimensions of the result along whose few indices it is computed one by one, and summed each time.
    opened: the parts of the formula that are expanded. inner: the big tensors that this rewrite, and similar ones, make
    unnecessary.
    """

    sum: Sum
    parts: tuple[Part, ...]
    short: bool
    opened: frozenset[Expression]
    inner: tuple[ir.Value, ...]
    columns: tuple[int, ...] = ()

    @property
    def root(self) -> ir.Operation:
        return self.sum.root


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the sum at `root` stays as it is, and the op that prevents the rewrite, if it is another."""

    root: ir.Operation
    reason: Reason
    stopped_by: ir.Operation | None = None


def sum_of(root: ir.Operation, reader: Reader, is_big: Callable[[ir.Value], bool]) -> Sum | None:
    """The sum that the op computes; None unless it is a sum of one type over a big tensor of the full shape."""
    # Other ops may have token and tuple operands, which have no element type.
    if (
        root.name not in ("stablehlo.reduce", "stablehlo.dot_general")
        or len(root.results) != 1
        or has_discardable_attributes(root)
    ):
        return None
    if len({build.tensor_of(value).element_type for value in (*root.operands, *root.results)}) > 1:
        return None
    if root.name == "stablehlo.reduce":
        return _sum_of_reduce(root, reader) if is_big(root.operands[0]) else None
    return None if "algorithm" in root.attributes else _sum_of_dot(root, reader, is_big)


def _place(dims: Sequence[int], shape: Sequence[int]) -> Place:
    return tuple(None if size == 1 else dim for dim, size in zip(dims, shape, strict=True))


def _sum_of_reduce(root: ir.Operation, reader: Reader) -> Sum:
    operand = root.operands[0]
    shape = build.shape_of(operand)
    sizes = {dim: size for dim, size in enumerate(shape) if size != 1}
    output = frozenset(sizes) - set(integers(root, "dimensions", []))
    return Sum(root, sizes, output, reader.read(operand, _place(range(len(shape)), shape)), operand)


def _sum_of_dot(root: ir.Operation, reader: Reader, is_big: Callable[[ir.Value], bool]) -> Sum | None:
    """A dot sums the product of its operands, in the space of all their dimensions: those of the result come first."""
    if not any(map(is_big, root.operands)):
        return None
    numbers = stablehlo.DotDimensionNumbers(root.attributes["dot_dimension_numbers"])
    shapes = [build.shape_of(operand) for operand in root.operands]
    if not list(numbers.lhs_contracting_dimensions):
        return None
    batch = [list(numbers.lhs_batching_dimensions), list(numbers.rhs_batching_dimensions)]
    summed = [list(numbers.lhs_contracting_dimensions), list(numbers.rhs_contracting_dimensions)]
    result = build.shape_of(root.results[0])
    dims = [[-1] * len(shape) for shape in shapes]
    following = len(batch[0])
    for side in (0, 1):
        for number, dim in enumerate(batch[side]):
            dims[side][dim] = number
        for number, dim in enumerate(summed[side]):
            dims[side][dim] = len(result) + number
        for dim in range(len(shapes[side])):
            if dims[side][dim] < 0:
                dims[side][dim], following = following, following + 1
    sizes = {dim: size for side in (0, 1) for dim, size in zip(dims[side], shapes[side], strict=True) if size != 1}
    places = [_place(*pair) for pair in zip(dims, shapes, strict=True)]
    full = [value for value, place in zip(root.operands, places, strict=True) if {*place} - {None} == set(sizes)]
    if not any(map(is_big, full)):
        return None  # a product of matrices, which stays one
    parts = tuple(reader.read(*pair) for pair in zip(root.operands, places, strict=True))
    formula = Expression(root.results[0], (), "multiply", parts, parts[0].dims | parts[1].dims)
    return Sum(root, sizes, frozenset(dim for dim in sizes if dim < len(result)), formula, full[0])


def candidate_of(given: Sum, reader: Reader, threshold: int, writes_summed: bool) -> Candidate | Refusal:
    """The rewrite of one sum, as far as the sum alone determines it.

    threshold: bytes above which a tensor is big. writes_summed: whether the machine writes the operand of a long sum.
    """
    root, sizes = given.root, given.sizes
    element = build.tensor_of(given.big).element_type
    floats = bool(float_bits(element))
    if not floats and not _is_integer(element):
        return Refusal(root, Reason("EX405", f"its element type is {element}"))
    few = floats and given.summed <= FEW
    if root.name == "stablehlo.reduce" and (why := _why_no_sum(root)):
        # XLA ignores the init if a reduce has nothing to combine.
        extreme = few and given.summed > 1 and componentwise(body_of(root)) in _EXTREMES
        return (_one_by_one(given, reader) if extreme else None) or Refusal(root, Reason("EX401", why))
    most = threshold // Types().of(given.big).element_bytes
    narrow_dot = root.name == "stablehlo.dot_general" and 0 < float_bits(element) < _SINGLE
    few = few and not narrow_dot  # a dot does not round its products to a narrow type
    expansion = Expansion(given.space, floats, few, lambda dims: prod(sizes[dim] for dim in dims) > most)
    terms = expansion.terms(given.formula)
    squares = squares_of(given.formula, given.space) if floats else []
    pairs = [square.terms(expansion) for square in squares] if squares else [(terms, [])]
    if expansion.refusal:
        by_column = _by_column(given, reader) if floats and writes_summed and not narrow_dot else None
        return (_one_by_one(given, reader) if few else by_column) or Refusal(root, Reason("EX403", expansion.refusal))
    rounds = str(element) == "f16" or any(each.name == "convert" for each in expansion.opened)
    short = few and (rounds or len(terms) > 1)
    if short and squares and not rounds and writes_summed and given.summed > _FEW_IN_A_ROW and _is_chosen_from(root):
        short = False
    if str(element) == "f16" and not short:
        return Refusal(root, Reason("EX405", "multiplied out, float16 would overflow elsewhere"))
    if not short and not squares and any(term.differences > 1 for term in terms):
        return Refusal(root, Reason("EX403", "a product of two differences that is not a square might change its sign"))
    chosen: list[Square | None] = [*squares] or [None]
    parts = tuple(_part(given, square, *pair) for square, pair in zip(chosen, pairs, strict=True))
    made = max((largest(each, sizes) for part in parts for each in part.steps), default=0)
    if 2 * made > prod(sizes.values()):
        return Refusal(root, Reason("EX404", "the expansion needs a tensor as big"))
    return Candidate(given, parts, short, frozenset(expansion.opened), _inner(given, reader, expansion.opened))


def _is_chosen_from(root: ir.Operation) -> bool:
    """Whether a minimum, maximum or the like is taken of an elementwise function of the sum."""
    known: set[ir.Value] = {root.results[0]}
    queue: list[ir.Value] = [root.results[0]]
    while queue and len(known) < _LONGEST:
        for use in queue.pop().uses:
            op = use.owner.operation
            if has_trait(op, Trait.REDUCES) and selects(op):
                return True
            if has_trait(op, Trait.POINTWISE) and op.results[0] not in known:
                known.add(op.results[0])
                queue.append(op.results[0])
    return False


def _one_by_one(given: Sum, reader: Reader) -> Candidate | None:
    """The formula for each of few elements, if it is short and of smaller tensors only."""
    opened = _opened(given)
    return Candidate(given, (), True, frozenset(opened), _inner(given, reader, opened)) if opened else None


def _by_column(given: Sum, reader: Reader) -> Candidate | None:
    """The same for each of the few columns of the result that the widest tensor in the formula, its weights, lacks."""
    opened = _opened(given)
    if not opened:
        return None
    smaller = {child.dims for each in opened for child in each.children if child not in opened}
    widest = max(smaller, key=lambda dims: (prod(given.sizes[dim] for dim in dims), sorted(dims)))
    columns = tuple(sorted(given.space - widest))
    if not given.output.issuperset(columns) or prod(given.sizes[dim] for dim in columns) > FEW:
        return None
    return Candidate(given, (), False, frozenset(opened), _inner(given, reader, opened), columns)


def _opened(given: Sum) -> dict[Expression, None]:
    """The ops of a short formula that compute tensors of the full shape from smaller ones; empty for other formulas."""
    opened: dict[Expression, None] = {}
    stack = [given.formula]
    while stack:
        each = stack.pop()
        if each in opened or each.dims != given.space:
            continue
        if not each.name or len(opened) == _LONGEST:
            return {}
        opened[each] = None
        stack += each.children
    return opened


def _inner(given: Sum, reader: Reader, opened: Iterable[Expression]) -> tuple[ir.Value, ...]:
    inner = [value for each in opened for value in (each.value, *reader.views.get(each, ()))]
    return tuple(value for value in inner if value != given.root.results[0])


def _part(given: Sum, square: Square | None, selves: list[Term], mixed: list[Term]) -> Part:
    terms = (*selves, *mixed)
    dims = [[factor.expression.dims for factor in term.factors] for term in terms]
    return Part(square, len(selves), terms, tuple(tuple(plan_steps(each, given.output, given.sizes)) for each in dims))


def _why_no_sum(root: ir.Operation) -> str:
    names = componentwise(body_of(root))
    if names != ("add",):
        return f"its reducer is {names[0]}, not add" if names else "its reducer is not a plain sum"
    return "" if splat_value(root.operands[1]) == 0 else "it does not start from 0"


def _is_integer(element: ir.Type) -> bool:
    """Whether sums and products are those of integers; for booleans they are `or` and `and`."""
    return isinstance(element, ir.IntegerType) and element.width > 1


def without_blocked(candidates: list[Candidate]) -> tuple[list[Candidate], list[Refusal]]:
    """The candidates whose inner tensors nothing else then needs, and why the others are refused.

    Formulas that are combined one by one never need them, and may leave them to others.
    """
    refused: list[Refusal] = []
    kept = candidates
    while True:
        going = {value for each in kept for value in (*each.inner, each.root.results[0])}
        taken_apart = [(number, each) for number, each in enumerate(kept) if each.parts]
        blocked = {number: op for number, each in taken_apart if (op := _blocking(each, going)) is not None}
        if not blocked:
            return kept, refused
        for number, op in blocked.items():
            reason = Reason("EX402", f"{op.name} needs a tensor of its full shape as well")
            refused.append(Refusal(kept[number].root, reason, op))
        kept = [each for number, each in enumerate(kept) if number not in blocked]


def _blocking(candidate: Candidate, going: set[ir.Value]) -> ir.Operation | None:
    """An op that stays and reads one of the candidate's inner tensors."""
    for value in candidate.inner:
        for use in value.uses:
            user = use.owner.operation
            if len(user.results) != 1 or user.results[0] not in going:
                return user
    return None


# Ops between a sum and a difference in formulas that people write.
_ON_THE_WAY = frozenset("abs multiply negate power square divide convert add subtract".split())


def looks_like_one(given: Sum) -> bool:
    """Whether the user would expect a rewrite: products or differences of broadcast smaller tensors."""
    stack = [(given.formula, 4)]
    while stack:
        each, depth = stack.pop()
        if each.name not in _ON_THE_WAY or each.dims != given.space:
            continue
        if len(each.children) == 2 and all(child.dims < given.space and child.dims for child in each.children):
            return True
        if depth:
            stack += [(child, depth - 1) for child in each.children]
    return False
