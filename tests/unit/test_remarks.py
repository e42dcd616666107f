"""Remarks have codes, every code has an explanation, and the docs list them all."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from jaxlib.mlir import ir

from exla_opt.cli.opt import main
from exla_opt.explanations import EXPLANATIONS, explain
from exla_opt.ir.context import new_context
from exla_opt.options import Options
from exla_opt.pipeline import run_pipeline

ROOT = Path(__file__).parents[2]
SORTED = ROOT / "tests/lit/tensor-splitter/refuse-sort-dimension.mlir"


def sources() -> str:
    return "".join(
        path.read_text()
        for folder in ("passes", "exla_opt/ops", "exla_opt/sharding")
        for path in ROOT.glob(f"{folder}/**/*.py")
    )


def test_every_code_is_used_and_explained() -> None:
    assert set(re.findall(r'"(EX\d{3})"', sources())) == set(EXPLANATIONS)


def test_the_docs_list_every_code_with_its_words() -> None:
    rows = {
        code: (title.strip(), meaning.strip())
        for code, title, meaning in re.findall(
            r"^\| (EX\d{3}) \| (.*?) \| (.*?) \|$", (ROOT / "docs/remarks.md").read_text(), re.M
        )
    }
    assert rows == {
        code: (each.title, " ".join(filter(None, (each.meaning, each.helps)))) for code, each in EXPLANATIONS.items()
    }


def test_explain_tells_meaning_and_help() -> None:
    result = CliRunner().invoke(main, ["--explain", "ex201"])
    assert result.exit_code == 0 and result.output.startswith("EX201: ") and "What helps:" in result.output
    assert explain("EX000") is None


def test_explain_of_an_unknown_code_is_a_usage_error() -> None:
    result = CliRunner().invoke(main, ["--explain", "EX2O1"])
    assert result.exit_code == 2 and "Did you mean" in result.output


@pytest.mark.parametrize(("which", "lines"), [("missed", 2), ("passed", 0), ("all", 2)])
def test_which_remarks_are_printed(which: str, lines: int) -> None:
    result = CliRunner().invoke(main, [str(SORTED), "--size-threshold=64KB", f"--remarks={which}", "-o", "/dev/null"])
    assert result.exit_code == 0
    assert result.stderr.count("remark:") == lines


@pytest.mark.parametrize("end", ["json", "yaml"])
def test_remarks_as_data(tmp_path: Path, end: str) -> None:
    file = tmp_path / f"remarks.{end}"
    result = CliRunner().invoke(
        main, [str(SORTED), "--size-threshold=64KB", "--quiet", f"--remarks-output={file}", "-o", "/dev/null"]
    )
    assert result.exit_code == 0 and not result.stderr
    text = file.read_text()
    if end == "yaml":  # each value is written as JSON writes it
        blocks = re.split(r"^- ", text, flags=re.M)[1:]
        records = [
            {key: json.loads(value) for key, value in re.findall(r"^ *(\w+): (.*)$", block, re.M)} for block in blocks
        ]
    else:
        records = json.loads(text)
    assert [record["code"] for record in records] == ["EX201", "EX201"]
    assert records[0]["kind"] == "missed" and records[0]["bytes"] == 262144
    assert records[0]["stopped_by"] == "stablehlo.sort" and records[0]["location"].endswith(":13:8")


def test_a_file_of_another_kind_is_a_usage_error() -> None:
    result = CliRunner().invoke(main, [str(SORTED), "--remarks-output=remarks.txt"])
    assert result.exit_code == 2 and "must end in .json, .yaml or .sarif" in result.output


def test_a_file_that_cannot_be_written_is_the_inputs_fault(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, [str(SORTED), f"--remarks-output={tmp_path}/none/r.json", "-o", "/dev/null"])
    assert result.exit_code == 1 and "cannot write output file" in result.output


def test_what_a_loop_writes_has_the_place_of_the_op_that_made_it() -> None:
    text = """
func.func @main(%x: tensor<40x4xf32>, %y: tensor<4x30xf32>) -> (tensor<40xf32>, tensor<40x30xf32>) {
  %k = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<40x4xf32>, tensor<4x30xf32>) -> tensor<40x30xf32> loc("product")
  %z = stablehlo.multiply %y, %y : tensor<4x30xf32>
  %l = stablehlo.dot_general %x, %z, contracting_dims = [1] x [0] : (tensor<40x4xf32>, tensor<4x30xf32>) -> tensor<40x30xf32> loc("another")
  %both = stablehlo.add %k, %l : tensor<40x30xf32>
  %s = "stablehlo.sort"(%both) <{dimension = 1 : i64}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %less = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %less : tensor<i1>
  }) : (tensor<40x30xf32>) -> tensor<40x30xf32> loc("sorted")
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %sum = stablehlo.reduce(%s init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<40x30xf32>, tensor<f32>) -> tensor<40xf32>
  return %sum, %s : tensor<40xf32>, tensor<40x30xf32>
}
"""
    with new_context() as context:
        module = ir.Module.parse(text, context)
        remarks = run_pipeline(module, ["tensor-splitter"], Options(size_threshold=1000, split_size=500)).remarks
    assert [(remark.code, remark.location) for remark in remarks] == [("EX001", "product"), ("EX104", "sorted")]


def test_a_tensor_that_only_an_unknown_op_reads_is_held_up_by_that_op() -> None:
    text = """
func.func @main(%x: tensor<40xf32>) -> tensor<40x30xf32> {
  %b = stablehlo.broadcast_in_dim %x, dims = [0] : (tensor<40xf32>) -> tensor<40x30xf32>
  %c = stablehlo.custom_call @mystery(%b) : (tensor<40x30xf32>) -> tensor<40x30xf32> loc("call")
  return %c : tensor<40x30xf32>
}
"""
    with new_context() as context:
        module = ir.Module.parse(text, context)
        first, _ = run_pipeline(module, ["tensor-splitter"], Options(size_threshold=1000)).remarks
    assert (first.code, first.stopped_by, first.stopped_at) == ("EX202", "stablehlo.custom_call", "call")
