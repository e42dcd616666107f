"""What kind of op each op is: one table, a row an op, asked by name.

A trait says what the op means or, where XLA's compilers agree, what it costs. What one compiler does with it is the
knowledge of `exla_opt.memory`.
"""

from __future__ import annotations

from enum import Flag, auto

from jaxlib.mlir import ir


class Trait(Flag):
    """See each.

    POINTWISE: an element of the result comes from the elements at its place in the operands.
    MOVES: the result's elements are the operand's, moved, repeated or left out.
    FREE: the result costs nothing to have again: it repeats a smaller tensor, counts, or is one number.
    EXPENSIVE: many instructions an element, so that XLA computes it once where it can.
    CONTROL_FLOW: its regions hold blocks of ops.
    ORDERED: its order among its like is part of the program, whatever its operands.
    IN_PLACE: the result takes the buffer of operand 0 where nobody reads that later.
    SELECTS: every element of the result is an element of the operand, chosen by comparing them.
    COMPARES: the result says how its operands compare.
    CONTRACTS: multiplies and sums: a product of matrices in some form.
    COLLECTIVE: talks to other devices.
    RANDOM: draws numbers.
    """

    POINTWISE = auto()
    MOVES = auto()
    FREE = auto()
    EXPENSIVE = auto()
    CONTROL_FLOW = auto()
    ORDERED = auto()
    IN_PLACE = auto()
    SELECTS = auto()
    COMPARES = auto()
    CONTRACTS = auto()
    COLLECTIVE = auto()
    RANDOM = auto()


_NONE = Trait(0)
_P, _PX = Trait.POINTWISE, Trait.POINTWISE | Trait.EXPENSIVE
_M, _MF = Trait.MOVES, Trait.MOVES | Trait.FREE

_TABLE: dict[str, Trait] = {
    # Elementwise, cheap.
    **dict.fromkeys(
        (
            "abs add and bitcast_convert ceil clamp complex convert count_leading_zeros floor imag is_finite map "
            "maximum minimum multiply negate not or popcnt real reduce_precision round_nearest_afz round_nearest_even "
            "select shift_left shift_right_arithmetic shift_right_logical subtract xor"
        ).split(),
        _P,
    ),
    "compare": _P | Trait.COMPARES,
    "sign": _P | Trait.COMPARES,
    # Elementwise, expensive.
    **dict.fromkeys(
        (
            "atan2 cbrt cosine divide exponential exponential_minus_one log log_plus_one logistic power remainder "
            "rsqrt sine sqrt tan tanh"
        ).split(),
        _PX,
    ),
    # What moves elements.
    "broadcast_in_dim": _MF,
    "constant": Trait.FREE,
    "iota": _MF,
    "concatenate": _M,
    "dynamic_slice": _M,
    "dynamic_update_slice": _M | Trait.IN_PLACE,
    "gather": _M | Trait.EXPENSIVE,
    "pad": _M,
    "reshape": _M,
    "reverse": _M,
    "scatter": Trait.IN_PLACE,
    "slice": _M,
    "transpose": _M,
    # Sums, orders, products.
    "convolution": Trait.CONTRACTS,
    "dot": Trait.CONTRACTS,
    "dot_general": Trait.CONTRACTS,
    "einsum": Trait.CONTRACTS,
    "reduce": Trait.EXPENSIVE,
    "sort": Trait.SELECTS,
    # Control flow, other devices, random numbers, the outside.
    "case": Trait.CONTROL_FLOW,
    "if": Trait.CONTROL_FLOW,
    "while": Trait.CONTROL_FLOW,
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
_CHLO: dict[str, Trait] = {
    **dict.fromkeys(
        "_asin_acos_kernel conj constant_like is_inf is_neg_inf is_pos_inf mulhi next_after square".split(), _P
    ),
    **dict.fromkeys(
        (
            "acos acosh asin asinh atan atanh bessel_i1e cosh digamma erf erf_inv erfc lgamma polygamma sinh tan zeta"
        ).split(),
        _PX,
    ),
    "constant": Trait.FREE,
    "top_k": Trait.SELECTS,
}
_BROADCASTING = "broadcast_"


def traits_of(name: str) -> Trait:
    """The traits of an op by its full name, as in `stablehlo.add`; none for an op that the table does not have."""
    dialect, _, short = name.partition(".")
    if dialect == "stablehlo":
        return _TABLE.get(short, _NONE)
    if dialect != "chlo":
        return _NONE
    if short.startswith(_BROADCASTING):
        plain = short.removeprefix(_BROADCASTING)
        return _TABLE.get(plain, _CHLO.get(plain, _NONE))
    return _CHLO.get(short, _NONE)


def has_trait(op: ir.Operation, trait: Trait) -> bool:
    """Whether an op has all of the traits that are asked for."""
    return trait in traits_of(op.name)
