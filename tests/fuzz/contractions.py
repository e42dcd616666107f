"""Dots, chains of them, dense layers and attention."""

from __future__ import annotations

from math import prod

from tests.fuzz import dtypes, emit
from tests.fuzz.builder import Builder, Value
from tests.fuzz.movements import regrouped
from tests.fuzz.sources import like, small


def multiplied(b: Builder, x: Value) -> list[Value]:
    """x times a smaller tensor, over some of its dimensions, on either side."""
    if x.dtype == "i1" or not x.rank:
        return []
    contracted = b.some(x.rank, 1)
    batch = [dim for dim in range(x.rank) if dim not in contracted and b.chance(0.25)]
    sizes = [("c", dim) for dim in contracted] + [("b", dim) for dim in batch]
    sizes += [("f", b.rng.choice((1, 2, 5, *b.sizes))) for _ in range(b.rng.choice((0, 0, 1, 1, 2)))]
    b.rng.shuffle(sizes)
    shape = tuple(number if kind == "f" else x.shape[number] for kind, number in sizes)
    free = [size for dim, size in enumerate(x.shape) if dim not in (*contracted, *batch)]
    new = [number for kind, number in sizes if kind == "f"]
    if not b.fits(shape, (*[x.shape[dim] for dim in batch], *free, *new)):
        return []
    y = small(b, shape, x.dtype)
    places = ([sizes.index(("b", dim)) for dim in batch], [sizes.index(("c", dim)) for dim in contracted])
    dtype = _wider(b, x.dtype)
    if b.chance(0.5):
        return [emit.dot(b, x, y, (batch, places[0]), (contracted, places[1]), dtype)]
    return [emit.dot(b, y, x, (places[0], batch), (places[1], contracted), dtype)]


def _wider(b: Builder, dtype: str) -> str:
    return {"bf16": "f32", "f16": "f32", "i8": "i32"}.get(dtype, dtype) if b.chance(0.2) else dtype


def with_itself(b: Builder, x: Value) -> list[Value]:
    """x times itself."""
    if x.dtype == "i1" or x.rank < 1:
        return []
    contracted = b.some(x.rank, 1)
    batch = [dim for dim in range(x.rank) if dim not in contracted and b.chance(0.4)]
    free = [x.shape[dim] for dim in range(x.rank) if dim not in (*contracted, *batch)]
    if not b.fits((*[x.shape[dim] for dim in batch], *free, *free)):
        return []
    return [emit.dot(b, x, x, (batch, batch), (contracted, contracted))]


def chain(b: Builder, x: Value) -> list[Value]:
    """A product of three to five matrices in one order, scaled, transposed and summed on the way."""
    dtype = x.dtype
    if dtype == "i1":
        return []
    batch = (b.rng.choice((2, 3)),) if b.chance(0.3) else ()
    sizes = [b.rng.choice((1, 2, 3, *b.sizes)) for _ in range(b.rng.randint(4, 6))]
    factors = [small(b, (*batch, *pair), dtype) for pair in zip(sizes, sizes[1:], strict=False)]
    if not b.fits(*[(*batch, one, two) for one in sizes for two in sizes]):
        return []
    while len(factors) > 1:
        place = b.rng.randrange(len(factors) - 1)
        left, right = factors[place : place + 2]
        rank, lead = left.rank, list(range(len(batch)))
        if b.chance(0.3):
            swapped = emit.transpose(b, right, [*lead, rank - 1, rank - 2])
            made = emit.dot(b, left, swapped, (lead, lead), ([rank - 1], [rank - 1]))
        else:
            made = emit.dot(b, left, right, (lead, lead), ([rank - 1], [rank - 2]))
        if b.chance(0.3):
            made = emit.binary(b, "multiply", made, b.splat(made.shape, dtype, b.rng.choice((2, 3, 1))))
        if b.chance(0.15):
            made = emit.mapped(b, "stablehlo.negate", [made], made.size, integral=True)
        if b.chance(0.2):
            b.keep(made)
        factors[place : place + 2] = [made]
    [result] = factors
    if b.chance(0.4):
        return [emit.reduce(b, result, "add", b.some(result.rank, 1)), result][: b.rng.randint(1, 2)]
    return [result]


def dense_layer(b: Builder, x: Value) -> list[Value]:
    """Dimensions merged, a dot, a bias, and dimensions split again, as TensorFlow writes a dense layer."""
    if x.rank < 2 or x.dtype == "i1":
        return []
    rows, features = prod(x.shape[:-1]), x.shape[-1]
    width = b.rng.choice((2, 3, *b.sizes))
    if not b.fits((rows, width), (features, width)):
        return []
    flat = emit.reshape(b, x, (rows, features))
    weights = small(b, (features, width), x.dtype)
    made = emit.dot(b, flat, weights, ([], []), ([1], [0]))
    if b.chance(0.6):
        bias = emit.broadcast(b, small(b, (width,), x.dtype), (rows, width), [1])
        made = emit.binary(b, "add", made, bias)
    if b.chance(0.3):
        return [emit.reshape(b, made, regrouped(b, made.shape))]
    return [emit.reshape(b, made, (*x.shape[:-1], width))]


def attention(b: Builder, x: Value) -> list[Value]:
    """softmax(q k' + mask) v, with heads, over two different sequences."""
    if not dtypes.is_float(x.dtype):
        return []
    heads, n, m, d = b.rng.choice((1, 2)), b.rng.choice(b.sizes), b.rng.choice(b.sizes), b.rng.choice((2, 3, 5))
    if not b.fits((heads, n, m)):
        return []
    q, k, v = (small(b, (heads, rows, d), x.dtype) for rows in (n, m, m))
    scores = emit.dot(b, q, k, ([0], [0]), ([2], [2]))
    if b.chance(0.5):
        later = emit.compare(b, emit.iota(b, (n, m), "i32", 0), emit.iota(b, (n, m), "i32", 1), "GE")
        mask = emit.broadcast(b, later, scores.shape, [1, 2])
        scores = emit.select(b, mask, scores, b.splat(scores.shape, x.dtype, -20))
    scores = emit.tame(b, scores, 8.0)
    highest = emit.reduce(b, scores, "maximum", [2])
    above = emit.binary(b, "subtract", scores, emit.broadcast(b, highest, scores.shape, [0, 1]))
    powers = emit.mapped(b, "stablehlo.exponential", [above], 1.0)
    total = emit.reduce(b, powers, "add", [2])
    shares = emit.mapped(b, "stablehlo.divide", [powers, emit.broadcast(b, total, scores.shape, [0, 1])], 1.0)
    return [emit.dot(b, shares, v, ([0], [0]), ([2], [1]))]


def softmax_gradient(b: Builder, x: Value) -> list[Value]:
    """A dot of a quotient, and the sum of each row by the weights of its gradient, or by others like them."""
    if not dtypes.is_float(x.dtype):
        return []
    heads, n, m, d = b.rng.choice((1, 2)), b.rng.choice(b.sizes), b.rng.choice(b.sizes), b.rng.choice((1, 2, 3))
    if not b.fits((heads, n, m)):
        return []
    shape, dtype = (heads, n, m), x.dtype
    e, v, g = small(b, shape, dtype), small(b, (heads, m, d), dtype), small(b, (heads, n, d), dtype)
    total = emit.reduce(b, emit.mapped(b, "stablehlo.exponential", [emit.tame(b, e, 3.0)], 20.0), "add", [2])
    rows = emit.broadcast(b, total, shape, [0, 1])
    divided, masked = b.chance(0.6), b.chance(0.4)
    shares = emit.mapped(b, "stablehlo.divide", [e, rows], 1.0) if divided else e
    mask = emit.broadcast(b, small(b, (n, m), "i1"), shape, [1, 2])
    zeros = b.splat(shape, dtype, 0)
    kept = emit.select(b, mask, shares, zeros) if masked else shares
    out = emit.dot(b, kept, v, ([0], [0]), ([2], [1]))
    if b.chance(0.3):
        g = emit.binary(b, "multiply", g, out)
    values = like(b, v) if b.chance(0.15) else v
    weights = emit.dot(b, g, values, ([0], [0]), ([2], [2]))
    if masked and b.chance(0.8):
        weights = emit.select(b, mask, weights, zeros)
    if b.chance(0.2):
        weights = emit.binary(b, "multiply", weights, b.splat(shape, dtype, 2))
    terms = emit.binary(b, "multiply", weights, shares if b.chance(0.5) else e)
    if divided and b.chance(0.5):
        terms = emit.mapped(b, "stablehlo.divide", [terms, rows], terms.size)
    return [out, emit.reduce(b, terms, "add", [2 if b.chance(0.9) else 1])]


def outer_with(b: Builder, x: Value) -> list[Value]:
    """x times a tensor that it shares nothing with but batch dimensions: it grows."""
    if x.dtype == "i1":
        return []
    size = b.rng.choice(b.sizes)
    if not b.fits((*x.shape, size)):
        return []
    if x.rank and b.chance(0.5):
        return [emit.dot(b, x, small(b, (x.shape[0], size), x.dtype), ([0], [0]), ([], []))]
    return [emit.dot(b, x, small(b, (size,), x.dtype), ([], []), ([], []))]


def einsum(b: Builder, x: Value) -> list[Value]:
    """The older contractions: einsum and dot."""
    if x.rank != 2 or x.dtype == "i1" or x.dtype.startswith("f8"):
        return []
    y = small(b, (x.shape[1], b.rng.choice(b.sizes)), x.dtype)
    made = emit.dot(b, x, y, ([], []), ([1], [0]))
    line = b.lines[-1]
    if b.chance(0.5):
        dot, _, kind = line.partition(" {")
        b.lines[-1] = dot.replace("dot_general", "dot") + " :" + kind.rpartition("} :")[2]
        return [made]
    dot, _, kind = line.partition(" {")
    b.lines[-1] = dot.replace("dot_general", "einsum") + ' {einsum_config = "ij,jk->ik"} :' + kind.rpartition("} :")[2]
    return [made]


def like_sum(b: Builder, x: Value) -> list[Value]:
    """A sum over one dimension of x plus another of its type: nothing that is a polynomial."""
    if not x.rank or x.dtype == "i1":
        return []
    return [emit.reduce(b, emit.binary(b, "add", x, like(b, x)), "add", [b.rng.randrange(x.rank)])]


CONTRACTIONS = (
    (multiplied, 8),
    (with_itself, 2),
    (chain, 2),
    (dense_layer, 2),
    (attention, 2),
    (softmax_gradient, 2),
    (outer_with, 1),
    (einsum, 1),
    (like_sum, 1),
)
