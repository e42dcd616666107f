"""Writes a candidate's formula: smaller tensors, contractions, and their sum."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.analysis.contraction import Step
from exla_opt.analysis.op_rules.bodies import float_bits
from exla_opt.ir import build
from exla_opt.ir.contract import Tensor, repeated, squeezed, summed, take_step

from .candidates import Candidate
from .expression import Expression, maker, splat_number
from .terms import Factor, Term

# So many numbers for each pair of points are few.
_SHORT = 32


@dataclass(slots=True)
class Writer:
    """Writes the formulas of one block, first to last; what two of them share is made once.

    written: what stands for the result of a reduce, which itself is left for dead code.
    """

    written: dict[ir.Value, ir.Value] = field(default_factory=dict)
    small: dict[Expression, Tensor] = field(default_factory=dict)
    factors: dict[tuple[Factor, ir.Type], Tensor] = field(default_factory=dict)
    means: dict[tuple[Expression, frozenset[int], ir.Type], Tensor] = field(default_factory=dict)

    def write(self, candidate: Candidate) -> None:
        """Put the candidate's sum in the place of its reduce."""
        root = candidate.root
        with ir.InsertionPoint(root), root.location:
            value = _Sum(candidate, self).value()
        root.results[0].replace_all_uses_with(value)
        self.written[root.results[0]] = value

    def tensor(self, expression: Expression, sizes: dict[int, int]) -> Tensor:
        """The expression on no more dimensions than it depends on."""
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
        operands = [
            build.convert(repeated(self.tensor(child, sizes), dims, sizes), kind.element_type)
            for child in expression.children
        ]
        op = maker(expression.value)
        assert op is not None
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
            mean = repeated(self.mean(factor.centre, factor.over, element, sizes), tensor.dims, sizes)
            moved = stablehlo.add if factor.sign > 0 else stablehlo.subtract
            return Tensor(moved(tensor.value, mean), tensor.dims)
        if factor.inverted:
            return Tensor(stablehlo.divide(build.splat(tensor.value.type, 1), tensor.value), tensor.dims)
        return tensor

    def wide(self, expression: Expression, element: ir.Type, sizes: dict[int, int]) -> Tensor:
        """The expression's tensor, converted."""
        tensor = self.tensor(expression, sizes)
        return Tensor(build.convert(tensor.value, element), tensor.dims)

    def mean(self, of: Expression, over: frozenset[int], element: ir.Type, sizes: dict[int, int]) -> Tensor:
        """The mean over some dimensions of what is finite: one point at infinity must not take the others along."""
        key = (of, over, element)
        if key not in self.means:
            tensor = self.wide(of, element, sizes)
            finite = stablehlo.select(stablehlo.is_finite(tensor.value), tensor.value, build.zeros(tensor.value.type))
            added = summed(Tensor(finite, tensor.dims), frozenset(tensor.dims) - over)
            count = build.splat(added.value.type, prod(sizes[dim] for dim in over))
            self.means[key] = Tensor(stablehlo.divide(added.value, count), added.dims)
        return self.means[key]


def wide_element(element: ir.Type, sizes: dict[int, int]) -> ir.Type:
    """The type to compute in: what is multiplied out cancels where the difference did not.

    Narrow floats are summed in float32. So are float32 themselves, in float64, where there are few numbers for each
    pair of points: then that is cheap, and the result as exact as before.
    """
    bits = float_bits(element)
    if bits == 0 or bits > 32:
        return element
    if bits < 32:
        return build.wide_float()
    pairs = prod(sorted(sizes.values())[-2:])
    return ir.F64Type.get() if prod(sizes.values()) <= _SHORT * pairs else element


class _Sum:
    """One candidate's terms, contracted and added up."""

    def __init__(self, candidate: Candidate, writer: Writer):
        self.candidate = candidate
        self.writer = writer
        self.sizes = candidate.sizes
        self.dims = tuple(sorted(candidate.output))
        self.kind = build.tensor_of(candidate.root.results[0])
        self.precision = build.precision("HIGHEST")
        self.element = wide_element(self.kind.element_type, candidate.sizes)

    def value(self) -> ir.Value:
        terms = list(zip(self.candidate.terms, self.candidate.steps, strict=True))
        if not self.candidate.square:
            return self.finished(self.added(terms))
        squares = [pair for pair in terms if pair[0].is_square]
        others = [pair for pair in terms if not pair[0].is_square]
        whole = self.added(squares)
        if not others:
            return self.finished(whole)
        positive = stablehlo.maximum(stablehlo.add(whole, self.added(others)), build.zeros(whole.type))
        # At infinity the terms would cancel to NaN; what was far away there still is.
        return self.finished(stablehlo.select(stablehlo.is_finite(whole), positive, whole))

    def finished(self, value: ir.Value) -> ir.Value:
        """In the type of the reduce, with its init added."""
        result = build.convert(value, self.kind.element_type)
        if build.shape_of(result) != list(self.kind.shape):
            result = stablehlo.reshape(self.kind, result)
        init = self.candidate.root.operands[1]
        made_by = maker(init)
        if made_by is not None and made_by.name == "stablehlo.constant" and splat_number(made_by) == 0:
            return result
        return stablehlo.add(result, build.broadcast(init, list(self.kind.shape)))

    def added(self, terms: list[tuple[Term, tuple[Step, ...]]]) -> ir.Value:
        total: ir.Value | None = None
        for term, steps in terms:
            value = self.contracted(term, steps)
            total = value if total is None else stablehlo.add(total, value)
        if total is None:
            shape = [self.sizes[dim] for dim in self.dims]
            return build.zeros(ir.RankedTensorType.get(shape, self.element))
        return total

    def contracted(self, term: Term, steps: tuple[Step, ...]) -> ir.Value:
        tensors = [self.writer.factor(factor, self.element, self.sizes) for factor in term.factors]
        for step in steps:
            tensors.append(take_step(step, [tensors[number] for number in step.operands], self.sizes, self.precision))
        missing = set(self.sizes) - self.candidate.output - {dim for f in term.factors for dim in f.expression.dims}
        coefficient = term.coefficient * prod(self.sizes[dim] for dim in missing)
        if not tensors:
            return repeated(Tensor(_number(coefficient, self.element), ()), self.dims, self.sizes)
        last = tensors[-1]
        value = last.value
        if coefficient != 1:
            value = stablehlo.multiply(value, build.splat(value.type, coefficient))
        return repeated(Tensor(value, last.dims), self.dims, self.sizes)


def _number(number: float, element: ir.Type) -> ir.Value:
    return build.splat(ir.RankedTensorType.get([], element), number)
