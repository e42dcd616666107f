"""Sums of repeated tensors, diagonals of products, sums in two directions: what the passes of algebra look for."""

from __future__ import annotations

from tests.fuzz import dtypes, emit
from tests.fuzz.builder import Builder, Shape, Value
from tests.fuzz.sources import make, small


def distances(b: Builder, x: Value) -> list[Value]:
    """Sums of squared differences of two clouds, weighted or not, and sums of weighted differences as in gradients."""
    dtype = x.dtype
    if dtype == "i1" or dtypes.is_complex(dtype):
        return []
    n, m = b.rng.choice(b.sizes), b.rng.choice(b.sizes)
    d = b.rng.choice((1, 2, 3, 16, 17, 23))
    batch = (b.rng.choice((1, 2, 3)),) if b.chance(0.3) else ()
    shape = (*batch, n, m, d)
    if not b.fits(shape):
        return []
    lead, rank = list(range(len(batch))), len(shape)
    one = _scaled(b, _spread(b, small(b, (*batch, n, d), dtype), shape, [*lead, rank - 3, rank - 1]))
    other = _scaled(b, _spread(b, small(b, (*batch, m, d), dtype), shape, [*lead, rank - 2, rank - 1]))
    if b.chance(0.5):
        one, other = other, one
    away = _scaled(b, emit.binary(b, b.rng.choice(("subtract", "subtract", "add")), one, other))
    if b.chance(0.2):
        weighed = _weighed(b, away, [rank - 1], rank - 1)
        return [emit.reduce(b, weighed, "add", [b.rng.choice((rank - 3, rank - 2))])]
    if b.chance(0.1):
        return _both_gradients(b, away, rank)
    squares = _scaled(b, _squared(b, away))
    if b.chance(0.3):
        squares = _weighed(b, squares, b.some(rank, 1), rank)
    result = emit.reduce(b, squares, "add", [rank - 1] if b.chance(0.8) else b.some(rank, 1))
    return [result, away] if b.chance(0.15) else [result]


def _spread(b: Builder, x: Value, shape: Shape, dims: list[int]) -> Value:
    """x repeated to `shape`, in one step, or by way of sizes of 1."""
    style = b.rng.randrange(3)
    if style == 0:
        return emit.broadcast(b, x, shape, dims)
    ones = tuple(size if dim in dims else 1 for dim, size in enumerate(shape))
    x = emit.reshape(b, x, ones) if style == 1 else emit.broadcast(b, x, ones, dims)
    return emit.broadcast(b, x, shape, range(len(shape)))


def _scaled(b: Builder, x: Value) -> Value:
    """x, sometimes negated, times or divided by a number, or in a wider type and back."""
    if not b.chance(0.2):
        return x
    choice = b.rng.randrange(4)
    if choice == 0 and not dtypes.is_unsigned(x.dtype):
        return emit.mapped(b, "stablehlo.negate", [x], x.size, integral=True)
    if choice == 1 and dtypes.is_float(x.dtype):
        return emit.mapped(b, "stablehlo.divide", [x, b.splat(x.shape, x.dtype, b.rng.choice((2, 3)))], x.size)
    if choice == 2 and x.dtype in ("f32", "bf16"):
        return emit.convert(b, emit.convert(b, x, "f64" if x.dtype == "f32" else "f32"), x.dtype)
    return emit.binary(b, "multiply", x, b.splat(x.shape, x.dtype, b.rng.choice((2, 3))))


def _weighed(b: Builder, x: Value, lacking: list[int], rank: int) -> Value:
    """x times a tensor that lacks some dimensions."""
    dims = [dim for dim in range(x.rank) if dim not in lacking]
    weights = emit.broadcast(b, make(b, tuple(x.shape[dim] for dim in dims), x.dtype), x.shape, dims)
    return emit.binary(b, "multiply", *((weights, x) if b.chance(0.5) else (x, weights)))


def _squared(b: Builder, x: Value) -> Value:
    choice = b.rng.randrange(6)
    small_enough = emit.tame(b, x, dtypes.tame_limit(x.dtype) ** 0.5 / 2)
    size = small_enough.size**2
    if choice == 0:
        return emit.mapped(b, "stablehlo.power", [small_enough, b.splat(x.shape, x.dtype, 2)], size, integral=True)
    if choice == 1 and dtypes.is_float(x.dtype):
        return emit.mapped(b, "chlo.square", [small_enough], size, integral=True)
    if choice == 2 and not dtypes.is_unsigned(x.dtype):
        magnitude = emit.mapped(b, "stablehlo.abs", [small_enough], small_enough.size, integral=True)
        return emit.binary(b, "multiply", magnitude, magnitude)
    return emit.binary(b, "multiply", x, x)


def _both_gradients(b: Builder, away: Value, rank: int) -> list[Value]:
    """The sums over either cloud of the same weighted differences, by a reduce or by a dot."""
    weights = make(b, away.shape[:-1], away.dtype)
    weighed = emit.binary(b, "multiply", emit.broadcast(b, weights, away.shape, range(rank - 1)), away)
    sums = [emit.reduce(b, weighed, "add", [dim]) for dim in (rank - 3, rank - 2)]
    batch = list(range(rank - 2))
    return [*sums, emit.dot(b, weights, away, (batch, batch), ([rank - 2], [rank - 2]))]


def repeated_product(b: Builder, x: Value) -> list[Value]:
    """A sum of a product of tensors of which each lacks a dimension."""
    dtype = x.dtype
    if dtype == "i1":
        return []
    shape = b.shape(3)
    product = None
    for _ in range(b.rng.randint(2, 3)):
        dims = b.some(3, 1)
        if len(dims) == 3:
            dims.remove(b.rng.choice(dims))
        factor = emit.broadcast(b, small(b, tuple(shape[dim] for dim in dims), dtype), shape, dims)
        factor = factor if dtypes.is_complex(dtype) else _scaled(b, factor)
        product = factor if product is None else emit.binary(b, "multiply", product, factor)
    assert product is not None
    return [emit.reduce(b, product, "add", b.some(3, 1))]


def diagonal(b: Builder, x: Value) -> list[Value]:
    """The diagonal or trace of a product, by a mask under a sum or by a gather; or one next to the diagonal."""
    dtype = x.dtype
    if dtype == "i1":
        return []
    n, k = b.rng.choice((3, 5, 8, 13)), b.rng.choice((2, 5, 11))
    batch = (b.rng.choice((2, 3)),) if b.chance(0.3) else ()
    lead = list(range(len(batch)))
    rank = len(batch) + 2
    left, right = small(b, (*batch, n, k), dtype), small(b, (*batch, k, n), dtype)
    made = emit.dot(b, left, right, (lead, lead), ([rank - 1], [rank - 2]))
    if b.chance(0.4):
        columns = [_column(b, n) for _ in range(2)]
        places = emit.shown(b, "stablehlo.concatenate", columns, ((n, 2), "i32"), "dimension = 1 : i64")
        numbers = (
            f"offset_dims = [{emit.join(lead)}], collapsed_slice_dims = [{rank - 2}, {rank - 1}], "
            f"start_index_map = [{rank - 2}, {rank - 1}], index_vector_dim = 1"
        )
        attributes = (
            f"dimension_numbers = #stablehlo.gather<{numbers}>, slice_sizes = {emit.list_of((*batch, 1, 1))}, "
            "indices_are_sorted = false"
        )
        return [emit.shown(b, "stablehlo.gather", [made, places], ((*batch, n), dtype), attributes)]
    rows, columns_of = (emit.iota(b, (n, n), "i32", dim) for dim in (0, 1))
    if b.chance(0.3):
        rows = emit.binary(b, "add", rows, b.splat((n, n), "i32", b.rng.choice((0, 1))))
    mask = emit.broadcast(b, emit.compare(b, rows, columns_of, "EQ"), made.shape, [rank - 2, rank - 1])
    kept = emit.select(b, mask, made, b.splat(made.shape, dtype, 0))
    return [emit.reduce(b, kept, "add", b.rng.choice(([rank - 2], [rank - 1], [rank - 2, rank - 1])))]


def _column(b: Builder, n: int) -> Value:
    """0, 1, ... n - 1 below each other, as JAX writes indices: negative ones would count from the end."""
    count = emit.iota(b, (n,), "i32", 0)
    if b.chance(0.5):
        count = emit.binary(b, "add", count, b.splat((n,), "i32", 0))
    if b.chance(0.5):
        below = emit.compare(b, count, b.splat((n,), "i32", 0), "LT")
        count = emit.select(b, below, emit.binary(b, "add", count, b.splat((n,), "i32", n)), count)
    return emit.broadcast(b, count, (n, 1), [0]) if b.chance(0.5) else emit.reshape(b, count, (n, 1))


def both_ways(b: Builder, x: Value) -> list[Value]:
    """Sums along either dimension of a matrix of pairs of one vector's elements, which may be symmetric."""
    if x.dtype == "i1" or dtypes.is_complex(x.dtype):
        return []
    n = b.rng.choice(b.sizes)
    vector = small(b, (n,), x.dtype)
    sides = [_scaled(b, emit.broadcast(b, vector, (n, n), [dim])) for dim in (0, 1)]
    pairs = emit.binary(b, b.rng.choice(("subtract", "subtract", "add", "multiply", "maximum")), *sides)
    for _ in range(b.rng.randint(0, 2)):
        change = b.rng.choice((_squared, _scaled, _oriented))
        pairs = change(b, pairs)
    if b.chance(0.3):
        pairs = _weighed(b, pairs, [b.rng.choice((0, 1))], 2)
    if b.chance(0.3):
        row, column = (emit.iota(b, (n, n), "i32", dim) for dim in (0, 1))
        mask = emit.compare(b, row, column, b.rng.choice(("EQ", "NE", "LT", "GE")))
        pairs = emit.select(b, mask, pairs, b.splat((n, n), x.dtype, 0))
    if b.chance(0.5):
        return [emit.reduce(b, pairs, "add", [dim]) for dim in (0, 1)]
    factor = small(b, (n, b.rng.choice((1, 2, 3))), x.dtype)
    return [emit.dot(b, pairs, factor, ([], []), ([dim], [0])) for dim in (0, 1)]


def _oriented(b: Builder, x: Value) -> Value:
    """x, as another op sees it for which its sign matters, or does not."""
    if dtypes.is_unsigned(x.dtype):
        return x
    if dtypes.is_float(x.dtype) and b.chance(0.5):
        return emit.mapped(b, "stablehlo.tanh", [x], 1)
    return emit.mapped(b, f"stablehlo.{b.rng.choice(('abs', 'negate', 'sign'))}", [x], x.size, integral=True)


DISTANCES = ((distances, 4), (repeated_product, 2), (diagonal, 1.5), (both_ways, 1))
