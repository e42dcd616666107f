"""Which sums over a big tensor can be taken without it: legal, and worthwhile."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from jaxlib.mlir import ir

from exla_opt.analysis.contraction import Step, largest, plan_steps
from exla_opt.analysis.op_rules.attributes import integers
from exla_opt.analysis.op_rules.bodies import body_of, componentwise, float_bits
from exla_opt.ir import build

from .expression import Expression, Reader
from .terms import Expansion, Term, is_square


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A reduce that can be written as a sum of contractions.

    sizes: of the dimensions of its operand, those of size 1 left out. output: the dimensions that are not summed.
    steps: how each term is contracted. inner: the big tensors that this rewrite, and others like it, make needless.
    """

    root: ir.Operation
    sizes: dict[int, int]
    output: frozenset[int]
    square: bool
    terms: tuple[Term, ...]
    steps: tuple[tuple[Step, ...], ...]
    inner: tuple[ir.Value, ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the sum at `root` stays as it is, and the op that stops it where that is another."""

    root: ir.Operation
    reason: str
    stopped_by: ir.Operation | None = None


def candidate_of(root: ir.Operation, reader: Reader) -> Candidate | Refusal:
    """The rewrite of one big reduce, as far as the reduce alone tells."""
    names = componentwise(body_of(root))
    if names != ("add",):
        return Refusal(root, f"its reducer is {names[0]}, not add" if names else "its reducer is no plain sum")
    operand = root.operands[0]
    element = build.tensor_of(operand).element_type
    if not float_bits(element) and not isinstance(element, ir.IntegerType):
        return Refusal(root, f"its numbers are {element}")
    shape = build.shape_of(operand)
    sizes = {dim: size for dim, size in enumerate(shape) if size != 1}
    expression = reader.read(operand, tuple(dim if size != 1 else None for dim, size in enumerate(shape)))
    expansion = Expansion(frozenset(sizes), centred=bool(float_bits(element)))
    terms = expansion.terms(expression)
    if expansion.refusal:
        return Refusal(root, expansion.refusal)
    if not float_bits(element) and any(not _is_whole(term) for term in terms):
        return Refusal(root, "a division of integers is not multiplied out")
    output = frozenset(sizes) - set(integers(root, "dimensions", []))
    steps = tuple(
        tuple(plan_steps([factor.expression.dims for factor in term.factors], output, sizes)) for term in terms
    )
    elements = prod(sizes.values())
    made = max((largest(each, sizes) for each in steps), default=0)
    if 2 * made > elements:
        return Refusal(root, "what it is multiplied out to is as big")
    inner = tuple(_inner_values(expression, frozenset(sizes), reader))
    square = bool(float_bits(element)) and is_square(expression)
    return Candidate(root, sizes, output, square, tuple(terms), steps, inner)


def _is_whole(term: Term) -> bool:
    return term.coefficient.is_integer() and not any(factor.inverted for factor in term.factors)


def _inner_values(expression: Expression, space: frozenset[int], reader: Reader) -> list[ir.Value]:
    """The values of the full shape between the smaller tensors and the reduce."""
    found: list[ir.Value] = []
    seen: set[Expression] = set()
    stack = [expression]
    while stack:
        each = stack.pop()
        if each in seen or each.dims != space:
            continue
        seen.add(each)
        found += [each.value, *reader.views.get(each, ())]
        stack += each.children
    return found


def without_blocked(candidates: list[Candidate]) -> tuple[list[Candidate], list[Refusal]]:
    """The candidates after which nobody needs their inner tensors any more, and why the others stay."""
    refused: list[Refusal] = []
    kept = candidates
    while True:
        going = {value for each in kept for value in (*each.inner, each.root.results[0])}
        blocked = {number: op for number, each in enumerate(kept) if (op := _blocking(each, going)) is not None}
        if not blocked:
            return kept, refused
        for number, op in blocked.items():
            reason = f"{op.name} needs a tensor of its full shape as well"
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


def looks_like_one(root: ir.Operation, reader: Reader) -> bool:
    """Whether a person would expect the sum to be rewritten: products or squares of repeated smaller tensors."""
    operand = root.operands[0]
    shape = build.shape_of(operand)
    space = frozenset(dim for dim, size in enumerate(shape) if size != 1)
    expression = reader.read(operand, tuple(dim if size != 1 else None for dim, size in enumerate(shape)))
    parts = [expression, *expression.children]
    return expression.dims == space and any(
        len(part.children) == 2 and all(child.dims < space and child.dims for child in part.children) for part in parts
    )
