"""Compiling, running, inputs and memory, through the real PJRT client."""

from __future__ import annotations

import ast
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from jaxlib.mlir import ir

import exla_opt
from exla_opt.ir.context import new_context
from exla_opt.ir.diagnostics import InputError
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import Emit, serialise
from exla_opt.runtime.compile import check_device, compile_program, run_program, time_programs
from exla_opt.runtime.inputs import Signature, load_inputs, random_inputs, read_signature
from exla_opt.runtime.memory import Memory, measure_memory

# Squared distances between 256 points of 64 dimensions: XLA sums up a tensor of 256 x 256 x 64.
DIFFERENCES = 256 * 256 * 64 * 4
DISTANCES = """
func.func public @main(%x: tensor<256x64xf32>, %y: tensor<256x64xf32>) -> tensor<256x256xf32> {
  %a = stablehlo.broadcast_in_dim %x, dims = [0, 2] : (tensor<256x64xf32>) -> tensor<256x256x64xf32>
  %b = stablehlo.broadcast_in_dim %y, dims = [1, 2] : (tensor<256x64xf32>) -> tensor<256x256x64xf32>
  %d = stablehlo.subtract %a, %b : tensor<256x256x64xf32>
  %s = stablehlo.multiply %d, %d : tensor<256x256x64xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %r = stablehlo.reduce(%s init: %zero) applies stablehlo.add across dimensions = [2]
    : (tensor<256x256x64xf32>, tensor<f32>) -> tensor<256x256xf32>
  return %r : tensor<256x256xf32>
}"""

# Element types that PJRT runs on a CPU, each with its dtype.
ELEMENTS = {
    "i1": np.bool_,
    "i2": ml_dtypes.int2,
    "i4": ml_dtypes.int4,
    "ui4": ml_dtypes.uint4,
    "i8": np.int8,
    "ui16": np.uint16,
    "i64": np.int64,
    "f64": np.float64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E5M2": ml_dtypes.float8_e5m2,
    "complex<f32>": np.complex64,
    "complex<f64>": np.complex128,
}


def signature_of(text: str) -> Signature:
    return read_signature(ir.Module.parse(text, new_context()))


def reverse(element: str, attributes: str = "") -> str:
    kind = f"tensor<3x2x{element}>"
    return f"""func.func public @main(%a: {kind} {attributes}) -> {kind} {{
      %0 = stablehlo.reverse %a, dims = [0] : {kind}
      return %0 : {kind} }}"""


@pytest.mark.parametrize(("element", "dtype"), ELEMENTS.items())
def test_every_dtype_survives_a_run(element: str, dtype: Any) -> None:
    arrays = random_inputs(signature_of(reverse(element)), seed=1)
    (result,) = run_program(compile_program(reverse(element)), arrays)
    assert result.dtype == arrays[0].dtype == dtype
    np.testing.assert_array_equal(result, arrays[0][::-1])


@pytest.mark.parametrize("emit", ["text", "bytecode", "portable"])
def test_every_form_of_a_module_compiles(emit: Emit) -> None:
    data = serialise(ir.Module.parse(reverse("f32"), new_context()), emit)
    array = np.arange(6, dtype=np.float32).reshape(3, 2)
    (result,) = run_program(compile_program(data), [array])
    np.testing.assert_array_equal(result, array[::-1])


@pytest.mark.parametrize("attribute", ["{tf.aliasing_output = 0 : i32}", "{jax.buffer_donor = true}"])
def test_donated_arguments_run_again_and_leave_the_arrays_alone(attribute: str) -> None:
    program = compile_program(reverse("f32", attribute))
    array = np.arange(6, dtype=np.float32).reshape(3, 2)
    for _ in range(2):
        np.testing.assert_array_equal(run_program(program, [array])[0], np.array([[4, 5], [2, 3], [0, 1]]))
    np.testing.assert_array_equal(array, np.arange(6).reshape(3, 2))


def test_an_aliased_result_counts_once() -> None:
    memory = measure_memory(reverse("f32", "{tf.aliasing_output = 0 : i32}"))
    assert (memory.arguments, memory.results, memory.aliased) == (24, 24, 24)
    assert memory.peak == 24 + memory.temp
    assert Memory(arguments=10, results=5, aliased=4, temp=100).peak == 111


def test_a_module_may_have_no_arguments_and_many_results() -> None:
    text = """func.func public @main() -> (tensor<2xi32>, tensor<0x3xf32>) {
      %0 = stablehlo.iota dim = 0 : tensor<2xi32>
      %1 = stablehlo.constant dense<> : tensor<0x3xf32>
      return %0, %1 : tensor<2xi32>, tensor<0x3xf32> }"""
    numbers, empty = run_program(compile_program(text), [])
    assert numbers.tolist() == [0, 1]
    assert empty.shape == (0, 3)


def test_memory_counts_what_the_default_compile_hides() -> None:
    honest = measure_memory(DISTANCES)
    assert honest.temp >= DIFFERENCES
    assert honest.arguments == 2 * 256 * 64 * 4
    assert honest.results == 256 * 256 * 4
    assert honest.peak == honest.arguments + honest.results + honest.temp
    default = compile_program(DISTANCES).executable.get_compiled_memory_stats()
    assert default.temp_size_in_bytes < DIFFERENCES


def test_memory_counts_what_only_the_default_compile_writes() -> None:
    """The sums of short rows, which are multiplied."""
    text = """func.func public @main(%x: tensor<512x8xf32>, %y: tensor<16x8xf32>) -> tensor<512xf32> {
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %one = stablehlo.constant dense<1.0> : tensor<f32>
      %a = stablehlo.broadcast_in_dim %x, dims = [0, 2] : (tensor<512x8xf32>) -> tensor<512x16x8xf32>
      %b = stablehlo.broadcast_in_dim %y, dims = [1, 2] : (tensor<16x8xf32>) -> tensor<512x16x8xf32>
      %d = stablehlo.subtract %a, %b : tensor<512x16x8xf32>
      %s = stablehlo.reduce(%d init: %zero) applies stablehlo.add across dimensions = [2]
        : (tensor<512x16x8xf32>, tensor<f32>) -> tensor<512x16xf32>
      %r = stablehlo.reduce(%s init: %one) applies stablehlo.multiply across dimensions = [1]
        : (tensor<512x16xf32>, tensor<f32>) -> tensor<512xf32>
      return %r : tensor<512xf32> }"""
    sums = 512 * 16 * 4
    without = compile_program(text, count_all_memory=True).executable.get_compiled_memory_stats()
    assert without.temp_size_in_bytes < sums <= measure_memory(text).temp


def test_times_are_positive_and_one_each() -> None:
    program = compile_program(reverse("f32"))
    times = time_programs([program, program], [np.zeros((3, 2), np.float32)], repeats=3)
    assert len(times) == 2
    assert all(0 < seconds < 1 for seconds in times)


def test_what_xla_refuses_is_an_input_error() -> None:
    text = """func.func public @main(%a: tensor<2xf32>) -> tensor<2xf32> {
      %0 = stablehlo.custom_call @nobody(%a) : (tensor<2xf32>) -> tensor<2xf32>
      return %0 : tensor<2xf32> }"""
    with pytest.raises(InputError, match=r"XLA cannot compile this module: .*nobody"):
        compile_program(text)


def test_a_missing_gpu_is_one_sentence() -> None:
    try:
        check_device("cuda")
    except InputError as error:
        assert "no CUDA device" in error.message
        assert "--device cpu" in error.help
    else:
        pytest.skip("this machine has a GPU")


def test_random_inputs_depend_on_the_seed_only() -> None:
    signature = signature_of(DISTANCES)
    first, again, other = (random_inputs(signature, seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first[0], again[0])
    assert not np.array_equal(first[0], other[0])
    assert not np.array_equal(first[0], first[1])
    assert abs(float(first[0].mean())) < 0.1 and 0.9 < float(first[0].std()) < 1.1


def test_random_integers_are_small() -> None:
    kind = "tensor<1000xi32>"
    signature = signature_of(f"func.func public @main(%a: {kind}) -> {kind} {{ return %a : {kind} }}")
    (array,) = random_inputs(signature, 0)
    assert set(array.tolist()) == set(range(-2, 10))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("func.func public @other() { return }", "no function @main"),
        ("func.func public @main(%a: !stablehlo.token) { return }", "argument 0 .* not an array"),
        ("func.func public @main(%a: tensor<index>) -> tensor<index> { return %a : tensor<index> }", "argument 0"),
    ],
)
def test_what_numpy_cannot_hold_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        signature_of(text)


def test_inputs_from_a_file(tmp_path: Path) -> None:
    path = str(tmp_path / "x.npz")
    array = np.arange(6).reshape(3, 2).astype(ml_dtypes.bfloat16)
    np.savez(path, arg0=array, out0=array, note="others are ignored")
    (loaded,) = load_inputs(path, signature_of(reverse("bf16")))
    assert loaded.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(loaded, array)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "no arg0"),
        ({"arg0": np.zeros((3, 2))}, r"arg0 is float64\[3,2\], but @main takes float32\[3,2\]"),
        ({"arg0": np.zeros((2, 3), np.float32)}, r"arg0 is float32\[2,3\]"),
        ({"arg0": np.zeros((3, 2), np.float32), "arg1": np.zeros(1)}, "have arg1"),
        ({"arg0": np.array([None])}, "not an .npz archive of plain arrays"),
    ],
)
def test_unsuitable_inputs_are_refused(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    path = str(tmp_path / "x.npz")
    np.savez(path, **arrays)
    with pytest.raises(InputError, match=message):
        load_inputs(path, signature_of(reverse("f32")))


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04 cut short"])
def test_a_file_that_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match="not an .npz archive"):
        load_inputs(str(path), signature_of(reverse("f32")))


def test_a_single_array_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(3))
    with pytest.raises(InputError, match="not an .npz archive"):
        load_inputs(str(tmp_path / "x.npy"), signature_of(reverse("f32")))
    with pytest.raises(InputError, match="cannot open the inputs: No such file"):
        load_inputs(str(tmp_path / "none.npz"), signature_of(reverse("f32")))


def test_the_private_parts_of_jax_are_used_in_one_file() -> None:
    private = re.compile(
        r"jax\.extend|jax\.experimental|from jaxlib import|jaxlib\.(?!mlir\b|version\b)|_mlir_libs|jax\._|\.get_compiled"
    )
    package = Path(exla_opt.__file__).parent
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if private.search(path.read_text().partition('"""\n\nfrom __future__')[2])
    }
    assert found == {"runtime/pjrt.py", "ir/context.py", "ir/hlo.py"}


def test_no_import_in_a_function_hides_a_circle() -> None:
    """What is imported inside functions saves time at the start; of `cli` itself there is nothing to save."""
    folder = Path(exla_opt.__file__).parent / "cli"
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                inner = [each for each in ast.walk(node) if isinstance(each, ast.ImportFrom)]
                assert not [each for each in inner if (each.module or "").startswith("exla_opt.cli")], path


def long_chain() -> str:
    ops = "".join(f"  %{number + 1} = stablehlo.sine %{number} : tensor<8xf32>\n" for number in range(2000))
    return (
        "module attributes {mhlo.num_partitions = 1 : i32} {\n"
        "func.func @main(%0: tensor<8xf32>) -> tensor<8xf32> {\n" + ops + "  return %2000 : tensor<8xf32>\n}\n}"
    )


def test_standard_error_stays_where_it_was() -> None:
    # Reading captures what C++ prints, on the descriptor of the whole process, and compiles run in threads.
    before, text = os.fstat(2), long_chain()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: parse_module("m.mlir", text.encode(), new_context()), range(12)))
    assert measure_memory(text).peak == 64
    after = os.fstat(2)
    assert (before.st_dev, before.st_ino) == (after.st_dev, after.st_ino)
