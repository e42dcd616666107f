"""Makes tensors: big ones from small ones, and second operands."""

from __future__ import annotations

from tests.fuzz import dtypes, emit
from tests.fuzz.builder import Builder, Shape, Value


def exactly(b: Builder, x: Value) -> Value:
    """x if all orders of evaluation give its bits, else another value of its type that is so."""
    return x if x.exact else like(b, x, exact=True)


def like(b: Builder, x: Value, *, exact: bool = False) -> Value:
    """A value of the type of x: x itself, another that is there, one repeated, a constant or an argument."""
    known = [value for value in b.pool if value.type == x.type and (value.exact or not exact)]
    choice = b.rng.random()
    if choice < 0.12 and (x.exact or not exact):
        return x
    if choice < 0.45 and known:
        return b.rng.choice(known)
    if choice < 0.85:
        return repeated(b, x.shape, x.dtype, exact=exact)
    if choice < 0.93:
        return b.splat(x.shape, x.dtype, b.rng.choice((0, 1, 2, 1, 3)))
    if x.elements <= 64 and not dtypes.is_complex(x.dtype):
        return emit.dense(b, x.shape, x.dtype)
    return b.argument(x.shape, x.dtype)


def small(b: Builder, shape: Shape, dtype: str, *, exact: bool = False) -> Value:
    """A value of this type that is there, or a new argument."""
    known = [value for value in b.pool if value.type == (shape, dtype) and (value.exact or not exact)]
    return b.rng.choice(known) if known and b.chance(0.5) else b.argument(shape, dtype)


def repeated(b: Builder, shape: Shape, dtype: str, *, exact: bool = False) -> Value:
    """A smaller tensor repeated to `shape`, in one step or by way of sizes of 1."""
    dims = b.some(len(shape))
    if len(dims) == len(shape) and shape:
        dims.remove(b.rng.choice(dims))
    kept = tuple(shape[dim] for dim in dims)
    x = small(b, kept, dtype, exact=exact)
    style = b.rng.random()
    if style < 0.4:
        return emit.broadcast(b, x, shape, dims)
    ones = tuple(size if dim in dims else 1 for dim, size in enumerate(shape))
    x = emit.reshape(b, x, ones) if style < 0.6 else emit.broadcast(b, x, ones, dims)
    return emit.broadcast(b, x, shape, range(len(shape)))


def outer(b: Builder, shape: Shape, dtype: str) -> Value:
    """Two tensors of fewer dimensions, repeated and combined."""
    names = ("and", "or", "xor") if dtype == "i1" else ("add", "subtract", "multiply", "maximum", "minimum")
    if dtypes.is_complex(dtype):
        names = ("add", "subtract", "multiply")
    return emit.binary(b, b.rng.choice(names), repeated(b, shape, dtype), repeated(b, shape, dtype))


def product(b: Builder, shape: Shape, dtype: str) -> Value:
    """A dot of two tensors, over one or two dimensions, with some batch dimensions in front."""
    if len(shape) < 2 or dtype == "i1":
        return outer(b, shape, dtype)
    batch = b.rng.randint(0, len(shape) - 2)
    split = b.rng.randint(batch + 1, len(shape) - 1)
    inner = [b.rng.choice((1, 2, 3, 5, 17)) for _ in range(b.rng.choice((1, 1, 1, 2)))]
    left, lb, lc = _operand(b, shape[:batch], shape[batch:split], inner, dtype)
    right, rb, rc = _operand(b, shape[:batch], shape[split:], inner, dtype)
    return emit.dot(b, left, right, (lb, rb), (lc, rc))


def _operand(b: Builder, batch: Shape, free: Shape, inner: list[int], dtype: str) -> tuple[Value, list[int], list[int]]:
    """An operand of a dot with its kinds of dimensions shuffled, the free ones in order."""
    labels = [("b", i) for i in range(len(batch))] + [("c", i) for i in range(len(inner))]
    b.rng.shuffle(labels)
    places = sorted(b.rng.randint(0, len(labels)) for _ in free)
    for number, place in reversed(list(enumerate(places))):
        labels.insert(place, ("f", number))
    sizes = {"b": batch, "c": tuple(inner), "f": free}
    x = small(b, tuple(sizes[kind][number] for kind, number in labels), dtype)
    return (
        x,
        [labels.index(("b", i)) for i in range(len(batch))],
        [labels.index(("c", i)) for i in range(len(inner))],
    )


def counted(b: Builder, shape: Shape, dtype: str) -> Value:
    """iota, alone or one compared with another, as masks are made."""
    if not shape or dtypes.is_complex(dtype):
        return outer(b, shape, dtype)
    kind = b.rng.choice(("i32", "i32", "i64", "ui32", "f32", "bf16", "i8", "ui8"))  # the narrow ones wrap or round
    first = emit.iota(b, shape, kind, b.rng.randrange(len(shape)))
    if b.chance(0.3) and dtypes.is_inexact(dtype) and first.size <= dtypes.tame_limit(dtype):
        return emit.convert(b, first, dtype)
    second = emit.iota(b, shape, kind, b.rng.randrange(len(shape)))
    if b.chance(0.4):
        second = emit.binary(b, "add", second, b.splat(shape, kind, b.rng.choice((0, 1, 5))))
    mask = emit.compare(b, first, second, b.rng.choice(("EQ", "NE", "LT", "LE", "GT", "GE")))
    if dtype == "i1":
        return mask
    if b.chance(0.5):
        return emit.convert(b, mask, dtype)
    return emit.select(b, mask, outer(b, shape, dtype), b.splat(shape, dtype, b.rng.choice((0, 0, -2, 3))))


def looked_up(b: Builder, shape: Shape, dtype: str) -> Value:
    """Rows of a table, taken by indices of which some lie outside."""
    if not shape:
        return outer(b, shape, dtype)
    rows = b.rng.choice((1, 3, 7, 12))
    table = b.argument((rows, *shape[1:]), dtype)
    indices = b.argument((shape[0], 1), b.rng.choice(("i32", "i64", "ui8", "i8")), "indices", rows)
    numbers = (
        f"offset_dims = [{emit.join(range(1, len(shape)))}], collapsed_slice_dims = [0], start_index_map = [0], "
        "index_vector_dim = 1"
    )
    attributes = (
        f"dimension_numbers = #stablehlo.gather<{numbers}>, "
        f"slice_sizes = {emit.list_of((1, *shape[1:]))}, indices_are_sorted = false"
    )
    return emit.shown(b, "stablehlo.gather", [table, indices], (shape, dtype), attributes)


def converted(b: Builder, shape: Shape, dtype: str) -> Value:
    """Made in another type."""
    other = b.rng.choice(("f32", "i32", "i1", "bf16", "i8", "f64"))
    return emit.convert(b, outer(b, shape, other), dtype)


def drawn(b: Builder, shape: Shape, dtype: str) -> Value:
    """Random bits, always the same ones."""
    # XLA takes signed ones for unsigned, and then compiles no loop that reads them.
    if not dtypes.is_unsigned(dtype) or dtypes.bits_of(dtype) < 8:
        return outer(b, shape, dtype)
    state = b.splat((2,), "ui64", b.rng.randint(0, 1000))
    algorithm = b.rng.choice(("THREE_FRY", "PHILOX"))
    _, bits = b.op(
        "stablehlo.rng_bit_generator",
        [state],
        [((2,), "ui64"), (shape, dtype)],
        f"rng_algorithm = #stablehlo<rng_algorithm {algorithm}>",
    )
    return Value(bits, shape, dtype, True, True, dtypes.exact_limit(dtype))


def given(b: Builder, shape: Shape, dtype: str) -> Value:
    """An argument as big as that."""
    return b.argument(shape, dtype)


# Each with its weight.
SOURCES = ((outer, 5), (product, 5), (counted, 2), (looked_up, 1), (converted, 1), (drawn, 0.3), (given, 1))


def make(b: Builder, shape: Shape, dtype: str) -> Value:
    """A tensor of this type, made in one of these ways."""
    [source] = b.rng.choices([source for source, _ in SOURCES], [weight for _, weight in SOURCES])
    return source(b, shape, dtype)
