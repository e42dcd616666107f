"""Writes a sum over an existing product."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.types import element_type, float_bits
from exla_opt.passes.algebra.contract import Tensor, repeated, squeezed, summed
from exla_opt.passes.algebra.formula import Factor

from .match import Match


def write(match: Match, ops: Sequence[ir.Operation], positions: Mapping[ir.Value, int]) -> None:
    """Write the new sum as soon as the last of its factors exists: the two long ones first, then the others.

    ops: of the block. positions: of their results. This early, nothing is kept for a later sum.
    """
    op, sizes = match.sum.op, match.sum.formula.sizes
    result = op.results[0]
    used = (match.known.op.results[0], *(factor.value for factor in match.left))
    last = ops[max(positions.get(value, 0) for value in used)]
    with op.location, ir.InsertionPoint.after(last):
        # Sums of narrow floats are kept in f32, as in XLA and JAX.
        kind = element_type(result) if float_bits(element_type(result)) > 32 else build.wide_float()
        operand = match.sum.operand
        value = _product(_tensor(Factor(match.known.op.results[0], match.place), kind), _tensor(operand, kind), sizes)
        others = {factor: power - (factor == operand) for factor, power in match.left.items()}
        needed = match.sum.output.union(*(_tensor_letters(factor) for factor, power in others.items() if power))
        value = summed(value, needed)
        for factor, power in others.items():
            for _ in range(abs(power)):
                value = _product(value, _tensor(factor, kind), sizes, divided=power < 0)
        value = summed(value, match.sum.output)
        if match.coefficient != 1:
            number = build.splat(value.value.type, match.coefficient)
            value = Tensor(stablehlo.multiply(value.value, number), value.dims)
        order = [letter for letter in match.sum.place if letter is not None]
        written = build.convert(repeated(value, order, sizes), element_type(result))
        if written.type != result.type:
            written = stablehlo.reshape(result.type, written)
        result.replace_all_uses_with(written)


def _tensor(factor: Factor, kind: ir.Type) -> Tensor:
    tensor = squeezed(factor.value, factor.place)
    return Tensor(build.convert(tensor.value, kind), tensor.dims)


def _tensor_letters(factor: Factor) -> frozenset[int]:
    return frozenset(letter for letter in factor.place if letter is not None)


def _product(one: Tensor, other: Tensor, sizes: dict[int, int], *, divided: bool = False) -> Tensor:
    dims = tuple(sorted({*one.dims, *other.dims}))
    write_op = stablehlo.divide if divided else stablehlo.multiply
    return Tensor(write_op(repeated(one, dims, sizes), repeated(other, dims, sizes)), dims)
