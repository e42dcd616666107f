"""Budgets of a project's modules: read from pyproject.toml, compiled, and printed with the last figures."""

from __future__ import annotations

from pathlib import Path

import pytest
from click import UsageError
from click.testing import CliRunner, Result

from exla_opt.cli.budgets import Budget, read_budgets
from exla_opt.cli.run import main

SINE = """func.func public @main(%x: tensor<1000x1000xf32>) -> tensor<1000xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [1] : (tensor<1000x1000xf32>, tensor<1000x1000xf32>) -> tensor<1000x1000xf32>
  %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<1000x1000xf32>, tensor<f32>) -> tensor<1000xf32>
  return %1 : tensor<1000xf32>
}
"""
PEAK = 2 * 4 * 10**6 + 4000


def project(tmp_path: Path, *lines: str) -> Path:
    (tmp_path / "x.mlir").write_text(SINE)
    path = tmp_path / "pyproject.toml"
    path.write_text("[tool.exla-opt.budgets]\n" + "\n".join(lines))
    return path


def check(path: Path, *more: str) -> Result:
    return CliRunner().invoke(main, [f"--budgets={path}", *more])


def test_budgets_are_read(tmp_path: Path) -> None:
    lines = ('"x.mlir" = "2GB"', '"y.mlir" = { limit = 5000, target = "cuda:l4", peak = "1MB" }')
    assert read_budgets(project(tmp_path, *lines)) == [
        Budget("x.mlir", 2 * 10**9),
        Budget("y.mlir", 5000, "cuda:l4", 10**6),
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "there are no"),
        ('"x.mlir" = "much"', "'much' is not a size"),
        ('"x.mlir" = { target = "cpu" }', "it has no limit"),
        ('"x.mlir" = { limit = "1GB", device = "cpu" }', "unknown key 'device'"),
        ('"x.mlir" = ', "not TOML"),
    ],
)
def test_what_is_no_budget_is_told(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        read_budgets(project(tmp_path, line))
    assert message in raised.value.message


def test_a_budget_that_is_kept(tmp_path: Path) -> None:
    result = check(project(tmp_path, '"x.mlir" = { limit = "20MB", peak = "4MB" }'))
    assert result.exit_code == 0, result.output
    head, row = (line.split() for line in result.stdout.splitlines())
    assert head == "module target last peak change limit kept".split()
    assert (row[0], row[1], row[2], row[5], row[6]) == ("x.mlir", "cpu", "4MB", "20MB", "yes")
    assert float(row[4].strip("+%")) >= 100


def test_of_a_budget_that_is_passed_the_culprit_is_printed(tmp_path: Path) -> None:
    result = check(project(tmp_path, '"x.mlir" = "5MB"'))
    assert result.exit_code == 1
    assert "over its budget of 5MB" in result.stdout
    assert "4MB  1000x1000xf32  stablehlo.dot_general at " in result.stdout
    assert "x.mlir:3:8" in result.stdout


def test_a_target_that_is_none_and_wrong_usage(tmp_path: Path) -> None:
    assert check(project(tmp_path, '"x.mlir" = { limit = "5MB", target = "abacus" }')).exit_code == 2
    assert check(project(tmp_path, '"x.mlir" = "5MB"'), "--no-run").exit_code == 2
    assert check(tmp_path / "none.toml").exit_code == 2
    assert CliRunner().invoke(main, []).exit_code == 2


def test_a_module_that_is_missing(tmp_path: Path) -> None:
    result = check(project(tmp_path, '"y.mlir" = "5MB"'))
    assert result.exit_code == 1
    assert "y.mlir: error: cannot open" in result.stderr
