"""Writes single ops, and says of their results whether they are exact, integral, and how large."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf, prod

from tests.fuzz import dtypes
from tests.fuzz.bodies import body as body
from tests.fuzz.builder import Builder, Shape, Type, Value

IDENTITIES: dict[str, float] = {
    "add": 0,
    "multiply": 1,
    "maximum": -inf,
    "minimum": inf,
    "and": -1,
    "or": 0,
    "xor": 0,
}


def shown(b: Builder, name: str, operands: Sequence[Value], kind: Type, attributes: str = "") -> Value:
    """An op that moves or copies the elements of its first operand, or makes nothing of them that is not exact."""
    [result] = b.op(name, operands, [kind], attributes)
    first = operands[0]
    return Value(result, *kind, first.exact, first.integral, first.size)


def mapped(
    b: Builder, name: str, operands: Sequence[Value], size: float, *, integral: bool = False, attributes: str = ""
) -> Value:
    """An elementwise op whose result has the type of its first operand. size: of the result."""
    [result] = b.op(name, operands, [operands[0].type], attributes)
    return _mapped(result, operands, operands[0].type, size, integral)


def _mapped(name: str, operands: Sequence[Value], kind: Type, size: float, integral: bool) -> Value:
    dtype = kind[1]
    exact = all(operand.exact for operand in operands)
    if dtypes.is_inexact(dtype):
        integral = integral and all(operand.integral for operand in operands) and size <= dtypes.exact_limit(dtype)
        return Value(name, *kind, exact, integral, size)
    return Value(name, *kind, exact, True, min(size, dtypes.exact_limit(dtype)))


def tame(b: Builder, x: Value, limit: float) -> Value:
    """x, clamped where it may be larger than `limit`; complex numbers are divided by a power of two."""
    if x.size <= limit or not dtypes.is_inexact(x.dtype):
        return x
    if dtypes.is_complex(x.dtype):
        scale = 0.5
        while x.size * scale > limit:
            scale /= 2
        return mapped(b, "stablehlo.multiply", [x, b.splat(x.shape, x.dtype, scale)], x.size * scale)
    bound = float(int(limit)) if limit >= 1 else limit
    [name] = b.op("stablehlo.clamp", [b.scalar(x.dtype, -bound), x, b.scalar(x.dtype, bound)], [x.type])
    return Value(name, *x.type, x.exact, x.integral and bound >= 1, bound)


def binary(b: Builder, name: str, x: Value, y: Value) -> Value:
    """add, subtract, multiply, maximum, minimum, and, or, xor of two values of one type."""
    dtype = x.dtype
    limit = dtypes.tame_limit(dtype)
    if name == "multiply":
        x, y = tame(b, x, limit**0.5 / 2), tame(b, y, limit**0.5 / 2)
        size = x.size * y.size * (2 if dtypes.is_complex(dtype) else 1)
    elif name in ("add", "subtract"):
        x, y = tame(b, x, limit / 2), tame(b, y, limit / 2)
        size = x.size + y.size
        if name == "subtract" and dtypes.is_unsigned(dtype):
            size = inf
    elif name in ("and", "or", "xor"):
        size = inf
    else:
        size = max(x.size, y.size)
    return mapped(b, f"stablehlo.{name}", [x, y], size, integral=True)


def compare(b: Builder, x: Value, y: Value, direction: str) -> Value:
    """Which elements of x are EQ, NE, LT, LE, GT or GE those of y. Both must be exact."""
    kind = "FLOAT" if dtypes.is_inexact(x.dtype) else "SIGNED"
    if dtypes.is_unsigned(x.dtype) or x.dtype == "i1":
        kind = "UNSIGNED"
    attributes = (
        f"comparison_direction = #stablehlo<comparison_direction {direction}>, "
        f"compare_type = #stablehlo<comparison_type {kind}>"
    )
    [name] = b.op("stablehlo.compare", [x, y], [(x.shape, "i1")], attributes)
    return Value(name, x.shape, "i1", x.exact and y.exact, True, 1)


def select(b: Builder, condition: Value, x: Value, y: Value) -> Value:
    """x where the condition holds, else y."""
    [name] = b.op("stablehlo.select", [condition, x, y], [x.type])
    exact = condition.exact and x.exact and y.exact
    return Value(name, *x.type, exact, x.integral and y.integral, max(x.size, y.size))


def convert(b: Builder, x: Value, dtype: str) -> Value:
    """x in another element type. To integers it must be exact, and is clamped to what they hold."""
    if dtype == x.dtype or dtypes.is_complex(x.dtype) and not dtypes.is_complex(dtype):
        return x
    if dtypes.is_inexact(dtype):
        x = tame(b, x, dtypes.tame_limit(dtype))
    elif dtypes.is_inexact(x.dtype):
        # Beyond the range, and of NaN, the result is the machine's choice.
        x = replace(tame(b, x, min(100.0, dtypes.exact_limit(dtype) - 1)), integral=True)
        if dtypes.is_unsigned(dtype):
            x = replace(mapped(b, "stablehlo.abs", [x], x.size, integral=True), integral=True)
    kind = (x.shape, dtype)
    [name] = b.op("stablehlo.convert", [x], [kind])
    return _mapped(name, [x], kind, x.size, True)


def broadcast(b: Builder, x: Value, shape: Shape, dims: Sequence[int]) -> Value:
    """x repeated along the dimensions that it has not; dims: where its own stand in `shape`."""
    attributes = f"broadcast_dimensions = {list_of(dims)}"
    return shown(b, "stablehlo.broadcast_in_dim", [x], (shape, x.dtype), attributes)


def reshape(b: Builder, x: Value, shape: Shape) -> Value:
    """x in another shape of as many elements."""
    assert prod(shape) == x.elements
    return shown(b, "stablehlo.reshape", [x], (shape, x.dtype))


def transpose(b: Builder, x: Value, order: Sequence[int]) -> Value:
    """x with its dimensions in another order."""
    shape = tuple(x.shape[dim] for dim in order)
    return shown(b, "stablehlo.transpose", [x], (shape, x.dtype), f"permutation = {list_of(order)}")


def iota(b: Builder, shape: Shape, dtype: str, dim: int) -> Value:
    """0, 1, ... along one dimension."""
    size = float(max(shape[dim] - 1, 1))
    [name] = b.op("stablehlo.iota", [], [(shape, dtype)], f"iota_dimension = {dim} : i64")
    if not dtypes.is_inexact(dtype):
        size = min(size, dtypes.exact_limit(dtype))
    return Value(name, shape, dtype, True, size <= dtypes.exact_limit(dtype), size)


def dense(b: Builder, shape: Shape, dtype: str, high: int = 0) -> Value:
    """A constant of different elements; high: indices up to there instead."""
    low, top = (-2, 3) if not dtypes.is_unsigned(dtype) else (0, 3)
    if dtype == "i1":
        low, top = 0, 1
    if high:
        top = min(high + 1, int(dtypes.exact_limit(dtype)) - 1)
    numbers = [dtypes.literal(b.element(dtype), b.rng.randint(low, top)) for _ in range(prod(shape))]

    def nest(shape: Shape, numbers: list[str]) -> str:
        if not shape:
            return numbers[0]
        step = len(numbers) // shape[0] if shape[0] else 0
        return "[" + ", ".join(nest(shape[1:], numbers[i * step : (i + 1) * step]) for i in range(shape[0])) + "]"

    text = nest(shape, numbers) if prod(shape) else ""
    [name] = b.op("stablehlo.constant", [], [(shape, dtype)], f"value = dense<{text}> : {b.spell((shape, dtype))}")
    return Value(name, shape, dtype, True, True, float(max(top, -low)))


def identity(b: Builder, name: str, dtype: str) -> Value:
    """The identity of a monoid, as a scalar."""
    number = IDENTITIES[name]
    if dtypes.is_integer(dtype) and abs(number) == inf:
        least, most = _range(dtype)
        number = most if number > 0 else least
    if name == "and" and dtypes.is_unsigned(dtype):
        number = _range(dtype)[1]
    value = b.scalar(dtype, number)
    return replace(value, integral=True, size=0.0 if number in (inf, -inf) else value.size)


def _range(dtype: str) -> tuple[int, int]:
    bits = dtypes.bits_of(dtype)
    return (0, 2**bits - 1) if dtypes.is_unsigned(dtype) else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def folded(b: Builder, name: str, x: Value, count: int) -> Value:
    """x, tamed so that `count` of its elements can be combined without overflow."""
    limit = dtypes.tame_limit(x.dtype)
    if name == "add":
        if x.integral and dtypes.is_inexact(x.dtype):
            limit = min(limit, dtypes.exact_limit(x.dtype))
        # Of 8 bits even a sum of ones overflows.
        least = 1.0 if dtypes.bits_of(x.dtype) > 8 else 0.0
        return tame(b, x, max(limit / max(count, 1), least))
    return tame(b, x, 1.0) if name == "multiply" else x


def combined(x: Value, name: str, count: int, extra: float, kind: Type, result: str) -> Value:
    """What is known of `count` elements of x combined, and of an init of magnitude `extra`."""
    dtype = kind[1]
    size = max(x.size, extra)
    if name == "add":
        size = x.size * count + extra
    if name == "multiply":
        size = max(extra, 1.0) if x.size <= 1 else inf
    if not dtypes.is_inexact(dtype):
        return Value(result, *kind, x.exact, True, min(size, dtypes.exact_limit(dtype)))
    fits = x.integral and size <= dtypes.exact_limit(dtype)
    exact = x.exact and (fits or name in ("maximum", "minimum") or count <= 1)
    return Value(result, *kind, exact, fits, size)


def reduce(b: Builder, x: Value, name: str, dims: Sequence[int], init: Value | None = None) -> Value:
    """x reduced over `dims` by one op, from its identity or from `init`."""
    count = prod(x.shape[dim] for dim in dims)
    if b.mesh is not None and name in ("and", "or", "xor") and x.dtype != "i1":
        name = "maximum"  # XLA:CPU combines no bits between devices
    x = folded(b, name, x, count)
    # How often the init of one element counts is left to the compiler; and XLA counts it on every device.
    is_counted = name in ("add", "multiply", "xor")
    if init is None or (is_counted and (count <= 1 or b.mesh is not None)):
        init = identity(b, name, x.dtype)
    kind = (tuple(size for dim, size in enumerate(x.shape) if dim not in dims), x.dtype)
    [result] = b.op("stablehlo.reduce", [x, init], [kind], f"dimensions = {list_of(dims)}", [body(b, name, x.dtype)])
    extra = init.size
    return combined(
        replace(x, exact=x.exact and init.exact, integral=x.integral and init.integral),
        name,
        count,
        extra,
        kind,
        result,
    )


def dot(
    b: Builder,
    x: Value,
    y: Value,
    batch: tuple[Sequence[int], Sequence[int]],
    contracted: tuple[Sequence[int], Sequence[int]],
    dtype: str = "",
) -> Value:
    """dot_general; dtype: of the result, that of the operands when ''."""
    dtype = dtype or x.dtype
    count = prod(x.shape[dim] for dim in contracted[0])
    limit = min(dtypes.tame_limit(dtype), dtypes.exact_limit(dtype) if x.integral and y.integral else inf)
    most = max(
        (limit / (max(count, 1) * (2 if dtypes.is_complex(dtype) else 1))) ** 0.5,
        1.0 if dtypes.bits_of(dtype) > 8 else 0.0,
    )
    x, y = tame(b, x, most), tame(b, y, most)
    free = [
        [size for dim, size in enumerate(v.shape) if dim not in (*batch[side], *contracted[side])]
        for side, v in enumerate((x, y))
    ]
    shape = (*[x.shape[dim] for dim in batch[0]], *free[0], *free[1])
    numbers = [
        f"lhs_batching_dimensions = [{join(batch[0])}]",
        f"rhs_batching_dimensions = [{join(batch[1])}]",
        f"lhs_contracting_dimensions = [{join(contracted[0])}]",
        f"rhs_contracting_dimensions = [{join(contracted[1])}]",
    ]
    attributes = f"dot_dimension_numbers = #stablehlo.dot<{', '.join(numbers)}>"
    if b.chance(0.2):
        precision = b.rng.choice(("HIGHEST", "HIGH", "DEFAULT"))
        attributes += f", precision_config = [{', '.join([f'#stablehlo<precision {precision}>'] * 2)}]"
    [name] = b.op("stablehlo.dot_general", [x, y], [(shape, dtype)], attributes)
    size = count * x.size * y.size * (2 if dtypes.is_complex(dtype) else 1)
    both = replace(x, exact=x.exact and y.exact, integral=x.integral and y.integral, size=size / max(count, 1))
    known = combined(both, "add", max(count, 2), 0.0, (shape, dtype), name)
    return replace(known, size=min(size, dtypes.exact_limit(dtype)) if not dtypes.is_inexact(dtype) else size)


def join(numbers: Sequence[int]) -> str:
    """Numbers as they stand in a list."""
    return ", ".join(map(str, numbers))


def list_of(numbers: Sequence[int]) -> str:
    """Numbers as an array attribute."""
    return f"array<i64: {join(numbers)}>" if numbers else "array<i64>"
