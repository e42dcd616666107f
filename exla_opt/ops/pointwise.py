"""Ops that treat every element alike."""

from __future__ import annotations

from collections.abc import Hashable

from jaxlib.mlir import ir

from exla_opt.ir.attributes import integers

from .definition import BY_FACTORS, NONE, SAME_OP, ByShardy, OpDefinition
from .factor import Einsum, Factor, Shape, Shapes, factors_of, numbered

OPS: dict[str, OpDefinition] = {}

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
OPS |= dict.fromkeys(
    STABLEHLO_POINTWISE,
    OpDefinition(factors=ByShardy(), tile=SAME_OP, ties=BY_FACTORS, resize=NONE, combination=NONE, reason=""),
)


def pointwise_factors(_: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """`([i,j],[i,j])->([i,j])`; a scalar operand is not cut."""
    return factors_of(Einsum([numbered(s) for s in shapes.operands], [numbered(s) for s in shapes.results]), shapes)


_POINTWISE = OpDefinition(
    factors=pointwise_factors, tile=SAME_OP, ties=BY_FACTORS, resize=NONE, combination=NONE, reason=""
)
# Shardy has no rule for these. The broadcasting ones are listed separately: their operands may have other ranks.
OPS |= dict.fromkeys(
    (
        f"chlo.{name}"
        for name in (
            "acos acosh asin asinh atan atanh bessel_i1e conj cosh digamma erf erf_inv erfc lgamma sinh square tan "
            "is_inf is_neg_inf is_pos_inf next_after polygamma zeta mulhi _asin_acos_kernel constant_like"
        ).split()
    ),
    _POINTWISE,
)
# Its body sees one element of each operand.
OPS["stablehlo.map"] = _POINTWISE


def _aligned(shape: Shape, rank: int) -> list[list[Hashable]]:
    """Letters counted from the right, as numpy broadcasts; a stretched dimension of 1 gets a letter of its own."""
    shift = rank - len(shape)
    return [[dim + shift] if size > 1 else [("unit", dim)] for dim, size in enumerate(shape)]


def _broadcasting_factors(op: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """`([i,j],[j])->([i,j])` by numpy's alignment; other alignments have no rule, and XLA refuses them."""
    rank = len(shapes.results[0])
    low = min(len(shape) for shape in shapes.operands)
    expected = list(range(rank - low, rank))
    if integers(op, "broadcast_dimensions", expected) != expected:
        return ()
    einsum = Einsum([_aligned(s, rank) for s in shapes.operands], [numbered(s) for s in shapes.results])
    return factors_of(einsum, shapes)


OPS |= dict.fromkeys(
    (
        f"chlo.broadcast_{name}"
        for name in (
            "add and atan2 compare complex divide maximum minimum multiply next_after or polygamma power remainder "
            "select shift_left shift_right_arithmetic shift_right_logical subtract xor zeta"
        ).split()
    ),
    OpDefinition(
        factors=_broadcasting_factors, tile=SAME_OP, ties=BY_FACTORS, resize=NONE, combination=NONE, reason=""
    ),
)

# Shardy's rule handles the last dimension if the element types differ in width.
OPS["stablehlo.bitcast_convert"] = OpDefinition(
    factors=ByShardy(), tile=SAME_OP, ties=BY_FACTORS, resize=NONE, combination=NONE, reason=""
)
