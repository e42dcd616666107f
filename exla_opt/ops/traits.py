"""Classifies ops: one table, a row per op, looked up by name.

A trait says what the op means or, if XLA's compilers agree, what it costs. Facts about a single compiler are in
`exla_opt.memory`.
"""

from __future__ import annotations

from enum import Flag, auto
from functools import cache

from jaxlib.mlir import ir


class Trait(Flag):
    """The traits of ops.

    POINTWISE: an element of the result depends on the elements at its position in the operands.
    MOVES: the result's elements are the operand's, moved, repeated or dropped.
    REARRANGES: moves, independently of positions: every element of the operand is kept, in another shape or order.
    CUTS: moves, and reads no more of the first operand than it keeps.
    GENERATES: the result depends on no operand.
    VIEW: the result is always the operand's own buffer. Ops that sometimes are views: see `views.is_view`.
    FREE: recomputing the result costs nothing: it broadcasts a smaller tensor, is an iota, or is one number.
    CHEAP: better recomputed where it is read than kept: it only generates, rearranges or converts.
    EXPENSIVE: many instructions per element, so that XLA computes it once if it can.
    SLOW: takes more than ten times as long as an addition, per element.
    CONTROL_FLOW: its regions hold blocks of ops.
    ORDERED: its order among such ops is part of the program, whatever its operands.
    WITH_READER: if loop-invariant, XLA moves it out of a loop only together with an op that reads it.
    NEW_BLOCK: its code begins a new basic block, in which no earlier values are available.
    IN_PLACE: the results reuse the buffers of the first operands, one for one, if nothing reads those later.
    REDUCES: combines elements by a body of its own.
    SELECTS: every element of the result is an element of an operand, selected by comparison or by a predicate.
    COMPARES: the result says how its operands compare.
    STEPS: the result jumps at integers.
    BITS: the result is the operand's bits, read as another type.
    CONTRACTS: multiplies and sums: a product of matrices in some form.
    COLLECTIVE: communicates with other devices.
    LIBRARY: XLA runs it by a library or an algorithm of its own, and never as a part of a generated kernel.
    AT_ONCE: needs all of the elements that it couples: no kernel processes it in parts.
    APART: a library that writes its results into other buffers than it reads from.
    RANDOM: draws numbers.
    EXACT: does not round real numbers, though it computes: the result has the same bits wherever it is computed.
    """

    POINTWISE = auto()
    MOVES = auto()
    REARRANGES = auto()
    CUTS = auto()
    GENERATES = auto()
    VIEW = auto()
    FREE = auto()
    CHEAP = auto()
    EXPENSIVE = auto()
    SLOW = auto()
    CONTROL_FLOW = auto()
    ORDERED = auto()
    WITH_READER = auto()
    NEW_BLOCK = auto()
    IN_PLACE = auto()
    REDUCES = auto()
    SELECTS = auto()
    COMPARES = auto()
    STEPS = auto()
    BITS = auto()
    CONTRACTS = auto()
    COLLECTIVE = auto()
    LIBRARY = auto()
    AT_ONCE = auto()
    APART = auto()
    RANDOM = auto()
    EXACT = auto()

    # There is one object for each value. Enum's own method hashes its name, in Python: caches are asked all the time.
    __hash__ = object.__hash__


_NONE = Trait(0)
_P = Trait.POINTWISE
_PX = _P | Trait.EXPENSIVE
_PXS = _PX | Trait.SLOW
_M = Trait.MOVES
_MR = _M | Trait.REARRANGES | Trait.CHEAP
_G = Trait.GENERATES | Trait.FREE | Trait.CHEAP | Trait.WITH_READER

# By names without the dialect.
STABLEHLO: dict[str, Trait] = {
    # Elementwise, cheap.
    **dict.fromkeys(
        (
            "add and complex count_leading_zeros imag map multiply not or popcnt real reduce_precision "
            "round_nearest_afz round_nearest_even shift_left shift_right_arithmetic shift_right_logical subtract xor"
        ).split(),
        _P,
    ),
    **dict.fromkeys("abs is_finite negate".split(), _P | Trait.EXACT),
    **dict.fromkeys("clamp maximum minimum select".split(), _P | Trait.SELECTS),
    **dict.fromkeys("ceil floor".split(), _P | Trait.STEPS),
    "bitcast_convert": _P | Trait.BITS | Trait.EXACT,
    "compare": _P | Trait.COMPARES,
    "convert": _P | Trait.CHEAP,
    "sign": _P | Trait.COMPARES,
    # Elementwise, expensive.
    **dict.fromkeys("cbrt exponential_minus_one log_plus_one remainder tan".split(), _PX),
    **dict.fromkeys("atan2 cosine divide exponential log logistic power rsqrt sine sqrt tanh".split(), _PXS),
    # Creating and moving elements.
    "broadcast_in_dim": _MR | Trait.FREE | Trait.WITH_READER,
    "constant": _G,
    "iota": _M | _G,
    "concatenate": _M | Trait.NEW_BLOCK,
    "dynamic_slice": _M | Trait.CUTS,
    "dynamic_update_slice": _M | Trait.IN_PLACE | Trait.NEW_BLOCK,
    "gather": _M | Trait.CUTS | Trait.EXPENSIVE,
    "pad": _M | Trait.NEW_BLOCK,
    "reshape": _MR | Trait.VIEW,
    "reverse": _M | Trait.WITH_READER,
    "scatter": Trait.IN_PLACE,
    "slice": _M | Trait.CUTS | Trait.WITH_READER,
    "transpose": _MR | Trait.WITH_READER,
    # Sums, orders, products.
    "convolution": Trait.CONTRACTS,
    "dot": Trait.CONTRACTS,
    "dot_general": Trait.CONTRACTS,
    "einsum": Trait.CONTRACTS,
    "reduce": Trait.REDUCES | Trait.EXPENSIVE | Trait.NEW_BLOCK,
    "reduce_window": Trait.REDUCES | Trait.NEW_BLOCK,
    "cholesky": Trait.AT_ONCE,
    "custom_call": Trait.LIBRARY | Trait.AT_ONCE,
    "fft": Trait.LIBRARY | Trait.AT_ONCE | Trait.APART,
    "sort": Trait.SELECTS | Trait.LIBRARY | Trait.AT_ONCE,
    "triangular_solve": Trait.AT_ONCE,
    # Control flow, other devices, random numbers, the outside.
    "case": Trait.CONTROL_FLOW,
    "if": Trait.CONTROL_FLOW,
    "while": Trait.CONTROL_FLOW | Trait.IN_PLACE,
    **dict.fromkeys(
        (
            "all_gather all_reduce all_to_all collective_broadcast collective_permute cross-replica-sum reduce_scatter"
        ).split(),
        Trait.COLLECTIVE,
    ),
    "rng": Trait.RANDOM | Trait.ORDERED,
    "rng_bit_generator": Trait.RANDOM | Trait.ORDERED,
    **dict.fromkeys("infeed outfeed recv send".split(), Trait.ORDERED),
}
CHLO: dict[str, Trait] = {
    **dict.fromkeys(
        "_asin_acos_kernel conj constant_like is_inf is_neg_inf is_pos_inf mulhi next_after square".split(), _P
    ),
    **dict.fromkeys(
        ("acos acosh asin asinh atan atanh bessel_i1e cosh digamma erf_inv lgamma polygamma sinh tan zeta").split(),
        _PX,
    ),
    **dict.fromkeys("erf erfc".split(), _PXS),
    "constant": _G,
    "top_k": Trait.SELECTS | Trait.LIBRARY | Trait.AT_ONCE,
}
_BROADCASTING = "broadcast_"


@cache
def traits_of(name: str) -> Trait:
    """The traits of an op by its full name, as in `stablehlo.add`; none for an unknown op."""
    dialect, _, short = name.partition(".")
    if dialect == "stablehlo":
        return STABLEHLO.get(short, _NONE)
    if dialect != "chlo":
        return _NONE
    if short.startswith(_BROADCASTING):
        plain = short.removeprefix(_BROADCASTING)
        return STABLEHLO.get(plain, CHLO.get(plain, _NONE))
    return CHLO.get(short, _NONE)


def has_trait(op: ir.Operation, trait: Trait) -> bool:
    """Whether an op has all of these traits."""
    return trait in traits_of(op.name)
