"""Loops that go over steps: what they carry, add up and stack, and loops that read what others have stacked."""

from __future__ import annotations

from dataclasses import replace

from tests.fuzz import dtypes, emit
from tests.fuzz.builder import Builder, Value
from tests.fuzz.control import CARRIED, Grow, any_or_add, argument_like, fitted, kept_small, next_value, repeated_body
from tests.fuzz.sources import exactly, like

# So many elements of a step are stored at most, of so many steps.
_STORED = 120
_STEPS = (1, 2, 3, 5, 17, 20)


def stepped(b: Builder, x: Value, grow: Grow) -> list[Value]:
    """while that treats a tensor element by element, adds up what it sums over a dimension, and stacks the sums."""
    if not dtypes.is_inexact(x.dtype) or dtypes.is_complex(x.dtype) or not x.rank > 0 or not 0 < x.elements <= 800:
        return repeated_body(b, x, grow)
    x, trips, dim = kept_small(b, x), b.rng.choice((1, 2, 3)), b.rng.randrange(x.rank)
    kind = (tuple(size for place, size in enumerate(x.shape) if place != dim), x.dtype)
    most = 4 * CARRIED * x.shape[dim]
    start = b.splat(*kind, b.rng.choice((0, 0, 1)))
    carried = [x, start, b.splat((trips, *kind[0]), x.dtype, 0)]
    second = kept_small(b, fitted(b, b.rng.choice(b.pool), x.type) if b.chance(0.5) else like(b, x))
    limit, counter, one = b.scalar("i32", trips), b.scalar("i32", 0), b.scalar("i32", 1)
    arguments = [replace(counter, name=b.fresh(), size=3.0)]
    arguments += [
        replace(v, name=b.fresh(), size=CARRIED if v is x else most, exact=False, integral=False) for v in carried
    ]
    with b.block(arguments, isolated=False) as condition:
        b.give_back([emit.compare(b, arguments[0], limit, "LT")])
    inner = [replace(v, name=b.fresh()) for v in arguments]
    with b.block(inner) as body:
        mixed = emit.binary(b, b.rng.choice(("add", "maximum", "subtract")), inner[1], second)
        following = kept_small(b, emit.binary(b, "multiply", mixed, b.splat(x.shape, x.dtype, 0.5)))
        total = emit.reduce(b, following if b.chance(0.5) else mixed, "add", [dim])
        added = emit.binary(b, "add", inner[2], total)
        row = emit.reshape(b, total, (1, *kind[0]))
        places = [inner[0], *[b.scalar("i32", 0)] * len(kind[0])]
        [stack] = b.op("stablehlo.dynamic_update_slice", [inner[3], row, *places], [carried[2].type])
        stacked = replace(inner[3], name=stack)
        b.give_back([emit.binary(b, "add", inner[0], one), following, added, stacked])
    names = b.op(
        "stablehlo.while", [counter, *carried], [((), "i32"), *[v.type for v in carried]], "", [condition[0], body[0]]
    )
    return [replace(v, name=n) for n, v in zip(names[1:], arguments[1:], strict=True)]


def stored_steps(b: Builder, x: Value, grow: Grow) -> list[Value]:
    """A loop that stores what each step makes, and one that reads it step by step, as in the gradient of a scan."""
    first = kept_small(b, exactly(b, x) if x.dtype == "i1" else x)
    if first.elements > _STORED:
        first = kept_small(b, emit.reduce(b, first, any_or_add(first), range(first.rank)))
    if dtypes.is_inexact(first.dtype):
        first = replace(first, exact=False, integral=False)
    steps = b.rng.choice(_STEPS)
    counter, limit = b.scalar("i32", 0), b.scalar("i32", steps)
    arguments = [replace(counter, name=b.fresh(), size=float(steps)), argument_like(b, first)]
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
        following = next_value(b, arguments[1])
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
    arguments = [replace(counter, name=b.fresh(), size=float(limit.size)), argument_like(b, first)]
    with b.block(arguments, isolated=False) as body:
        index = _turned(b, arguments[0], limit, b.chance(0.6))
        b.keep(*[_read_step(b, stack, index) for stack in stacks])
        if b.chance(0.4):
            grow(b, 1)
        following = next_value(b, arguments[1])
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


STEPS = ((stepped, 3), (stored_steps, 3))
