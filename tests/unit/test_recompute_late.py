"""Copies that the compiler makes just before they are read, and results that are computed at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.types import Types
from exla_opt.ir.walk import is_in_loop
from exla_opt.ir.write import serialise
from exla_opt.memory.convolutions import is_slow_inside
from exla_opt.memory.machine import GPU
from exla_opt.memory.peak import predict
from exla_opt.options import Options
from exla_opt.passes.recompute import driver
from exla_opt.pipeline import run_pipeline
from exla_opt.runtime.memory import measure_memory
from tests.execute import assert_equal_results

IMAGES, SIDE = 4, 16
LATE = "EX018"


def convolve(x: Any, kernel: Any, stride: int = 1) -> Any:
    return lax.conv_general_dilated(x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def network(kernels: Sequence[Any], x: Any) -> Any:
    """Each stage has half as many positions and twice as many features: the last weights are the largest."""
    for number, kernel in enumerate(kernels):
        x = jnp.tanh(convolve(x, kernel, 2 if number % 2 == 0 else 1))
    return (x * x).sum()


def gradients(kernels: Sequence[Any], x: Any) -> Any:
    return jax.grad(network)(kernels, x)


def update(kernels: Sequence[Any], x: Any) -> Any:
    """The results are weights, not gradients: an argument is read at the end, too."""
    return [kernel - 0.1 * slope for kernel, slope in zip(kernels, jax.grad(network)(kernels, x), strict=True)]


def clipped(kernels: Sequence[Any], x: Any) -> Any:
    """Each gradient is read by another result: none can wait."""
    slopes = jax.grad(network)(kernels, x)
    norm = jnp.sqrt(sum((slope * slope).sum() for slope in slopes))
    return [slope / norm for slope in slopes]


def returned_twice(kernels: Sequence[Any], x: Any) -> Any:
    slopes = jax.grad(network)(kernels, x)
    return [*slopes, slopes[-1], x]


def rounded(kernels: Sequence[Any], x: Any) -> Any:
    """Results of other types, one of which is compared for equality."""
    slopes = jax.grad(network)(kernels, x)
    signs = [jnp.sign(slope).astype("int8") for slope in slopes]
    return signs, slopes[-1] == slopes[-1].max(), [slope.astype("bfloat16") for slope in slopes]


def dense(kernels: Sequence[Any], x: Any) -> Any:
    """Matrices instead of convolutions, and a loop over steps around the gradient."""
    flat = [kernel.reshape(-1, kernel.shape[-1]) for kernel in kernels]

    def loss(flat: Sequence[Any], rows: Any) -> Any:
        for weight in flat:
            rows = jnp.tanh(jnp.tile(rows, (1, 4))[:, :1].repeat(weight.shape[0], 1) @ weight)
        return (rows * rows).sum()

    def step(flat: Sequence[Any], rows: Any) -> Any:
        return [w - 0.1 * slope for w, slope in zip(flat, jax.grad(loss)(flat, rows), strict=True)], None

    return lax.scan(step, flat, x.reshape(2, -1, SIDE))[0]


def norm(x: Any) -> Any:
    x = x - x.mean((0, 1, 2))
    return x / jnp.sqrt((x * x).mean((0, 1, 2)) + 1e-5)


def in_blocks(kernels: Sequence[Any], x: Any) -> Any:
    """Residual blocks with norms over all images: an activation has several readers."""

    def loss(kernels: Sequence[Any]) -> Any:
        rows = jax.nn.relu(norm(convolve(x, kernels[0])))
        for kernel in kernels[1:]:
            rows = rows + jax.nn.relu(norm(convolve(rows, kernel)))
        return (rows * rows).sum()

    return jax.grad(loss)(kernels)


def with_head(weights: Sequence[Any], x: Any) -> Any:
    """The same with dense layers behind, whose weights are larger than an activation before: they get an update."""

    def loss(weights: Sequence[Any]) -> Any:
        rows = jax.nn.relu(norm(convolve(x, weights[0])))
        for kernel in weights[1:-3]:
            rows = rows + jax.nn.relu(norm(convolve(rows, kernel)))
        rows = rows.reshape(-1, 4, SIDE // 4, 4, SIDE // 4, rows.shape[-1]).mean((2, 4)).reshape(len(rows), -1)
        for weight in weights[-3:]:
            rows = jnp.tanh(rows @ weight)
        return (rows * rows).sum()

    return [weight - 0.1 * slope for weight, slope in zip(weights, jax.grad(loss)(weights), strict=True)]


PROGRAMS = (update, clipped, returned_twice, rounded, dense)
SHAPES = [(3, 3, *width) for width in ((3, 16), (16, 16), (16, 32), (32, 32), (32, 64), (64, 64))]
BLOCKS = [(3, 3, 3, 16), *[(3, 3, 16, 16)] * 4]
HEAD = [(256, 256)] * 3


def exported(program: Callable[..., Any], shapes: Sequence[tuple[int, ...]] = SHAPES) -> str:
    kernels = [jax.ShapeDtypeStruct(shape, "float32") for shape in shapes]
    images = jax.ShapeDtypeStruct((IMAGES, SIDE, SIDE, 3), "float32")
    return str(jax.jit(program).lower(kernels, images).compiler_ir("stablehlo"))


def rewritten(text: str, part: float, **options: Any) -> tuple[str, list[str]]:
    """The module after recompute with a limit of a part of its temporaries, and the codes of its remarks."""
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        run_pipeline(module, ("normalise",), Options())
        memory = predict(module)
        limit = memory.peak - memory.temp + int(part * memory.temp)
        outcome = run_pipeline(module, ("recompute", "normalise"), Options(memory_limit=limit, **options))
        return serialise(module, "text").decode(), [remark.code for remark in outcome.remarks]


@pytest.mark.parametrize(
    ("program", "shapes"),
    [*((program, SHAPES) for program in PROGRAMS), (in_blocks, BLOCKS), (with_head, [*BLOCKS, *HEAD])],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.parametrize("part", (0.1, 0.6))
def test_results_are_equal_in_no_more_memory(
    program: Callable[..., Any], shapes: Sequence[tuple[int, ...]], part: float
) -> None:
    before = exported(program, shapes)
    after, _ = rewritten(before, part)
    assert_equal_results(before, after)
    assert measure_memory(after).temp <= 1.02 * measure_memory(before).temp


@pytest.mark.parametrize("name", ("find_late_results", "find_late_copies"))
def test_each_saves_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = exported(with_head, [*BLOCKS, *HEAD])
    after = measure_memory(rewritten(before, 0.1)[0]).temp
    monkeypatch.setattr(driver, name, lambda *_: [])
    assert after < 0.8 * measure_memory(rewritten(before, 0.1)[0]).temp


def test_copies_wait_only_if_this_saves_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    before = exported(in_blocks, BLOCKS)
    after = measure_memory(rewritten(before, 0.1)[0]).temp
    monkeypatch.setattr(driver, "find_late_copies", lambda *_: [])
    assert after <= measure_memory(rewritten(before, 0.1)[0]).temp


def test_results_are_said_to_be_computed_at_the_end() -> None:
    assert LATE in rewritten(exported(with_head, [*BLOCKS, *HEAD]), 0.1)[1]
    assert LATE not in rewritten(exported(clipped), 0.1)[1]


def test_an_op_with_another_result_that_is_read_runs_once() -> None:
    def program(a: Any, b: Any, x: Any) -> Any:
        def step(_: Any, carry: Any) -> Any:
            return jnp.tanh(carry[0]) + b[:1], carry[1] + carry[0].sum()

        big, total = lax.fori_loop(0, 5, step, (a @ b, jnp.float32(0)))
        y = x @ x + total
        z = jnp.tanh(y) @ x
        return big, ((jnp.tanh(z) @ y) @ z + z).sum(0)

    shapes = [jax.ShapeDtypeStruct(shape, "float32") for shape in ((256, 8), (8, 256), (256, 256))]
    before = str(jax.jit(program).lower(*shapes).compiler_ir("stablehlo"))
    after, codes = rewritten(before, 0.7)
    assert LATE not in codes
    assert after.count("stablehlo.while") == before.count("stablehlo.while") == 1


def test_nothing_is_recomputed_once_late_results_are_enough() -> None:
    assert set(rewritten(exported(with_head, [*BLOCKS, *HEAD]), 0.9)[1]) == {LATE}


def test_other_machines_order_results_themselves() -> None:
    text, codes = rewritten(exported(with_head, [*BLOCKS, *HEAD]), 0.1, machine=GPU)
    assert LATE not in codes and "bitcast_convert" not in text


def test_nothing_changes_where_the_program_fits() -> None:
    text = exported(update)
    assert rewritten(text, 1.0) == rewritten(text, 2.0)
    assert "bitcast_convert" not in rewritten(text, 1.0)[0]


def test_no_convolution_is_put_into_a_loop_where_it_is_slow() -> None:
    """Gradients by the image reverse the kernel: loops have no fast kernel for its dimension order."""

    def gradient_of_image(kernels: Sequence[Any], x: Any) -> Any:
        def penalty(kernels: Sequence[Any]) -> Any:
            slope = jax.grad(network, argnums=1)(kernels, x)
            return (slope * slope).sum()

        return jax.grad(penalty)(kernels)

    before = exported(gradient_of_image)
    after, codes = rewritten(before, 0.1)
    assert "EX013" in codes
    with new_context() as context:
        module, types = parse_module("<program>", after.encode(), context).module, Types()
        found: list[ir.Operation] = []

        def visit(op: ir.Operation) -> ir.WalkResult:
            if is_in_loop(op) and is_slow_inside(op, types):
                found.append(op)
            return ir.WalkResult.ADVANCE

        module.operation.walk(visit)
        assert not found
    assert_equal_results(before, after)
