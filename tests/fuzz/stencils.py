"""Steps of finite differences along a dimension: neighbours by slices, pads, joins and updates, one after another."""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz import emit
from tests.fuzz.builder import Builder, Value
from tests.fuzz.sources import make

# Shorter dimensions are cut into tiles that are mostly what they share.
_LEAST = 24
_SIZES = (24, 31, 48, 61, 96, 120)


def _part(b: Builder, x: Value, dim: int, start: int, limit: int) -> Value:
    """A slice along one dimension; from the end where `limit` is not positive."""
    starts, limits = [0] * x.rank, list(x.shape)
    starts[dim] = start % x.shape[dim]
    limits[dim] = limit if limit > 0 else x.shape[dim] + limit
    shape = tuple(high - low for low, high in zip(starts, limits, strict=True))
    attributes = (
        f"start_indices = {emit.list_of(starts)}, limit_indices = {emit.list_of(limits)}, "
        f"strides = {emit.list_of([1] * x.rank)}"
    )
    return emit.shown(b, "stablehlo.slice", [x], (shape, x.dtype), attributes)


def _pad(b: Builder, x: Value, dim: int, low: int, high: int) -> Value:
    edges = [[0] * x.rank, [0] * x.rank]
    edges[0][dim], edges[1][dim] = low, high
    shape = (*x.shape[:dim], x.shape[dim] + low + high, *x.shape[dim + 1 :])
    filling = b.scalar(x.dtype, b.rng.choice((0, 1)))
    attributes = (
        f"edge_padding_low = {emit.list_of(edges[0])}, edge_padding_high = {emit.list_of(edges[1])}, "
        f"interior_padding = {emit.list_of([0] * x.rank)}"
    )
    [name] = b.op("stablehlo.pad", [x, filling], [(shape, x.dtype)], attributes)
    return Value(name, shape, x.dtype, x.exact, x.integral, max(x.size, 1))


def _join(b: Builder, parts: list[Value], dim: int) -> Value:
    first = parts[0]
    shape = (*first.shape[:dim], sum(part.shape[dim] for part in parts), *first.shape[dim + 1 :])
    return emit.shown(b, "stablehlo.concatenate", parts, (shape, first.dtype), f"dimension = {dim} : i64")


def _both(b: Builder, x: Value, y: Value) -> Value:
    names: tuple[str, ...] = ("and", "or", "xor") if x.dtype == "i1" else ("add", "subtract", "maximum", "minimum")
    if x.dtype.startswith("complex"):
        names = ("add", "subtract")
    return emit.binary(b, b.rng.choice(names), x, y)


def rolled(b: Builder, x: Value, dim: int) -> Value:
    """x and its neighbours around the ends."""
    by = b.rng.choice((1, 2))
    down = _join(b, [_part(b, x, dim, -by, 0), _part(b, x, dim, 0, -by)], dim)
    up = _join(b, [_part(b, x, dim, by, 0), _part(b, x, dim, 0, by)], dim)
    return _both(b, _both(b, x, down), up) if b.chance(0.7) else _both(b, x, b.rng.choice((down, up)))


def rolled_back(b: Builder, x: Value, dim: int) -> Value:
    """As the gradient of a roll is written: two slices, padded to the whole and added."""
    by, size = b.rng.choice((1, 2)), x.shape[dim]
    ends = [_pad(b, _part(b, x, dim, 0, by), dim, size - by, 0), _pad(b, _part(b, x, dim, by, 0), dim, 0, by)]
    return _both(b, x, _both(b, *ends))


def neighbours(b: Builder, x: Value, dim: int) -> Value:
    """Slices of x with more at its ends: one number, its ends once more, or those of the other end."""
    kind = b.rng.randrange(3)
    if kind == 0:
        p = _pad(b, x, dim, 1, 1)
    elif kind == 1:
        p = _join(b, [_part(b, x, dim, 0, 1), x, _part(b, x, dim, -1, 0)], dim)
    else:
        p = _join(b, [_part(b, x, dim, -1, 0), x, _part(b, x, dim, 0, 1)], dim)
    return _both(
        b, _both(b, _part(b, p, dim, 2, 0), _part(b, p, dim, 0, -2)), x if b.chance(0.5) else _part(b, p, dim, 1, -1)
    )


def difference(b: Builder, x: Value, dim: int) -> Value:
    """x[1:] - x[:-1], as short as it is or with an end in its place."""
    made = _both(b, _part(b, x, dim, 1, 0), _part(b, x, dim, 0, -1))
    choice = b.rng.randrange(3)
    if choice == 0:
        return made
    ends = [made, _part(b, x, dim, -1, 0)] if choice == 1 else [_part(b, x, dim, 0, 1), made]
    return _join(b, ends, dim)


def inside(b: Builder, x: Value, dim: int) -> Value:
    """x, of which all but the ends is updated from its neighbours."""
    made = _both(b, _part(b, x, dim, 2, 0), _part(b, x, dim, 0, -2))
    places = [b.scalar("i32", int(at == dim)) for at in range(x.rank)]
    [name] = b.op("stablehlo.dynamic_update_slice", [x, made, *places], [x.type])
    exact, whole = x.exact and made.exact, x.integral and made.integral
    return Value(name, *x.type, exact, whole, max(x.size, made.size))


_STEPS: tuple[Callable[[Builder, Value, int], Value], ...] = (rolled, rolled_back, neighbours, difference, inside)


def stencilled(b: Builder, x: Value) -> list[Value]:
    """Some steps of finite differences along the longest dimension, or along one of another tensor."""
    if not x.rank or max(x.shape) < _LEAST:
        shape = (b.rng.choice(_SIZES), b.rng.choice((1, 3, 8)))
        x = make(b, shape if b.chance(0.5) else shape[::-1], x.dtype)
    dim = max(range(x.rank), key=lambda at: x.shape[at])
    if not x.elements or not b.fits(tuple(size + 2 for size in x.shape)):
        return []
    for _ in range(b.rng.randint(1, 5)):
        x = b.rng.choice(_STEPS)(b, x, dim)
    return [x]


STENCILS = ((stencilled, 1),)
