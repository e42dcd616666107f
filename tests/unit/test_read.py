"""Reading: every accepted form gives the same module, every kind of bad input its own sentence."""

import gzip
import io
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir.context import new_context
from exla_opt.ir.diagnostics import InputError
from exla_opt.ir.parse_errors import explain
from exla_opt.ir.read import Source, read_module
from exla_opt.ir.write import serialise

GOOD = """module @m {
  func.func public @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.add %arg0, %arg0 : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
"""
ADD = "stablehlo.add %arg0, %arg0 : tensor<4xf32>"


def read(path: Path, data: bytes | str) -> Source:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return read_module(str(path), new_context())


def error_of(path: Path, data: bytes | str) -> InputError:
    with pytest.raises(InputError) as caught:
        read(path, data)
    return caught.value


@pytest.fixture(scope="module")
def forms() -> dict[str, bytes]:
    """The good module in each form."""
    from jaxlib.mlir import ir

    module = ir.Module.parse(GOOD, new_context())
    plain = {
        "text": GOOD.encode(),
        "text with a byte-order mark": b"\xef\xbb\xbf" + GOOD.encode(),
        "bytecode": serialise(module, "bytecode"),
        "portable": serialise(module, "portable"),
    }
    return plain | {f"gzipped {name}": gzip.compress(data) for name, data in plain.items()}


def test_every_form_is_recognised_by_its_content(tmp_path: Path, forms: dict[str, bytes]) -> None:
    for name, data in forms.items():
        source = read(tmp_path / "any.name", data)
        assert str(source.module) == GOOD, name
        assert source.name == str(tmp_path / "any.name")


def test_a_module_without_the_word_module(tmp_path: Path) -> None:
    bare = "".join(line[2:] for line in GOOD.splitlines(keepends=True)[1:-1])
    assert str(read(tmp_path / "bare.mlir", bare).module) == GOOD.replace("module @m", "module")


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(GOOD.encode())))
    source = read_module("-", new_context())
    assert (source.name, str(source.module)) == ("<stdin>", GOOD)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ("", "the file is empty"),
        (" \n\t\n", "the file is empty"),
        ("// nothing here\n", "the module is empty"),
        ("module {}", "the module is empty"),
        ("func.func private @main(tensor<8xf32>)", "no function with a body"),
        (GOOD.replace("public", "private"), "no public function"),
        (GOOD.replace("stablehlo.add %arg0, %arg0", "stablehlo.constant dense_resource<__elided__>"), "elided"),
        ("module @a { func.func @f() { return } }\nmodule @b {}", "the file holds 2 modules"),
        ("module { module { func.func @f() { return } } }", "the module holds another module"),
        ("hello world", "unknown operation 'hello'"),
        (GOOD.replace("tensor<4xf32>", "tensor<*xf32>"), r"dynamic shape tensor<\*xf32>"),
        ("HloModule m\n\nENTRY main {}", "this HLO is damaged"),
        (b"\x89PNG\r\n\x1a\n\0\0", r"neither text, MLIR bytecode, .* \(byte 0x89 at offset 0\)"),
        (GOOD[:70].encode() + b"\0" + GOOD[70:].encode(), r"neither text, .* \(byte 0x00 at offset 70\)"),
        (b"ML\xefR", "bytecode is damaged or cut short"),
        (b"ML\xefR" + b"abc" * 40, "bytecode version 48 is newer"),
    ],
)
def test_no_module_at_all(tmp_path: Path, data: str | bytes, sentence: str) -> None:
    error = error_of(tmp_path / "bad.mlir", data)
    assert error.file == str(tmp_path / "bad.mlir")
    with pytest.raises(InputError, match=sentence):
        raise error


@pytest.mark.parametrize(
    ("old", "new", "line", "col", "sentence", "help"),
    [
        ("%arg0, %arg0", "%arg0, %x", 3, 31, "use of undeclared SSA value name", ""),
        (ADD, "tf.Add %arg0 : tensor<4xf32>", 3, 10, "unknown dialect 'tf'", "get_compiler_ir"),
        (ADD, '"tf.Add"(%arg0) : (tensor<4xf32>) -> tensor<4xf32>', 3, 18, "unknown dialect 'tf'", "get_compiler_ir"),
        ("-> tensor<4xf32> {", "-> !foo.bar {", 2, 56, "unknown dialect 'foo'", "exla-opt reads StableHLO"),
        ("stablehlo.add", "stablehlo.ad", 3, 10, "unknown operation 'stablehlo.ad'", "upgrade jaxlib"),
        (ADD, '"stablehlo.ad"(%arg0) : (tensor<4xf32>) -> tensor<4xf32>', 3, 10, "unknown operation", "upgrade jaxlib"),
        ("%0 =", '%c = stablehlo.constant dense<"0x0102030405060708"> : tensor<8x8xi1>\n%0 =', 3, 29, "bit-packed", "serialized"),
        ("%0 =", '%c = stablehlo.constant dense<"0x01"> : tensor<8xi32>\n%0 =', 3, 29, "hex data does not have", ""),
        ("(%arg0: tensor<4xf32>)", "(%arg0: tensor<4xf32>, %d: tensor<?x8xf32>)", 2, 3, r"dynamic shape tensor<\?x8xf32>", "sizes"),
        ("(%arg0: tensor<4xf32>)", "(%arg0: tensor<4xf32>, %d: tensor<*xf32>)", 2, 3, r"dynamic shape tensor<\*xf32>", "sizes"),
        ("-> tensor<4xf32> {", "-> tensor<5xf32> {", 4, 5, "type of return operand 0", ""),
        ("\n  }\n}\n", "\n", 4, 30, "expected", "cut short"),
    ],
)  # fmt: skip
def test_the_diagnostic_points_at_the_fault(
    tmp_path: Path, old: str, new: str, line: int, col: int, sentence: str, help: str
) -> None:
    data = GOOD.replace(old, new)
    error = error_of(tmp_path / "bad.mlir", data)
    assert (error.line, error.col) == (line, col)
    with pytest.raises(InputError, match=sentence):
        raise error
    assert help in error.help
    first, quoted, caret, *rest = str(error).split("\n")
    assert first == f"{tmp_path / 'bad.mlir'}:{line}:{col}: error: {error.message}"
    assert quoted == data.splitlines()[line - 1]
    assert caret == " " * (col - 1) + "^"
    assert rest == ([f"help: {error.help}"] if error.help else [])


def test_dynamic_shapes_inside_the_function(tmp_path: Path) -> None:
    body = """func.func @main(%n: tensor<1xi32>) -> tensor<f32> {
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.dynamic_iota %n, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>
  %1 = stablehlo.reduce(%0 init: %c) applies stablehlo.add across dimensions = [0] : (tensor<?xf32>, tensor<f32>) -> tensor<f32>
  return %1 : tensor<f32>
}"""
    error = error_of(tmp_path / "dynamic.mlir", body)
    assert (error.line, error.col) == (3, 8)
    assert "dynamic shape tensor<?xf32>" in error.message


def test_bounded_sizes_come_from_tensorflow(tmp_path: Path) -> None:
    bounded = GOOD.replace("(%arg0", "(%rows: tensor<?xf32, #stablehlo.bounds<9>>, %arg0")
    assert "Adam" in error_of(tmp_path / "bounded.mlir", bounded).help


def test_sizes_that_the_module_forbids(tmp_path: Path) -> None:
    body = """func.func @main(%x: tensor<5xf32>) -> tensor<f32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %seven = stablehlo.constant dense<7> : tensor<i32>
  %size = stablehlo.get_dimension_size %x, dim = 0 : (tensor<5xf32>) -> tensor<i32>
  %enough = stablehlo.compare GE, %size, %seven : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.custom_call @shape_assertion(%enough, %size) {api_version = 2 : i32, error_message = "need {0} >= 7", has_side_effect = true} : (tensor<i1>, tensor<i32>) -> ()
  %n = stablehlo.reshape %size : (tensor<i32>) -> tensor<1xi32>
  %0 = stablehlo.dynamic_iota %n, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>
  %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<?xf32>, tensor<f32>) -> tensor<f32>
  return %1 : tensor<f32>
}"""
    assert error_of(tmp_path / "forbidden.mlir", body).message == "the module forbids its own sizes: need 5 >= 7"


def test_shapes_that_follow_from_those_of_the_arguments(tmp_path: Path) -> None:
    """As `jax.export` writes a call, at known sizes, of a function that was exported with symbolic ones."""
    (n,) = jax.export.symbolic_shape("n")
    known, symbolic = (jax.ShapeDtypeStruct((size, 3), np.float32) for size in (5, n))
    inner = jax.export.export(jax.jit(lambda x: x @ x.T))(symbolic)
    text = jax.export.export(jax.jit(lambda x: inner.call(x).sum()))(known).mlir_module()
    assert "tensor<?x" in text
    module = str(read(tmp_path / "called.mlir", text).module)
    assert "?" not in module and "tensor<5x5xf32>" in module


def test_a_fault_in_the_users_own_program_is_told_by_its_line(tmp_path: Path) -> None:
    error = error_of(
        tmp_path / "bad.mlir",
        GOOD.replace(ADD, '"stablehlo.add"(%arg0, %arg0) {x = 1} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>')
        .replace("tensor<4xf32>\n    return", 'tensor<4xf32> loc("f"("foo.py":7:2))\n    return')
        .replace('"stablehlo.add"(%arg0, %arg0) {x = 1} :', '"stablehlo.reshape"(%arg0) :')
        .replace("(tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>", "(tensor<4xf32>) -> tensor<5xf32>")
        .replace("return %0 : tensor<4xf32>", "return %arg0 : tensor<4xf32>"),
    )
    assert str(error).startswith("foo.py:7:2: error: number of output elements (5)")
    assert "bad.mlir" in error.message


def test_a_long_line_is_cut_around_the_caret(tmp_path: Path) -> None:
    constant = f'%c = stablehlo.constant dense<"0x{"00" * 4096}"> : tensor<32x32xi32> nonsense\n    %0 ='
    _, quoted, caret, *_ = str(error_of(tmp_path / "long.mlir", GOOD.replace("%0 =", constant))).split("\n")
    assert len(quoted) < 120
    assert quoted[len(caret) - 1 :].startswith("nonsense")


def test_the_caret_counts_right_over_tabs_and_letters_of_several_bytes(tmp_path: Path) -> None:
    data = GOOD.replace("module @m", 'module @m attributes {\tmhlo.x = "éß"} nonsense')
    _, quoted, caret, *_ = str(error_of(tmp_path / "tab.mlir", data)).split("\n")
    assert caret.count("\t") == 1
    assert quoted[len(caret) - 1 :] == " nonsense {"


def test_damaged_files(tmp_path: Path, forms: dict[str, bytes]) -> None:
    for name, data in forms.items():
        if "text" in name and not name.startswith("gzipped"):
            continue
        error = error_of(tmp_path / "damaged", data[: len(data) * 2 // 3])
        assert "cut short" in error.message, name


def test_an_artifact_from_the_future(tmp_path: Path, forms: dict[str, bytes]) -> None:
    current = stablehlo.get_current_version().encode()
    future = b"9" + current[1:]
    error = error_of(tmp_path / "future", forms["portable"].replace(b"StableHLO_v" + current, b"StableHLO_v" + future))
    assert f"written in StableHLO {future.decode()}" in error.message
    assert "upgrade jaxlib" in error.help


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "none.mlir", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(InputError, match=f"cannot open input file: {reason}"):
            read_module(os.fspath(path), new_context())


def test_an_error_of_mlir_without_a_word() -> None:
    """Some damaged bytecode is refused without a diagnostic."""
    silent: Any = SimpleNamespace(error_diagnostics=[])
    assert explain(silent, b"").message == "MLIR cannot read it, and does not say why"


def test_a_number_that_mlir_cannot_hold(tmp_path: Path) -> None:
    """A dimension number becomes the length of a list while the text is read."""
    program = """func.func @main(%x: tensor<1x8x8x4xf32>, %k: tensor<3x3x4x2xf32>) -> tensor<1x6x6x2xf32> {
  %r = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 9223372036854775807, f],
    window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x8x8x4xf32>, tensor<3x3x4x2xf32>) -> tensor<1x6x6x2xf32>
  return %r : tensor<1x6x6x2xf32>
}"""
    error = error_of(tmp_path / "long.mlir", program)
    assert error.message.startswith("MLIR cannot represent the module")
