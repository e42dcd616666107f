"""Ops that move elements: alone, two in a row as rce joins them, and around others as the reshape sinker moves them."""

from __future__ import annotations

from math import prod

from tests.fuzz import dtypes, emit
from tests.fuzz.builder import Builder, Shape, Value
from tests.fuzz.sources import like, make


def regrouped(b: Builder, shape: Shape) -> Shape:
    """Another shape of as many elements: dimensions merged, split, or of size 1 put between."""
    sizes = list(shape)
    choice = b.rng.randrange(4)
    if choice == 0 and len(sizes) > 1:
        place = b.rng.randrange(len(sizes) - 1)
        sizes[place : place + 2] = [sizes[place] * sizes[place + 1]]
    elif choice == 1 and sizes:
        place = b.rng.randrange(len(sizes))
        divisors = [d for d in range(2, sizes[place]) if sizes[place] % d == 0]
        if divisors:
            divisor = b.rng.choice(divisors)
            sizes[place : place + 1] = [divisor, sizes[place] // divisor]
    elif choice == 2 and 1 in sizes:
        sizes.remove(1)
    else:
        sizes.insert(b.rng.randint(0, len(sizes)), 1)
    if b.chance(0.1):
        sizes = [prod(sizes)]
    return tuple(sizes) if len(sizes) < 6 else shape


def reshaped(b: Builder, x: Value) -> list[Value]:
    """reshape."""
    return [emit.reshape(b, x, regrouped(b, x.shape))]


def transposed(b: Builder, x: Value) -> list[Value]:
    """transpose, the identity included."""
    order = list(range(x.rank))
    b.rng.shuffle(order)
    return [emit.transpose(b, x, order)]


def spread(b: Builder, x: Value) -> list[Value]:
    """broadcast_in_dim to one more dimension, in any place, its dimensions in any order."""
    size = b.rng.choice((1, *b.sizes))
    place = b.rng.randint(0, x.rank)
    sizes = list(x.shape)
    dims = [dim + (dim >= place) for dim in range(x.rank)]
    sizes.insert(place, size)
    if b.chance(0.2) and x.rank == 2:
        dims.reverse()
        sizes[dims[0]], sizes[dims[1]] = x.shape
    for dim, at in enumerate(dims):
        if x.shape[dim] == 1 and b.chance(0.4):
            sizes[at] = b.rng.choice(b.sizes)
    return [emit.broadcast(b, x, tuple(sizes), dims)] if b.fits(tuple(sizes)) else []


def sliced(b: Builder, x: Value) -> list[Value]:
    """slice, with strides."""
    starts, limits, strides = [], [], []
    for size in x.shape:
        start = b.rng.randint(0, size) // 2 if b.chance(0.5) else 0
        limit = b.rng.randint(start, size) if b.chance(0.4) else size
        starts.append(start)
        limits.append(max(limit, min(start + 1, size)))
        strides.append(b.rng.choice((1, 1, 1, 2, 3)))
    shape = tuple(-(-(high - low) // step) for low, high, step in zip(starts, limits, strides, strict=True))
    attributes = (
        f"start_indices = {emit.list_of(starts)}, limit_indices = {emit.list_of(limits)}, "
        f"strides = {emit.list_of(strides)}"
    )
    return [emit.shown(b, "stablehlo.slice", [x], (shape, x.dtype), attributes)]


def padded(b: Builder, x: Value) -> list[Value]:
    """pad: at the edges, by less than nothing, and between."""
    low, high, inner, shape = [], [], [], []
    for size in x.shape:
        gap = b.rng.choice((0, 0, 0, 1, 2))
        spread_size = size + gap * max(size - 1, 0)
        before = b.rng.choice((0, 0, 1, -1, 2, -2)) if b.chance(0.6) else 0
        after = b.rng.choice((0, 0, 1, -before, 3)) if b.chance(0.6) else 0
        if spread_size + before + after < 0:
            before, after = 0, 0
        low.append(before)
        high.append(after)
        inner.append(gap)
        shape.append(spread_size + before + after)
    if not b.fits(tuple(shape)):
        return []
    filling = b.scalar(x.dtype, b.rng.choice((0, 1, 2)))
    attributes = (
        f"edge_padding_low = {emit.list_of(low)}, edge_padding_high = {emit.list_of(high)}, "
        f"interior_padding = {emit.list_of(inner)}"
    )
    [name] = b.op("stablehlo.pad", [x, filling], [(tuple(shape), x.dtype)], attributes)
    return [Value(name, tuple(shape), x.dtype, x.exact, x.integral, max(x.size, 2))]


def joined(b: Builder, x: Value) -> list[Value]:
    """concatenate of two or three, of other sizes along the joined dimension."""
    if not x.rank:
        return []
    dim = b.rng.randrange(x.rank)
    others = []
    for _ in range(b.rng.randint(0, 2)):
        shape = (*x.shape[:dim], b.rng.choice((x.shape[dim], *b.sizes)), *x.shape[dim + 1 :])
        if not b.fits(shape):
            return []
        others.append(make(b, shape, x.dtype))
    tensors = [x, *others]
    b.rng.shuffle(tensors)
    shape = (*x.shape[:dim], sum(v.shape[dim] for v in tensors), *x.shape[dim + 1 :])
    if not b.fits(shape):
        return []
    [name] = b.op("stablehlo.concatenate", tensors, [(shape, x.dtype)], f"dimension = {dim} : i64")
    exact, whole = all(v.exact for v in tensors), all(v.integral for v in tensors)
    return [Value(name, shape, x.dtype, exact, whole, max(v.size for v in tensors))]


def turned(b: Builder, x: Value) -> list[Value]:
    """reverse."""
    dims = b.some(x.rank)
    return [emit.shown(b, "stablehlo.reverse", [x], x.type, f"dimensions = {emit.list_of(dims)}")]


def starts(b: Builder, count: int, most: int) -> list[Value]:
    """Scalar indices, some outside, as arguments or constants."""
    dtype = b.rng.choice(("i32", "i32", "i64", "ui32", "i8", "ui8"))
    if b.chance(0.5) or b.in_function:
        # XLA reads a constant start of ui8 as one of i8.
        top = min(most + 2, int(dtypes.exact_limit("i8" if dtype == "ui8" else dtype)) - 1)
        return [b.scalar(dtype, b.rng.randint(0 if dtypes.is_unsigned(dtype) else -2, top)) for _ in range(count)]
    return [b.argument((), dtype, "indices", most) for _ in range(count)]


def window(b: Builder, x: Value) -> list[Value]:
    """dynamic_slice; not of a scalar, which MLIR's own printer writes so that no parser takes it back."""
    if not x.rank:
        return []
    shape = tuple(b.rng.randint(1, size) if size and b.chance(0.4) else size for size in x.shape)
    operands = [x, *starts(b, x.rank, max(x.shape, default=1))]
    return [
        emit.shown(b, "stablehlo.dynamic_slice", operands, (shape, x.dtype), f"slice_sizes = {emit.list_of(shape)}")
    ]


def written(b: Builder, x: Value) -> list[Value]:
    """dynamic_update_slice: x written into another, or another into x."""
    shape = tuple(b.rng.randint(1, size) if size and b.chance(0.4) else size for size in x.shape)
    update = make(b, shape, x.dtype)
    [name] = b.op("stablehlo.dynamic_update_slice", [x, update, *starts(b, x.rank, max(x.shape, default=1))], [x.type])
    exact, whole = x.exact and update.exact, x.integral and update.integral
    return [Value(name, *x.type, exact, whole, max(x.size, update.size))]


def twice(b: Builder, x: Value) -> list[Value]:
    """Two movements in a row, of one kind or of two: what rce joins."""
    kinds = (reshaped, transposed, spread, sliced, padded, turned)
    first = b.rng.choice(kinds)
    second = first if b.chance(0.5) else b.rng.choice(kinds)
    for movement in (first, second):
        moved = movement(b, x)
        if not moved:
            return []
        x = moved[0]
    return [x]


def around(b: Builder, x: Value) -> list[Value]:
    """The same movement of all operands of an elementwise op, some of them repeated: what the reshape sinker moves."""
    y = like(b, x)
    if x.dtype == "i1":
        return []
    if b.chance(0.5):
        shape = regrouped(b, x.shape)
        x, y = emit.reshape(b, x, shape), emit.reshape(b, y, shape)
    else:
        order = list(range(x.rank))
        b.rng.shuffle(order)
        x, y = emit.transpose(b, x, order), emit.transpose(b, y, order)
    z = emit.binary(b, b.rng.choice(("add", "subtract", "multiply")), x, y)
    return [z] if b.chance(0.5) else [emit.binary(b, "add", z, like(b, z))]


def part_of_argument(b: Builder, x: Value) -> list[Value]:
    """A part of something larger that is given, or all of it turned or written to: tiles read their own part of it."""
    source = b.argument(b.shape(b.rng.choice((1, 2, 2, 3))), x.dtype) if b.chance(0.8) else x
    movement = b.rng.choice((window, window, written, sliced, padded, turned))
    made = movement(b, source)
    if not made or x.dtype == "i1":
        return made
    y = emit.binary(b, b.rng.choice(("add", "subtract", "multiply")), made[0], like(b, made[0]))
    return [y]


MOVEMENTS = (
    (reshaped, 3),
    (transposed, 3),
    (spread, 3),
    (sliced, 2),
    (padded, 2),
    (joined, 2),
    (turned, 1),
    (window, 1),
    (written, 1.5),
    (part_of_argument, 4),
    (twice, 3),
    (around, 3),
)
