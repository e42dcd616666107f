"""Writes a candidate's formula: smaller tensors, contractions, and their sum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import product
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.types import float_bits
from exla_opt.ir.values import Number, defining_op
from exla_opt.ops.reducers import body_of, componentwise
from exla_opt.passes.algebra.contract import Tensor, repeated, squeezed, summed
from exla_opt.passes.algebra.contraction import Step

from .candidates import Candidate, Part
from .columns import by_column, columns_of, is_added_one_by_one, wide_element
from .expression import Expression
from .squares import Square
from .sums import Sums
from .terms import Factor, Term

_SINGLE = 32
# The midpoint of a point cloud is computed from this many of its points.
_SAMPLE = 63


@dataclass(slots=True)
class Writer:
    """Writes the formulas of one block, first to last; shared parts are computed once.

    doubles: whether the machine computes fast in float64. written: replacements of the results of reduces, which
    themselves become dead code.
    """

    doubles: bool
    written: dict[ir.Value, ir.Value] = field(default_factory=dict)
    small: dict[Expression, Tensor] = field(default_factory=dict)
    factors: dict[tuple[Factor, ir.Type], Tensor] = field(default_factory=dict)
    middles: dict[tuple[Expression, frozenset[int], ir.Type], Tensor] = field(default_factory=dict)
    elements: dict[tuple[Expression, tuple[tuple[int, int], ...]], Tensor] = field(default_factory=dict)

    def write(self, candidate: Candidate) -> None:
        """Replace the candidate's reduce by its sum."""
        root = candidate.root
        with ir.InsertionPoint(root), root.location:
            value = _Sum(candidate, self).value()
        root.results[0].replace_all_uses_with(value)
        self.written[root.results[0]] = value

    def tensor(self, expression: Expression, sizes: dict[int, int]) -> Tensor:
        """The expression on only those dimensions that it depends on."""
        found = self.small.get(expression)
        if found is None:
            found = self.small[expression] = self._small(expression, sizes)
        return found

    def _small(self, expression: Expression, sizes: dict[int, int]) -> Tensor:
        kind = build.tensor_of(expression.value)
        if expression.name == "constant":
            return Tensor(_number(expression.constant, kind.element_type), ())
        if not expression.name:
            return squeezed(self.written.get(expression.value, expression.value), expression.place)
        dims = tuple(sorted(expression.dims))
        return self._apply(expression, [self.tensor(child, sizes) for child in expression.children], dims, sizes)

    def _apply(
        self, expression: Expression, children: Sequence[Tensor], dims: tuple[int, ...], sizes: dict[int, int]
    ) -> Tensor:
        """The op of the expression on other tensors, broadcast to `dims`."""
        kind = build.tensor_of(expression.value)
        op = defining_op(expression.value)
        assert op is not None
        operands = [
            build.convert(repeated(child, dims, sizes), build.tensor_of(given).element_type)
            for child, given in zip(children, op.operands, strict=True)
        ]
        if op.name == "stablehlo.dot_general":  # that sums nothing
            return Tensor(stablehlo.multiply(*operands), dims)
        made = op.clone(ip=ir.InsertionPoint.current).operation
        for index, operand in enumerate(operands):
            made.operands[index] = operand
        made.results[0].set_type(build.with_shape(kind, [sizes[dim] for dim in dims]))
        return Tensor(made.results[0], dims)

    def factor(self, factor: Factor, element: ir.Type, sizes: dict[int, int]) -> Tensor:
        """The factor's tensor, computed in the type `element`."""
        key = (factor, element)
        found = self.factors.get(key)
        if found is None:
            found = self.factors[key] = self._factor(factor, element, sizes)
        return found

    def _factor(self, factor: Factor, element: ir.Type, sizes: dict[int, int]) -> Tensor:
        tensor = self.wide(factor.expression, element, sizes)
        if factor.centre is not None:
            middle = repeated(self.middle(factor.centre, factor.over, element, sizes), tensor.dims, sizes)
            moved = stablehlo.add if factor.sign > 0 else stablehlo.subtract
            return Tensor(moved(tensor.value, middle), tensor.dims)
        if factor.inverted:
            return Tensor(stablehlo.divide(build.splat(tensor.value.type, 1), tensor.value), tensor.dims)
        return tensor

    def wide(self, expression: Expression, element: ir.Type, sizes: dict[int, int]) -> Tensor:
        """The expression's tensor, converted."""
        tensor = self.tensor(expression, sizes)
        return Tensor(build.convert(tensor.value, element), tensor.dims)

    def middle(self, of: Expression, over: frozenset[int], element: ir.Type, sizes: dict[int, int]) -> Tensor:
        """A midpoint over some dimensions: points far away, or at infinity, must not dominate it."""
        key = (of, over, element)
        if key not in self.middles:
            self.middles[key] = median_of_some(self.wide(of, element, sizes), over)
        return self.middles[key]

    def at(self, expression: Expression, place: dict[int, int], candidate: Candidate) -> Tensor:
        """The expression at single indices of some dimensions, on the others."""
        if not place.keys() & expression.dims:
            return self.tensor(expression, candidate.sum.sizes)
        if expression not in candidate.opened:
            return _element_of(self.tensor(expression, candidate.sum.sizes), place)
        key = (expression, tuple(place.items()))
        found = self.elements.get(key)
        if found is None:
            children = [self.at(child, place, candidate) for child in expression.children]
            dims = tuple(sorted(expression.dims - place.keys()))
            found = self.elements[key] = self._apply(expression, children, dims, candidate.sum.sizes)
        return found


def _element_of(tensor: Tensor, place: dict[int, int]) -> Tensor:
    shape = build.shape_of(tensor.value)
    starts = [place.get(dim, 0) for dim in tensor.dims]
    ends = [place[dim] + 1 if dim in place else size for dim, size in zip(tensor.dims, shape, strict=True)]
    part = stablehlo.slice(tensor.value, starts, ends, [1] * len(shape))
    return squeezed(part, [None if dim in place else dim for dim in tensor.dims])


def median_of_some(tensor: Tensor, over: frozenset[int]) -> Tensor:
    """The median, over some dimensions, of evenly chosen elements; zero where it is not finite."""
    shape = build.shape_of(tensor.value)
    strides = [1] * len(shape)
    room = _SAMPLE
    for place, dim in enumerate(tensor.dims):
        if dim in over:
            strides[place] = -(-shape[place] // room)
            room = max(room // -(-shape[place] // strides[place]), 1)
    sample = stablehlo.slice(tensor.value, [0] * len(shape), shape, strides)
    kept = [place for place, dim in enumerate(tensor.dims) if dim not in over]
    order = [*kept, *(place for place, dim in enumerate(tensor.dims) if dim in over)]
    sizes = [build.shape_of(sample)[place] for place in order]
    rows = [*sizes[: len(kept)], prod(sizes[len(kept) :])]
    turned = stablehlo.transpose(sample, ir.DenseI64ArrayAttr.get(order))
    table = build.reshaped(turned, rows)
    middle = stablehlo.slice(
        build.sorted_along_last(table),
        [*[0] * len(kept), rows[-1] // 2],
        [*rows[:-1], rows[-1] // 2 + 1],
        [1] * len(rows),
    )
    value = stablehlo.reshape(build.with_shape(build.tensor_of(sample), rows[:-1]), middle)
    finite = stablehlo.select(stablehlo.is_finite(value), value, build.zeros(value.type))
    return Tensor(finite, tuple(dim for dim in tensor.dims if dim not in over))


class _Sum:
    """One candidate's terms, contracted and added."""

    def __init__(self, candidate: Candidate, writer: Writer):
        self.candidate = candidate
        self.writer = writer
        self.sizes = candidate.sum.sizes
        self.output = candidate.sum.output
        self.dims = tuple(sorted(self.output))
        self.kind = build.tensor_of(candidate.root.results[0])
        self.sums = Sums(candidate, build.precision("HIGHEST"))
        self.element = wide_element(self.kind.element_type, candidate, writer.doubles)

    def value(self) -> ir.Value:
        if is_added_one_by_one(self.candidate, self.writer.doubles):
            return self.finished(self.one_by_one())
        if columns := columns_of(self.candidate, self.writer.doubles):
            formula = self.candidate.sum.formula
            at = partial(self.writer.at, formula, candidate=self.candidate)
            return self.finished(by_column(self.candidate, columns, at))
        return self.finished(reduce(stablehlo.add, map(self.part, self.candidate.parts)))

    def part(self, part: Part) -> ir.Value:
        """One summand; a square is bounded to its sign."""
        terms = list(zip(part.terms, part.steps, strict=True))
        whole = self.added(terms[: part.selves])
        mixed = terms[part.selves :]
        if part.square is None or not mixed:
            return whole
        bounded = self.bounded(part.square, stablehlo.add(whole, self.added(mixed)))
        # At infinity the terms would cancel to NaN; the original gives infinity there.
        return stablehlo.select(stablehlo.is_finite(whole), bounded, whole)

    def one_by_one(self) -> ir.Value:
        """The formula for each index of the summed dimensions, combined in their order."""
        given = self.candidate.sum
        summed_dims = sorted(given.space - given.output)
        wide = build.wide_float() if float_bits(self.kind.element_type) < _SINGLE else self.kind.element_type

        def value_at(indices: tuple[int, ...]) -> ir.Value:
            made = self.writer.at(given.formula, dict(zip(summed_dims, indices, strict=True)), self.candidate)
            return build.convert(repeated(made, self.dims, self.sizes), wide)

        combine = self.reducer()
        total = reduce(combine, map(value_at, product(*(range(self.sizes[dim]) for dim in summed_dims))))
        if combine is stablehlo.add:
            return total
        init = build.convert(self.candidate.root.operands[1], wide)
        return combine(total, repeated(Tensor(init, ()), self.dims, self.sizes))

    def reducer(self) -> Callable[[ir.Value, ir.Value], ir.Value]:
        """The function by which the root combines elements."""
        root = self.candidate.root
        names = ("add",) if root.name == "stablehlo.dot_general" else componentwise(body_of(root))
        combine: Callable[[ir.Value, ir.Value], ir.Value] = getattr(stablehlo, (names or ("add",))[0])
        return combine

    def bounded(self, square: Square, value: ir.Value) -> ir.Value:
        """The sum bounded to its sign: at most zero where no weight is positive, and so on."""
        zero = build.zeros(value.type)
        if not square.weights:
            return stablehlo.minimum(value, zero) if square.sign < 0 else stablehlo.maximum(value, zero)
        signs = [self.signs(factor) for factor in square.weights]
        positive, negative = signs[0]
        for other_positive, other_negative in signs[1:]:
            positive, negative = (
                stablehlo.or_(stablehlo.and_(positive, other_positive), stablehlo.and_(negative, other_negative)),
                stablehlo.or_(stablehlo.and_(positive, other_negative), stablehlo.and_(negative, other_positive)),
            )
        if square.sign < 0:
            positive, negative = negative, positive
        least = stablehlo.select(positive, zero, build.splat(value.type, float("-inf")))
        most = stablehlo.select(negative, zero, build.splat(value.type, float("inf")))
        return stablehlo.clamp(least, value, most)

    def signs(self, factor: Factor) -> tuple[ir.Value, ir.Value]:
        """Masks of the result's shape: where no summed element of a weight is below zero, and where none is above."""
        weight = self.writer.factor(factor, self.element, self.sizes)
        found = []
        for of, direction in ((stablehlo.minimum, "GE"), (stablehlo.maximum, "LE")):
            # The sum of the elements below (above) zero is below (above) zero where there are any. It is not asked
            # whether it equals zero, for what equality is asked of is not computed twice.
            side = summed(Tensor(of(weight.value, build.zeros(weight.value.type)), weight.dims), self.output)
            nothing = stablehlo.compare(
                side.value, build.zeros(side.value.type), stablehlo.ComparisonDirectionAttr.get(direction)
            )
            found.append(repeated(Tensor(nothing, side.dims), self.dims, self.sizes))
        return found[0], found[1]

    def finished(self, value: ir.Value) -> ir.Value:
        """Converted to the type and the shape of the result."""
        result = build.convert(value, self.kind.element_type)
        return result if build.shape_of(result) == list(self.kind.shape) else stablehlo.reshape(self.kind, result)

    def added(self, terms: list[tuple[Term, tuple[Step, ...]]]) -> ir.Value:
        if not terms:
            shape = [self.sizes[dim] for dim in self.dims]
            return build.zeros(ir.RankedTensorType.get(shape, self.element))
        # The dots first, which may also compute the sums that the others need.
        order = sorted(range(len(terms)), key=lambda place: self.sums.comes_later(*terms[place]))
        values = {place: self.contracted(*terms[place]) for place in order}
        return reduce(stablehlo.add, (values[place] for place in range(len(terms))))

    def contracted(self, term: Term, steps: tuple[Step, ...]) -> ir.Value:
        tensors = [self.writer.factor(factor, self.element, self.sizes) for factor in term.factors]
        missing = set(self.sizes) - self.output - {dim for f in term.factors for dim in f.expression.dims}
        coefficient = term.coefficient * prod(self.sizes[dim] for dim in missing)
        if not tensors:
            return repeated(Tensor(_number(coefficient, self.element), ()), self.dims, self.sizes)
        last = self.sums.take(term, steps, tensors)
        value = last.value
        if coefficient != 1:
            value = stablehlo.multiply(value, build.splat(value.type, coefficient))
        return repeated(Tensor(value, last.dims), self.dims, self.sizes)


def _number(number: Number, element: ir.Type) -> ir.Value:
    return build.splat(ir.RankedTensorType.get([], element), number)
