"""Ops on elements: StableHLO's and CHLO's, of floats, complex numbers, integers and truth values."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from tests.fuzz import dtypes, emit
from tests.fuzz.builder import Builder, Value
from tests.fuzz.sources import exactly, like, repeated

# name: (what its operand is kept below, the size of its result, whether integers stay integers, where it jumps)
_UNARY: dict[str, tuple[float, float, bool, bool]] = {
    "stablehlo.sign": (inf, 1, True, True),
    "stablehlo.floor": (inf, inf, True, True),
    "stablehlo.ceil": (inf, inf, True, True),
    "stablehlo.round_nearest_even": (inf, inf, True, True),
    "stablehlo.round_nearest_afz": (inf, inf, True, True),
    "stablehlo.exponential": (3, 21, False, False),
    "stablehlo.exponential_minus_one": (3, 21, False, False),
    "stablehlo.logistic": (9, 1, False, False),
    "stablehlo.sine": (9, 1, False, False),
    "stablehlo.cosine": (9, 1, False, False),
    "stablehlo.tan": (1, 2, False, False),
    "stablehlo.tanh": (9, 1, False, False),
    "chlo.atan": (inf, 2, False, False),
    "chlo.asinh": (inf, 20, False, False),
    "chlo.erf": (9, 1, False, False),
    "chlo.erfc": (3, 2, False, False),
    "chlo.sinh": (3, 11, False, False),
    "chlo.cosh": (3, 11, False, False),
    "chlo.tan": (1, 2, False, False),
    "chlo.bessel_i1e": (9, 1, False, False),
}
# Of an operand that is positive and not near zero: one more than its magnitude.
_POSITIVE = ("log", "sqrt", "rsqrt", "cbrt", "chlo.lgamma", "chlo.digamma", "log_plus_one")
_COMPLEX = ("stablehlo.sine", "stablehlo.tanh", "stablehlo.logistic")


def unary(b: Builder, x: Value) -> list[Value]:
    """One op on one operand."""
    if x.dtype == "i1":
        return [emit.mapped(b, "stablehlo.not", [x], 1, integral=True)]
    if dtypes.is_integer(x.dtype):
        # XLA folds the leading zeros of a negative constant wrongly: it counts those of 64 bits.
        signed = not dtypes.is_unsigned(x.dtype)
        names = ["not", "popcnt", *(["abs", "negate", "sign"] if signed else ["count_leading_zeros"])]
        return [emit.mapped(b, f"stablehlo.{b.rng.choice(names)}", [x], inf)]
    if b.chance(0.25):
        return [emit.mapped(b, "stablehlo.negate", [x], x.size, integral=True)]
    if dtypes.is_complex(x.dtype):
        return [emit.mapped(b, b.rng.choice(_COMPLEX), [emit.tame(b, x, 1.0)], 3)]
    if b.chance(0.2):
        return [emit.mapped(b, "stablehlo.abs", [x], x.size, integral=True)]
    if b.chance(0.2):
        name = b.rng.choice(_POSITIVE)
        # Some gamma functions cancel: their errors are larger than those of their operand make them.
        x = exactly(b, x) if "gamma" in name else x
        one = b.splat(x.shape, x.dtype, 1)
        x = emit.binary(b, "add", emit.mapped(b, "stablehlo.abs", [x], x.size, integral=True), one)
        return [emit.mapped(b, name if "." in name else f"stablehlo.{name}", [x], max(x.size, 4))]
    name, (limit, size, whole, jumps) = b.rng.choice(list(_UNARY.items()))
    x = emit.tame(b, exactly(b, x) if jumps else x, limit)
    made = emit.mapped(b, name, [x], min(size, x.size) if whole else size, integral=whole)
    # XLA:CPU rounds an error function by what it is fused with.
    return [replace(made, exact=made.exact and "erf" not in name)]


def binary(b: Builder, x: Value) -> list[Value]:
    """One op on two operands, in either order."""
    y = like(b, x)
    if b.chance(0.5):
        x, y = y, x
    if x.dtype == "i1":
        return [emit.binary(b, b.rng.choice(("and", "or", "xor")), x, y)]
    names = ["add", "subtract", "multiply"]
    if not dtypes.is_complex(x.dtype):
        names += ["maximum", "minimum"]
    if dtypes.is_integer(x.dtype):
        names += ["and", "or", "xor", "divide", "remainder", "shift_left", "shift_right_logical"]
        names += ["shift_right_arithmetic", "power"]
    name = b.rng.choice(names)
    if name in ("divide", "remainder"):
        # By zero is not defined, and XLA dies of a constant divided so.
        y = emit.binary(b, "or", y, b.splat(y.shape, y.dtype, 1))
    if name in ("divide", "remainder", "shift_left", "shift_right_logical", "shift_right_arithmetic", "power"):
        return [emit.mapped(b, f"stablehlo.{name}", [x, y], inf)]
    return [emit.binary(b, name, x, y)]


def quotient(b: Builder, x: Value) -> list[Value]:
    """A float divided by another that is not near zero, or a power, an angle, a remainder."""
    if not dtypes.is_float(x.dtype):
        return binary(b, x)
    y = like(b, x)
    one = b.splat(x.shape, x.dtype, 1)
    below = emit.binary(b, "add", emit.mapped(b, "stablehlo.abs", [y], y.size, integral=True), one)
    choice = b.rng.randrange(5)
    if choice == 0:
        return [emit.mapped(b, "stablehlo.power", [emit.tame(b, below, 4), emit.tame(b, x, 2)], 16)]
    if choice == 1:
        return [emit.mapped(b, "stablehlo.atan2", [x, below], 4)]
    if choice == 2:
        return [emit.mapped(b, "stablehlo.remainder", [exactly(b, x), exactly(b, below)], below.size, integral=True)]
    if choice == 3:
        squared = emit.tame(b, x, 16)
        return [emit.mapped(b, "stablehlo.power", [squared, b.splat(x.shape, x.dtype, 2)], squared.size**2)]
    return [emit.mapped(b, "stablehlo.divide", [x, below], x.size)]


def mask(b: Builder, x: Value) -> list[Value]:
    """A comparison, alone or to select by."""
    x = exactly(b, x)
    if dtypes.is_complex(x.dtype):
        return []
    held = emit.compare(b, x, like(b, x, exact=True), b.rng.choice(("EQ", "NE", "LT", "LE", "GT", "GE")))
    if b.chance(0.3):
        return [held]
    return [emit.select(b, held, x, like(b, x)), held]


def chosen(b: Builder, x: Value) -> list[Value]:
    """select by a scalar or by a mask that is repeated; clamp by scalars or tensors."""
    if b.chance(0.5) and not dtypes.is_complex(x.dtype) and x.dtype != "i1":
        low, high = (b.scalar(x.dtype, 0), b.scalar(x.dtype, 1)) if b.chance(0.5) else (like(b, x), like(b, x))
        if low.rank == 0:
            low = b.scalar(x.dtype, 0)
        operands = [low, x, high]
        [name] = b.op("stablehlo.clamp", operands, [x.type])
        exact = all(v.exact for v in operands)
        return [Value(name, *x.type, exact, all(v.integral for v in operands), max(v.size for v in operands))]
    shape = () if b.chance(0.3) else x.shape
    return [emit.select(b, repeated(b, shape, "i1"), x, like(b, x))]


def cast(b: Builder, x: Value) -> list[Value]:
    """Another element type, and sometimes back."""
    dtype = b.rng.choice(("f32", "f64", "f16", "bf16", "i32", "i8", "ui8", "i64", "i1", "f8E4M3FN", "i16", "ui32"))
    if dtype == "i1":
        return []
    y = emit.convert(b, exactly(b, x) if not dtypes.is_inexact(dtype) else x, dtype)
    if dtypes.is_integer(y.dtype) and b.chance(0.4):
        return [emit.convert(b, y, b.rng.choice(("i8", "ui8", "i16", "i64", "f32", "f64", "bf16"))), y]
    if b.chance(0.4) and not (dtypes.is_inexact(y.dtype) and dtypes.is_integer(x.dtype)):
        return [emit.convert(b, y, x.dtype), y] if dtypes.is_inexact(x.dtype) else [y]
    return [y]


def parts(b: Builder, x: Value) -> list[Value]:
    """A complex number from floats, or its parts and magnitude."""
    if x.dtype in ("f32", "f64"):
        y = like(b, x)
        dtype = f"complex<{x.dtype}>"
        [name] = b.op("stablehlo.complex", [x, y], [(x.shape, dtype)])
        return [Value(name, x.shape, dtype, x.exact and y.exact, x.integral and y.integral, max(x.size, y.size))]
    if not dtypes.is_complex(x.dtype):
        return []
    kind = (x.shape, dtypes.part_of(x.dtype))
    name = b.rng.choice(("real", "imag", "abs"))
    [result] = b.op(f"stablehlo.{name}", [x], [kind])
    return [Value(result, *kind, x.exact, x.integral and name != "abs", 2 * x.size)]


def special(b: Builder, x: Value) -> list[Value]:
    """CHLO's ops that broadcast, find infinities, square, and follow numbers; a map with a body; a barrier."""
    choice = b.rng.randrange(7)
    if choice == 0 and dtypes.is_inexact(x.dtype) and not dtypes.is_complex(x.dtype):
        name = b.rng.choice(("chlo.is_inf", "chlo.is_neg_inf", "chlo.is_pos_inf", "stablehlo.is_finite"))
        x = exactly(b, x)
        [result] = b.op(name, [x], [(x.shape, "i1")])
        return [Value(result, x.shape, "i1", x.exact, True, 1)]
    if choice == 1 and dtypes.is_float(x.dtype):
        x = emit.tame(b, x, dtypes.tame_limit(x.dtype) ** 0.5 / 2)
        return [emit.mapped(b, "chlo.square", [x], x.size**2, integral=True)]
    if choice == 2 and x.rank and x.dtype != "i1":
        y = repeated(b, x.shape[b.rng.randrange(x.rank) :], x.dtype)
        limit = dtypes.tame_limit(x.dtype) ** 0.5 / 2
        x, y = emit.tame(b, x, limit), emit.tame(b, y, limit)
        name = b.rng.choice(("add", "multiply", "subtract"))
        operands = [x, y] if b.chance(0.5) else [y, x]
        [result] = b.op(f"chlo.broadcast_{name}", operands, [x.type])
        size = (x.size + y.size) if name != "multiply" else 2 * x.size * y.size
        whole = x.integral and y.integral and size <= dtypes.exact_limit(x.dtype)
        return [Value(result, *x.type, x.exact and y.exact, whole, size)]
    if choice == 3 and x.rank and x.dtype != "i1" and not dtypes.is_complex(x.dtype):
        y = like(b, x)
        attributes = f"dimensions = {emit.list_of(range(x.rank))}"
        name = b.rng.choice(("maximum", "minimum"))
        [result] = b.op("stablehlo.map", [x, y], [x.type], attributes, [emit.body(b, name, x.dtype)])
        return [Value(result, *x.type, x.exact and y.exact, x.integral and y.integral, max(x.size, y.size))]
    if choice == 4:
        others = [x, *b.rng.sample(b.pool, min(len(b.pool), b.rng.randint(0, 2)))]
        names = b.op("stablehlo.optimization_barrier", others, [v.type for v in others])
        return [Value(n, *v.type, v.exact, v.integral, v.size) for n, v in zip(names, others, strict=True)]
    if choice == 5 and dtypes.is_float(x.dtype) and dtypes.bits_of(x.dtype) > 16:
        attributes = f"exponent_bits = {b.rng.choice((5, 8))} : i32, mantissa_bits = {b.rng.choice((3, 10))} : i32"
        [result] = b.op("stablehlo.reduce_precision", [emit.tame(b, x, 1000)], [x.type], attributes)
        return [Value(result, *x.type, x.exact, False, min(x.size, 1000) * 1.1)]
    return bitcast(b, x)


def bitcast(b: Builder, x: Value) -> list[Value]:
    """The same bits as integers of the same width, or of a narrower one in a new last dimension."""
    other = {"f32": "i32", "f64": "i64", "bf16": "i16", "i32": "ui32", "i16": "ui16"}.get(x.dtype)
    if other is None or not x.exact:
        return []
    b.bits_are_read = b.bits_are_read or dtypes.is_float(x.dtype)
    if dtypes.is_float(x.dtype):
        # The bits of a zero that is a sum show its sign, which is nobody's promise.
        x = emit.binary(b, "add", emit.mapped(b, "stablehlo.abs", [x], x.size, integral=True), b.splat(*x.type, 1))
    kind = (x.shape, other)
    if b.chance(0.4) and other in ("i32", "ui32") and b.fits((*x.shape, 2)):
        kind = ((*x.shape, 2), "i16")
    if b.floats and dtypes.is_float(x.dtype):
        return [b.splat(*kind, 0)]  # nobody looks at it
    [name] = b.op("stablehlo.bitcast_convert", [x], [kind])
    return [Value(name, *kind, x.exact, True, dtypes.exact_limit(kind[1]))]


MAPS = ((unary, 6), (binary, 8), (quotient, 2), (mask, 2), (chosen, 2), (cast, 2), (parts, 1), (special, 4))
