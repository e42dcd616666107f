"""Components of an index that count in several steps: bounds of integers, what is taken apart, every bit of the results."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ops.affine import Affine, Digit, by_largest_step
from exla_opt.ops.affine_reader import AffineReader
from exla_opt.options import Options
from exla_opt.passes import normalise
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.remarks import Kind
from tests.execute import run_module

from .test_affine import returned
from .test_counting_indices import assert_same_bits, exported, gradient, normalised, numbers_in

CUBE, LABELS, LINE = "4x6x10xf32", "4x6xi32", "24xi32"


def places() -> Any:
    return jnp.arange(24).reshape(4, 6)


def cells() -> Any:
    return jnp.arange(4)[:, None], jnp.arange(6)[None]


# What people write, and the operand's batching dimensions in the end.
FORMS = (
    ("indices", lambda x, i: x[(*jnp.indices((4, 6)), i)], (CUBE, LABELS), (0, 1)),
    ("mgrid", lambda x, i: x[(*jnp.mgrid[0:4, 0:6], i)], (CUBE, LABELS), (0, 1)),
    ("meshgrid", lambda x, i: x[(*jnp.meshgrid(*map(jnp.arange, (4, 6)), indexing="ij"), i)], (CUBE, LABELS), (0, 1)),
    ("open grid", lambda x, i: x[(*cells(), i)], (CUBE, LABELS), (0, 1)),
    ("ix_", lambda x, i: x[jnp.ix_(jnp.arange(4), jnp.arange(6), jnp.array([3, 1, 1]))], (CUBE, LABELS), (0, 1)),
    ("one table of rows", lambda x, i: x.reshape(24, 10)[places(), i], (CUBE, LABELS), (0, 1)),
    ("columns first", lambda x, i: x.reshape(24, 10)[places().T, i.T], (CUBE, LABELS), (0, 1)),
    ("rows of one index", lambda x, i: x.reshape(24, 10)[jnp.arange(24), i], (CUBE, LINE), (0,)),
    ("quotients", lambda x, i: x[jnp.arange(24) // 6, jnp.arange(24) % 6, i], (CUBE, LINE), (0, 1)),
    ("unravelled", lambda x, i: x[(*jnp.unravel_index(jnp.arange(24), (4, 6)), i)], (CUBE, LINE), (0, 1)),
    ("clipped", lambda x, i: x.reshape(-1)[places() * 10 + jnp.clip(i, 0, 9)], (CUBE, LABELS), (0, 1)),
    ("remainders", lambda x, i: x.reshape(-1)[places() * 10 + i % 10], (CUBE, LABELS), (0, 1)),
    ("largest", lambda x, i: x.reshape(-1)[places() * 10 + jnp.argmax(-x, 2)], (CUBE, LABELS), (0, 1)),
    ("in order", lambda x, i: x.reshape(-1)[cells()[0] * 60 + cells()[1] * 10 + jnp.argsort(-x, 2)[..., :3].transpose(2, 0, 1)], (CUBE, LABELS), (0, 1)),
    ("five largest", lambda x, i: x.reshape(-1)[(places() * 10)[..., None] + jax.lax.top_k(-x, 5)[1]], (CUBE, LABELS), (0, 1)),
    ("ravelled", lambda x, i: x.reshape(-1)[jnp.ravel_multi_index((*cells(), i), (4, 6, 10), "clip")], (CUBE, LABELS), (0, 1)),
    ("packed", lambda x, i: x[jnp.arange(4)[:, None] * 6 + jnp.clip(i, 0, 5)], ("24x40xf32", "4x3xi32"), (0,)),
    ("first of each", lambda x, i: x[jnp.arange(4) * 6], ("24x10xf32",  "1xi32"), (0,)),
    ("last of each", lambda x, i: x[jnp.arange(4) * 6 + 5], ("24x10xf32",  "1xi32"), (0,)),
    ("backwards", lambda x, i: x.reshape(24, 40)[places()[::-1, ::-1], i], ("4x6x40xf32", LABELS), (0, 1)),
    ("mapped rows", lambda x, i: jax.vmap(lambda row, at: jax.lax.dynamic_slice(x, (row, at[0], 0), (1, 3, 10)))(jnp.arange(4), i), (CUBE, LABELS), (0,)),
    ("mapped windows", lambda x, i: jax.vmap(lambda row, at: jax.lax.dynamic_slice(row, (at[0], 0), (3, 10)))(x, i), (CUBE, LABELS), (0,)),
)  # fmt: skip


@pytest.mark.parametrize("writes", [False, True], ids=["read", "gradient"])
@pytest.mark.parametrize(("function", "shapes", "batching"), [row[1:] for row in FORMS], ids=[row[0] for row in FORMS])
def test_forms(function: Callable[..., Any], shapes: tuple[str, ...], batching: tuple[int, ...], writes: bool) -> None:
    text = exported(gradient(function) if writes else function, *shapes)
    module = normalised(text)
    found = numbers_in(module)
    assert found and all(set(batching) <= set(each.batching) for each in found), found
    assert_same_bits(text, module)
    once = str(module)
    normalise.run(module, Options())
    assert str(module) == once


WRITES = (
    ("ones", lambda i, v: jnp.zeros((24, 10)).at[places(), i].set(1.0), (0, 1)),
    ("the only component", lambda i, v: jnp.zeros(24).at[places()].add(v), (0,)),
    ("counts", lambda i, v: jnp.zeros(40).at[jnp.arange(4)[:, None] * 10 + jnp.clip(i, 0, 9)].add(v), (0,)),
    ("segments", lambda i, v: jax.ops.segment_sum(v.ravel(), (jnp.arange(4)[:, None] * 10 + i % 10).ravel(), 40), (0,)),
    ("largest", lambda i, v: jnp.zeros((24, 10)).at[places(), i].max(v, mode="drop"), (0, 1)),
)


@pytest.mark.parametrize(("function", "batching"), [row[1:] for row in WRITES], ids=[row[0] for row in WRITES])
def test_what_is_written(function: Callable[..., Any], batching: tuple[int, ...]) -> None:
    text = exported(function, LABELS, "4x6xf32")
    module = normalised(text)
    assert [each.batching for each in numbers_in(module)] == [batching]
    assert_same_bits(text, module)


REFUSED = (
    ("labels of any size", lambda x, i: x.reshape(-1)[places() * 10 + i], (CUBE, LABELS)),
    ("one label too many", lambda x, i: x.reshape(-1)[places() * 10 + jnp.clip(i, 0, 10)], (CUBE, LABELS)),
    ("one below", lambda x, i: x.reshape(-1)[places() * 10 + jnp.clip(i, -1, 8)], (CUBE, LABELS)),
    ("windows that overlap", lambda x, i: x.reshape(24, 10)[jnp.arange(19)[:, None] + jnp.arange(6)], (CUBE, LABELS)),
    ("rows left over", lambda x, i: x[jnp.arange(4)[:, None] * 5 + jnp.clip(i, 0, 4)], ("21x10xf32", LABELS)),
    ("few of many rows", lambda x, i: x[jnp.arange(4)[:, None] * 5 + jnp.clip(i, 0, 4)], ("50x10xf32", LABELS)),
    ("a number that wraps round", lambda x, i: x[jnp.arange(4)[:, None] * 6 + jnp.maximum(jnp.minimum(i, 6) - 1, 0)], ("24x10xf32", LABELS)),
)  # fmt: skip


@pytest.mark.parametrize(("function", "shapes"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_may_lie_in_another_row_stays(function: Callable[..., Any], shapes: tuple[str, ...]) -> None:
    text = exported(function, *shapes)
    module = normalised(text)
    assert all(each.batching == () for each in numbers_in(module))
    assert_same_bits(text, module)


def test_quotients_by_the_largest_step() -> None:
    def rows(*digits: tuple[int, int]) -> tuple[tuple[Digit, ...], ...]:
        return (tuple(Digit(size, stride) for size, stride in digits),)

    assert by_largest_step(Affine(0, rows((4, 6), (3, 2)))) == (6, Affine(0, rows((4, 1), (3, 0))))
    assert by_largest_step(Affine(19, rows((4, -6)), 4)) == (6, Affine(3, rows((4, -1))))
    assert by_largest_step(Affine(19, rows((4, -6)), 5)) is None  # 19 + 5 is of the next step
    assert by_largest_step(Affine(0, rows((4, 6), (3, 3)))) is None  # 6 is a step further
    assert by_largest_step(Affine(0, rows((4, 6), (2, -6), (5, 1)))) is None
    assert by_largest_step(Affine(5, rows((4, 0)))) is None


def bounds_of(function: Callable[..., Any], *shapes: str) -> Affine | None:
    text = exported(function, *shapes)
    module = ir.Module.parse(text, new_context())
    normalise.run(module, Options())
    [value] = returned(module)
    return AffineReader().bounds_of(value)


@pytest.mark.parametrize(
    ("function", "low", "high"),
    [
        (lambda i: jnp.clip(i, 2, 7), 2, 7),
        (lambda i: i % 7, 0, 6),
        (lambda i: jax.lax.rem(i, 7), -6, 6),
        (lambda i: jnp.where(i % 7 - 3 < 0, i % 7 - 3 + 7, i % 7 - 3), 0, 6),
        (lambda i: jnp.sign(i) + 1, 0, 2),
        (lambda i: jnp.argmax(i.reshape(4, 6), 1), 0, 5),
        (lambda i: jnp.argsort(i.reshape(4, 6), 1), 0, 5),
        (lambda i: jnp.sort(i % 9, 0), 0, 8),
        (lambda i: jax.lax.top_k(i.reshape(4, 6), 2)[1], 0, 5),
        (lambda i: jax.lax.top_k(i.reshape(4, 6), 2)[0], -(2**31), 2**31 - 1),
        (lambda i: jnp.where(i > 3, 5, 2), 2, 5),
        (lambda i: jnp.concatenate([i % 3, i % 5]), 0, 4),
        (lambda i: jnp.abs(i), -(2**31), 2**31 - 1),
        (lambda i: i + 1, -(2**31), 2**31 - 1),
        (lambda i: jnp.where(i < 0, i + 7, i), -(2**31) + 7, 2**31 - 1),
    ],
)
def test_bounds(function: Callable[..., Any], low: int, high: int) -> None:
    found = bounds_of(function, "24xi32")
    assert found is not None and (found.lowest, found.highest) == (low, high)


@pytest.mark.parametrize("seed", range(25))
def test_bounds_hold_of_what_xla_computes(seed: int) -> None:
    """Chains of choices on integers of which nothing is known."""
    rng = random.Random(seed)
    numbers = [rng.randint(1, 9) for _ in range(8)]
    steps = (
        lambda v, n: v % n,
        lambda v, n: v // n,
        lambda v, n: jnp.clip(v, n - 5, n),
        lambda v, n: v + n * jnp.arange(12).reshape(3, 4),
        lambda v, n: v * (n - 5),
        lambda v, n: jnp.where(v < 0, v + n, v),
        lambda v, n: jnp.where(v > n, v, -v),
        lambda v, n: jnp.maximum(v, v[::-1]) - n,
        lambda v, n: jnp.broadcast_to(jnp.argmax(v * 1.0, 1)[:, None], (3, 4)),
        lambda v, n: jax.lax.rem(v, n),
        lambda v, n: jnp.sign(v),
        lambda v, n: v.astype(jnp.int8).astype(jnp.int32),
        lambda v, n: jnp.sort(v, 1),
        lambda v, n: jnp.argsort(v, 0) + n,
        lambda v, n: jnp.tile(jax.lax.top_k(v, 2)[1], 2),
    )
    chain = [rng.choice(steps) for _ in numbers]

    def function(value: Array) -> Array:
        for step, number in zip(chain, numbers, strict=True):
            value = step(value, number)
        return value

    found = bounds_of(function, "3x4xi32")
    assert found is not None
    ranges = np.random.default_rng(seed)
    for top in (3, 50, 2**31 - 1):
        given = ranges.integers(-top, top, (3, 4)).astype(np.int32)
        [numbers_found] = run_module(exported(function, "3x4xi32"), [given])
        assert found.lowest <= numbers_found.min() and numbers_found.max() <= found.highest


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("writes", [False, True], ids=["gather", "scatter"])
def test_any_index_in_steps(seed: int, writes: bool) -> None:
    """Numbers of two or three digits, upwards or downwards, some of which are not known, at any place of the indices."""
    rng = random.Random(seed)
    sizes = [rng.randint(2, 4) for _ in range(rng.randint(2, 3))]
    order = rng.sample(range(len(sizes)), len(sizes))
    spare = rng.choice((0, 0, 1))
    dtype = rng.choice((jnp.int32, jnp.uint8, jnp.int16))
    turned = [rng.random() < 0.3 for _ in sizes]
    unknown = rng.random() < 0.5
    rows = int(np.prod(sizes)) * (1 + spare)

    def index(i: Array) -> Array:
        total = jnp.zeros([1] * len(sizes), dtype)
        step = 1
        for place in reversed(range(len(sizes))):
            line = jnp.arange(sizes[place], dtype=dtype)
            digit = (line[::-1] if turned[place] else line).reshape(
                [-1 if at == order[place] else 1 for at in range(len(sizes))]
            )
            if unknown and place == len(sizes) - 1:
                digit = (i.reshape(digit.shape) % sizes[place]).astype(dtype)
            total = total + digit * jnp.array(step, dtype)
            step *= sizes[place]
        return total

    def read(x: Array, i: Array) -> Array:
        return x[index(i[: sizes[-1]])] * 2

    def write(x: Array, i: Array) -> Array:
        at = index(i[: sizes[-1]])
        return x.at[at].add(jnp.arange(1.0, at.size + 1).reshape(at.shape)[..., None])

    text = exported(write if writes else read, f"{rows}x30xf32", "4xi32")
    module = normalised(text)
    assert_same_bits(text, module, seed)
    if not spare and not turned[0]:
        assert all(each.batching for each in numbers_in(module))


def test_in_slices_every_bit_is_equal() -> None:
    def picked(x: Array, i: Array) -> Array:
        soft = jax.nn.softmax(3.0 * x)
        return soft.reshape(-1)[jnp.arange(256) * 200 + i % 200]

    text = exported(gradient(picked), "256x200xf32", "256xi32")
    module = ir.Module.parse(text, new_context())
    remarks = run_pipeline(module, DEFAULT_PASSES, Options(size_threshold=100_000, split_size=20_000)).remarks
    assert any(remark.kind is Kind.PASSED for remark in remarks)
    assert "while" in str(module)
    assert_same_bits(text, module)
