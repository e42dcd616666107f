"""exla-run as a user meets it: what it prints, on which stream, and how it exits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from exla_opt.cli.run import main

ROWS = """
func.func public @main(%a: tensor<8x4xf32>, %n: tensor<i32>) -> (tensor<8xf32>, tensor<i32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<8x4xf32>, tensor<f32>) -> tensor<8xf32>
  return %0, %n : tensor<8xf32>, tensor<i32>
}"""
# The squares of the sums.
WRONG = ROWS.replace("return %0,", "%1 = stablehlo.multiply %0, %0 : tensor<8xf32>\n  return %1,")
CHOLESKY = "import jax, jax.numpy as jnp; print(jax.jit(lambda a: jnp.linalg.cholesky(a @ a.T + 4 * jnp.eye(4))).lower(jnp.eye(4)).as_text())"  # noqa: E501


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command sets these for its process; here the process is the tests'."""
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")


@pytest.fixture
def rows(tmp_path: Path) -> str:
    return write(tmp_path / "rows.mlir", ROWS)


@pytest.fixture
def wrong(tmp_path: Path) -> str:
    return write(tmp_path / "wrong.mlir", WRONG)


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def run(*arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(main, ["--repeat", "1", *arguments], input=stdin)


def last_line(result: Result) -> str:
    return result.stdout.rstrip().rsplit("\n", 1)[-1]


def test_one_module_is_measured(rows: str) -> None:
    result = run(rows)
    assert result.exit_code == 0, result.stderr
    table = {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines()[1:]}
    assert table["arguments"] == ["132B"]
    assert table["results"] == ["52B"]  # 36, and the 16 of XLA's tuple of two
    assert {"temp", "peak", "time"} < set(table)
    assert "PASSED" not in result.stdout
    assert result.stderr == ""


def test_equal_modules_pass(rows: str) -> None:
    result = run(rows, "--compare", rows)
    assert result.exit_code == 0, result.stderr
    assert last_line(result) == "PASSED"
    assert result.stdout.splitlines()[0].split() == [rows, rows, "ratio"]
    assert [line.split()[1] for line in result.stdout.splitlines() if line.endswith(" ok")] == ["float32[8]", "int32[]"]


def test_a_wrong_result_fails_and_is_named(rows: str, wrong: str) -> None:
    result = run(wrong, "--compare", rows)
    assert result.exit_code == 1
    assert last_line(result) == "FAILED"
    assert "result 0: error " in result.stdout
    assert "result 1:" not in result.stdout


def test_tolerances_can_be_loosened_and_tightened(rows: str, wrong: str) -> None:
    assert last_line(run(wrong, "--compare", rows, "--atol", "1e6")) == "PASSED"
    assert last_line(run(wrong, "--compare", rows, "--rtol", "1e6")) == "PASSED"


@pytest.mark.parametrize("first_is_stdin", [True, False])
def test_either_module_may_come_from_standard_input(rows: str, first_is_stdin: bool) -> None:
    arguments = ("-", "--compare", rows) if first_is_stdin else (rows, "--compare", "-")
    result = run(*arguments, stdin=ROWS)
    assert result.exit_code == 0, result.stderr
    assert "<stdin>" in result.stdout
    assert last_line(result) == "PASSED"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("%n: tensor<i32>", "%n: tensor<i32>, %m: tensor<i32>", "2 arguments in "),
        ("8x4x", "8x5x", "argument 0 is float32[8,4] in "),
        ("%0, %n : tensor<8xf32>, tensor<i32>", "%0 : tensor<8xf32>", "2 results in "),
    ],
)
def test_other_signatures_fail(tmp_path: Path, rows: str, old: str, new: str, message: str) -> None:
    text = ROWS.replace(old, new)
    if "results" in message:
        text = text.replace("(tensor<8xf32>, tensor<i32>)", "tensor<8xf32>")
    result = run(rows, "--compare", write(tmp_path / "other.mlir", text))
    assert result.exit_code == 1
    assert f"the signatures differ: {message}" in result.stdout
    assert last_line(result) == "FAILED"


def test_results_on_given_inputs(tmp_path: Path, rows: str) -> None:
    path = str(tmp_path / "x.npz")
    array = np.ones((8, 4), np.float32)
    array[3, 1] = np.nan
    np.savez(path, arg0=array, arg1=np.int32(5))
    result = run(rows, "--compare", rows, "--inputs", path, "--json", str(tmp_path / "x.json"))
    assert last_line(result) == "PASSED"
    data = json.loads((tmp_path / "x.json").read_text())
    assert data["passed"] is True
    assert data["results"][0]["largest"] == 4
    assert data["results"][1]["largest"] == 5
    assert [module["arguments_bytes"] for module in data["modules"]] == [132, 132]
    assert all(module["seconds"] > 0 for module in data["modules"])


def test_json_of_a_failure_is_json(tmp_path: Path, rows: str, wrong: str) -> None:
    path = tmp_path / "x.json"
    assert run(wrong, "--compare", rows, "--json", str(path), "--seed", "3").exit_code == 1
    data = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert data["passed"] is False
    assert [one["passed"] for one in data["results"]] == [False, True]


def test_nan_throughout_is_told(tmp_path: Path, rows: str) -> None:
    path = str(tmp_path / "x.npz")
    np.savez(path, arg0=np.full((8, 4), np.nan, np.float32), arg1=np.int32(5))
    result = run(rows, "--compare", rows, "--inputs", path)
    assert "result 0 is NaN throughout" in result.stdout
    assert last_line(result) == "PASSED"


def test_no_run_only_compiles(rows: str, wrong: str) -> None:
    result = run(rows, "--compare", wrong, "--no-run")
    assert result.exit_code == 0, result.stderr
    assert "peak" in result.stdout
    assert "time" not in result.stdout
    assert "PASSED" not in result.stdout and "FAILED" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.mlir"], "none.mlir: error: cannot open input file: No such file or directory"),
        (["ROWS", "--compare", "none.mlir"], "none.mlir: error: cannot open"),
        (["ROWS", "--inputs", "none.npz"], "none.npz: error: cannot open the inputs"),
        (["ROWS", "--json", "/nonexistent/x.json"], "/nonexistent/x.json: error: cannot write"),
    ],
)
def test_the_inputs_faults_are_one_sentence(rows: str, arguments: list[str], message: str) -> None:
    result = run(*(rows if argument == "ROWS" else argument for argument in arguments))
    assert result.exit_code == 1
    assert result.stderr.startswith(message)
    assert result.stderr.count("\n") == 1


def test_a_module_that_xla_refuses_is_named(tmp_path: Path, rows: str) -> None:
    text = """func.func public @main(%a: tensor<8x4xf32>, %n: tensor<i32>) -> (tensor<8xf32>, tensor<i32>) {
      %0 = stablehlo.custom_call @nobody(%a) : (tensor<8x4xf32>) -> tensor<8xf32>
      return %0, %n : tensor<8xf32>, tensor<i32> }"""
    path = write(tmp_path / "nobody.mlir", text)
    result = run(rows, "--compare", path)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"{path}: error: XLA cannot compile this module")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["-", "--compare", "-"],
        ["x.mlir", "--inputs", "x.npz", "--seed", "1"],
        ["x.mlir", "--no-run", "--seed", "1"],
        ["x.mlir", "--rtol", "1e-3"],
        ["x.mlir", "--repeat", "0"],
        ["x.mlir", "--compare", "x.mlir", "--rtol", "nan"],
        ["x.mlir", "--device", "tpu"],
    ],
)
def test_wrong_usage_exits_with_two(arguments: list[str]) -> None:
    assert run(*arguments).exit_code == 2


def test_help_loads_neither_mlir_nor_jax() -> None:
    code = "import sys; from exla_opt.cli.run import main; main(['--help'], standalone_mode=False);"
    code += "sys.exit(any(name.partition('.')[0] in ('jax', 'jaxlib') for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Usage:" in done.stdout


def test_lapack_calls_run_in_a_fresh_process(tmp_path: Path) -> None:
    export = subprocess.run([sys.executable, "-c", CHOLESKY], capture_output=True, text=True, check=True)
    assert "lapack_" in export.stdout
    path = write(tmp_path / "cholesky.mlir", export.stdout)
    command = [sys.executable, "-c", "from exla_opt.cli.run import main; main()", path, "--compare", path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("PASSED\n")
    assert done.stderr == ""


@pytest.mark.parametrize("platform", ["cuda", "tpu", "nonsense"])
def test_a_device_that_jax_does_not_find_is_one_sentence(rows: str, platform: str) -> None:
    command = [sys.executable, "-c", "from exla_opt.cli.run import main; main()", rows, "--device", "cuda"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"JAX_PLATFORMS": platform})
    if platform == "cuda" and done.returncode == 0:
        pytest.skip("this machine has a GPU")
    assert done.returncode == 1
    assert done.stderr.startswith("--device=cuda: error: no CUDA device can be used here (")
    assert platform in done.stderr.splitlines()[0] and "internal" not in done.stderr
    command = [sys.executable, "-c", "from exla_opt.cli.opt import main; main()", rows, "--target=cuda", "-o/dev/null"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"JAX_PLATFORMS": platform})
    assert done.returncode == 2
    assert done.stderr.startswith("--target=cuda: error: no GPU can be used here (") and done.stderr.count("\n") == 1
