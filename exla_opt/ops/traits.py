"""What kind of op each op is: one table, a row an op, asked by name.

A trait says what the op means or, where XLA's compilers agree, what it costs. What one compiler does with it is the
knowledge of `exla_opt.memory`.
"""

from __future__ import annotations

from enum import Flag, auto
from functools import cache

from jaxlib.mlir import ir


class Trait(Flag):
    """See each.

    POINTWISE: an element of the result comes from the elements at its place in the operands.
    MOVES: the result's elements are the operand's, moved, repeated or left out.
    REARRANGES: moves, and depends on no place: every element of the operand is there, in another shape or order.
    CUTS: moves, and reads no more of the first operand than it keeps.
    GENERATES: the result comes from no operand.
    VIEW: the result is always the operand's own buffer. What is one at times only, `views.is_view` says.
    FREE: the result costs nothing to have again: it repeats a smaller tensor, counts, or is one number.
    CHEAP: rather computed again where it is read than kept: it only generates, rearranges or converts.
    EXPENSIVE: many instructions an element, so that XLA computes it once where it can.
    SLOW: takes more than ten times as long as an addition, an element.
    CONTROL_FLOW: its regions hold blocks of ops.
    ORDERED: its order among its like is part of the program, whatever its operands.
    WITH_READER: where it would be the same in every trip XLA moves it out of a loop only with an op that reads it.
    NEW_BLOCK: its code begins a block of its own, after which nothing that was computed before is at hand.
    IN_PLACE: the results take the buffers of the first operands, one for one, where nobody reads those later.
    REDUCES: combines elements by a body of its own.
    SELECTS: every element of the result is an element of an operand, chosen by comparing them or by a predicate.
    COMPARES: the result says how its operands compare.
    STEPS: the result jumps at whole numbers.
    BITS: the result is the operand's bits, read as another type.
    CONTRACTS: multiplies and sums: a product of matrices in some form.
    COLLECTIVE: talks to other devices.
    LIBRARY: XLA runs it by a library or an algorithm of its own, and never as a part of a kernel that it writes.
    AT_ONCE: needs all of what it couples, whoever runs it: no kernel takes it by parts.
    APART: a library that writes its results into other buffers than it reads from.
    RANDOM: draws numbers.
    EXACT: rounds no real number, though it computes: the result has the same bits wherever it is computed.
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
    # What makes and moves elements.
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
    """The traits of an op by its full name, as in `stablehlo.add`; none for an op that the tables do not have."""
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
    """Whether an op has all of the traits that are asked for."""
    return trait in traits_of(op.name)
