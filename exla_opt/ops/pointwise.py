"""Ops that treat every element alike: their names, and rules for those for which Shardy has none."""

from __future__ import annotations

from collections.abc import Hashable

from jaxlib.mlir import ir

from exla_opt.ir.attributes import integers, is_splat

from .factor import Einsum, Factor, Shape, Shapes, factors_of, numbered

# One element, or pairs of elements, at a time.
STABLEHLO_POINTWISE = frozenset(
    "stablehlo." + name
    for name in (
        "abs add and atan2 cbrt ceil clamp compare complex convert cosine count_leading_zeros divide exponential "
        "exponential_minus_one floor imag is_finite log log_plus_one logistic maximum minimum multiply negate not or "
        "popcnt power real reduce_precision remainder round_nearest_afz round_nearest_even rsqrt select shift_left "
        "shift_right_arithmetic shift_right_logical sign sine sqrt subtract tan tanh xor"
    ).split()
)
# The broadcasting ops are apart: their operands may have other ranks.
CHLO_POINTWISE = frozenset(
    "chlo." + name
    for name in (
        "acos acosh asin asinh atan atanh bessel_i1e conj cosh digamma erf erf_inv erfc lgamma sinh square tan is_inf "
        "is_neg_inf is_pos_inf next_after polygamma zeta mulhi _asin_acos_kernel constant_like"
    ).split()
)
CHLO_BROADCASTING = frozenset(
    "chlo.broadcast_" + name
    for name in (
        "add and atan2 compare complex divide maximum minimum multiply next_after or polygamma power remainder select "
        "shift_left shift_right_arithmetic shift_right_logical subtract xor zeta"
    ).split()
)


def pointwise(_: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """`([i,j],[i,j])->([i,j])`; a scalar operand stays whole."""
    return factors_of(Einsum([numbered(s) for s in shapes.operands], [numbered(s) for s in shapes.results]), shapes)


def mapped(op: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """stablehlo.map: pointwise, for its body sees one element of each operand."""
    return pointwise(op, shapes)


def barrier(op: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """optimization_barrier: pointwise with one operand; with more, no factor is in all results."""
    return pointwise(op, shapes) if len(shapes.operands) == 1 else ()


def _aligned(shape: Shape, rank: int) -> list[list[Hashable]]:
    """Letters counted from the right, as numpy broadcasts; a stretched dimension of 1 gets a letter of its own."""
    shift = rank - len(shape)
    return [[dim + shift] if size > 1 else [("unit", dim)] for dim, size in enumerate(shape)]


def broadcasting(op: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """`([i,j],[j])->([i,j])` by numpy's alignment; another alignment than that has no rule, and XLA refuses it."""
    rank = len(shapes.results[0])
    low = min(len(shape) for shape in shapes.operands)
    expected = list(range(rank - low, rank))
    if integers(op, "broadcast_dimensions", expected) != expected:
        return ()
    einsum = Einsum([_aligned(s, rank) for s in shapes.operands], [numbered(s) for s in shapes.results])
    return factors_of(einsum, shapes)


def constant(op: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """`()->([i,j])` for one value everywhere. Other constants are read in slices from outside."""
    if not is_splat(op):
        return ()
    return factors_of(Einsum([], [numbered(shapes.results[0])]), shapes, makes=True)


def iota(_: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """`()->([i,j])`; along its own dimension a slice is shifted by where it begins."""
    return factors_of(Einsum([], [numbered(shapes.results[0])]), shapes, makes=True)
