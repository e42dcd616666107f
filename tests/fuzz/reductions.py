"""Reductions with every body and start, and the ways in which programs use them."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tests.fuzz import dtypes, emit
from tests.fuzz.builder import Builder, Value
from tests.fuzz.sources import exactly, like, small


def bodies(dtype: str) -> tuple[str, ...]:
    """The ops that may reduce this type."""
    if dtype == "i1":
        return ("and", "or", "xor")
    if dtypes.is_complex(dtype):
        return ("add", "multiply")
    floats = ("add", "add", "maximum", "minimum", "multiply")
    return floats if dtypes.is_float(dtype) else (*floats, "and", "or", "xor")


def start(b: Builder, name: str, dtype: str) -> Value | None:
    """What a reduction starts from: its identity, another number, or a scalar of the program."""
    choice = b.rng.random()
    if choice < 0.7:
        return None
    if choice < 0.85:
        return b.scalar(dtype, b.rng.choice((0, 1, 2, 3)))
    return small(b, (), dtype)


def reduced(b: Builder, x: Value) -> list[Value]:
    """reduce over some dimensions."""
    name = b.rng.choice(bodies(x.dtype))
    init = start(b, name, x.dtype)
    if init is not None and init.size > 10 and dtypes.is_inexact(x.dtype):
        init = None
    return [emit.reduce(b, x, name, b.some(x.rank, 0 if b.chance(0.1) else 1), init)]


def several(b: Builder, x: Value) -> list[Value]:
    """The same tensor reduced in several ways."""
    return [value for _ in range(b.rng.randint(2, 3)) for value in reduced(b, x)]


def pair(b: Builder, x: Value) -> list[Value]:
    """A reduce of two tensors at once, each by a body of its own."""
    if x.dtype == "i1":
        return []
    y = like(b, x)
    dims = b.some(x.rank, 1)
    count = prod(x.shape[dim] for dim in dims)
    names = [b.rng.choice(bodies(v.dtype)) for v in (x, y)]
    x, y = (emit.folded(b, name, v, count) for name, v in zip(names, (x, y), strict=True))
    inits = [emit.identity(b, name, v.dtype) for name, v in zip(names, (x, y), strict=True)]
    arguments = [b.fresh() for _ in range(4)]
    kinds = [b.spell(((), v.dtype)) for v in (x, y, x, y)]
    head = ", ".join(f"{name}: {kind}" for name, kind in zip(arguments, kinds, strict=True))
    first, second = b.fresh(), b.fresh()
    lines = [
        f'{first} = "stablehlo.{names[0]}"({arguments[0]}, {arguments[2]}) : ({kinds[0]}, {kinds[0]}) -> {kinds[0]}',
        f'{second} = "stablehlo.{names[1]}"({arguments[3]}, {arguments[1]}) : ({kinds[1]}, {kinds[1]}) -> {kinds[1]}',
        f'"stablehlo.return"({first}, {second}) : ({kinds[0]}, {kinds[1]}) -> ()',
    ]
    region = "{\n^bb0(" + head + "):\n" + "\n".join(lines) + "\n}"
    shape = tuple(size for dim, size in enumerate(x.shape) if dim not in dims)
    types = [(shape, x.dtype), (shape, y.dtype)]
    results = b.op("stablehlo.reduce", [x, y, *inits], types, f"dimensions = {emit.list_of(dims)}", [region])
    return [
        emit.combined(v, name, count, init.size, kind, result)
        for v, name, init, kind, result in zip((x, y), names, inits, types, results, strict=True)
    ]


def extreme_place(b: Builder, x: Value) -> list[Value]:
    """argmax and argmin: NaN first, then of equals the lower index, as JAX writes them, or the first that is met."""
    x = exactly(b, x)
    if not x.rank or x.dtype == "i1" or dtypes.is_complex(x.dtype):
        return []
    dim = b.rng.randrange(x.rank)
    index = emit.iota(b, x.shape, "i32", dim)
    largest = b.chance(0.5)
    inits = [emit.identity(b, "maximum" if largest else "minimum", x.dtype), b.scalar("i32", 0)]
    value, number = b.spell(((), x.dtype)), b.spell(((), "i32"))
    kind = "FLOAT" if dtypes.is_inexact(x.dtype) else ("UNSIGNED" if dtypes.is_unsigned(x.dtype) else "SIGNED")
    by_index = b.chance(0.7)
    better = ("GT" if largest else "LT") if by_index else ("GE" if largest else "LE")
    n = [b.fresh() for _ in range(12)]

    def compared(out: str, a: str, c: str, direction: str, kind: str, of: str) -> str:
        return (
            f'{out} = "stablehlo.compare"({a}, {c}) {{comparison_direction = #stablehlo<comparison_direction '
            f"{direction}>, compare_type = #stablehlo<comparison_type {kind}>}} : ({of}, {of}) -> tensor<i1>"
        )

    def logic(out: str, name: str, a: str, c: str) -> str:
        return f'{out} = "stablehlo.{name}"({a}, {c}) : (tensor<i1>, tensor<i1>) -> tensor<i1>'

    first = n[10] if by_index else n[6]
    lines = [
        compared(n[4], n[0], n[2], better, kind, value),
        compared(n[5], n[0], n[0], "NE", kind, value),
        logic(n[6], "or", n[4], n[5]),
        compared(n[7], n[0], n[2], "EQ", kind, value),
        compared(n[8], n[1], n[3], "LT", "SIGNED", number),
        logic(n[9], "and", n[7], n[8]),
        logic(n[10], "or", n[6], n[9]),
        f'{n[11]} = "stablehlo.select"({n[6]}, {n[0]}, {n[2]}) : (tensor<i1>, {value}, {value}) -> {value}',
        f'%w{n[11][1:]} = "stablehlo.select"({first}, {n[1]}, {n[3]}) : (tensor<i1>, {number}, {number}) -> {number}',
        f'"stablehlo.return"({n[11]}, %w{n[11][1:]}) : ({value}, {number}) -> ()',
    ]
    region = f"{{\n^bb0({n[0]}: {value}, {n[1]}: {number}, {n[2]}: {value}, {n[3]}: {number}):\n"
    region += "\n".join(lines) + "\n}"
    shape = tuple(size for at, size in enumerate(x.shape) if at != dim)
    types = [(shape, x.dtype), (shape, "i32")]
    results = b.op("stablehlo.reduce", [x, index, *inits], types, f"dimensions = {emit.list_of([dim])}", [region])
    return [
        Value(results[0], shape, x.dtype, True, x.integral, x.size),
        Value(results[1], shape, "i32", True, True, float(max(x.shape[dim], 1))),
    ]


def normalised(b: Builder, x: Value) -> list[Value]:
    """softmax, logsumexp, or distance from the mean, along some dimensions, as libraries write them."""
    if not dtypes.is_float(x.dtype) or not x.rank:
        return []
    dims = b.some(x.rank, 1)
    kept = [dim for dim in range(x.rank) if dim not in dims]
    x = emit.tame(b, x, 8.0)
    choice = b.rng.randrange(3)
    if choice == 2:
        count = float(max(prod(x.shape[dim] for dim in dims), 1))
        total = emit.reduce(b, x, "add", dims)
        mean = emit.mapped(b, "stablehlo.divide", [total, b.splat(total.shape, x.dtype, count)], x.size)
        away = emit.binary(b, "subtract", x, emit.broadcast(b, mean, x.shape, kept))
        return [emit.reduce(b, emit.binary(b, "multiply", away, away), "add", dims), away]
    highest = emit.reduce(b, x, "maximum", dims)
    above = emit.binary(b, "subtract", x, emit.broadcast(b, highest, x.shape, kept))
    powers = emit.mapped(b, "stablehlo.exponential", [above], 1.0)
    total = emit.reduce(b, powers, "add", dims)
    if choice == 1:
        return [emit.binary(b, "add", emit.mapped(b, "stablehlo.log", [total], 6.0), highest)]
    shares = emit.mapped(b, "stablehlo.divide", [powers, emit.broadcast(b, total, x.shape, kept)], 1.0)
    return [shares]


def centred(b: Builder, x: Value) -> list[Value]:
    """A reduction that leads back into what it was made of: a second stage."""
    if not x.rank or x.dtype == "i1":
        return []
    dims = b.some(x.rank, 1)
    total = reduced_over(b, x, dims)
    kept = [dim for dim in range(x.rank) if dim not in dims]
    back = emit.broadcast(b, total, x.shape, kept)
    y = emit.binary(b, b.rng.choice(("add", "subtract", "multiply")), x, back)
    return [y, total]


def moments(b: Builder, x: Value) -> list[Value]:
    """A mean, the squares of what is above and below it or the like, and a sum that shares what they sum to."""
    if not x.rank or not dtypes.is_float(x.dtype):
        return []
    x = emit.tame(b, x, 4.0)
    dims = b.some(x.rank, 1)
    kept = [dim for dim in range(x.rank) if dim not in dims]
    count = max(prod(x.shape[dim] for dim in dims), 1)
    total = emit.reduce(b, x if b.chance(0.9) else like(b, x), "add", dims)
    divisor = b.splat(total.shape, total.dtype, count if b.chance(0.8) else count + 1)
    mean = emit.mapped(b, "stablehlo.divide", [total, divisor], 8.0)
    apart = emit.binary(b, "subtract", x, emit.broadcast(b, mean, x.shape, kept))
    powers = apart
    for _ in range(1 if b.chance(0.8) else 2):
        powers = emit.binary(b, "multiply", powers, apart)
    if b.chance(0.3):
        powers = emit.binary(b, "multiply", powers, b.splat(x.shape, x.dtype, 2) if b.chance(0.7) else like(b, x))
    spread = emit.reduce(b, powers, "add", dims if b.chance(0.9) else b.some(x.rank, 1))
    if spread.shape != mean.shape or b.chance(0.4):
        return [mean, spread]
    share = emit.broadcast(b, emit.tame(b, spread, 4.0), x.shape, kept)
    shared = emit.binary(b, b.rng.choice(("multiply", "multiply", "add")), share, apart if b.chance(0.5) else x)
    return [spread, emit.reduce(b, shared, "add", dims)]


def extremes_both_ways(b: Builder, x: Value) -> list[Value]:
    """Which elements are the most or the least along one dimension, and along another; sums of both answers."""
    x = exactly(b, x)
    if x.rank < 2 or not dtypes.is_float(x.dtype):
        return []
    answers = []
    for dim in b.rng.sample(range(x.rank), 2):
        best = emit.reduce(b, x, b.rng.choice(("maximum", "minimum")), [dim])
        back = emit.broadcast(b, best, x.shape, [other for other in range(x.rank) if other != dim])
        answers.append(emit.convert(b, emit.compare(b, x, back, "EQ"), x.dtype))
    both = emit.binary(b, b.rng.choice(("add", "subtract")), *answers)
    if b.chance(0.5):
        both = emit.binary(b, "multiply", both, emit.tame(b, like(b, x), 8.0))
    return [emit.reduce(b, both, "add", b.some(x.rank, 1)) for _ in range(b.rng.randint(1, 2))]


def reduced_over(b: Builder, x: Value, dims: list[int]) -> Value:
    """x reduced over these dimensions from the identity."""
    names = ("add", "maximum", "minimum") if not dtypes.is_complex(x.dtype) else ("add",)
    return emit.reduce(b, x, b.rng.choice(names), dims)


def unit(b: Builder, x: Value) -> list[Value]:
    """A reduce over sizes of 1, or of what was reshaped or repeated: rce's."""
    if x.dtype == "i1":
        return []
    choice = b.rng.randrange(3)
    name = b.rng.choice(bodies(x.dtype))
    init = start(b, name, x.dtype)
    init = None if init is not None and init.size > 10 else init
    if choice == 0:
        place = b.rng.randint(0, x.rank)
        wide = emit.reshape(b, x, (*x.shape[:place], 1, *x.shape[place:]))
        return [emit.reduce(b, wide, name, [place, *[d + (d >= place) for d in b.some(x.rank)]], init)]
    if choice == 1:
        size = b.rng.choice(b.sizes)
        place = b.rng.randint(0, x.rank)
        shape = (*x.shape[:place], size, *x.shape[place:])
        if not b.fits(shape):
            return []
        wide = emit.broadcast(b, x, shape, [dim + (dim >= place) for dim in range(x.rank)])
        return [emit.reduce(b, wide, name, b.some(len(shape), 1), init)]
    if x.rank < 2:
        return []
    flat = emit.reshape(b, x, (x.shape[0] * x.shape[1], *x.shape[2:]))
    return [emit.reduce(b, flat, name, b.some(flat.rank, 1), init)]


def weighted(b: Builder, x: Value) -> list[Value]:
    """A sum of products: what a dot would compute."""
    if x.dtype == "i1" or not x.rank:
        return []
    y = like(b, x)
    return [emit.reduce(b, emit.binary(b, "multiply", x, y), "add", b.some(x.rank, 1))]


def inexactly(value: Value) -> Value:
    """The value, taken for one that depends on the order of evaluation."""
    return replace(value, exact=False, integral=False)


REDUCTIONS = (
    (reduced, 8),
    (several, 4),
    (pair, 2),
    (extreme_place, 2),
    (normalised, 3),
    (centred, 3),
    (moments, 3),
    (extremes_both_ways, 2),
    (unit, 2),
    (weighted, 2),
)
