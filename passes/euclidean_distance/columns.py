"""Sums of a gradient column by column, if float64 is slow: nothing is expanded, and so nothing cancels.

sum_j w[i,j] (a[i,k] - b[j,k])   ->   [sum_j w[i,j] (a[i,0] - b[j,0]), sum_j w[i,j] (a[i,1] - b[j,1]), ...]
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.types import float_bits
from exla_opt.passes.algebra.contract import Tensor, repeated, summed

from .candidates import Candidate

_SINGLE = 32
# With this many numbers per weight of a gradient, it is computed in float64, or one number after another.
_FEW_FOR_A_WEIGHT = 32


def wide_element(element: ir.Type, candidate: Candidate, doubles: bool) -> ir.Type:
    """The type to compute in: expanded products cancel where the difference did not.

    doubles: whether float64 is fast. bfloat16 is summed in float32. A gradient's sums of float32 are computed in
    float64 if there are few numbers for each weight: then that is cheap, and the result as exact as before. Squares are
    not: there is one for each pair.
    """
    bits = float_bits(element)
    if bits == 0 or bits > _SINGLE:
        return element
    if bits < _SINGLE:
        return build.wide_float()
    return ir.F64Type.get() if doubles and _has_few_for_a_weight(candidate) else element


def columns_of(candidate: Candidate, doubles: bool) -> tuple[int, ...]:
    """The dimensions whose few indices are processed one by one.

    doubles: whether float64 is fast; if not, that is done in float32 where it gains digits.
    """
    if candidate.columns or not _cancels_in_singles(candidate, doubles):
        return candidate.columns
    return tuple(sorted(candidate.sum.space - _longest(candidate)))


def is_added_one_by_one(candidate: Candidate, doubles: bool) -> bool:
    """Whether a sum of few terms is added term by term: a short one, or one that would cancel in float32."""
    if candidate.short or not _cancels_in_singles(candidate, doubles):
        return candidate.short
    return _longest(candidate) == {*candidate.sum.output}


def _cancels_in_singles(candidate: Candidate, doubles: bool) -> bool:
    """Whether it would be expanded in float64, if that were fast, and the difference is lost in float32."""
    single = float_bits(build.tensor_of(candidate.root.results[0]).element_type) == _SINGLE
    differs = any(term.differences for part in candidate.parts for term in part.terms)
    return not doubles and single and differs and _has_few_for_a_weight(candidate)


def _longest(candidate: Candidate) -> set[int]:
    """The two longest dimensions: for each of their pairs there are few numbers."""
    sizes = candidate.sum.sizes
    return set(sorted(sizes, key=lambda dim: (sizes[dim], dim))[-2:])


def _has_few_for_a_weight(candidate: Candidate) -> bool:
    if any(part.square is not None for part in candidate.parts):
        return False
    sizes = sorted(candidate.sum.sizes.values())
    return prod(sizes) <= _FEW_FOR_A_WEIGHT * prod(sizes[-2:])


def by_column(candidate: Candidate, columns: tuple[int, ...], at: Callable[[dict[int, int]], Tensor]) -> ir.Value:
    """The candidate's sum. at: computes the formula at single indices of some dimensions.

    Columns that the result lacks are added last.
    """
    sizes, output = candidate.sum.sizes, candidate.sum.output
    others = sorted(candidate.sum.space - {*columns})
    kept = [dim for dim in others if dim in output]
    # The formula may be of narrower numbers, which only the sum widens.
    element = build.tensor_of(candidate.root.results[0]).element_type

    def column(indices: tuple[int, ...]) -> ir.Value:
        terms = build.convert(repeated(at(dict(zip(columns, indices, strict=True))), others, sizes), element)
        total = summed(Tensor(terms, tuple(others)), output).value
        kind = build.with_shape(build.tensor_of(total), [*(sizes[dim] for dim in kept), 1])
        return stablehlo.reshape(kind, total)

    made = [column(indices) for indices in product(*(range(sizes[dim]) for dim in columns))]
    joined = stablehlo.concatenate(made, len(kept))
    dims = (*kept, *columns)
    kind = build.with_shape(build.tensor_of(joined), [sizes[dim] for dim in dims])
    value = joined if len(columns) == 1 else stablehlo.reshape(kind, joined)
    return repeated(summed(Tensor(value, dims), output), tuple(sorted(output)), sizes)
