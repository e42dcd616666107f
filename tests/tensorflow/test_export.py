"""TensorFlow's programs as files for the command, and back as ops."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf: Any = pytest.importorskip("tensorflow", reason="TensorFlow is not installed: make test-tensorflow")

import exla_opt  # noqa: E402
from exla_opt.tensorflow import call, captured, export, function  # noqa: E402
from exla_opt.tensorflow.platform import stablehlo_version  # noqa: E402


def numbers(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def distances(points: Any, others: Any) -> Any:
    return tf.reduce_sum(tf.exp(-tf.reduce_sum((points[:, None] - others) ** 2, -1)), 1)


def predicted_temp(program: Any) -> int:
    from exla_opt.ir.context import new_context
    from exla_opt.ir.read import parse_module
    from exla_opt.memory.peak import predict

    return predict(parse_module("<test>", program, new_context()).module).temp


SPECS = [tf.TensorSpec([400, 3]), tf.TensorSpec([300, 3])]
ARGUMENTS = [numbers(0, 400, 3), numbers(1, 300, 3)]


def close(one: Any, other: Any) -> None:
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_the_file_goes_through_the_command_and_back(tmp_path: Path) -> None:
    source, target = tmp_path / "f.mlirbc", tmp_path / "smaller.mlirbc"
    source.write_bytes(export(distances, *SPECS))
    command = [sys.executable, "-m", "exla_opt", str(source), "--size-threshold=64KB", "-o", str(target)]
    form = ["--emit=portable", f"--stablehlo-version={stablehlo_version()}"]
    subprocess.run([*command, *form], check=True, timeout=120)
    assert f"StableHLO_v{stablehlo_version()}".encode() in target.read_bytes()
    for run in (call, tf.function(call), tf.function(call, jit_compile=True)):
        [result] = run(target.read_bytes(), ARGUMENTS)
        close(result, distances(*ARGUMENTS))


@pytest.mark.parametrize("as_text", [False, True])
def test_every_form_is_called(as_text: bool) -> None:
    module: Any = export(distances, *map(tf.constant, ARGUMENTS))
    if as_text:
        module = exla_opt.optimize(module).program
        from exla_opt.ir.context import new_context
        from exla_opt.ir.read import parse_module
        from exla_opt.ir.write import serialise

        module = serialise(parse_module("<test>", module, new_context()).module, "text").decode()
    close(call(module, ARGUMENTS)[0], distances(*ARGUMENTS))


def test_parameters_and_results_are_in_order() -> None:
    weight, count = tf.Variable(numbers(0, 3)), tf.Variable(5)
    closed = tf.constant(numbers(1, 500))

    def step(given: dict[str, Any]) -> Any:
        count.assign_add(given["b"])
        return given["a"] * weight, tf.reduce_sum(closed), None

    specs = {"a": tf.TensorSpec([3]), "b": tf.TensorSpec([], tf.int32)}
    read = captured(step, specs)
    assert {id(one) for one in read} == {id(weight), id(count), id(closed)}
    product, total, counted = call(export(step, specs), [tf.ones([3]), 2, *read])
    close(product, weight)
    close(total, tf.reduce_sum(closed))
    assert int(counted) == 7
    assert int(count.numpy()) == 5  # `call` assigns nothing


def test_export_runs_nothing_and_stays_outside() -> None:
    count = tf.Variable(1.0)

    def outer(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x * x
            export(lambda z: count.assign_add(z), tf.TensorSpec([]))
        return tape.gradient(y, x)

    assert float(tf.function(outer)(tf.constant(3.0))) == 6.0
    assert float(count) == 1.0


def test_what_cannot_be_exported_says_why() -> None:
    with pytest.raises(ValueError, match=r"export needs static shapes, and tensor 1 is \(None, 3\)"):
        export(distances, SPECS[0], tf.TensorSpec([None, 3]))
    with pytest.raises(ValueError, match="unsupported operations"):
        export(lambda x: tf.py_function(lambda y: y, [x], tf.float32), tf.TensorSpec([2]))


def test_wrong_arguments_of_a_module() -> None:
    module = export(distances, *SPECS)
    with pytest.raises(ValueError, match="the module takes 2 tensors, and 1 were given"):
        call(module, ARGUMENTS[:1])
    with pytest.raises(ValueError, match=r"tensor 1 is \(400, 3\), and the module takes \(300, 3\)"):
        call(module, [ARGUMENTS[0], ARGUMENTS[0]])
    with pytest.raises(exla_opt.InputError, match="error"):
        call(b"no module", ARGUMENTS)


def test_a_saved_model_needs_no_exla_opt(tmp_path: Path) -> None:
    module = tf.Module()
    module.weight = tf.Variable(numbers(2, 3))
    fast = function(lambda points: distances(points * module.weight, points), size_threshold="64KB")
    module.call = tf.function(fast, input_signature=[SPECS[0]])
    tf.saved_model.save(module, str(tmp_path))
    code = f"""
import sys, numpy as np, tensorflow as tf
loaded = tf.saved_model.load({str(tmp_path)!r})
x = np.load({str(tmp_path / "x.npy")!r})
loaded.weight.assign(2 * loaded.weight)
np.save({str(tmp_path / "y.npy")!r}, loaded.call(x))
assert not [name for name in sys.modules if name.startswith("exla_opt")]
"""
    np.save(tmp_path / "x.npy", ARGUMENTS[0])
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    expected = distances(ARGUMENTS[0] * 2 * module.weight.numpy(), ARGUMENTS[0])
    close(np.load(tmp_path / "y.npy"), expected)


def test_import_exla_opt_loads_no_tensorflow() -> None:
    code = "import sys, exla_opt; assert not {'tensorflow', 'jax', 'jaxlib'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_decomposition_of_many_matrices_is_split() -> None:
    def solve(left: Any, right: Any) -> Any:
        return tf.linalg.solve(tf.exp(0.1 * left), right)

    module = export(solve, tf.TensorSpec([64, 16, 16]), tf.TensorSpec([64, 16, 2]))
    matrices = numbers(0, 64, 16, 16) + 5 * np.eye(16, dtype=np.float32)
    sides = numbers(1, 64, 16, 2)
    smaller = exla_opt.optimize(module, size_threshold="32KB", split_size="16KB")
    assert predicted_temp(smaller.program) < predicted_temp(module)
    close(call(smaller.program, [matrices, sides])[0], solve(matrices, sides))


def test_the_gradient_of_a_scan_keeps_no_steps() -> None:
    def gradient(points: Any, weight: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(weight)
            states = tf.scan(lambda state, point: tf.tanh(state @ weight + point), points, tf.zeros([256, 32]))
            loss = tf.reduce_sum(states[-1] ** 2)
        return tape.gradient(loss, weight)

    points, weight = numbers(0, 100, 256, 32), 0.1 * numbers(1, 32, 32)
    module = export(gradient, tf.TensorSpec([100, 256, 32]), tf.TensorSpec([32, 32]))
    smaller = exla_opt.optimize(module, size_threshold="1MB", split_size="500KB")
    assert 4 * predicted_temp(smaller.program) < predicted_temp(module)
    close(call(smaller.program, [points, weight])[0], gradient(points, tf.constant(weight)))
