"""Gradients of depthwise kernels, as a loop over the kernel's positions: executed before and after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import export, lax

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.memory.machine import CPU, as_written, machine_of
from exla_opt.memory.peak import predict
from exla_opt.options import Options
from exla_opt.pipeline import run_pipeline
from exla_opt.runtime.memory import measure_memory
from tests.execute import assert_equal_results

PLAIN, FIRST = ("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")
# Each with the shapes of image and kernel, the orders of dimensions, and the rest.
Kind = tuple[tuple[int, ...], tuple[int, ...], tuple[str, str, str], dict[str, Any]]
KINDS: dict[str, Kind] = {
    "plain": ((3, 9, 8, 12), (3, 2, 1, 12), PLAIN, {}),
    "features first": ((3, 12, 9, 8), (12, 1, 3, 3), FIRST, {}),
    "not padded": ((3, 9, 8, 12), (3, 2, 1, 12), PLAIN, {"padding": "VALID"}),
    "cropped": ((3, 9, 8, 12), (3, 2, 1, 12), PLAIN, {"padding": ((-1, 2), (0, -2))}),
    "strides": ((3, 9, 8, 48), (3, 4, 1, 48), PLAIN, {"window_strides": (2, 3)}),
    "strides, not padded": ((3, 11, 8, 48), (3, 2, 1, 48), PLAIN, {"window_strides": (3, 2), "padding": "VALID"}),
    "dilated kernel": ((3, 13, 12, 12), (3, 2, 1, 12), PLAIN, {"rhs_dilation": (2, 4)}),
    "a kernel larger than the image": ((2, 4, 5, 12), (7, 7, 1, 12), PLAIN, {}),
    "half": ((3, 4, 4, 32), (3, 2, 1, 32), PLAIN, {"dtype": "bfloat16"}),
    "double": ((3, 9, 8, 12), (3, 2, 1, 12), PLAIN, {"dtype": "float64"}),
    "line": ((3, 30, 12), (5, 1, 12), ("NWC", "WIO", "NWC"), {"window_strides": (1,)}),
    "space": ((2, 5, 4, 6, 9), (3, 2, 1, 1, 9), ("NDHWC", "DHWIO", "NDHWC"), {"window_strides": (1,) * 3}),
}
LEFT: dict[str, Kind] = {
    "two results per feature": ((3, 9, 8, 12), (3, 2, 1, 24), PLAIN, {}),
    "few features": ((3, 9, 8, 4), (3, 2, 1, 4), PLAIN, {}),
    "few features for strides of two": ((3, 9, 8, 24), (3, 2, 1, 24), PLAIN, {"window_strides": (2, 2)}),
    "half, with large images": ((3, 29, 28, 12), (3, 2, 1, 12), PLAIN, {"dtype": "bfloat16"}),
    "groups of two features": ((3, 9, 8, 24), (3, 2, 2, 12), PLAIN, {"feature_group_count": 12}),
}


def gradient(kind: Kind, in_a_loop: bool = False) -> str:
    """The gradient of a kernel, computed once or added up over two steps of a scan."""
    image, kernel, orders, rest = kind
    features = image[orders[0].index("C")]
    rest = {"window_strides": (1, 1), "padding": "SAME", "feature_group_count": features, **rest}
    dtype = rest.pop("dtype", "float32")

    def loss(weights: Any, x: Any) -> Any:
        y = lax.conv_general_dilated(x, weights, dimension_numbers=orders, **rest)
        return (y * jnp.cos(jnp.arange(y.size).reshape(y.shape)).astype(dtype)).sum()

    def steps(weights: Any, x: Any) -> Any:
        def step(total: Any, _: None) -> tuple[Any, None]:
            scale = (1 + total.max() / 64).astype(dtype)
            return total + jax.grad(loss)(weights, x * scale), None

        return lax.scan(step, jnp.zeros_like(weights), length=2)[0]

    with jax.enable_x64(True):
        specs = [jax.ShapeDtypeStruct(kernel, dtype), jax.ShapeDtypeStruct(image, dtype)]
        return str(export.export(jax.jit(steps if in_a_loop else jax.grad(loss)))(*specs).mlir_module())


def rewritten(text: str, options: Options | None = None, passes: Sequence[str] = ("convolution-layout",)) -> str:
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        run_pipeline(module, ["normalise", *passes], options or Options(machine=CPU))
        return serialise(module, "text").decode()


@pytest.mark.parametrize("in_a_loop", [False, True])
@pytest.mark.parametrize("name", KINDS)
def test_positions_stay_right(name: str, in_a_loop: bool) -> None:
    before = gradient(KINDS[name], in_a_loop)
    assert before.count("batch_group_count = ") == 1
    after = rewritten(before)
    assert "batch_group_count = " not in after
    assert_equal_results(before, after)
    assert rewritten(after) == after, "a second run changes it"


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left(name: str) -> None:
    before = gradient(LEFT[name])
    assert rewritten(before) == rewritten(before, passes=[])


def test_another_machine_and_another_order_of_sums() -> None:
    before = gradient(KINDS["plain"])
    for options in (Options(machine=machine_of("gpu")), Options(machine=CPU, reassociate=False)):
        assert rewritten(before, options) == rewritten(before, options, passes=[])


def test_pairs_of_features_are_no_longer_in_memory() -> None:
    before = gradient(((2, 4, 4, 512), (3, 3, 1, 512), PLAIN, {}))
    pairs = 3 * 3 * 512 * 512 * 4
    assert measure_memory(before).temp >= 2 * pairs
    assert measure_memory(rewritten(before)).temp < pairs / 10


@pytest.mark.parametrize("features", [64, 512])
def test_pairs_of_features_are_predicted(features: int) -> None:
    before = gradient(((2, 4, 4, features), (3, 3, 1, features), PLAIN, {}))
    with new_context() as context:
        module = parse_module("<program>", before.encode(), context).module
        written = predict(module, as_written(CPU))
        assert written.temp == pytest.approx(measure_memory(before).temp, rel=0.15)
        assert predict(module, CPU).temp < written.temp / 4, "plans need not avoid it"


def groups_of_images(image: str, kernel: str, result: str, images: int = 1, outs: int = 1) -> str:
    """A convolution with 128 groups of images in these orders of dimensions; windows of 4 x 4 on 4 x 4 pixels."""
    groups, features = 128, 2
    given = {"b": groups * images, "f": features, "i": features, "o": groups * outs}
    made = {"b": images, "f": groups * outs}
    x, k = ("x".join(str(given.get(name, 4)) for name in order) for order in (image, kernel))
    y = "x".join(str(made.get(name, 3)) for name in result)
    orders = "{}x{}->{}".format(*("[" + ", ".join(order) + "]" for order in (image, kernel, result)))
    return f"""
    func.func @main(%x: tensor<{x}xf32>, %k: tensor<{k}xf32>) -> tensor<{y}xf32> {{
      %0 = stablehlo.convolution(%x, %k) dim_numbers = {orders}, window = {{pad = [[1, 1], [1, 1]]}}
        {{batch_group_count = {groups} : i64, feature_group_count = 1 : i64}}
        : (tensor<{x}xf32>, tensor<{k}xf32>) -> tensor<{y}xf32>
      return %0 : tensor<{y}xf32>
    }}"""


@pytest.mark.parametrize(
    "text",
    [
        groups_of_images("b01f", "01io", "b01f"),
        groups_of_images("b01f", "01io", "01bf"),
        groups_of_images("f01b", "i01o", "01bf"),
        groups_of_images("f01b", "i01o", "b01f"),
        groups_of_images("fb01", "io01", "bf01"),
    ],
)
def test_pairs_are_predicted_in_any_order(text: str) -> None:
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        assert predict(module, as_written(CPU)).temp == pytest.approx(measure_memory(text).temp, rel=0.1)


@pytest.mark.parametrize(("images", "outs"), [(2, 1), (1, 2), (2, 2)])
def test_no_pairs_are_predicted_where_there_are_none(images: int, outs: int) -> None:
    text = groups_of_images("b01f", "01io", "b01f", images, outs)
    pairs = 3 * 3 * 128 * 128 * 4
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        assert max(predict(module, as_written(CPU)).temp, measure_memory(text).temp) < pairs / 4
