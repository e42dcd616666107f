"""Passes with options of their own, the module before and after one of them, and remarks in several files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click import UsageError
from click.testing import CliRunner, Result

from exla_opt.cli.groups import GROUPS
from exla_opt.cli.opt import main
from exla_opt.cli.pass_list import read_passes

MODULE = """func.func public @main(%x: tensor<256x64xf32>) -> tensor<256xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [1] : (tensor<256x64xf32>, tensor<256x64xf32>) -> tensor<256x256xf32>
  %1 = stablehlo.exponential %0 : tensor<256x256xf32>
  %2 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<256x256xf32>, tensor<f32>) -> tensor<256xf32>
  return %2 : tensor<256xf32>
}
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "model.mlir"
    path.write_text(MODULE)
    return str(path)


def opt(*arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(main, list(arguments), input=stdin)


def test_passes_have_options_of_their_own() -> None:
    text = " builtin.module( cse, tensor-splitter{split-size=8MB size-threshold=1GB} ,rce, tensor-splitter{ } ) "
    names, overrides = read_passes(None, text)
    assert names == ("cse", "tensor-splitter", "rce", "tensor-splitter")
    assert overrides == {1: {"split_size": 8 * 10**6, "size_threshold": 10**9}, 3: {}}
    assert read_passes("rce,cse", None) == (("rce", "cse"), {})
    assert read_passes("", None) == ((), {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tensor-splitter{split=8MB}", "has no option 'split': it has split-size and size-threshold"),
        ("cse{split-size=8MB}", "has no option 'split-size': it has none"),
        ("tensor-splitter{split-size=much}", "split-size of pass 'tensor-splitter': 'much' is not a size"),
        ("tensor-splitter{split-size=8MB", "cannot read the pass"),
        ("tensor-spliter{split-size=8MB}", "Did you mean 'tensor-splitter'?"),
        ("cse,,rce", "unknown pass ''"),
        ("cse,", "unknown pass ''"),
    ],
)
def test_what_is_no_pipeline_is_told(text: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        read_passes(None, text)
    assert message in raised.value.message


def test_options_stand_in_a_pipeline_alone() -> None:
    with pytest.raises(UsageError, match="for --pass-pipeline"):
        read_passes("tensor-splitter{split-size=8MB}", None)


def test_a_pass_takes_its_own_sizes(model: str) -> None:
    plain = opt(model, "--passes=normalise,tensor-splitter")
    assert "stablehlo.while" not in plain.stdout
    sizes = "size-threshold=100KB split-size=32KB"
    own = opt(model, f"--pass-pipeline=builtin.module(normalise,tensor-splitter{{{sizes}}})")
    given = opt(model, "--passes=normalise,tensor-splitter", "--size-threshold=100KB", "--split-size=32KB")
    assert "stablehlo.while" in own.stdout
    assert own.stdout == given.stdout


@pytest.mark.parametrize("option", ["--memory-limit=1MB", "--target=cpu", "--check", "--pareto", "--diagnose"])
def test_options_of_passes_are_for_fixed_sizes(model: str, option: str) -> None:
    result = opt(model, "--pass-pipeline=tensor-splitter{split-size=8MB}", option)
    assert result.exit_code == 2
    assert f"options of passes and {option.partition('=')[0]} exclude each other" in result.stderr


def test_the_module_before_and_after_one_pass(model: str) -> None:
    result = opt(model, "--passes=normalise,cse,rce", "--print-ir-before=cse", "--print-ir-after=rce", "-o", "-")
    heads = [line for line in result.stderr.splitlines() if line.startswith("// -----//")]
    assert heads == ["// -----// IR Dump Before cse //----- //", "// -----// IR Dump After rce //----- //"]
    assert opt(model, "--print-ir-after=none").exit_code == 2


def test_how_the_splitter_chose(model: str) -> None:
    result = opt(model, "--size-threshold=100KB", "--split-size=32KB", "--debug-only=tensor-splitter", "-o", "-")
    lines = [line for line in result.stderr.splitlines() if line.startswith("tensor-splitter: ")]
    assert lines[0].startswith("tensor-splitter: stablehlo.dot_general 256x256xf32 (262KB) at ")
    taken = [line for line in lines if line.endswith("<- chosen")]
    assert taken and all("stay unsplit, peak" in line and " of 128KB, " in line for line in taken)
    alone = opt(model, "--size-threshold=100KB", "--split-size=32KB", "-o", "-")
    assert result.stdout == alone.stdout
    assert "tensor-splitter: " not in alone.stderr


def test_how_the_sizes_were_chosen(model: str) -> None:
    result = opt(model, "--memory-limit=250KB", "--debug-only=memory-limit", "-o", "-")
    lines = [line for line in result.stderr.splitlines() if line.startswith("memory-limit: ")]
    assert lines[0].startswith("memory-limit: without a split: ")
    (taken,) = [line for line in lines if line.endswith("<- chosen")]
    assert "threshold" in taken and " compiled, " in taken
    assert lines[-2].startswith("memory-limit: chosen: the fastest of those within 250KB ")


def test_topics_that_do_not_exist(model: str) -> None:
    result = opt(model, "--debug-only=memory-limit,memory")
    assert result.exit_code == 2
    assert "there is no topic 'memory'; there are memory-limit (" in result.stderr


def test_remarks_go_to_several_files(model: str, tmp_path: Path) -> None:
    names = [str(tmp_path / f"r.{end}") for end in ("json", "yaml", "sarif")]
    options = [f"--remarks-output={name}" for name in names]
    result = opt(model, "--size-threshold=100KB", "--split-size=32KB", *options)
    assert result.exit_code == 0, result.stderr
    records = json.loads(Path(names[0]).read_text())
    (run,) = json.loads(Path(names[2]).read_text())["runs"]
    found: list[Any] = run["results"]
    assert len(found) == len(records) > 0
    assert [each["ruleId"] for each in found] == [each["code"] for each in records]
    place = found[0]["locations"][0]["physicalLocation"]
    region = place["region"]
    where = f"{place['artifactLocation']['uri']}:{region['startLine']}:{region['startColumn']}"
    assert where == records[0]["location"]
    assert found[0]["level"] == ("note" if records[0]["kind"] == "passed" else "warning")
    assert opt(model, "--remarks-output=x.txt").exit_code == 2


def test_what_stands_in_no_file_has_no_place_in_sarif(tmp_path: Path, model: str) -> None:
    text, name = Path(model).read_text(), tmp_path / "r.sarif"
    options = ["--size-threshold=100KB", "--split-size=32KB", f"--remarks-output={name}"]
    assert CliRunner().invoke(main, ["-", *options], input=text).exit_code == 0
    (run,) = json.loads(name.read_text())["runs"]
    assert run["results"] and not any("locations" in each for each in run["results"])


def test_every_option_stands_in_one_group_of_the_help() -> None:
    named = [name for names in GROUPS.values() for name in names.split()]
    options = {option.name for option in main.params if option.param_type_name == "option"}
    assert len(named) == len(set(named))
    assert set(named) == options - {"version"}
    text = opt("--help").stdout
    assert [line.rstrip(":") for line in text.splitlines() if line.rstrip(":") in GROUPS] == list(GROUPS)


def test_what_the_table_of_programs_is_chosen_from(model: str) -> None:
    result = opt(model, "--pareto", "--debug-only=memory-limit")
    tried = [line for line in result.stderr.splitlines() if line.startswith("memory-limit: ")]
    assert result.exit_code == 0 and tried[0].startswith("memory-limit: without a split: ")
    assert any("slices" in line and " compiled, " in line for line in tried[1:])
    assert "memory-limit: " not in opt(model, "--pareto").stderr
