"""Gathers and scatters of every kind, and windows."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tests.fuzz import dtypes, emit
from tests.fuzz.builder import Builder, Shape, Value
from tests.fuzz.reductions import bodies
from tests.fuzz.sources import make


def _windows(b: Builder, x: Value) -> tuple[list[int], list[int], list[int], list[int]]:
    """Batching dimensions, indexed ones, the size of a slice in each, and the indexed ones that are collapsed."""
    batching = [0] if x.rank > 1 and b.chance(0.25) else []
    others = [dim for dim in range(x.rank) if dim not in batching]
    indexed = b.rng.sample(others, b.rng.randint(1, min(2, len(others))))
    sizes = [1 if dim in batching else size for dim, size in enumerate(x.shape)]
    collapsed = []
    for dim in indexed:
        sizes[dim] = 1 if b.chance(0.6) else b.rng.randint(1, x.shape[dim])
        if sizes[dim] == 1 and b.chance(0.8):
            collapsed.append(dim)
    return batching, indexed, sizes, sorted(collapsed)


def _indices(
    b: Builder, x: Value, batching: list[int], indexed: list[int], single: list[int]
) -> tuple[Value, Shape, int]:
    """Indices with some outside; the shape without the dimension of the vector, and where that stands.

    single: the indexed dimensions of which windows have one element.
    """
    if single and not batching and b.chance(0.4):
        return _counting(b, x, indexed, b.rng.choice(single))
    rows = tuple(b.rng.choice((1, 2, 5, *b.sizes)) for _ in range(b.rng.choice((0, 1, 1, 2))))
    batch = tuple(x.shape[dim] for dim in batching) + rows
    place = b.rng.choice((len(batch), b.rng.randint(0, len(batch)))) if not batching else len(batch)
    shape = (*batch[:place], len(indexed), *batch[place:])
    high = max(x.shape[dim] for dim in indexed)
    # XLA checks a scatter's indices against a bound that it rounds to their type.
    dtype = b.rng.choice(("i32", "i32", "i64", "ui8" if high <= 256 else "i32"))
    return b.argument(shape, dtype, "indices", high), batch, place


def _counting(b: Builder, x: Value, indexed: list[int], dim: int) -> tuple[Value, Shape, int]:
    """The same, of which the component that indexes `dim` counts: its rows, or all but one, some of them backwards."""
    dtype, size = b.rng.choice(("i32", "i32", "i64", "i16")), x.shape[dim]
    left = 1 if size > 2 and b.chance(0.3) else 0
    batch = tuple(b.rng.sample(rows := [size - left, *[3] * b.chance(0.4)], len(rows)))
    at = batch.index(size - left)
    count = emit.iota(b, batch, dtype, at)
    if b.chance(0.3):
        count = emit.shown(b, "stablehlo.reverse", [count], (batch, dtype), f"dimensions = {emit.list_of([at])}")
    if left and b.chance(0.6):
        [name] = b.op("stablehlo.add", [count, b.splat(batch, dtype, left)], [(batch, dtype)])
        count = replace(count, name=name)
    if b.chance(0.3):  # as JAX does, where it does not know that none is negative
        [moved] = b.op("stablehlo.add", [count, b.splat(batch, dtype, size)], [(batch, dtype)])
        negative = emit.compare(b, count, b.splat(batch, dtype, 0), "LT")
        count = emit.select(b, negative, replace(count, name=moved), count)
    high = max(x.shape[each] for each in indexed)
    columns = [count if each == dim else b.argument(batch, dtype, "indices", high) for each in indexed]
    place = b.rng.randint(0, len(batch))
    one, all_columns = ((*batch[:place], size, *batch[place:]) for size in (1, len(indexed)))
    columns = [emit.reshape(b, column, one) for column in columns]
    joined = emit.shown(b, "stablehlo.concatenate", columns, (all_columns, dtype), f"dimension = {place} : i64")
    return joined, batch, place


def gathered(b: Builder, x: Value) -> list[Value]:
    """gather from x."""
    if not x.rank or 0 in x.shape:
        return []
    batching, indexed, sizes, collapsed = _windows(b, x)
    indices, batch, place = _indices(b, x, batching, indexed, collapsed)
    inner = [size for dim, size in enumerate(sizes) if dim not in (*batching, *collapsed)]
    rank = len(batch) + len(inner)
    offsets = sorted(b.rng.sample(range(rank), len(inner))) if b.chance(0.4) else list(range(len(batch), rank))
    rest = iter(batch)
    windows = iter(inner)
    shape = tuple(next(windows) if dim in offsets else next(rest) for dim in range(rank))
    if not b.fits(shape):
        return []
    numbers = [f"offset_dims = [{emit.join(offsets)}]", f"collapsed_slice_dims = [{emit.join(collapsed)}]"]
    if batching:
        numbers += ["operand_batching_dims = [0]", "start_indices_batching_dims = [0]"]
    numbers += [f"start_index_map = [{emit.join(indexed)}]", f"index_vector_dim = {place}"]
    attributes = (
        f"dimension_numbers = #stablehlo.gather<{', '.join(numbers)}>, "
        f"slice_sizes = {emit.list_of(sizes)}, indices_are_sorted = false"
    )
    return [emit.shown(b, "stablehlo.gather", [x, indices], (shape, x.dtype), attributes)]


def scattered(b: Builder, x: Value) -> list[Value]:
    """scatter into x, or of x into another: added, multiplied, chosen or overwritten, with duplicates."""
    if not x.rank or 0 in x.shape:
        return []
    batching, indexed, sizes, inserted = _windows(b, x)
    indices, batch, place = _indices(b, x, batching, indexed, inserted)
    inner = [size for dim, size in enumerate(sizes) if dim not in (*batching, *inserted)]
    rank = len(batch) + len(inner)
    windows = list(range(len(batch), rank))
    shape = (*batch, *inner)
    if not b.fits(shape):
        return []
    updates = make(b, shape, x.dtype)
    numbers = [f"update_window_dims = [{emit.join(windows)}]", f"inserted_window_dims = [{emit.join(inserted)}]"]
    if batching:
        numbers += ["input_batching_dims = [0]", "scatter_indices_batching_dims = [0]"]
    numbers += [f"scatter_dims_to_operand_dims = [{emit.join(indexed)}]", f"index_vector_dim = {place}"]
    attributes = (
        f"scatter_dimension_numbers = #stablehlo.scatter<{', '.join(numbers)}>, "
        "indices_are_sorted = false, unique_indices = false"
    )
    name = b.rng.choice((*bodies(x.dtype), ""))
    count = prod(shape) + 1
    if name == "add" and dtypes.is_inexact(x.dtype):
        both = replace(x, size=max(x.size, updates.size), integral=x.integral and updates.integral)
        limit = dtypes.exact_limit(x.dtype) if both.integral else dtypes.tame_limit(x.dtype)
        limit = max(limit / count, 1.0 if dtypes.bits_of(x.dtype) > 8 else 0.0)
        x, updates = emit.tame(b, x, limit), emit.tame(b, updates, limit)
    if name == "multiply":
        x, updates = emit.tame(b, x, 1.0), emit.tame(b, updates, 1.0)
    region = emit.body(b, name, x.dtype) if name else _overwrite(b, x.dtype)
    [result] = b.op("stablehlo.scatter", [x, indices, updates], [x.type], attributes, [region])
    both = replace(
        x,
        exact=x.exact and updates.exact,
        integral=x.integral and updates.integral,
        size=max(x.size, updates.size),
    )
    return [emit.combined(both, name or "maximum", count, 0.0, x.type, result)]


def _overwrite(b: Builder, dtype: str) -> str:
    first, second = b.fresh(), b.fresh()
    kind = b.spell(((), dtype))
    return f'{{\n^bb0({first}: {kind}, {second}: {kind}):\n"stablehlo.return"({second}) : ({kind}) -> ()\n}}'


def windowed(b: Builder, x: Value) -> list[Value]:
    """reduce_window: pooling, moving sums with padding and dilation, and cumulative ones."""
    if not x.rank or 0 in x.shape or x.dtype == "i1":
        return []
    name = b.rng.choice(bodies(x.dtype))
    sizes: list[int] = []
    strides: list[int] = []
    bases: list[int] = []
    dilations: list[int] = []
    padding: list[tuple[int, int]] = []
    shape: list[int] = []
    running = b.rng.randrange(x.rank) if b.chance(0.4) else -1
    for dim, size in enumerate(x.shape):
        window, stride, base, dilation, low, high = 1, 1, 1, 1, 0, 0
        if dim == running:
            window, low = size, size - 1
            if b.chance(0.15):
                low, high = 0, size - 1
        elif running < 0 and b.chance(0.6):
            window = b.rng.choice((1, 2, 3, 5))
            stride = b.rng.choice((1, 1, 2, window))
            base, dilation = b.rng.choice((1, 1, 1, 2)), b.rng.choice((1, 1, 1, 2))
            low, high = b.rng.choice((0, 0, 1, 2, -1)), b.rng.choice((0, 0, 1, 3, -1))
        span = (size - 1) * base + 1 + low + high
        reach = (window - 1) * dilation + 1
        count = (span - reach) // stride + 1 if span >= reach else 0
        if count < 1:
            return []
        for numbers, number in zip((sizes, strides, bases, dilations), (window, stride, base, dilation), strict=True):
            numbers.append(number)
        padding.append((low, high))
        shape.append(count)
    if not b.fits(tuple(shape)):
        return []
    count = prod(sizes)
    x = emit.folded(b, name, x, count)
    init = emit.identity(b, name, x.dtype) if b.chance(0.85) else b.scalar(x.dtype, 1)
    pairs = ", ".join(f"[{low}, {high}]" for low, high in padding)
    attributes = (
        f"window_dimensions = {emit.list_of(sizes)}, window_strides = {emit.list_of(strides)}, "
        f"base_dilations = {emit.list_of(bases)}, window_dilations = {emit.list_of(dilations)}, "
        f"padding = dense<[{pairs}]> : tensor<{x.rank}x2xi64>"
    )
    kind = (tuple(shape), x.dtype)
    [result] = b.op("stablehlo.reduce_window", [x, init], [kind], attributes, [emit.body(b, name, x.dtype)])
    return [emit.combined(x, name, count, init.size, kind, result)]


def convolved(b: Builder, x: Value) -> list[Value]:
    """A convolution of x, taken as batch, one or two spatial dimensions, and features, in some layout."""
    if x.rank not in (3, 4) or 0 in x.shape or x.dtype not in ("f64", "f32", "f16", "bf16", "i32", "complex<f32>"):
        return []
    spatial = x.rank - 2
    batch, feature, *places = b.rng.choice(((0, x.rank - 1, *range(1, x.rank - 1)), (0, 1, *range(2, x.rank))))
    groups = b.rng.choice([g for g in (1, 1, x.shape[feature]) if x.shape[feature] % g == 0])
    features = groups * b.rng.choice((1, 2, 3))
    by_batch = b.rng.choice([g for g in (1, 1, 2, x.shape[batch]) if x.shape[batch] % g == 0]) if groups == 1 else 1
    if b.special:  # XLA may compute groups as one with zeros between them, which spreads NaN
        groups = by_batch = 1
        features = 2
    features *= by_batch
    kernel, windows, shape = [], [], []
    for place in places:
        size = b.rng.choice((1, 2, 3))
        stride, low, high = b.rng.choice((1, 1, 2, size)), b.rng.choice((0, 0, 1)), b.rng.choice((0, 0, 2))
        base, dilation = b.rng.choice((1, 1, 2)), b.rng.choice((1, 1, 2))
        if b.special:  # XLA decides by the shape whether a weight is multiplied by the zeros of a padding
            low, high, base = 0, 0, 1
        span = (x.shape[place] - 1) * base + 1 + low + high
        reach = (size - 1) * dilation + 1
        if span < reach:
            return []
        kernel.append(size)
        windows.append((stride, low, high, base, dilation))
        shape.append((span - reach) // stride + 1)
    inner = x.shape[feature] // groups
    count = prod(kernel) * inner
    limit = min(dtypes.tame_limit(x.dtype), dtypes.exact_limit(x.dtype) if x.integral else 1e30)
    x = emit.tame(b, x, max((limit / count) ** 0.5 / 2, 1.0))
    weights = emit.tame(b, make(b, (*kernel, inner, features), x.dtype), max((limit / count) ** 0.5 / 2, 1.0))
    letters = [""] * x.rank
    letters[batch], letters[feature] = "b", "f"
    for number, place in enumerate(places):
        letters[place] = str(number)
    outer = list(letters)
    numbers = f"[{', '.join(letters)}]x[{', '.join([*map(str, range(spatial)), 'i', 'o'])}]->[{', '.join(outer)}]"
    result_shape = list(x.shape)
    result_shape[feature] = features
    result_shape[batch] //= by_batch
    for place, size in zip(places, shape, strict=True):
        result_shape[place] = size
    if not b.fits(tuple(result_shape)):
        return []
    pairs = ", ".join(f"[{low}, {high}]" for _, low, high, _, _ in windows)
    attributes = (
        f"dimension_numbers = #stablehlo.conv<{numbers}>, feature_group_count = {groups} : i64, "
        f"batch_group_count = {by_batch} : i64, window_strides = {emit.list_of([w[0] for w in windows])}, "
        f"padding = dense<[{pairs}]> : tensor<{spatial}x2xi64>, "
        f"lhs_dilation = {emit.list_of([w[3] for w in windows])}, "
        f"rhs_dilation = {emit.list_of([w[4] for w in windows])}"
    )
    kind = (tuple(result_shape), x.dtype)
    [name] = b.op("stablehlo.convolution", [x, weights], [kind], attributes)
    largest = x.size * weights.size * (2 if dtypes.is_complex(x.dtype) else 1)
    both = replace(x, exact=x.exact and weights.exact, integral=x.integral and weights.integral, size=largest)
    return [emit.combined(both, "add", max(count, 2), 0.0, kind, name)]


INDEXING = ((gathered, 4), (scattered, 4), (windowed, 3), (convolved, 2))
