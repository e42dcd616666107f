"""Sorts, and the best few of each row."""

from __future__ import annotations

from dataclasses import replace

from tests.fuzz import dtypes, emit
from tests.fuzz.builder import Builder, Value
from tests.fuzz.sources import exactly, like, make


def _with_one_zero(b: Builder, x: Value) -> Value:
    """x with one zero and one NaN only, as JAX sorts: nobody promises the signs of those that are computed."""
    if not dtypes.is_float(x.dtype) or x.name.startswith("%arg"):
        return x
    zero = b.splat(x.shape, x.dtype, 0)
    x = emit.select(b, emit.compare(b, x, zero, "EQ"), zero, x)
    if not b.special:
        return x
    return emit.select(b, emit.compare(b, x, x, "NE"), b.splat(x.shape, x.dtype, float("nan")), x)


def _can_be_ordered(x: Value) -> bool:
    return x.rank > 0 and x.dtype != "i1" and not dtypes.is_complex(x.dtype)


def ordered(b: Builder, x: Value) -> list[Value]:
    """sort of one tensor or two, with ties."""
    if not _can_be_ordered(x):
        return []
    dim = b.rng.randrange(x.rank)
    alone = b.chance(0.4)
    x = x if alone and not b.special else exactly(b, x)
    x = _with_one_zero(b, x)
    operands = [x] if alone else [x, exactly(b, like(b, x)) if b.chance(0.5) else emit.iota(b, x.shape, "i32", dim)]
    stable = b.chance(0.8) or not alone
    return _sorted(b, operands, dim, b.rng.choice(("LT", "GT")), total=b.special or b.chance(0.5), stable=stable)


def _sorted(b: Builder, operands: list[Value], dim: int, direction: str, *, total: bool, stable: bool) -> list[Value]:
    """sort by the first operand."""
    x = operands[0]
    arguments = [(b.fresh(), b.spell(((), v.dtype))) for v in operands for _ in range(2)]
    kind = "UNSIGNED" if dtypes.is_unsigned(x.dtype) else "SIGNED"
    if dtypes.is_float(x.dtype):
        kind = "TOTALORDER" if total else "FLOAT"
    result = b.fresh()
    head = ", ".join(f"{name}: {spelled}" for name, spelled in arguments)
    spelled = arguments[0][1]
    region = (
        f"{{\n^bb0({head}):\n"
        f'{result} = "stablehlo.compare"({arguments[0][0]}, {arguments[1][0]}) {{comparison_direction = '
        f"#stablehlo<comparison_direction {direction}>, compare_type = #stablehlo<comparison_type "
        f"{kind}>}} : ({spelled}, {spelled}) -> tensor<i1>\n"
        f'"stablehlo.return"({result}) : (tensor<i1>) -> ()\n}}'
    )
    attributes = f"dimension = {dim} : i64, is_stable = {str(stable).lower()}"
    names = b.op("stablehlo.sort", operands, [v.type for v in operands], attributes, [region])
    return [Value(n, *v.type, v.exact, v.integral, v.size) for n, v in zip(names, operands, strict=True)]


def first_of_sorted(b: Builder, x: Value) -> list[Value]:
    """The first few of a sort, as TensorFlow writes top_k, and what only looks like it."""
    if not _can_be_ordered(x):
        return []
    if b.chance(0.5) or x.shape[-1] < 4:
        x = make(b, (b.rng.choice((1, 2, 3)), b.rng.choice((37, 307, 613))), x.dtype)
    x = _with_one_zero(b, exactly(b, x))
    dim = x.rank - 1 if b.chance(0.9) else b.rng.randrange(x.rank)
    operands = [x, emit.iota(b, x.shape, b.rng.choice(("i32", "i32", "i64")), dim)][: 1 + b.chance(0.9)]
    direction = "GT" if b.chance(0.85) else "LT"
    sorts = _sorted(b, operands, dim, direction, total=b.special or b.chance(0.9), stable=True)
    count = b.rng.choice((1, 2, 3, 5))
    return [_first(b, value, dim, min(count, value.shape[dim])) for value in sorts]


def few_of_sorted(b: Builder, x: Value) -> list[Value]:
    """Few elements of a long sort, somewhere in it: medians and the like."""
    if not _can_be_ordered(x):
        return []
    x = _with_one_zero(b, exactly(b, make(b, b.rng.choice(((307,), (1231,), (613, 2), (2, 613))), x.dtype)))
    dim = 0 if x.rank == 1 or x.shape[0] > 2 else 1
    direction = b.rng.choice(("LT", "GT"))
    [value] = _sorted(b, [x], dim, direction, total=b.special or b.chance(0.9), stable=b.chance(0.8))
    counts = [b.rng.choice((1, 2, 3, 7)) for _ in range(b.rng.choice((1, 1, 2)))]
    return [_part(b, value, dim, b.rng.randint(0, x.shape[dim] - count), count) for count in counts]


def _first(b: Builder, x: Value, dim: int, count: int) -> Value:
    return _part(b, x, dim, 0, count)


def _part(b: Builder, x: Value, dim: int, start: int, count: int) -> Value:
    shape = (*x.shape[:dim], count, *x.shape[dim + 1 :])
    starts = [start if place == dim else 0 for place in range(x.rank)]
    limits = [begin + size for begin, size in zip(starts, shape, strict=True)]
    attributes = (
        f"start_indices = {emit.list_of(starts)}, limit_indices = {emit.list_of(limits)}, "
        f"strides = {emit.list_of([1] * x.rank)}"
    )
    [name] = b.op("stablehlo.slice", [x], [(shape, x.dtype)], attributes)
    return replace(x, name=name, shape=shape)


def best(b: Builder, x: Value) -> list[Value]:
    """chlo.top_k, with ties."""
    x = exactly(b, x)
    if not _can_be_ordered(x) or not x.shape[-1]:
        return []
    x = _with_one_zero(b, x)
    count = min(x.shape[-1], b.rng.choice((1, 2, 3, 5, x.shape[-1])))
    shape = (*x.shape[:-1], count)
    names = b.op("chlo.top_k", [x], [(shape, x.dtype), (shape, "i32")], f"k = {count} : i64")
    return [
        Value(names[0], shape, x.dtype, True, x.integral, x.size),
        Value(names[1], shape, "i32", True, True, float(x.shape[-1])),
    ]


def best_of_many(b: Builder, x: Value) -> list[Value]:
    """chlo.top_k of rows that are long compared with k."""
    if x.dtype == "i1" or dtypes.is_complex(x.dtype):
        return []
    return best(b, make(b, (b.rng.choice((1, 2, 3)), b.rng.choice((307, 613))), x.dtype))


ORDERING = ((ordered, 2), (best, 2), (best_of_many, 0.5), (first_of_sorted, 1), (few_of_sorted, 1))
