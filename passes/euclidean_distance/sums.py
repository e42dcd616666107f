"""The sum of a tensor as one more column of its product with another one: sum_j w and dot(w, b) -> dot(w, [b, 1]).

A gradient's weights are the big tensor there, computed in tiles. XLA:CPU reads a tile again for a sum of it, and takes
longer for a sum of float64 along the outer dimension than for a dot of four columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.passes.algebra.contract import Tensor, squeezed, take_step
from exla_opt.passes.algebra.contraction import Dims, Step

from .candidates import Candidate
from .terms import Factor, Term

# For a product with more columns the sums are a small part, and the extra column may not suit the hardware.
_MOST_COLUMNS = 32

# A factor, and the dimensions that its sum keeps.
_Wanted = tuple[Factor, Dims]


class Sums:
    """Applies the steps of one candidate's terms, each sum of a factor together with a dot of it if there is one.

    shared: the sums that a dot computes as well. found: those that are computed.
    """

    def __init__(self, candidate: Candidate, precision: ir.Attribute):
        self.sizes = candidate.sum.sizes
        self.precision = precision
        self.found: dict[_Wanted, Tensor] = {}
        # Formulas of squares contain no sum of a big tensor.
        terms = [
            pair for part in candidate.parts if part.square is None for pair in zip(part.terms, part.steps, strict=True)
        ]
        reduced = {wanted for term, steps in terms for step in steps for wanted in _reduced(step, term)}
        brought = {wanted for term, steps in terms for wanted, _ in self._brought(term, steps)}
        self.shared = reduced & brought

    def comes_later(self, term: Term, steps: Sequence[Step]) -> bool:
        """Whether the term needs a sum that the dot of another term computes."""
        return any(wanted in self.shared for step in steps for wanted in _reduced(step, term))

    def take(self, term: Term, steps: Sequence[Step], factors: Sequence[Tensor]) -> Tensor:
        """Apply all steps of a term that has some; return the last result. factors: the tensors of its factors."""
        tensors = list(factors)
        columns = dict(self._brought(term, steps))
        for step in steps:
            known = [self.found[wanted] for wanted in _reduced(step, term) if wanted in self.found]
            wanted = next((each for each, of in columns.items() if of is step and each in self.shared), None)
            if known:
                tensors.append(known[0])
            elif wanted is not None and wanted not in self.found:
                tensors.append(self._with_sum(step, [tensors[number] for number in step.operands], wanted))
            else:
                operands = [tensors[number] for number in step.operands]
                tensors.append(take_step(step, operands, self.sizes, self.precision))
        return tensors[-1]

    def _brought(self, term: Term, steps: Sequence[Step]) -> Iterator[tuple[_Wanted, Step]]:
        """The sums of a factor that a dot of it can compute, and the dot: with a smaller tensor of a few columns."""
        dims = [*(factor.expression.dims for factor in term.factors), *(step.dims for step in steps)]
        for step in steps:
            for place, number in enumerate(step.operands if step.kind == "dot" else ()):
                if number >= len(term.factors):
                    continue
                own, other = dims[number], dims[step.operands[1 - place]]
                columns = other - own
                small = self._elements(columns) <= _MOST_COLUMNS and self._elements(other) <= self._elements(own)
                if len(columns) == 1 and own - step.dims <= other and small:
                    yield (term.factors[number], own & step.dims), step

    def _elements(self, dims: Dims) -> int:
        return prod(self.sizes[dim] for dim in dims)

    def _with_sum(self, step: Step, operands: Sequence[Tensor], wanted: _Wanted) -> Tensor:
        """The dot; its last column, from a column of ones in the other operand, is the sum."""
        (column,) = step.dims - wanted[1]
        size = self.sizes[column]
        longer = {**self.sizes, column: size + 1}
        sides = [self._with_ones(each, column) if column in each.dims else each for each in operands]
        made = take_step(step, sides, longer, self.precision)
        total = _columns(made, column, size, size + 1)
        self.found[wanted] = squeezed(total, [None if dim == column else dim for dim in made.dims])
        return Tensor(_columns(made, column, 0, size), made.dims)

    def _with_ones(self, tensor: Tensor, column: int) -> Tensor:
        kind = build.tensor_of(tensor.value)
        ones = build.splat(build.with_shape(kind, [1 if dim == column else self.sizes[dim] for dim in tensor.dims]), 1)
        return Tensor(stablehlo.concatenate([tensor.value, ones], tensor.dims.index(column)), tensor.dims)


def _reduced(step: Step, term: Term) -> Iterator[_Wanted]:
    """The sum of a factor that the step is, if any."""
    if step.kind == "reduce" and step.operands[0] < len(term.factors):
        yield term.factors[step.operands[0]], step.dims


def _columns(tensor: Tensor, column: int, start: int, end: int) -> ir.Value:
    shape = build.shape_of(tensor.value)
    place = tensor.dims.index(column)
    starts, ends = [0] * len(shape), list(shape)
    starts[place], ends[place] = start, end
    return stablehlo.slice(tensor.value, starts, ends, [1] * len(shape))
