"""Several modules in one file."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from exla_opt.cli.opt import main
from exla_opt.cli.split_input import pieces

ONE = "func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n  return %x : tensor<4xf32>\n}\n"
WRONG = "func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n  return %y : tensor<4xf32>\n}\n"


def test_pieces_keep_their_lines() -> None:
    assert pieces(b"a\nb\n// -----\nc\n// ----- and so on\n\n// -----\nd") == [
        b"a\nb\n",
        b"\n" * 3 + b"c\n",
        b"\n" * 7 + b"d",
    ]
    assert pieces(b"a // -----\n") == [b"a // -----\n"]
    assert pieces(b"") == []


def test_each_module_is_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "x.mlir"
    path.write_text(f"{ONE}// -----\n{ONE.replace('4', '5')}")
    result = CliRunner().invoke(main, [str(path), "--split-input-file", "--passes=normalise"])
    assert result.exit_code == 0, result.output
    first, second = result.stdout.split("// -----\n")
    assert "tensor<4xf32>" in first and "tensor<5xf32>" in second


def test_a_module_with_a_fault_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "x.mlir"
    path.write_text(f"{ONE}// -----\n{WRONG}// -----\n{ONE}")
    result = CliRunner().invoke(main, [str(path), "--split-input-file", "--passes=normalise"])
    assert result.exit_code == 1
    assert result.stdout.count("func.func") == 2
    assert f"{path}:6:10: error: " in result.stderr


def test_a_file_is_not_written_in_part(tmp_path: Path) -> None:
    path, output = tmp_path / "x.mlir", tmp_path / "y.mlir"
    path.write_text(f"{ONE}// -----\n{WRONG}")
    arguments = [str(path), "--split-input-file", "--passes=normalise", "-o", str(output)]
    assert CliRunner().invoke(main, arguments).exit_code == 1 and not output.exists()
    output.write_text("kept")
    assert CliRunner().invoke(main, arguments).exit_code == 1 and output.read_text() == "kept"
    path.write_text(ONE)
    assert CliRunner().invoke(main, arguments).exit_code == 0 and "func.func" in output.read_text()


@pytest.mark.parametrize("option", ["--emit=bytecode", "--diagnose", "--remarks-output=x.json", "--report=x.json"])
def test_what_is_written_once_excludes_several_modules(tmp_path: Path, option: str) -> None:
    path = tmp_path / "x.mlir"
    path.write_text(ONE)
    assert CliRunner().invoke(main, [str(path), "--split-input-file", option]).exit_code == 2
