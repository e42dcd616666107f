"""Medians and other elements by their rank, found by counting: which sorts are replaced, and that nothing changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import export, lax

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.walk import inside_out
from exla_opt.memory.machine import CPU
from exla_opt.memory.peak import predict
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.remarks import Kind
from tests.execute import assert_equal_results, run_module

Array = Any
ALONE = ("normalise", "order-statistics")
TINY = Options(size_threshold=64, split_size=32)
SIZE = 211
# The element types, and the bits of numbers that are easily put in the wrong place: zeros of both signs, the largest and
# the smallest, infinities, what is no number, subnormal ones. float32's subnormal numbers are zero to XLA:CPU.
FLOATS: dict[str, list[float]] = {
    kind: [0.0, -0.0, np.inf, -np.inf, 1.0, -1.0, 1.5, -1.5, 3e-3, -3e-3, 60000.0, -60000.0]
    for kind in ("float64", "float32", "float16", "bfloat16")
}
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool")
MLIR = {
    **{f"float{bits}": f"f{bits}" for bits in (16, 32, 64)},
    **{f"int{bits}": f"i{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"ui{bits}" for bits in (8, 16, 32, 64)},
    "bfloat16": "bf16",
    "bool": "i1",
}


def elements(kind: str, seed: int, size: int = SIZE) -> np.ndarray[Any, Any]:
    """Random numbers with ties and with all that is special to the type, but for NaN."""
    random = np.random.default_rng(seed)
    if kind == "bool":
        return random.random(size) < 0.4
    if kind in FLOATS:
        spread = random.standard_normal(size) * 10.0 ** random.integers(-3, 4, size)
        special = random.choice(FLOATS[kind], size)
        return np.where(random.random(size) < 0.3, special, spread).astype(jnp.dtype(kind))
    ends = np.iinfo(kind)
    wide = random.integers(ends.min, ends.max, size, dtype=kind, endpoint=True)
    few = random.choice(np.array([ends.min, ends.max, 0, 1, 2, 3], dtype=kind), size)
    return np.where(random.random(size) < 0.3, few, wide)


def sort_text(kind: str, direction: str, reads: str, how: str = "", size: int = SIZE, swapped: bool = False) -> str:
    """A module that sorts one tensor by a plain comparison. reads: the ops behind it, which make %r of type R."""
    element = MLIR[kind]
    unsigned = kind == "bool" or kind.startswith("u")
    how = how or ("TOTALORDER" if kind in FLOATS else "UNSIGNED" if unsigned else "SIGNED")
    body, _, result = reads.rpartition(" -> ")
    sides = "%b, %a" if swapped else "%a, %b"
    return f"""
func.func @main(%x: tensor<{size}x{element}>, %k: tensor<i32>) -> {result.format(e=element)} {{
  %s = "stablehlo.sort"(%x) <{{dimension = 0 : i64, is_stable = true}}> ({{
  ^bb0(%a: tensor<{element}>, %b: tensor<{element}>):
    %before = stablehlo.compare {direction}, {sides}, {how} : (tensor<{element}>, tensor<{element}>) -> tensor<i1>
    stablehlo.return %before : tensor<i1>
  }}) : (tensor<{size}x{element}>) -> tensor<{size}x{element}>
  {body.format(e=element, n=size)}
  return %r : {result.format(e=element)}
}}"""


SLICE = "%r = stablehlo.slice %s [{start}:{stop}:{step}] : (tensor<{{n}}x{{e}}>) -> tensor<{count}x{{e}}> -> tensor<{count}x{{e}}>"
DYNAMIC = "%r = stablehlo.dynamic_slice %s, %k, sizes = [3] : (tensor<{n}x{e}>, tensor<i32>) -> tensor<3x{e}> -> tensor<3x{e}>"
SECOND = "%r = stablehlo.slice %s [1:2] : (tensor<{n}x{e}>) -> tensor<1x{e}> -> tensor<1x{e}>"


def slice_of(start: int, count: int, step: int = 1) -> str:
    stop = start + (count - 1) * step + 1
    return SLICE.format(start=start, stop=stop, step=step, count=count)


def rewritten(text: str, options: Options = TINY, passes: Sequence[str] = ALONE) -> tuple[str, list[str], int]:
    """What a module becomes, the codes of this pass's remarks, and how many sorts are left."""
    with new_context() as context:
        module = parse_module("test", text.encode(), context).module
        remarks = run_pipeline(module, passes, options).remarks
        sorts = len(inside_out(module, "stablehlo.sort"))
        codes = [each.code for each in remarks if each.pass_name == "order-statistics"]
        return str(module), codes, sorts


def results(text: str, *arrays: Any) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(each) for each in run_module(text, [np.asarray(each) for each in arrays])]


def assert_same_bits(text: str, *arrays: Any, zeros: bool = False) -> None:
    """That a module whose sort goes has the same results. zeros: whether the sign of a zero does not count."""
    after, codes, sorts = rewritten(text)
    assert (codes, sorts) == (["EX008"], 0)
    for one, other in zip(results(text, *arrays), results(after, *arrays), strict=True):
        if zeros:
            one, other = (np.where(each == 0, np.zeros_like(each), each) for each in (one, other))
        assert one.tobytes() == other.tobytes(), f"{one} became {other}"


@pytest.mark.parametrize("direction", ["LT", "GT"])
@pytest.mark.parametrize("kind", [*FLOATS, *INTEGERS])
def test_every_rank_has_its_element(kind: str, direction: str) -> None:
    values = elements(kind, 0)
    for start, count in ((0, 12), (31, 30), (70, 1), (SIZE // 2, 2), (180, 31 - 1), (SIZE - 1, 1)):
        assert_same_bits(sort_text(kind, direction, slice_of(start, count)), values, np.int32(0))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["float32", "bfloat16", "int16"]), st.booleans(), st.booleans())
def test_any_few_ranks(seed: int, kind: str, descending: bool, swapped: bool) -> None:
    random = np.random.default_rng(seed)
    count, step = int(random.integers(1, 6)), int(random.integers(1, 9))
    start = int(random.integers(0, SIZE - (count - 1) * step))
    text = sort_text(kind, "GT" if descending else "LT", slice_of(start, count, step), swapped=swapped)
    assert_same_bits(text, elements(kind, seed), np.int32(0))


@pytest.mark.parametrize("place", [-5, 0, 77, SIZE - 3, SIZE - 2, SIZE + 100, 2**31 - 1])
def test_a_computed_place_is_clamped(place: int) -> None:
    assert_same_bits(sort_text("float32", "LT", DYNAMIC), elements("float32", 1), np.int32(place))


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_all_elements_alike(kind: str) -> None:
    for number in (0.0, -0.0, 2.5, np.inf, -np.inf):
        values = np.full(SIZE, number, jnp.dtype(kind))
        assert_same_bits(sort_text(kind, "LT", slice_of(100, 2)), values, np.int32(0))


def test_nan_by_its_bits_where_the_order_is_total() -> None:
    """Negative ones come first, positive ones last, by the bits behind the sign."""
    values = elements("float32", 2)
    values.view(np.uint32)[:8] = (0xFFC00000, 0x7FC00000, 0xFFC00001, 0x7FC12345, 0x7FFFFFFF, 0xFFFFFFFF) * 1 + (
        0x7FC00001,
    ) * 2
    for start in (0, 3, SIZE - 6, SIZE - 1):
        assert_same_bits(sort_text("float32", "LT", slice_of(start, 1)), values, np.int32(0))


def by_jax(function: Callable[..., Array], *shapes: Any) -> str:
    with jax.enable_x64(True):
        return str(export.export(jax.jit(function))(*shapes).mlir_module())


def test_zeros_and_nans_of_jax() -> None:
    """Zeros of both signs are one to JAX's sort, and so are all NaNs, which come last."""
    values = elements("float32", 3)
    values.view(np.uint32)[:6] = (0xFFC00000, 0x7FC00000, 0xFFC00001, 0x7FC12345, 0xFFFFFFFF, 0x7FC00000)
    size = values.size
    zero = np.flatnonzero(np.sort(values) == 0)
    assert {True, False} <= set(np.signbit(values[values == 0]))
    shape = jax.ShapeDtypeStruct(values.shape, values.dtype)
    for place in (0, zero[0] - 1, *zero, zero[-1] + 1, size - 7, size - 6, size - 1):
        text = by_jax(lambda x, at=int(place): jnp.sort(x)[at], shape)
        after, codes, sorts = rewritten(text)
        assert (codes, sorts) == (["EX008"], 0)
        one, other = results(text, values)[0], results(after, values)[0]
        assert np.array_equal(one, other, equal_nan=True)
        assert place >= size - 6 or one == 0 or one.tobytes() == other.tobytes()


@pytest.mark.parametrize("number", [0.0, -0.0])
def test_zeros_of_one_sign_keep_it(number: float) -> None:
    values = np.abs(elements("float32", 4))
    values[values == 0] = number
    values[:20] = number
    text = by_jax(lambda x: jnp.sort(x)[9], jax.ShapeDtypeStruct(values.shape, values.dtype))
    assert results(rewritten(text)[0], values)[0].tobytes() == np.float32(number).tobytes()


def distances(x: Array, y: Array) -> Array:
    return jnp.sum(x * x, 1)[:, None] + jnp.sum(y * y, 1)[None] - 2 * x @ y.T


def points(count: int, numbers: int, kind: Any = jnp.float32) -> Any:
    return jax.ShapeDtypeStruct((count, numbers), kind)


def median_heuristic(x: Array, y: Array) -> Array:
    d = distances(x, y)
    return jnp.exp(-d / jnp.median(d)).sum(1)


def several_quantiles(x: Array, y: Array) -> Array:
    return jnp.percentile(jnp.abs(x @ y.T), jnp.array([5.0, 50.0, 95.0]))


def of_columns(x: Array, y: Array) -> Array:
    return jnp.quantile((x[:, None] * y[None]).reshape(-1, 5), 0.3, axis=0)


def of_many_problems(x: Array, y: Array) -> Array:
    together = jnp.stack([x, x + 1, 2 * x])
    return jax.vmap(lambda z: jnp.median(distances(z, y)))(together)


def middle_deviation(x: Array, y: Array) -> Array:
    r = x @ y.T
    return jnp.median(jnp.abs(r - jnp.median(r)))


def of_what_are_numbers(x: Array, y: Array) -> Array:
    return jnp.nanmedian(jnp.log(x @ y.T))


def largest_third(x: Array, y: Array) -> Array:
    d = jnp.sort((x @ y.T).ravel(), descending=True)
    return d[d.size // 3]


def of_integers(x: Array, y: Array) -> Array:
    return jnp.sort(jnp.sum((x[:, None] > y[None]).astype(jnp.int32), -1).ravel())[123:130:3]


def in_a_scan(x: Array, y: Array) -> Array:
    def step(c: Array, _: None) -> tuple[Array, None]:
        d = distances(c, y)
        return c + 0.01 * jnp.exp(-d / jnp.median(d)) @ y, None

    return lax.scan(step, x, None, length=3)[0]


def read_by_a_loop(x: Array, y: Array) -> Array:
    d = distances(x, y)
    kernel = jnp.exp(-d / jnp.median(d))
    return lax.map(lambda row: jnp.tanh(kernel * row).sum(1), y.T)


def computed_place(x: Array, y: Array) -> Array:
    d = (x @ y.T).ravel()
    return jnp.sort(d)[jnp.argmax(x[:, 0]) * 50]


PROGRAMS = [
    median_heuristic, several_quantiles, of_columns, of_many_problems, middle_deviation, of_what_are_numbers,
    largest_third, of_integers, in_a_scan, read_by_a_loop, computed_place,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: str(each.__name__))
@pytest.mark.parametrize("kind", [jnp.float32, jnp.float64, jnp.bfloat16], ids=["f32", "f64", "bf16"])
def test_programs_stay_equal_and_take_less(program: Callable[..., Array], kind: Any) -> None:
    text = by_jax(program, points(150, 5, kind), points(150, 5, kind))
    options = Options(size_threshold=20_000, split_size=8_000)
    with new_context() as context:
        original, module = (parse_module("test", text.encode(), context).module for _ in range(2))
        run_pipeline(original, ("normalise",), options)
        remarks = run_pipeline(module, DEFAULT_PASSES, options).remarks
        done = [each for each in remarks if each.pass_name == "order-statistics"]
        assert done and {each.kind for each in done} == {Kind.PASSED}
        assert not any(each.message.startswith("not split") and each.code != "EX101" for each in remarks)
        assert predict(module, CPU).peak < 0.6 * predict(original, CPU).peak
        assert_equal_results(original, module)


def test_a_second_run_changes_nothing() -> None:
    text = by_jax(median_heuristic, points(150, 5), points(150, 5))
    options = Options(size_threshold=20_000, split_size=8_000)
    once, codes, _ = rewritten(text, options, DEFAULT_PASSES)
    again, none, _ = rewritten(once, options, DEFAULT_PASSES)
    assert codes and not none and again.count("stablehlo.while") == once.count("stablehlo.while")


# What stays sorted, and the code of the remark that says why; "" where there is nothing to say.
def read_whole(x: Array, y: Array) -> Array:
    return jnp.sort((x @ y.T).ravel())


def rows(x: Array, y: Array) -> Array:
    return jnp.median(x @ y.T, axis=1)


def too_many(x: Array, y: Array) -> Array:
    return jnp.sort((x @ y.T).ravel())[100:131]


def running_sum(x: Array, y: Array) -> Array:
    s = jnp.sort((x @ y.T).ravel())
    return s[100] + jnp.cumsum(s)[200]


def weighted_by_place(x: Array, y: Array) -> Array:
    s = jnp.sort((x @ y.T).ravel())
    return s[100] + jnp.sum(s * jnp.arange(s.size))


def compared_with_its_quantile(x: Array, y: Array) -> Array:
    r = x @ y.T
    return jnp.sum(r >= jnp.quantile(r, 0.9))


def above_its_median(x: Array, y: Array) -> Array:
    r = x @ y.T
    return jnp.sum(jnp.sign(r - jnp.median(r)))


def compared_in_a_branch(x: Array, y: Array) -> Array:
    r = x @ y.T
    q = jnp.quantile(r, 0.9)
    return lax.cond(q > 1, lambda: jnp.sum(r >= q), lambda: jnp.sum(r < q))


def place_by_value(x: Array, y: Array) -> Array:
    s = jnp.sort((x @ y.T).ravel())
    return s[s[0].astype(jnp.int32)]


def places(x: Array, y: Array) -> Array:
    return jnp.argsort((x @ y.T).ravel())[77]


def by_two(x: Array, y: Array) -> Array:
    return lax.sort([(x @ y.T).ravel(), (y @ x.T).ravel()], num_keys=2)[0][77]


REFUSED = [
    (read_whole, ""), (rows, ""), (too_many, ""), (running_sum, ""), (weighted_by_place, ""), (place_by_value, ""),
    (compared_in_a_branch, "EX309"), (compared_with_its_quantile, "EX309"), (above_its_median, "EX309"), (places, "EX702"), (by_two, "EX701"),
]  # fmt: skip


@pytest.mark.parametrize(("program", "code"), REFUSED, ids=lambda each: str(getattr(each, "__name__", each)))
def test_what_stays_sorted(program: Callable[..., Array], code: str) -> None:
    text = by_jax(program, points(150, 5), points(150, 5))
    after, codes, sorts = rewritten(text, Options(size_threshold=20_000, split_size=8_000))
    assert (codes, sorts) == ([code] if code else [], 1)


def test_exact_elements_may_be_compared() -> None:
    """The largest weights of an argument: wherever their size is computed, it has the same bits."""

    def program(w: Array) -> Array:
        return jnp.where(jnp.abs(w) >= jnp.quantile(jnp.abs(w), 0.9), w, 0)

    text = by_jax(program, points(150, 150))
    assert rewritten(text, Options(size_threshold=20_000, split_size=8_000))[1:] == (["EX008"], 0)


def test_the_size_of_a_complex_number_is_rounded() -> None:
    def program(w: Array) -> Array:
        return jnp.where(jnp.abs(w) >= jnp.quantile(jnp.abs(w), 0.9), w, 0)

    text = by_jax(program, points(150, 150, jnp.complex64))
    assert rewritten(text, Options(size_threshold=20_000, split_size=8_000))[1:] == (["EX309"], 1)


def test_no_other_order_without_leave() -> None:
    """The count of the numbers is a sum of floats."""
    text = by_jax(of_what_are_numbers, points(150, 5), points(150, 5))
    options = Options(size_threshold=20_000, split_size=8_000)
    assert rewritten(text, options)[2] == 0
    assert rewritten(text, Options(size_threshold=20_000, split_size=8_000, reassociate=False))[2] == 1


@pytest.mark.parametrize(
    "text",
    [
        sort_text("float32", "LT", SECOND, how="FLOAT"),
        sort_text("float32", "LE", SECOND),
        sort_text("float32", "NE", SECOND),
        sort_text("int32", "LT", SECOND, how="UNSIGNED"),
    ],
    ids=["no order of NaN", "not strict", "no order", "the bits of signed ones"],
)
def test_comparators_that_are_refused(text: str) -> None:
    try:
        assert rewritten(text)[1:] == (["EX701"], 1)
    except Exception as error:
        assert "compare" in str(error)  # the verifier refuses some before us


def test_a_smaller_tensor_stays_sorted() -> None:
    text = sort_text("float32", "LT", SECOND)
    assert rewritten(text, Options(size_threshold=4 * SIZE))[1:] == ([], 1)
