"""recompute: what is computed a second time, in which form, and what never is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.opaque import is_part_of_always
from exla_opt.ir.types import Types
from exla_opt.ir.walk import main_function, walk_functions
from exla_opt.memory.machine import CPU, GPU, Machine
from exla_opt.memory.peak import predict
from exla_opt.memory.timeline import read_timeline
from exla_opt.options import Options
from exla_opt.passes.recompute import driver, places
from exla_opt.passes.recompute.choose import find_problem
from exla_opt.passes.recompute.kernels import read_schedule
from exla_opt.passes.recompute.readers import asked_about
from exla_opt.pipeline import run_pipeline
from exla_opt.remarks import Remark
from exla_opt.runtime.memory import measure_memory
from tests.execute import assert_equal_results

LAYERS, ROWS, WIDTH = 8, 4096, 16
BYTES = 4 * ROWS * WIDTH


@pytest.fixture(autouse=True)
def context() -> Iterator[ir.Context]:
    with new_context() as made:
        yield made


def layers(activation: str = "stablehlo.tanh %x{k} : {t}", rows: int = ROWS, late: str = "%h{k}") -> str:
    """A stack of layers with one weight and its gradient by the input: all activations are alive at the peak.

    late: what of a layer its gradient reads.
    """
    t, w = f"tensor<{rows}x{WIDTH}xf32>", f"tensor<{WIDTH}x{WIDTH}xf32>"
    lines = [f"func.func @main(%w: {w}, %h0: {t}) -> {t} {{"]
    for k in range(1, LAYERS + 1):
        lines.append(f"%x{k} = stablehlo.dot_general %h{k - 1}, %w, contracting_dims = [1] x [0] : ({t}, {w}) -> {t}")
        lines.append(f"%h{k} = {activation.format(k=k, t=t)}")
    last = f"%h{LAYERS}"
    for k in range(LAYERS, 0, -1):
        lines.append(f"%d{k} = stablehlo.multiply {last}, {late.format(k=k)} : {t}")
        lines.append(f"%g{k} = stablehlo.dot_general %d{k}, %w, contracting_dims = [1] x [1] : ({t}, {w}) -> {t}")
        last = f"%g{k}"
    return "\n".join([*lines, f"return {last} : {t}", "}"])


def rewritten(text: str, part: float, machine: Machine = CPU) -> tuple[ir.Module, ir.Module, tuple[Remark, ...]]:
    """The module, what becomes of it under a limit of a part of its temporaries, and the remarks."""
    before = ir.Module.parse(text)
    run_pipeline(before, ("normalise",), Options())
    memory = predict(before, machine)
    limit = memory.peak - memory.temp + int(part * memory.temp)
    module = ir.Module.parse(str(before))
    outcome = run_pipeline(module, ("recompute", "normalise"), Options(memory_limit=limit, machine=machine))
    return before, module, outcome.remarks


def test_the_memory_falls_as_predicted_and_as_compiled() -> None:
    before, module, remarks = rewritten(layers(), 0.6)
    temp = predict(before).temp
    assert temp >= (LAYERS - 1) * BYTES
    assert remarks and {remark.code for remark in remarks} == {"EX013"}
    assert predict(module).temp <= 0.7 * temp
    compiled = [measure_memory(str(each)).temp for each in (before, module)]
    assert compiled[1] <= 0.75 * compiled[0]
    assert_equal_results(before, module)


def test_without_a_limit_or_within_it_nothing_is_done() -> None:
    before = str(ir.Module.parse(layers()))
    for limit in (None, 2**40):
        module = ir.Module.parse(layers())
        assert run_pipeline(module, ("recompute",), Options(memory_limit=limit)).remarks == ()
        assert str(module) == before


def test_a_cpu_gets_loops_and_other_machines_barriers() -> None:
    _, on_cpu, _ = rewritten(layers(), 0.6)
    assert "stablehlo.while" in str(on_cpu)
    before, on_gpu, remarks = rewritten(layers(rows=64 * ROWS), 0.6, GPU)
    assert remarks and "stablehlo.while" not in str(on_gpu) and "optimization_barrier" in str(on_gpu)
    assert predict(on_gpu, GPU).temp < predict(before, GPU).temp


def test_what_is_drawn_is_not_drawn_again() -> None:
    # A sum with a drawn number may be repeated, the draw may not.
    text = layers("stablehlo.add %x{k}, %r{k} : {t}")
    low, high = (
        f"%{name} = stablehlo.constant dense<{number}> : tensor<f32>\n"
        for name, number in (("low", 0.0), ("high", 1.0))
    )
    shape = f"%shape = stablehlo.constant dense<[{ROWS}, {WIDTH}]> : tensor<2xi64>\n"
    kind = f"tensor<{ROWS}x{WIDTH}xf32>"
    draws = "".join(
        f"%r{k} = stablehlo.rng %low, %high, %shape, distribution = UNIFORM : "
        f"(tensor<f32>, tensor<f32>, tensor<2xi64>) -> {kind}\n"
        for k in range(1, LAYERS + 1)
    )
    text = text.replace("{\n", "{\n" + low + high + shape + draws, 1)
    _, module, _ = rewritten(text, 0.6)
    assert str(module).count("stablehlo.rng") == LAYERS


def test_what_is_sent_is_not_sent_again() -> None:
    shift = (
        '"stablehlo.collective_permute"(%x{k}) <{{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, '
        "source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>}}> : ({t}) -> {t}"
    )
    _, module, _ = rewritten(layers(shift), 0.6)
    assert str(module).count("stablehlo.collective_permute") == LAYERS


def test_what_is_asked_about_stays() -> None:
    # A maximum's gradient asks which elements equal it: those may not be computed again.
    def loss(x: jax.Array, w: jax.Array) -> jax.Array:
        for _ in range(4):
            x = jnp.tanh(x @ w)
            x = x * (x == x.max(1, keepdims=True))
        return (x**2).sum()

    exported = jax.jit(jax.grad(loss)).lower(jnp.zeros((ROWS, WIDTH)), jnp.zeros((WIDTH, WIDTH)))
    before, module, _ = rewritten(str(exported.compiler_ir("stablehlo")), 0.5)
    loops = re.findall(r"stablehlo\.while.*?stablehlo\.return %\d+, ", str(module), re.DOTALL)
    assert not any(re.search(r"compare  ?EQ", loop) for loop in loops)
    assert_equal_results(before, module)


def test_what_is_asked_whether_it_is_infinite_is_recomputed() -> None:
    # As the loops of a softmax over its keys ask of the largest score so far: no rounding makes infinity of it.
    truth = f"tensor<{ROWS}x{WIDTH}xi1>"
    asked = "stablehlo.constant dense<0xFF800000> : {t}\n"
    asked += f"%n{{k}} = stablehlo.compare EQ, %x{{k}}, %i{{k}} : ({{t}}, {{t}}) -> {truth}\n"
    asked += f"%h{{k}} = stablehlo.select %n{{k}}, %i{{k}}, %x{{k}} : {truth}, {{t}}"
    text = re.sub(r"%h(\d+) = (stablehlo.constant)", r"%i\1 = \2", layers(asked))
    before, module, remarks = rewritten(text, 0.6)
    assert remarks
    assert predict(module).temp < 0.7 * predict(before).temp
    assert_equal_results(before, module)


def test_a_view_of_what_is_recomputed_reads_the_copy() -> None:
    # The view is a part of kernels on both sides of the peak, and of the tensor that the dot writes.
    wide = f"tensor<1x{ROWS}x{WIDTH}xf32>"
    turned = f"stablehlo.reshape %x{{k}} : ({{t}}) -> {wide}\n%t{{k}} = stablehlo.tanh %v{{k}} : {wide}\n"
    turned += f"%h{{k}} = stablehlo.reshape %t{{k}} : ({wide}) -> {{t}}\n"
    turned += f"%n{{k}} = stablehlo.negate %v{{k}} : {wide}\n%m{{k}} = stablehlo.reshape %n{{k}} : ({wide}) -> {{t}}"
    text = re.sub(r"%h(\d+) = (stablehlo.reshape %x)", r"%v\1 = \2", layers(turned, late="%m{k}"))
    before, module, remarks = rewritten(text, 0.6)
    assert remarks
    assert predict(module).temp < 0.7 * predict(before).temp
    assert_equal_results(before, module)


def test_a_second_run_changes_nothing() -> None:
    _, module, _ = rewritten(layers(), 0.6)
    limit = predict(module).peak
    text = str(module)
    assert run_pipeline(module, ("recompute", "normalise"), Options(memory_limit=limit)).remarks == ()
    assert str(module) == text


def test_the_model_is_asked_once_about_each_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    # What does not reach the limit is taken back: what was known of the module before is still true.
    calls: Counter[str] = Counter()
    for module, name in ((driver, "read_schedule"), (places, "read_schedule"), (driver, "build_plan")):
        monkeypatch.setattr(module, name, counted(calls, name, getattr(module, name)))
    before, rebuilt, remarks = rewritten(layers(), 0.1)
    assert remarks and calls["build_plan"] > 1
    assert calls["read_schedule"] == 1 + calls["build_plan"]
    assert_equal_results(before, rebuilt)


def counted(calls: Counter[str], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        calls[name] += 1
        return function(*arguments)

    return call


@pytest.mark.parametrize("part", [0.8, 0.5, 0.2])
def test_networks_have_the_same_gradient(part: float) -> None:
    def loss(weights: list[jax.Array], x: jax.Array) -> jax.Array:
        for w, v in zip(weights[::2], weights[1::2], strict=True):
            y = (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)
            x = x + jax.nn.gelu(y @ w) @ v
        return (x**2).mean()

    shapes = [jax.ShapeDtypeStruct((64, 256) if k % 2 == 0 else (256, 64), jnp.float32) for k in range(8)]
    exported = jax.jit(jax.grad(loss)).lower(shapes, jax.ShapeDtypeStruct((512, 64), jnp.float32))
    before, module, remarks = rewritten(str(exported.compiler_ir("stablehlo")), part)
    assert remarks
    assert predict(module).temp < predict(before).temp
    assert_equal_results(before, module)


def test_what_orders_a_sort_is_not_put_behind_a_barrier() -> None:
    def loss(weights: jax.Array, x: jax.Array) -> jax.Array:
        for w in weights:
            x = jnp.sort(jnp.tanh(x @ w), axis=1)
        return (x**2).sum()

    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((8, 32, 32), (2000, 32))]
    exported = jax.jit(jax.grad(loss)).lower(*shapes)
    before, module, remarks = rewritten(str(exported.compiler_ir("stablehlo")), 0.5)
    assert remarks
    assert str(module).count("stablehlo.sort") > str(before).count("stablehlo.sort")
    assert_equal_results(before, module)


def exported(loss: Callable[..., jax.Array], weights: list[jax.ShapeDtypeStruct], x: jax.ShapeDtypeStruct) -> str:
    return str(jax.export.export(jax.jit(jax.grad(loss)), platforms=["cpu"])(weights, x).mlir_module())


def convolved(x: jax.Array, w: jax.Array) -> jax.Array:
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def normed(weights: list[jax.Array], x: jax.Array) -> jax.Array:
    """Residual layers with batch normalisation: each relu is written, and computed again by kernels of the gradient."""
    for w in weights:
        y = x @ w
        y = y - y.mean(0)
        x = jax.nn.relu(x + y * jax.lax.rsqrt((y**2).mean(0) + 1e-5))
    return (x**2).sum()


def test_what_a_library_adds_up_is_written_and_waits() -> None:
    square, rows = jax.ShapeDtypeStruct((32, 32), jnp.float32), jax.ShapeDtypeStruct((4096, 32), jnp.float32)
    module = ir.Module.parse(exported(normed, [square] * 6, rows))
    run_pipeline(module, ("normalise",), Options())
    compiled = measure_memory(str(module)).temp
    assert 0.9 * compiled <= read_timeline(module).memory.temp <= 1.15 * compiled


def residual(weights: list[jax.Array], x: jax.Array) -> jax.Array:
    for w in weights:
        y = convolved(x, w)
        y = y - y.mean((0, 1, 2))
        x = jax.nn.relu(x + y * jax.lax.rsqrt((y**2).mean((0, 1, 2)) + 1e-5))
    return (x**2).sum()


def test_layers_that_read_each_other_are_put_in_order() -> None:
    kernel, image = (
        jax.ShapeDtypeStruct((3, 3, 16, 16), jnp.float32),
        jax.ShapeDtypeStruct((4, 32, 32, 16), jnp.float32),
    )
    before, module, remarks = rewritten(exported(residual, [kernel] * 8, image), 0.6)
    assert remarks
    compiled = [measure_memory(str(each)).temp for each in (before, module)]
    assert compiled[1] <= 0.95 * compiled[0]
    assert_equal_results(before, module)


def test_what_hangs_together_with_nothing_else_has_its_own_time() -> None:
    """What is computed from the stored inputs of convolutions is recomputed layer by layer, not all of it at once."""

    def loss(weights: list[jax.Array], x: jax.Array) -> jax.Array:
        for w in weights:
            y = convolved(x, w)
            x = jax.nn.relu((y - y.mean((0, 1, 2))) * jax.lax.rsqrt(y.var((0, 1, 2)) + 1e-5))
        return (x**2).sum()

    kernel, image = (
        jax.ShapeDtypeStruct((3, 3, 16, 16), jnp.float32),
        jax.ShapeDtypeStruct((4, 32, 32, 16), jnp.float32),
    )
    before, module, _ = rewritten(exported(loss, [kernel] * 8, image), 0.3)
    loops = [op for op in module.body.operations[0].regions[0].blocks[0].operations if op.name == "stablehlo.while"]
    assert len(loops) > 6
    assert predict(module).temp <= 0.5 * predict(before).temp
    assert_equal_results(before, module)


def test_a_tensor_in_the_buffer_of_a_later_result_is_not_free() -> None:
    """If it were, each plan would read it late, when the result has been written."""
    kernel, image = jax.ShapeDtypeStruct((3, 3, 64, 64), jnp.float32), jax.ShapeDtypeStruct((4, 8, 8, 64), jnp.float32)
    module = ir.Module.parse(exported(residual, [kernel] * 8, image))
    run_pipeline(module, ("normalise",), Options())
    function, types = main_function(module), Types()
    schedule, _ = read_schedule(function, types, CPU)
    problem = find_problem(schedule, function.regions[0].blocks[0], types, Options())
    assert problem is not None
    assert schedule.held and all(schedule.producer[value] > problem.peak for value in schedule.held)


def test_what_the_compiler_makes_of_weights_is_held_back() -> None:
    def loss(weights: list[jax.Array], x: jax.Array) -> jax.Array:
        for w in weights:
            x = jnp.tanh(convolved(x, w))
        return (x**2).sum()

    kernel, image = jax.ShapeDtypeStruct((3, 3, 64, 64), jnp.float32), jax.ShapeDtypeStruct((2, 8, 8, 64), jnp.float32)
    before, module, _ = rewritten(exported(loss, [kernel] * 8, image), 0.3)
    assert "stablehlo.select" in str(module)
    compiled = [measure_memory(str(each)).temp for each in (before, module)]
    assert compiled[1] <= 0.5 * compiled[0]
    assert_equal_results(before, module)


def test_what_recomputes_leaves_a_margin_for_predictions() -> None:
    text = layers()
    least = predict(ir.Module.parse(text))
    held = least.peak - least.temp
    for part in (0.9, 0.8, 0.7):
        _, module, remarks = rewritten(text, part)
        room = int(part * least.temp)
        assert remarks and predict(module).peak <= held + room - room // 16


@pytest.mark.parametrize(
    ("bits", "direction", "is_always"), [("1", "NE", True), ("1", "LT", False), ("1", "EQ", False), ("2", "NE", False)]
)
def test_what_a_segment_waits_for_asks_about_no_number(bits: str, direction: str, is_always: bool) -> None:
    module = ir.Module.parse(f"""
      func.func @main(%x: tensor<f32>) -> tensor<i1> {{
        %one = stablehlo.constant dense<{bits}> : tensor<i32>
        %zero = stablehlo.constant dense<0> : tensor<i32>
        %bits = stablehlo.bitcast_convert %x : (tensor<f32>) -> tensor<i32>
        %some = stablehlo.or %bits, %one : tensor<i32>
        %always = stablehlo.compare {direction}, %some, %zero, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
        return %always : tensor<i1>
      }}""")
    [read] = [op for op in walk_functions(module.operation) if op.name == "stablehlo.bitcast_convert"]
    assert is_part_of_always(read) is is_always


def test_the_answer_to_a_test_for_equality_is_not_recomputed() -> None:
    """Its kernel would compute the tensor in question anew, and round it otherwise: no element equals the maximum."""
    square = jax.ShapeDtypeStruct((64, 64), jnp.float32)

    def largest(x: jax.Array, w: jax.Array) -> jax.Array:
        y = jnp.tanh(x @ w)
        return jax.lax.select(y == y.max(), y, jnp.zeros_like(y)) @ w

    module = ir.Module.parse(jax.export.export(jax.jit(largest))(square, square).mlir_module())
    function, types = main_function(module), Types()
    schedule, _ = read_schedule(function, types, CPU)
    asked = asked_about(function.regions[0].blocks[0], schedule, types)
    [select] = [op for op in walk_functions(module.operation) if op.name == "stablehlo.select"]
    assert schedule.is_written(select.results[0]) and schedule.number[select.results[0]] in asked


@pytest.mark.parametrize(
    ("direction", "other", "returned", "waits"),
    [("GT", "%zero", "%both", True), ("LE", "%zero", "%both", False), ("GT", "%one", "%both", False)]
    + [("GT", "%zero", "%below", False)],
)
def test_the_start_of_a_loop_that_waits_for_a_maximum_asks_about_nothing(
    direction: str, other: str, returned: str, waits: bool
) -> None:
    """It would stay in memory for a late copy of the loop otherwise. A program's own comparison does ask."""
    module = ir.Module.parse(f"""
      func.func @main(%x: tensor<4096xf32>) -> (tensor<4096x1024xf32>, tensor<i1>) {{
        %least = stablehlo.constant dense<0xFF800000> : tensor<f32>
        %zero = stablehlo.constant dense<0.0> : tensor<f32>
        %one = stablehlo.constant dense<1.0> : tensor<f32>
        %most = stablehlo.reduce(%x init: %least) applies stablehlo.maximum across dimensions = [0]
          : (tensor<4096xf32>, tensor<f32>) -> tensor<f32>
        %below = stablehlo.compare LT, %most, {other} : (tensor<f32>, tensor<f32>) -> tensor<i1>
        %above = stablehlo.compare {direction}, %most, {other} : (tensor<f32>, tensor<f32>) -> tensor<i1>
        %both = stablehlo.and %below, %above : tensor<i1>
        %number = stablehlo.select %both, %one, %zero : tensor<i1>, tensor<f32>
        %start = stablehlo.broadcast_in_dim %number, dims = [] : (tensor<f32>) -> tensor<4096x1024xf32>
        return %start, {returned} : tensor<4096x1024xf32>, tensor<i1>
      }}""")
    function, types = main_function(module), Types()
    schedule, _ = read_schedule(function, types, CPU)
    asked = asked_about(function.regions[0].blocks[0], schedule, types)
    assert (not asked) is waits
