"""Ops whose tiles read more of an operand than their own part: each factor is run in tiles and compared."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.context import new_context
from exla_opt.ops import tiling
from exla_opt.ops.factor import Factor, Kind
from exla_opt.ops.rules import read_rules
from exla_opt.ops.tile import read_padded
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.runtime.compile import compile_program, run_program

from .test_factors import NHWC, Row, conv, ints, last_op, monoid, window

_LEFT = "[f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f]"
_MAX = monoid("maximum", "f32")


def _dilated(numbers: str, padding: str, **given: int) -> str:
    more = "".join(f", {ints(name, size, 1)}" for name, size in given.items())
    return conv(numbers, 2, padding=padding, more=more)


# With each row: the reaches of its factors along dimension 1, or 0 of a window, by kind.
ROWS = [
    (Row("stablehlo.convolution", "2x12x5x3xf32 3x3x3x4xf32", "2x12x5x4xf32", "", conv(NHWC, 2, padding="1")), [(1, 1)]),
    (Row("stablehlo.convolution", "2x12x5x3xf32 3x1x3x4xf32", "2x12x5x4xf32", "", conv(NHWC, 2, padding="[[2, 0], [0, 0]]")), [(2, 0)]),
    (Row("stablehlo.convolution", "2x12x5x3xf32 3x1x3x4xf32", "2x12x5x4xf32", "", _dilated(NHWC, "[[4, 0], [0, 0]]", rhs_dilation=2)), [(4, 0)]),
    (Row("stablehlo.convolution", "2x12x5x3xf32 3x3x3x4xf32", "2x6x5x4xf32", "", conv(NHWC, 2, (2, 1), "[[0, 1], [1, 1]]")), [(0, 1)]),
    (Row("stablehlo.convolution", "2x12x5x3xf32 5x3x3x4xf32", "2x6x5x4xf32", "", conv(NHWC, 2, (2, 1), "[[2, 1], [1, 1]]")), [(1, 1)]),
    (Row("stablehlo.convolution", "2x6x5x3xf32 3x3x3x4xf32", "2x12x5x4xf32", "", _dilated(NHWC, "[[2, 1], [1, 1]]", lhs_dilation=2)), [(1, 0)]),
    (Row("stablehlo.convolution", "2x6x5x3xf32 3x3x3x4xf32", "2x12x5x4xf32", "", _dilated(NHWC, "[[1, 2], [1, 1]]", lhs_dilation=2)), [(0, 1)]),
    (Row("stablehlo.convolution", "2x12x5x3xf32 2x12x5x4xf32", "3x3x3x4xf32", "", conv(_LEFT, 2, padding="1")), [(1, 1)]),
    (Row("stablehlo.convolution", "2x12x5x3xf32 2x6x5x4xf32", "3x3x3x4xf32", "", _dilated(_LEFT, "[[0, 1], [1, 1]]", rhs_dilation=2)), [(0, 1)]),
    (Row("stablehlo.convolution", "2x12x5x3xf32 2x12x5x4xf32", "3x1x3x4xf32", "", _dilated(_LEFT, "[[4, 0], [0, 0]]", window_strides=2)), [(4, 0)]),
    (Row("stablehlo.reduce_window", "12x4xf32 f32=0xFF800000", "12x4xf32", "", window((3, 1), (1, 1), "[[1, 1], [0, 0]]"), _MAX), [(1, 1)]),
    (Row("stablehlo.reduce_window", "12x4xf32 f32=0xFF800000", "6x4xf32", "", window((3, 1), (2, 1), "[[0, 1], [0, 0]]"), _MAX), [(0, 1)]),
    (Row("stablehlo.reduce_window", "6x4xf32 f32=0.0", "12x4xf32", "", window((3, 1), (1, 1), "[[1, 2], [0, 0]]", (2, 1)), monoid("add", "f32")), [(0, 1)]),
    (Row("stablehlo.reduce_window", "12x4xf32 f32=0.5", "12x4xf32", "", window((3, 1), (1, 1), "[[1, 1], [0, 0]]"), monoid("add", "f32")), []),
    (Row("stablehlo.convolution", "2x12x5x3xf32 3x3x3x4xf32", "2x10x3x4xf32", "", conv(NHWC, 2)), []),
]  # fmt: skip


def _in_tiles(op: ir.Operation, factor: Factor, tile: int, longer: int) -> ir.Value:
    """The op's first result in tiles, each `longer` indices longer than its own part at both ends."""
    start_type = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
    parts: list[ir.Value] = []
    state = tiling.initial_state(op, factor) if factor.kind is Kind.REDUCING else []
    for begin in range(0, factor.size, tile):
        count = min(tile, factor.size - begin)
        start = build.splat(start_type, begin)
        operands: list[ir.Value] = []
        ranges: list[tuple[int, int] | None] = []
        for index, (value, mapping) in enumerate(zip(op.operands, factor.operands, strict=True)):
            if mapping is None:
                operands.append(value)
                ranges.append(None)
                continue
            before, after = (each + longer for each in factor.reaches[index])
            seven = build.splat(build.with_shape(build.tensor_of(value), []), 7)  # what must not be seen
            first = build.splat(start_type, begin * mapping.inner)
            size = (count + before + after) * mapping.inner
            padding = (before * mapping.inner, after * mapping.inner, 0)
            operands.append(read_padded(value, mapping.dim, first, size, padding, seven))
            ranges.append((-before, count + after))
        made = factor.results[0]
        result = None if made is None else (-longer, count + longer)
        [value, *_] = tiling.build_tile(op, factor, operands, start, ranges, [result])
        if made is None:
            state = tiling.combine(op, factor, state, [value], start)
            continue
        shape = build.shape_of(value)
        starts, limits = [0] * len(shape), list(shape)
        starts[made.dim], limits[made.dim] = longer * made.inner, (longer + count) * made.inner
        parts.append(stablehlo.slice(value, starts, limits, [1] * len(shape)))
    if factor.kind is Kind.REDUCING:
        return tiling.finish(op, factor, state)[0]
    return stablehlo.concatenate(parts, factor.results[0].dim)  # type: ignore[union-attr]


@pytest.mark.parametrize(("row", "reaches"), ROWS, ids=[f"{place}-{row.id}" for place, (row, _) in enumerate(ROWS)])
def test_tiles_that_overlap_make_the_whole(row: Row, reaches: list[tuple[int, int]]) -> None:
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(row.text)
        op, terminator = last_op(module)
        overlaps = read_rules(module)[-2].overlaps
        dim = 1 if row.name.endswith("convolution") else 0
        chosen = [factor for factor in overlaps if (own := factor.operands[0]) is not None and own.dim == dim]
        assert [factor.reaches[0] for factor in chosen] == reaches
        if not chosen:
            return
        outputs = [op.results[0]]
        with ir.InsertionPoint(terminator):
            for factor in overlaps:
                for tile in (2, 4, 5):
                    longer = (0, 1) if factor.kind is Kind.INDEPENDENT else (0,)
                    outputs += [_in_tiles(op, factor, tile, each) for each in longer]
            ir.Operation.create("func.return", operands=outputs)
        terminator.erase()
        function = module.body.operations[0].operation
        old = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
        kind = ir.FunctionType.get(old.inputs, [value.type for value in outputs])
        function.attributes["function_type"] = ir.TypeAttr.get(kind)
        assert module.operation.verify()
        random = np.random.default_rng(3)
        shapes = [ir.RankedTensorType(each).shape for each in old.inputs]
        arrays = [random.normal(size=tuple(shape)).astype(np.float32) for shape in shapes]
        expected, *found = map(np.asarray, run_program(compile_program(str(module)), arrays))
    for each in found:
        np.testing.assert_allclose(each, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def _conv(x: jax.Array, kernel: jax.Array, **given: object) -> jax.Array:
    numbers = ("NHWC", "HWIO", "NHWC")
    strides = given.pop("strides", (1, 1))
    return lax.conv_general_dilated(x, kernel, strides, "SAME", dimension_numbers=numbers, **given)  # type: ignore[arg-type]


def _stack(x: jax.Array, *kernels: jax.Array) -> jax.Array:
    """Biases make what is computed beyond the ends anything but zero, which only the next padding hides."""
    for kernel in kernels:
        x = jnp.exp(jnp.tanh(_conv(x, kernel) + 1.0))
    return (x**2).mean()


def _context(x: jax.Array, *kernels: jax.Array) -> jax.Array:
    for power, kernel in enumerate(kernels):
        x = jax.nn.softplus(_conv(x, kernel, rhs_dilation=(2**power, 1)))
    return x.sum(-1)


def _pooled(x: jax.Array, *kernels: jax.Array) -> jax.Array:
    for kernel in kernels[:2]:
        x = jnp.cos(_conv(x, kernel))
    x = lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1), (1, 1, 1, 1), "SAME")
    x = jnp.sin(_conv(x, kernels[2], strides=(2, 1)) + 0.5)
    return jnp.log1p(x**2).sum()


def _one_signal(x: jax.Array, *kernels: jax.Array) -> jax.Array:
    for power, kernel in enumerate(kernels):
        made = lax.conv_general_dilated(
            x, kernel[0], (1,), [(2**power * 2, 0)], rhs_dilation=(2**power,), dimension_numbers=("NWC", "WIO", "NWC")
        )
        x = x + jnp.tanh(made) * jax.nn.sigmoid(made)
    return (x**2).mean()


@pytest.mark.parametrize(
    ("function", "shape", "gradient"),
    [
        (_stack, (1, 128, 16, 4), True),
        (_stack, (1, 130, 16, 4), True),
        (_context, (1, 256, 16, 4), False),
        (_pooled, (1, 256, 16, 4), True),
        (_one_signal, (1, 2048, 4), True),
    ],
)
def test_a_stack_of_convolutions_is_cut_along_space(
    function: Callable[..., jax.Array], shape: tuple[int, ...], gradient: bool
) -> None:
    arrays = [
        jnp.array(np.random.default_rng(each).normal(size=size) / 3, jnp.float32)
        for each, size in enumerate([shape, *[(3, 3, 4, 4)] * 3])
    ]
    if len(shape) == 3:
        arrays[1:] = [array[:1] for array in arrays[1:]]
    called = jax.grad(function, (1, 2, 3)) if gradient else function
    text = str(jax.export.export(jax.jit(called), platforms=["cpu"])(*arrays).mlir_module())
    with new_context() as context:
        module = ir.Module.parse(text, context)
        run_pipeline(module, DEFAULT_PASSES, Options(size_threshold=16_000, split_size=16_000))
        written = str(module)
    assert "stablehlo.while" in written
    given = list(map(np.asarray, arrays))
    for one, other in zip(
        run_program(compile_program(text), given), run_program(compile_program(written), given), strict=True
    ):
        scale = np.abs(np.asarray(one)).max()
        np.testing.assert_allclose(np.asarray(other), np.asarray(one), rtol=1e-4, atol=1e-5 * scale)
