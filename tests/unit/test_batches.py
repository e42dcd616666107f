"""Convolutions of a batch merged behind parts of space: the batch is put first, and cut; executed before and after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jaxlib.mlir import ir

from exla_opt.ir.attributes import integers
from exla_opt.ir.context import new_context
from exla_opt.ir.walk import walk_functions
from exla_opt.memory.machine import CPU
from exla_opt.memory.peak import predict
from exla_opt.options import Options
from exla_opt.passes import normalise, rce
from exla_opt.passes.tensor_splitter.batches import merge_in_order, merges_batches
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from tests.execute import assert_equal_results

Array = Any
_Program = Callable[[Array, Array], Array]
_N, _LENGTH, _WIDTH = 16, 240, 16
_OPTIONS = Options(size_threshold=100_000, split_size=40_000)
_KERNEL = (3, _WIDTH, _WIDTH)


def space_to_batch(x: Array, steps: tuple[int, ...]) -> Array:
    """The phases of each image, as TensorFlow writes them: the parts of every dimension of space before the batch."""
    rank = len(steps)
    parts = [part for size, step in zip(x.shape[1:], steps, strict=False) for part in (size // step, step)]
    split = x.reshape(x.shape[0], *parts, x.shape[-1])
    order = [*range(2, 2 * rank + 1, 2), 0, *range(1, 2 * rank, 2), 2 * rank + 1]
    turned = split.transpose(order)
    return turned.reshape(-1, *turned.shape[rank + 1 :])


def batch_to_space(y: Array, steps: tuple[int, ...]) -> Array:
    rank = len(steps)
    split = y.reshape(*steps, -1, *y.shape[1:])
    order = [rank, *(dim for place in range(rank) for dim in (rank + 1 + place, place)), 2 * rank + 1]
    turned = split.transpose(order)
    sizes = [size * step for size, step in zip(y.shape[1:], steps, strict=False)]
    return turned.reshape(-1, *sizes, y.shape[-1])


def convolve(x: Array, w: Array, groups: int = 1) -> Array:
    space = "HWD"[: x.ndim - 2]
    numbers = (f"N{space}C", f"{space}IO", f"N{space}C")
    return lax.conv_general_dilated(
        x, w, (1,) * len(space), "SAME", dimension_numbers=numbers, feature_group_count=groups
    )


def dilated(x: Array, w: Array, step: int) -> Array:
    return batch_to_space(convolve(space_to_batch(x, (step,)), w), (step,))


def forward(x: Array, w: Array) -> Array:
    for step in (2, 3, 5):
        x = x + jnp.tanh(dilated(x, w, step))
    return x.sum((1, 2))


def gradient(x: Array, w: Array) -> Array:
    return jax.grad(lambda w: (forward(x, w) ** 2).sum())(w)


def by_channel(x: Array, w: Array) -> Array:
    """Depthwise: the gradient has batch groups."""

    def loss(w: Array) -> Array:
        y = batch_to_space(convolve(space_to_batch(x, (4,)), w[:, :1], groups=_WIDTH), (4,))
        return (jnp.tanh(y) ** 2).sum()

    return jax.grad(loss)(w)


def in_the_plane(x: Array, w: Array) -> Array:
    def loss(w: Array) -> Array:
        planes = space_to_batch(x.reshape(_N, 24, 10, _WIDTH), (4, 2))
        return jnp.tanh(batch_to_space(convolve(planes, w[None].repeat(3, 0)), (4, 2))).sum()

    return jax.grad(loss)(w)


def with_units(x: Array, w: Array) -> Array:
    """As Keras's separable convolutions: images of one row."""
    rows = space_to_batch(x[:, None], (1, 4))
    return batch_to_space(jnp.tanh(convolve(rows, w[None])), (1, 4)).sum((1, 2, 3))


def one_feature(x: Array, w: Array) -> Array:
    """A result with a feature of size 1."""
    return jnp.sin(batch_to_space(convolve(space_to_batch(x, (4,)), w[:, :, :1]), (4,)))


def between_phases(x: Array, w: Array) -> Array:
    """Two convolutions, and an elementwise op, of the same phases."""
    return batch_to_space(convolve(jnp.tanh(convolve(space_to_batch(x, (4,)), w)), w), (4,)).sum((1, 2))


def flattened(x: Array, w: Array) -> Array:
    """Space is merged as well, which the transpose keeps apart."""
    planes = space_to_batch(x.reshape(_N, 24, 10, _WIDTH), (4, 2))
    return convolve(planes.reshape(_N * 8, 30, _WIDTH), w).sum((0, 1))


_PROGRAMS: dict[str, _Program] = {
    each.__name__: each
    for each in (forward, gradient, by_channel, in_the_plane, with_units, one_feature, between_phases, flattened)
}


def text_of(function: _Program) -> str:
    x = jax.ShapeDtypeStruct((_N, _LENGTH, _WIDTH), jnp.float32)
    return str(jax.jit(function).lower(x, jax.ShapeDtypeStruct(_KERNEL, jnp.float32)).as_text())


def parsed(text: str) -> ir.Module:
    module = ir.Module.parse(text)
    normalise.run(module, _OPTIONS)
    rce.run(module, _OPTIONS)
    return module


def moves(module: ir.Module) -> list[ir.Operation]:
    """The transposes that move dimension 0."""
    turned = [op for op in walk_functions(module.operation) if op.name == "stablehlo.transpose"]
    return [op for op in turned if integers(op, "permutation", [])[0] != 0]


@pytest.mark.parametrize("name", _PROGRAMS)
def test_the_batch_comes_first(name: str) -> None:
    """Without any split. Fewer transposes are left that move dimension 0."""
    text = text_of(_PROGRAMS[name])
    with new_context():
        module = parsed(text)
        before = len(moves(module))
        assert merges_batches(module, _OPTIONS)
        assert merge_in_order(module, _OPTIONS)
        assert module.operation.verify()
        assert len(moves(module)) < before
        assert not merges_batches(module, _OPTIONS)
        written = str(module)
    assert_equal_results(text, written)


@pytest.mark.parametrize("name", ["forward", "gradient"])
def test_the_batch_is_cut(name: str) -> None:
    text = text_of(_PROGRAMS[name])
    with new_context():
        module = ir.Module.parse(text)
        before = predict(module, CPU).temp
        run_pipeline(module, DEFAULT_PASSES, _OPTIONS)
        assert predict(module, CPU).temp < before / 4
        written = str(module)
    assert_equal_results(text, written)


def test_a_contracted_order_stays_without_reassociation() -> None:
    """Only that of the batch of a result changes: then the contracted dimension is written in both orders."""
    with new_context():
        module = parsed(text_of(gradient))
        whole = Options(size_threshold=100_000, split_size=40_000, reassociate=False)
        assert merge_in_order(module, whole)
        assert not merges_batches(module, whole)
        assert merges_batches(module, _OPTIONS)


def test_a_sharded_convolution_is_left_alone() -> None:
    with new_context():
        module = parsed(text_of(forward))
        for op in walk_functions(module.operation):
            if op.name == "stablehlo.convolution":
                op.attributes["mhlo.sharding"] = ir.StringAttr.get("{replicated}")
        assert not merges_batches(module, _OPTIONS)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: convolve(x.reshape(_N * 4, 60, _WIDTH), w),
        lambda x, w: convolve(x.reshape(_N, 60, 4, _WIDTH).transpose(0, 2, 1, 3).reshape(-1, 60, _WIDTH), w),
        lambda x, w: convolve(x.transpose(1, 0, 2), w),
        lambda x, w: convolve(space_to_batch(x[:2], (4,)), w),
    ],
    ids=["no transpose", "batch first", "not merged", "small"],
)
def test_others_are_left_alone(function: _Program) -> None:
    with new_context():
        module = parsed(text_of(function))
        before = str(module)
        assert not merges_batches(module, _OPTIONS)
        assert not merge_in_order(module, _OPTIONS)
        assert str(module) == before
