"""One table of where modules fit, and TPUs that are not here."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from exla_opt.cli.run import main
from exla_opt.ir.diagnostics import InputError
from exla_opt.memory.peak import Memory
from exla_opt.runtime import survey as surveys
from exla_opt.runtime import tpus
from exla_opt.runtime.gpus import GPUS, describe, is_too_old
from exla_opt.runtime.survey import all_targets, survey
from exla_opt.runtime.target import Compiled, NoSuchTarget, Target, TargetError, compiled_memory, parse_target
from exla_opt.runtime.tpus import NoTpuCompiler, TpuError, compile_for_tpu, memory_refused
from exla_opt.runtime.traffic import Traffic

TRANSPOSE = """
func.func public @main(%x: tensor<100x50xf32>) -> tensor<50x100xf32> {
  %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<100x50xf32>) -> tensor<50x100xf32>
  return %0 : tensor<50x100xf32>
}"""
PEAK = 2 * 100 * 50 * 4
FULL = "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO temporaries (24.5G) exceeds ..."
FULL_TOO = "Ran out of memory in memory space hbm. Used 24.5G of 15.75G hbm. Exceeded hbm capacity by 8.75G."


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The targets that were compiled for; each module takes as many bytes as its text says, half on a TPU."""
    seen: list[str] = []

    def on_gpu(module: bytes, target: Target, gemms: Any) -> Compiled:
        seen.append(target.name)
        if module == b"refused":
            raise InputError("XLA cannot compile this")
        return Compiled(Memory(int(module), 0, 0, 0))

    monkeypatch.setattr(surveys, "compiled_memory", on_gpu)
    monkeypatch.setattr(
        surveys, "compiled_for_tpu", lambda module, target, seconds: Compiled(Memory(int(module) // 2, 0, 0, 0))
    )
    return seen


def test_at_least_twenty_gpus_are_described() -> None:
    assert sum(not is_too_old(gpu) for gpu in GPUS.values()) >= 20
    for name, gpu in GPUS.items():
        if not is_too_old(gpu):
            assert parse_target(f"cuda:{name}").memory == gpu.memory
        assert f'name: "{gpu.name}"' in describe(gpu)


def test_each_capability_is_compiled_for_once(compiles: list[str]) -> None:
    rows = survey([b"1000", b"2000"], all_targets(), 100)
    assert len(compiles) == 2 * (1 + 9)  # a CPU, and nine capabilities
    by_name = {row.target: row for row in rows}
    assert by_name["cuda:l4"].peaks == by_name["cuda:l40s"].peaks == (1000, 2000)
    assert by_name["tpu:v5e"].peaks == (500, 1000)
    assert [row.target for row in rows] == all_targets()
    assert [row.target for row in rows if row.peaks is None] == ["cuda:v100"]


def test_where_memory_is_short_each_gpu_is_compiled_for(compiles: list[str]) -> None:
    rows = survey([b"60000000000"], ["cuda:h100", "cuda:gh200", "cuda:h200"], 100)
    assert compiles == ["cuda:h200", "cuda:h100"]
    assert [row.target for row in rows] == ["cuda:h100", "cuda:gh200", "cuda:h200"]


def test_when_the_time_is_over_nothing_more_is_begun(compiles: list[str]) -> None:
    rows = survey([b"1"], ["cuda:h200", "tpu:v4", "cpu"], 0)
    assert compiles == []
    assert {row.why for row in rows} == {"not compiled: out of time; name it alone"}


def test_what_one_target_refuses_is_its_own_row(compiles: list[str]) -> None:
    refused, old = survey([b"refused"], ["cuda:l4", "cuda:v100"], 100)
    assert (refused.why, refused.is_target) == ("XLA cannot compile this", False)
    assert old.why.startswith("CUDA 13") and old.is_target


@pytest.mark.parametrize("name", ["cuda:none-such", "tpu:v99", "gpus"])
def test_a_name_of_no_target_ends_it_before_anything_is_compiled(
    compiles: list[str], tmp_path: Path, name: str
) -> None:
    with pytest.raises(NoSuchTarget):
        survey([b"1"], ["cuda:l4", name], 100)
    assert compiles == []
    result = run(tmp_path, f"--target=cuda:l4,{name}")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"--target={name}: error: ")


def run(tmp_path: Path, *arguments: str) -> Any:
    (tmp_path / "x.mlir").write_text(TRANSPOSE)
    return CliRunner().invoke(main, [str(tmp_path / "x.mlir"), *arguments])


def test_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surveys, "compiled_memory", lambda *_: Compiled(Memory(20 * 10**9, 0, 0, 0)))

    def without(*_: Any) -> Memory:
        raise TargetError("tpu:v4", "compiling for a TPU needs libtpu: pip install 'exla-opt[tpu]'")

    monkeypatch.setattr(surveys, "compiled_for_tpu", without)
    file = tmp_path / "x.json"
    result = run(tmp_path, "--target=cuda:t4,cuda:l4,tpu:v4,tpu:v5e", "--json", str(file))
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[:3] == [
        ["target", "memory", str(tmp_path / "x.mlir"), "fits"],
        ["cuda:t4", "15.8GB", "20GB", "no"],
        ["cuda:l4", "23.5GB", "20GB", "yes"],
    ]
    why = "compiling for a TPU needs libtpu: pip install 'exla-opt[tpu]'"
    assert result.stdout.splitlines()[3:] == [f"tpu:v4, tpu:v5e: {why}"]
    found = json.loads(file.read_text())["targets"]
    assert [each["fits"] for each in found] == [[False], [True], None, None]


def test_the_exit_status_says_whether_it_fits_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surveys, "compiled_memory", lambda *_: Compiled(Memory(10**15, 0, 0, 0)))
    assert run(tmp_path, "--target=cuda:l4,cuda:t4").exit_code == 1
    assert run(tmp_path, "--target=cuda:v100,cuda:v100").exit_code == 2
    assert run(tmp_path, "--target=all", "--limit=1GB").exit_code == 2


@pytest.mark.parametrize("message", [FULL, FULL_TOO])
def test_a_tpu_that_is_too_small_says_what_is_needed(message: str) -> None:
    memory = memory_refused(message, 10**9)
    assert memory.peak == round(24.5 * 2**30)
    assert memory.arguments == 10**9


def test_what_else_libtpu_says_is_an_error() -> None:
    with pytest.raises(TpuError, match="^INTERNAL: no$"):
        memory_refused("INTERNAL: no\nat 7\n", 1)


@pytest.fixture
def libtpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tpus, "has_tpu_compiler", lambda: True)


def test_of_a_tpu_the_peak_counts(monkeypatch: pytest.MonkeyPatch, libtpu: None) -> None:
    found = {"arguments": 4, "results": 3, "aliased": 2, "peak": 105}
    done = subprocess.CompletedProcess([], 0, f"noise\n{json.dumps(found)}\n".encode(), b"noise")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    memory, traffic = compile_for_tpu(b"", tpus.TPUS["v5e"], 7)
    assert (memory.peak, memory.temp, traffic) == (105, 100, None)


def test_of_several_tpus_what_each_sends_counts_too(monkeypatch: pytest.MonkeyPatch, libtpu: None) -> None:
    sent = Traffic(2.0, 1.0, 3)
    found = {"arguments": 4, "results": 3, "aliased": 2, "peak": 105, "traffic": asdict(sent)}
    commands: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        commands.append(command)
        return subprocess.CompletedProcess([], 0, json.dumps(found).encode(), b"")

    monkeypatch.setattr(subprocess, "run", run)
    assert compile_for_tpu(b"", tpus.TPUS["v7x"], 7, devices=16)[1] == sent
    assert commands[0][-3:] == ["tpu7x:2x2x2", "16", ""]


@pytest.mark.parametrize(
    ("name", "count", "topology"),
    [("v5e", 1, "v5e:2x2"), ("v5e", 8, "v5e:2x4"), ("v4", 8, "v4:2x2x2"), ("v7x", 8, "tpu7x:2x2x1")],
)
def test_a_topology_has_as_many_devices_as_the_module(name: str, count: int, topology: str) -> None:
    assert tpus.TPUS[name].topology(count) == topology


@pytest.mark.parametrize(("name", "count"), [("v5e", 6), ("v7x", 3)])
def test_no_topology_of_these_devices(name: str, count: int) -> None:
    with pytest.raises(TpuError, match=f"its topologies have .* devices, and the module is for {count}"):
        tpus.TPUS[name].topology(count)


def test_a_slow_compile_is_stopped(monkeypatch: pytest.MonkeyPatch, libtpu: None) -> None:
    def slow(*_: Any, **options: Any) -> None:
        raise subprocess.TimeoutExpired("x", options["timeout"])

    monkeypatch.setattr(subprocess, "run", slow)
    with pytest.raises(InputError, match="tpu:v5e: the compile was stopped after 600 seconds"):
        compiled_memory(TRANSPOSE, parse_target("tpu:v5e"))


def test_a_process_that_dies_is_an_error(monkeypatch: pytest.MonkeyPatch, libtpu: None) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], -6, b"", b""))
    with pytest.raises(TpuError, match="libtpu ended with status -6"):
        compile_for_tpu(b"", tpus.TPUS["v5e"], 7)


def test_without_libtpu_the_command_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tpus, "has_tpu_compiler", lambda: False)
    with pytest.raises(NoTpuCompiler):
        compile_for_tpu(b"", tpus.TPUS["v5e"], 7)
    with pytest.raises(TargetError, match=r"needs libtpu: pip install 'exla-opt\[tpu\]'"):
        compiled_memory(TRANSPOSE, parse_target("tpu:v5e"))


@pytest.mark.skipif(find_spec("libtpu") is None, reason="libtpu is not here: pip install '.[tpu]'")
def test_every_tpu_compiles() -> None:
    for name in tpus.TPUS:
        assert compiled_memory(TRANSPOSE, parse_target(f"tpu:{name}")).memory.peak >= PEAK


SPREAD = """
module attributes {mhlo.num_partitions = 8 : i32} {
  sdy.mesh @mesh = <["d"=8]>
  func.func public @main(%x: tensor<1024x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}, {}]>}) -> tensor<64xf32> {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<1024x64xf32>, tensor<f32>) -> tensor<64xf32>
    return %0 : tensor<64xf32>
  }
}"""


@pytest.mark.skipif(find_spec("libtpu") is None, reason="libtpu is not here: pip install '.[tpu]'")
def test_every_tpu_compiles_for_eight_devices() -> None:
    for name in tpus.TPUS:
        found = compiled_memory(SPREAD, parse_target(f"tpu:{name}"))
        assert 1024 * 64 * 4 // 8 <= found.memory.peak < 1024 * 64 * 4
        assert found.traffic is not None and found.traffic.bytes >= 64 * 4
