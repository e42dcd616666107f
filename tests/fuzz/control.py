"""Blocks: while, case, if, func.call, whose bodies are programs of their own and read values from outside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.fuzz import dtypes, emit
from tests.fuzz.builder import Builder, Type, Value
from tests.fuzz.makers import exactly, like, repeated

Grow = Callable[[Builder, int], None]
# The magnitude within which a loop keeps the integers that it carries.
_CARRIED = 8.0


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


def _bounded(b: Builder, x: Value) -> Value:
    return emit.tame(b, x, _CARRIED) if dtypes.is_inexact(x.dtype) else x


def _argument_like(b: Builder, x: Value) -> Value:
    """What is known of a carried value in every turn: a loop that carries integers keeps them small."""
    if not dtypes.is_inexact(x.dtype):
        return replace(x, name=b.fresh(), exact=True, integral=True, size=dtypes.exact_limit(x.dtype))
    return replace(x, name=b.fresh(), exact=x.exact and x.integral, size=_CARRIED)


def repeated_body(b: Builder, x: Value, grow: Grow) -> list[Value]:
    """while with a counter, whose body makes something big and reads what is outside."""
    carried = [_bounded(b, exactly(b, x) if x.dtype == "i1" else x)]
    if b.chance(0.5):
        carried.append(_bounded(b, exactly(b, b.rng.choice(b.pool))))
    carried = [v if v.elements <= 800 else _bounded(b, emit.reduce(b, v, _any(v), range(v.rank))) for v in carried]
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


def _any(x: Value) -> str:
    return "or" if x.dtype == "i1" else "add"


def _while_regions(
    b: Builder, carried: list[Value], limit: Value, counter: Value, grow: Grow
) -> tuple[list[Value], list[str]]:
    arguments = [replace(counter, name=b.fresh(), size=3.0), *[_argument_like(b, v) for v in carried]]
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
        results = [_next(b, v) for v in inner[1:]]
        b.give_back([following, *results])
    return results, [condition[0], body[0]]


def _asked(b: Builder) -> Value:
    """A truth value that a condition finds out about something that it reads from outside."""
    x = exactly(b, b.rng.choice(b.pool))
    if dtypes.is_complex(x.dtype):
        return emit.compare(b, b.scalar("i32", 0), b.scalar("i32", 1), "LT")
    held = emit.compare(b, x, like(b, x, exact=True), b.rng.choice(("NE", "LE", "GT")))
    return emit.reduce(b, held, "or", range(held.rank))


def _next(b: Builder, carried: Value) -> Value:
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
    bounded = _bounded(b, made)
    if not dtypes.is_inexact(carried.dtype):
        return bounded
    kept = bounded.exact and bounded.integral and bounded.size <= _CARRIED
    return replace(bounded, exact=kept, integral=kept, size=_CARRIED)


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
    sizes = [dtypes.exact_limit(v.dtype) if not dtypes.is_inexact(v.dtype) else _CARRIED for v in given]
    given = [_bounded(b, v) for v in given]
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


# So many elements of a step are stored at most, of so many steps.
_STORED = 120
_STEPS = (1, 2, 3, 5, 17, 20)


def stored_steps(b: Builder, x: Value, grow: Grow) -> list[Value]:
    """A loop that stores what each step makes, and one that reads it step by step, as in the gradient of a scan."""
    first = _bounded(b, exactly(b, x) if x.dtype == "i1" else x)
    if first.elements > _STORED:
        first = _bounded(b, emit.reduce(b, first, _any(first), range(first.rank)))
    if dtypes.is_inexact(first.dtype):
        first = replace(first, exact=False, integral=False)
    steps = b.rng.choice(_STEPS)
    counter, limit = b.scalar("i32", 0), b.scalar("i32", steps)
    arguments = [replace(counter, name=b.fresh(), size=float(steps)), _argument_like(b, first)]
    with b.block(arguments, isolated=False) as body:
        known = {v.name for v in b.pool}
        grow(b, b.rng.randint(1, 4))
        made = [v for v in b.pool if v.name not in known and v.elements <= _STORED]
        stored = b.rng.sample(made, min(len(made), b.rng.randint(1, 3)))
        if not stored or b.chance(0.3):
            stored.append(arguments[1])
        arguments += [replace(v, name=b.fresh(), shape=(steps, *v.shape)) for v in stored]
        index = _turned(b, arguments[0], limit, b.chance(0.3))
        written = [_write_step(b, stack, v, index) for stack, v in zip(arguments[2:], stored, strict=True)]
        following = _next(b, arguments[1])
        b.give_back([emit.binary(b, "add", arguments[0], b.scalar("i32", 1)), following, *written])
    empty = [b.splat(v.shape, v.dtype, 0) for v in arguments[2:]]
    initial, types = [counter, first, *empty], [v.type for v in arguments]
    names = b.op("stablehlo.while", initial, types, "", [_until(b, arguments, limit), body[0]])
    after = [replace(v, name=name) for v, name in zip(arguments, names, strict=True)]
    read = _read_steps(b, after[2:], [counter, first, limit], grow)
    return [replace(after[1], exact=not dtypes.is_inexact(first.dtype)), read, *(after[2:3] if b.chance(0.1) else [])]


def _read_steps(b: Builder, stacks: list[Value], start: list[Value], grow: Grow) -> Value:
    """A loop that reads stacks step by step, in one order or the other, into a value like the one it starts with."""
    counter, first, limit = start
    arguments = [replace(counter, name=b.fresh(), size=float(limit.size)), _argument_like(b, first)]
    with b.block(arguments, isolated=False) as body:
        index = _turned(b, arguments[0], limit, b.chance(0.6))
        b.keep(*[_read_step(b, stack, index) for stack in stacks])
        if b.chance(0.4):
            grow(b, 1)
        following = _next(b, arguments[1])
        b.give_back([emit.binary(b, "add", arguments[0], b.scalar("i32", 1)), following])
    types = [v.type for v in arguments]
    names = b.op("stablehlo.while", [counter, first], types, "", [_until(b, arguments, limit), body[0]])
    return replace(arguments[1], name=names[1], exact=not dtypes.is_inexact(first.dtype))


def _until(b: Builder, arguments: list[Value], limit: Value) -> str:
    """The condition of a loop that counts to a limit."""
    given = [replace(v, name=b.fresh()) for v in arguments]
    with b.block(given, isolated=False) as condition:
        b.give_back([emit.compare(b, given[0], limit, "LT")])
    return condition[0]


def _turned(b: Builder, counter: Value, limit: Value, backwards: bool) -> Value:
    """The number of a step, or what it is from the end."""
    if not backwards:
        return counter
    left = emit.binary(b, "subtract", limit, counter)
    return replace(emit.binary(b, "subtract", left, b.scalar("i32", 1)), size=limit.size)


def _write_step(b: Builder, stack: Value, x: Value, index: Value) -> Value:
    part = emit.reshape(b, x, (1, *x.shape))
    places = [index, *[b.scalar("i32", 0) for _ in x.shape]]
    [name] = b.op("stablehlo.dynamic_update_slice", [stack, part, *places], [stack.type])
    return replace(stack, name=name)


def _read_step(b: Builder, stack: Value, index: Value) -> Value:
    shape = (1, *stack.shape[1:])
    places = [index, *[b.scalar("i32", 0) for _ in shape[1:]]]
    attributes = f"slice_sizes = {emit.list_of(shape)}"
    [name] = b.op("stablehlo.dynamic_slice", [stack, *places], [(shape, stack.dtype)], attributes)
    return emit.reshape(b, replace(stack, name=name, shape=shape), shape[1:])


CONTROL = ((repeated_body, 3), (branches, 2), (called, 2), (stored_steps, 3))
