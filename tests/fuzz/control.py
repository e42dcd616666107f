"""Blocks: while, case, if, func.call, whose bodies are programs of their own and read values from outside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.fuzz import dtypes, emit
from tests.fuzz.builder import Builder, Type, Value
from tests.fuzz.sources import exactly, like, repeated

Grow = Callable[[Builder, int], None]
# The magnitude within which a loop keeps the integers that it carries.
CARRIED = 8.0


def fitted(b: Builder, x: Value, kind: Type) -> Value:
    """A value of this type, made from x where that is possible: reduced, repeated, converted."""
    shape, dtype = kind
    if x.type == kind:
        return x
    if x.dtype != dtype:
        convertible = not dtypes.is_complex(x.dtype) and dtype != "i1" and (x.exact or dtypes.is_inexact(dtype))
        if not convertible:
            return repeated(b, shape, dtype)
        x = emit.convert(b, x, dtype)
    dims = [dim for dim, size in enumerate(x.shape) if size not in shape]
    if dims or x.rank > len(shape):
        dims = dims or list(range(x.rank))
        names = ("add",) if dtypes.is_complex(dtype) else ("add", "maximum", "minimum")
        x = emit.reduce(b, x, "or" if dtype == "i1" else b.rng.choice(names), dims)
    places: list[int] = []
    for size in x.shape:
        at = [place for place, other in enumerate(shape) if other == size and place not in places]
        if not at:
            return emit.broadcast(b, emit.reduce(b, x, "or" if dtype == "i1" else "add", range(x.rank)), shape, [])
        places.append(at[0])
    return x if x.shape == shape and places == list(range(x.rank)) else emit.broadcast(b, x, shape, places)


def kept_small(b: Builder, x: Value) -> Value:
    return emit.tame(b, x, CARRIED) if dtypes.is_inexact(x.dtype) else x


def argument_like(b: Builder, x: Value) -> Value:
    """What is known of a carried value in every turn: a loop that carries integers keeps them small."""
    if not dtypes.is_inexact(x.dtype):
        return replace(x, name=b.fresh(), exact=True, integral=True, size=dtypes.exact_limit(x.dtype))
    return replace(x, name=b.fresh(), exact=x.exact and x.integral, size=CARRIED)


def repeated_body(b: Builder, x: Value, grow: Grow) -> list[Value]:
    """while with a counter, whose body makes something big and reads what is outside."""
    carried = [kept_small(b, exactly(b, x) if x.dtype == "i1" else x)]
    if b.chance(0.5):
        carried.append(kept_small(b, exactly(b, b.rng.choice(b.pool))))
    carried = [
        v if v.elements <= 800 else kept_small(b, emit.reduce(b, v, any_or_add(v), range(v.rank))) for v in carried
    ]
    limit = b.scalar("i32", b.rng.choice((0, 1, 2, 3)))
    counter = b.scalar("i32", 0)
    while True:
        count, lines, arguments, functions = b.count, list(b.lines), list(b.arguments), list(b.functions)
        state = b.rng.getstate(), b.bits_are_read
        results, regions = _while_regions(b, carried, limit, counter, grow)
        if all(r.exact or not v.exact for r, v in zip(results, carried, strict=True)):
            break
        # What the body makes is rounded after all: write it again, carrying values that are.
        b.count, b.lines, b.arguments, b.functions = count, lines, arguments, functions
        b.rng.setstate(state[0])
        b.bits_are_read = state[1]
        carried = [
            v if r.exact or not dtypes.is_inexact(v.dtype) else replace(v, exact=False, integral=False)
            for v, r in zip(carried, results, strict=True)
        ]
    names = b.op("stablehlo.while", [counter, *carried], [((), "i32"), *[v.type for v in carried]], "", regions)
    # Without a turn the result is what the loop began with.
    return [
        replace(r, name=n, exact=r.exact and v.exact, integral=r.integral and v.integral)
        for n, r, v in zip(names[1:], results, carried, strict=True)
    ]


def any_or_add(x: Value) -> str:
    return "or" if x.dtype == "i1" else "add"


def _while_regions(
    b: Builder, carried: list[Value], limit: Value, counter: Value, grow: Grow
) -> tuple[list[Value], list[str]]:
    arguments = [replace(counter, name=b.fresh(), size=3.0), *[argument_like(b, v) for v in carried]]
    with b.block(arguments, isolated=False) as condition:
        held = emit.compare(b, arguments[0], limit, "LT")
        if b.chance(0.25):
            held = emit.binary(b, "and", held, _asked(b))
        b.give_back([held])
    inner = [replace(v, name=b.fresh()) for v in arguments]
    with b.block(inner) as body:
        grow(b, b.rng.randint(1, 3))
        one = b.scalar("i32", 1)
        following = emit.binary(b, "add", inner[0], one)
        results = [next_value(b, v) for v in inner[1:]]
        b.give_back([following, *results])
    return results, [condition[0], body[0]]


def _asked(b: Builder) -> Value:
    """A truth value that a condition finds out about something that it reads from outside."""
    x = exactly(b, b.rng.choice(b.pool))
    if dtypes.is_complex(x.dtype):
        return emit.compare(b, b.scalar("i32", 0), b.scalar("i32", 1), "LT")
    held = emit.compare(b, x, like(b, x, exact=True), b.rng.choice(("NE", "LE", "GT")))
    return emit.reduce(b, held, "or", range(held.rank))


def next_value(b: Builder, carried: Value) -> Value:
    """The carried value's next one: from what the body made last."""
    for x in reversed(b.pool[-6:]):
        if x.exact or dtypes.is_inexact(carried.dtype):
            made = fitted(b, x, carried.type)
            if made.exact or dtypes.is_inexact(carried.dtype):
                break
    else:
        made = carried
    if carried.dtype != "i1" and b.chance(0.5):
        made = emit.binary(b, "add", made, carried)
    bounded = kept_small(b, made)
    if not dtypes.is_inexact(carried.dtype):
        return bounded
    kept = bounded.exact and bounded.integral and bounded.size <= CARRIED
    return replace(bounded, exact=kept, integral=kept, size=CARRIED)


def branches(b: Builder, x: Value, grow: Grow) -> list[Value]:
    """case or if, whose branches make the same types by other programs."""
    count = b.rng.choice((2, 2, 3, 1))
    is_if = count == 2 and b.chance(0.5)
    index = b.argument((), "i1") if is_if else b.argument((), "i32", "indices", count)
    if b.in_function:
        index = b.scalar("i1" if is_if else "i32", b.rng.randint(0, 1))
    kind = ((x.shape if x.elements <= 800 else x.shape[:1]), x.dtype)
    regions, results = [], []
    for _ in range(count):
        with b.block([]) as body:
            grow(b, b.rng.randint(1, 3))
            made = fitted(b, b.pool[-1], kind)
            if not made.exact and not dtypes.is_inexact(kind[1]):
                made = fitted(b, exactly(b, x), kind)
            b.give_back([made])
        regions.append(body[0])
        results.append(made)
    [name] = b.op("stablehlo.if" if is_if else "stablehlo.case", [index], [kind], "", regions)
    exact, whole = all(v.exact for v in results), all(v.integral for v in results)
    return [Value(name, *kind, exact, whole, max(v.size for v in results))]


def called(b: Builder, x: Value, grow: Grow) -> list[Value]:
    """A function, called once or twice, which may be called by another."""
    given = [x, *b.rng.sample(b.pool, min(len(b.pool), b.rng.randint(0, 2)))]
    given = [v for v in given if v.exact] or [exactly(b, x)]
    name = f"{b.prefix}_f{b.fresh()[1:]}"
    sizes = [dtypes.exact_limit(v.dtype) if not dtypes.is_inexact(v.dtype) else CARRIED for v in given]
    given = [kept_small(b, v) for v in given]
    arguments = [replace(v, name=b.fresh(), size=size) for v, size in zip(given, sizes, strict=True)]
    with b.block(arguments, isolated=True) as body:
        grow(b, b.rng.randint(1, 3))
        fresh = [v for v in b.pool if v not in arguments] or arguments
        results = fresh[-b.rng.randint(1, 2) :]
        b.give_back(results, "func.return")
    types = [v.type for v in results]
    b.function(name, arguments, types, body[0])
    found = []
    for _ in range(b.rng.choice((1, 1, 2))):
        names = b.op("func.call", given, types, f"callee = @{name}")
        found += [replace(r, name=n) for n, r in zip(names, results, strict=True)]
    return found


CONTROL = ((repeated_body, 3), (branches, 2), (called, 2))
