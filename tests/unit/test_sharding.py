"""Modules for several devices: the program of one is equal, smaller, and sends no more; each of them is run.

The programs stand in tests/sharded. They run in processes of their own, in which the CPU is eight devices.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from click.testing import CliRunner
from jaxlib.mlir import ir

from exla_opt import StaysInMemory, optimize
from exla_opt.budget.fit import Figures, Fit
from exla_opt.cli.opt import main
from exla_opt.findings import warn_of
from exla_opt.ir.context import new_context
from exla_opt.ops.sent import MORE, bytes_sent
from exla_opt.options import Options
from exla_opt.pipeline import Outcome
from exla_opt.rewriting import rewrite
from exla_opt.runtime import tpus
from exla_opt.runtime.check import compare_modules
from exla_opt.runtime.target import TargetError
from exla_opt.sharding.joined import Joined, as_written
from exla_opt.sharding.partition import CannotPartition, partition

ROOT = Path(__file__).parents[2]
# They shift rows of a sharded dimension, and send no more than XLA's own program.
STENCILS = [
    "heat",
    "heat on a grid",
    "heat with zeros around",
    "heat without edges",
    "heat, gradient",
    "energy",
    "energy, gradient",
    "upwind",
    "upwind, gradient",
    "next tokens",
    "causal filter",
    "causal convolution",
    "parts of all kinds",
    "bits",
    "padded otherwise",
    "cached",
    "cached, chunk",
    "read in turn",
    "written in turn",
    "running windows",
    "two views",
    "guided",
    "backwards",
    "moved update",
    "only element",
]
GROUPS = [
    ["batch", "megatron", "megatron, three layers", "device_ids", "queries", "keys", "an axis of one", "explicit axes"],
    ["fsdp", "fsdp without constraints", "scan, batch", "scan, weights", "bfloat16", "dropout", "causal mask"],
    [
        "scan, fully sharded",
        "scan, fully sharded, unconstrained",
        "scan, fully sharded, checkpoint",
        "scan, fully sharded, bfloat16",
        "scan, fully sharded on a grid",
        "scan, fully sharded, scaled",
        "scan, fully sharded, wide",
    ],
    ["kernel times vector", "neighbours of points", "neighbours of queries", "sparse process", "no even parts"],
    ["uneven sums", "orders of axes", "every third", "complex constants", "cut further", "uneven mask"],
    ["uneven rows", "uneven rows, spread indices", "columns in turn", "halves"],
    ["place of the largest word", "places along two axes"],
    ["ties", "ties, rows", "ties, more than a shard has", "lattice, points", "lattice, queries"],
    ["labels at borders", "labels at borders, rows", "labels at uneven borders", "donated", "donated, aliased"],
    ["cross entropy, batch", "cross entropy, vocabulary", "embedding, batch", "embedding, rows", "pmap"],
    ["ring", "ring, gradient", "shard_map", "shard_map over some axes", "moved between devices", "branches"],
    ["talking along one axis", "drawn along one axis"],
    ["convolution along space", "images", "images on a grid", "images, gradient"],
    ["cut convolutions", "interleaved", "groups of a batch"],
    ["images, batch", "pooled", "turned up", "windows of three", "shifted windows"],
    [
        "maximum from a start",
        "place of the largest",
        "sorted",
        "running sums",
        "differences",
        "turned round",
        "joined and padded",
    ],
    STENCILS[:9],
    STENCILS[9:],
]
# Windows that get the rows of their neighbours alone.
EXCHANGING = (
    "convolution along space",
    "images",
    "images on a grid",
    "images, gradient",
    "windows of three",
    "shifted windows",
    *STENCILS,
)


@pytest.mark.parts_at_most(2)
@pytest.mark.parametrize("names", GROUPS, ids=[group[0] for group in GROUPS])
def test_programs_on_eight_devices(names: list[str]) -> None:
    command = [sys.executable, "-m", "tests.sharded", *names]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["name"] for each in found] == names
    for each in found:
        name, (before, after), (sent, sends) = each["name"], each["temp"], each["sent"]
        assert each["local"] and each["equal"] and each["alone"], name
        assert each["signature"] and each["aliased"][0] == each["aliased"][1], name
        assert (each["aliased"][0] > 0) == each["donates"], name
        if name in EXCHANGING:
            assert 0 < each["unsplit"] <= MORE * sent, name
        assert each["kept"] == (each["gain"] == 0) or each["gain"] == 1, name
        if not each["kept"]:
            assert MORE * before >= each["gain"] * after, f"{name}: {before} -> {after}"
            assert sends <= MORE * sent, name
            assert each["devices"] == [8], name


def test_the_gradient_of_overlapping_maxima_is_that_of_one_device_where_that_of_xla_is_not() -> None:
    command = [sys.executable, "-m", "tests.sharded", "overlapping maxima"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    [found] = map(json.loads, done.stdout.splitlines())
    assert found["alone"] and found["kept"] and found["signature"]


def test_training_steps_at_a_size_where_memory_matters() -> None:
    command = [sys.executable, "-m", "tests.sharded.middle"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    for each in map(json.loads, done.stdout.splitlines()):
        (before, after), (sent, sends) = each["temp"], each["sent"]
        assert before >= each["gain"] * after, f"{each['name']}: {before} -> {after}"
        assert sends <= MORE * sent, each["name"]


# A product of rows that are spread with all of a matrix; 32 KB of it on each device.
SPREAD = """
module @m attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["d"=8]>
  func.func public @main(%x: tensor<1024x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}, {}]>},
                         %y: tensor<64x1024xf32>) -> tensor<1024xf32> {
    %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<1024x64xf32>, tensor<64x1024xf32>) -> tensor<1024x1024xf32>
    %1 = stablehlo.tanh %0 : tensor<1024x1024xf32>
    %z = stablehlo.constant dense<0.0> : tensor<f32>
    %2 = stablehlo.reduce(%1 init: %z) applies stablehlo.add across dimensions = [1] : (tensor<1024x1024xf32>, tensor<f32>) -> tensor<1024xf32>
    return %2 : tensor<1024xf32>
  }
}"""
# Twelve rows on two devices, which eight do not divide: their padding would stand in the middle of them.
UNEVEN = """
module @m attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["d"=2, "m"=4]>
  func.func public @main(%x: tensor<12x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}, {}]>}) -> tensor<12xf32> {
    %0 = sdy.sharding_constraint %x <@mesh, [{"d", "m"}, {}]> : tensor<12x16xf32>
    %z = stablehlo.constant dense<0.0> : tensor<f32>
    %2 = stablehlo.reduce(%0 init: %z) applies stablehlo.add across dimensions = [1] : (tensor<12x16xf32>, tensor<f32>) -> tensor<12xf32>
    return %2 : tensor<12xf32>
  }
}"""


# A result that is constrained to a grid of the same devices.
TWO_MESHES = (
    SPREAD.replace("%1 = stablehlo.tanh %0", "%1 = stablehlo.tanh %c")
    .replace(
        "    %1 =", '    %c = sdy.sharding_constraint %0 <@grid, [{"b"}, {"a"}]> : tensor<1024x1024xf32>\n    %1 ='
    )
    .replace("  func.func", '  sdy.mesh @grid = <["a"=2, "b"=4]>\n  func.func')
)
EMPTY = """
module @m attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["d"=8]>
  func.func public @main(%x: tensor<0x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}, {}]>}) -> tensor<0x16xf32> {
    %0 = stablehlo.sine %x : tensor<0x16xf32>
    return %0 : tensor<0x16xf32>
  }
}"""


def parse(text: str) -> ir.Module:
    return ir.Module.parse(text, new_context())


def test_the_program_of_one_device_has_its_part() -> None:
    found = partition(parse(SPREAD))
    assert "tensor<128x1024xf32>" in str(found.local)
    assert "mhlo.num_partitions" not in str(found.local)
    assert 'manual_axes={"d"}' in str(found.joined(found.local))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (SPREAD.replace('<["d"=8]>', '<["d"=4]>'), "it has 0 meshes of 8 devices"),
        (TWO_MESHES, "it has 2 meshes of 8 devices"),
        (EMPTY, "all arguments are empty"),
        (
            SPREAD.replace(
                "%z = stablehlo.constant dense<0.0> : tensor<f32>",
                "%z = stablehlo.rng %a, %a, %s, distribution = NORMAL : (tensor<f32>, tensor<f32>, tensor<0xi64>) -> tensor<f32>",
            ).replace(
                "%1 = stablehlo.tanh",
                "%a = stablehlo.constant dense<1.0> : tensor<f32>\n %s = stablehlo.constant dense<> : tensor<0xi64>\n %1 = stablehlo.tanh",
            ),
            "stablehlo.rng",
        ),
        (SPREAD.replace("mhlo.num_replicas = 1", "mhlo.num_replicas = 2"), "it runs in several replicas"),
        (
            SPREAD.replace(
                "return %2",
                "stablehlo.custom_call @print(%2) {has_side_effect = true} : (tensor<1024xf32>) -> ()\n return %2",
            ),
            "stablehlo.custom_call has a side effect",
        ),
    ],
    ids=["another mesh", "two meshes", "nothing to read", "random numbers with a state", "replicas", "a callback"],
)
def test_what_has_no_program_of_one_device(text: str, why: str) -> None:
    with pytest.raises(CannotPartition, match=why):
        partition(parse(text))
    assert "manual_computation" not in optimize(text).program


def test_what_cannot_be_padded_stays_whole_along_the_axes_that_are_in_the_way() -> None:
    local = str(partition(parse(UNEVEN)).local)
    assert "stablehlo.reduce" in local and "tensor<12x16xf32>" in local


def test_what_shardy_does_not_know_is_given_parts_that_agree() -> None:
    text = """
    module @m attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
      sdy.mesh @mesh = <["d"=2, "m"=4]>
      func.func public @main(%x: tensor<16x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}, {}]>},
                             %y: tensor<16x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"m"}]>}) -> tensor<16x16xf32> {
        %0 = "stablehlo.map"(%x, %y) ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %c = stablehlo.add %a, %b : tensor<f32>
          stablehlo.return %c : tensor<f32>
        }) {dimensions = array<i64: 0, 1>} : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
        %1 = chlo.sinh %0 : tensor<16x16xf32> -> tensor<16x16xf32>
        return %1 : tensor<16x16xf32>
      }
    }"""
    assert "(tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>" in str(partition(parse(text)).local)


# jax.shard_map over one axis of two, whose sum is taken between the devices that it names.
TALKING = """
module @m attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["d"=2, "m"=4]>
  func.func public @main(%x: tensor<16x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}, {"m"}]>}) -> tensor<16x8xf32> {
    %0 = sdy.manual_computation(%x) in_shardings=[<@mesh, [{"d", ?}, {?}]>] out_shardings=[<@mesh, [{"d", ?}, {?}]>] manual_axes={"d"} (%y: tensor<8x8xf32>) {
      %1 = "stablehlo.all_reduce"(%y) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = dense<[[0, 4], [1, 5], [2, 6], [3, 7]]> : tensor<4x2xi64>, use_global_device_ids}> ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %s = stablehlo.add %a, %b : tensor<f32>
        %t = sdy.sharding_constraint %s <@mesh, []> : tensor<f32>
        stablehlo.return %t : tensor<f32>
      }) : (tensor<8x8xf32>) -> tensor<8x8xf32>
      sdy.return %1 : tensor<8x8xf32>
    } : (tensor<16x8xf32>) -> tensor<16x8xf32>
    return %0 : tensor<16x8xf32>
  }
}"""


def test_collectives_along_some_axes_move_the_parts_along_the_others() -> None:
    assert "(tensor<8x2xf32>) -> tensor<8x2xf32>" in str(partition(parse(TALKING)).local)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[[0, 4], [1, 5], [2, 6], [3, 7]]", "[[0, 5], [1, 4], [2, 6], [3, 7]]"),
        ("[[0, 4], [1, 5], [2, 6], [3, 7]]", "[[0, 1], [2, 3], [4, 5], [6, 7]]"),
        ("[[0, 4], [1, 5], [2, 6], [3, 7]]", "[[0, 4], [5, 1], [2, 6], [3, 7]]"),
        (", use_global_device_ids", ""),
    ],
    ids=["between columns", "along the other axis", "in another order", "of replicas"],
)
def test_collectives_that_leave_their_axes_have_no_form(old: str, new: str) -> None:
    assert old in TALKING
    with pytest.raises(CannotPartition, match="communicates along the others"):
        partition(parse(TALKING.replace(old, new)))


def test_a_crash_of_shardy_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    crashed = subprocess.CompletedProcess([], -6, b"", b"Check failed")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: crashed)
    with pytest.raises(CannotPartition, match=r"Shardy crashed on it \(SIGABRT\)"):
        partition(parse(SPREAD))


def test_a_program_of_shardys_that_is_none_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    made = subprocess.CompletedProcess([], 0, b"module {", b"")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: made)
    with pytest.raises(CannotPartition, match="Shardy writes no valid program for it"):
        partition(parse(SPREAD))


def test_collectives_count_as_often_as_they_run() -> None:
    text = """
    func.func @main(%x: tensor<8xf32>) -> (tensor<i32>, tensor<8xf32>) {
      %n = stablehlo.constant dense<5> : tensor<i32>
      %0 = stablehlo.constant dense<0> : tensor<i32>
      %1 = stablehlo.constant dense<1> : tensor<i32>
      %r:2 = stablehlo.while(%i = %0, %c = %x) : tensor<i32>, tensor<8xf32>
      cond { %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
             stablehlo.return %p : tensor<i1> }
      do { %s = "stablehlo.all_reduce"(%c) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
             ^bb0(%a: tensor<f32>, %b: tensor<f32>):
               %t = stablehlo.add %a, %b : tensor<f32>
               stablehlo.return %t : tensor<f32>
           }) : (tensor<8xf32>) -> tensor<8xf32>
           %j = stablehlo.add %i, %1 : tensor<i32>
           stablehlo.return %j, %s : tensor<i32>, tensor<8xf32> }
      return %r#0, %r#1 : tensor<i32>, tensor<8xf32>
    }"""
    assert bytes_sent(parse(text)) == 5 * 8 * 4


def test_rows_found_by_indices_are_cut_unevenly_too() -> None:
    text = """
    module attributes {mhlo.num_partitions = 8 : i32} {
      sdy.mesh @mesh = <["d"=8]>
      func.func @main(%x: tensor<16x4xf32>, %w: tensor<4x1003xf32>, %i: tensor<16x1xi32>) -> tensor<16x16xf32> {
        %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
          : (tensor<16x4xf32>, tensor<4x1003xf32>) -> tensor<16x1003xf32>
        %1 = sdy.sharding_constraint %0 <@mesh, [{}, {"d"}]> : tensor<16x1003xf32>
        %2 = "stablehlo.gather"(%1, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [0],
          collapsed_slice_dims = [1], start_index_map = [1], index_vector_dim = 1>, slice_sizes = array<i64: 16, 1>}>
          : (tensor<16x1003xf32>, tensor<16x1xi32>) -> tensor<16x16xf32>
        return %2 : tensor<16x16xf32>
      }
    }"""
    local = str(partition(parse(text)).local)
    assert "tensor<16x126xf32>" in local and "tensor<16x1003xf32>" not in local
    assert "dense<1002>" in local, "an index beyond the end finds the last row, not the padding"


def test_the_only_element_of_a_dimension_is_repeated_on_all_devices() -> None:
    text = """
    module attributes {mhlo.num_partitions = 8 : i32} {
      sdy.mesh @mesh = <["d"=8]>
      func.func @main(%x: tensor<48xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}]>}) -> tensor<8xf32> {
        %0 = stablehlo.slice %x [0:1] : (tensor<48xf32>) -> tensor<1xf32>
        %1 = stablehlo.broadcast_in_dim %0, dims = [0] : (tensor<1xf32>) -> tensor<8xf32>
        return %1 : tensor<8xf32>
      }
    }"""
    local = str(partition(parse(text)).local)
    assert "stablehlo.all_reduce" in local, "only the first device has the element"


def test_a_slice_at_an_index_of_what_a_loop_changes_is_added_up_from_all_devices() -> None:
    text = """
    module attributes {mhlo.num_partitions = 8 : i32} {
      sdy.mesh @mesh = <["d"=8]>
      func.func @main(%x: tensor<4x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"d"}]>}) -> tensor<4x64xf32> {
        %zero = stablehlo.constant dense<0> : tensor<i32>
        %0:2 = stablehlo.while(%i = %zero, %c = %x) : tensor<i32>, tensor<4x64xf32>
        cond {
          %end = stablehlo.constant dense<64> : tensor<i32>
          %1 = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %1 : tensor<i1>
        } do {
          %one = stablehlo.constant dense<1> : tensor<i32>
          %first = stablehlo.constant dense<0> : tensor<i32>
          %2 = stablehlo.dynamic_slice %c, %first, %i, sizes = [4, 1] : (tensor<4x64xf32>, tensor<i32>, tensor<i32>) -> tensor<4x1xf32>
          %3 = stablehlo.broadcast_in_dim %2, dims = [0, 1] : (tensor<4x1xf32>) -> tensor<4x64xf32>
          %4 = stablehlo.add %c, %3 : tensor<4x64xf32>
          %5 = stablehlo.add %i, %one : tensor<i32>
          stablehlo.return %5, %4 : tensor<i32>, tensor<4x64xf32>
        }
        return %0#1 : tensor<4x64xf32>
      }
    }"""
    local = str(partition(parse(text)).local)
    assert "all_reduce" in local and "all_gather" not in local


def test_the_index_of_a_slice_that_is_sliced_again_is_clamped() -> None:
    # XLA merges both slices, and would clamp the sum of their indices.
    text = """
    module attributes {mhlo.num_partitions = 8 : i32} {
      sdy.mesh @mesh = <["d"=8]>
      func.func @main(%x: tensor<512xf32>, %i: tensor<i32>) -> (tensor<64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}]>}) {
        %0 = stablehlo.dynamic_slice %x, %i, sizes = [64] : (tensor<512xf32>, tensor<i32>) -> tensor<64xf32>
        return %0 : tensor<64xf32>
      }
    }"""
    local = str(partition(parse(text)).local)
    assert "stablehlo.clamp" in local and "dense<448>" in local


def test_an_index_of_two_dimensions_is_clamped_to_each() -> None:
    text = """
    module attributes {mhlo.num_partitions = 8 : i32} {
      sdy.mesh @mesh = <["d"=8]>
      func.func @main(%x: tensor<512x20xf32>, %i: tensor<i32>) -> (tensor<64x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}, {}]>}) {
        %0 = stablehlo.dynamic_slice %x, %i, %i, sizes = [64, 16] : (tensor<512x20xf32>, tensor<i32>, tensor<i32>) -> tensor<64x16xf32>
        return %0 : tensor<64x16xf32>
      }
    }"""
    local = str(partition(parse(text)).local)
    ends = dict(re.findall(r"(%\S+) = stablehlo.constant dense<(\d+)> : tensor<i32>", local))
    clamps = {made: ends[last] for made, last in re.findall(r"(%\S+) = stablehlo.clamp %\S+, %\S+, (%\S+) :", local)}
    found = re.search(r"stablehlo.dynamic_slice %arg0, (%\S+), (%\S+), sizes", local)
    assert found is not None and [clamps[index] for index in found.groups()] == ["448", "4"]


def test_the_figures_are_those_of_what_is_written() -> None:
    local = Fit(
        cast(ir.Module, None), Outcome((), ()), Options(), 100, 1.0, Figures(200, True, 2.0), fits=True, fitted=True
    )
    written = Joined(cast(ir.Module, None), (), False, before=1000, peak=100, note="why")
    found = as_written(local, written, 500)
    assert (found.before.peak, found.peak, found.fits, found.fitted, found.note) == (1000, 100, True, False, "why")
    assert as_written(local, replace(written, before=400), 500).fitted, "the original fits, but is slower"
    kept = as_written(local, replace(written, is_original=True, peak=1000), 500)
    assert (kept.peak, kept.fits, kept.options.split_size, kept.held_by) == (1000, False, None, "nothing being split")
    assert as_written(local, replace(written, is_original=True, peak=400), 500).fits
    assert as_written(local, replace(written, before=None, peak=None), 500) is local, "no compiler was asked"


def test_it_is_said_if_no_compiler_knows_whether_a_module_that_is_left_fits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("exla_opt.runtime.judge.has_gpu_compiler", lambda: False)
    text = SPREAD.replace("mhlo.num_replicas = 1", "mhlo.num_replicas = 2")
    why = "it is not known whether it fits into 1MB: compiling for a GPU needs jax's CUDA plugin"
    found = optimize(text, memory_limit="1MB", target="gpu")
    assert found.fits is None and not found.compiled and why in " ".join(found.summary.split())
    path = tmp_path / "left.mlir"
    path.write_text(text)
    for more, code in ([], 0), (["--strict", "--quiet"], 3):
        result = CliRunner().invoke(main, [str(path), "--memory-limit=1MB", "--target=gpu", "-o", "/dev/null", *more])
        assert result.exit_code == code and result.stderr.startswith(f"{path}: warning: {why}")
    with pytest.warns(StaysInMemory) as told:
        warn_of(rewrite(parse(text), Options(), 10**6, "gpu"), 10**6)
    assert why in str(told[0].message)


def test_a_named_device_without_a_compiler_is_an_error_for_a_module_that_is_left_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tpus, "has_tpu_compiler", lambda: False)
    text = SPREAD.replace("mhlo.num_replicas = 1", "mhlo.num_replicas = 2")
    with pytest.raises(TargetError, match="compiling for a TPU needs libtpu"):
        optimize(text, memory_limit="1MB", target="tpu:v5e")


def test_a_second_run_changes_nothing() -> None:
    once = optimize(SPREAD, size_threshold="64KB", split_size="32KB").program
    assert "stablehlo.while" in once and "sdy.manual_computation" in once
    assert optimize(once, size_threshold="64KB", split_size="32KB").program == once


def test_fewer_devices_than_a_module_needs_are_one_sentence() -> None:
    code = f"""
import jax
from exla_opt import optimize
from exla_opt.ir.diagnostics import InputError
from exla_opt.runtime.compile import compile_program
jax.config.update("jax_num_cpu_devices", 4)
assert jax.device_count() == 4
for text in ({SPREAD!r}, {SPREAD.replace("partitions = 8", "partitions = 2").replace("replicas = 1", "replicas = 4")!r}):
    try:
        compile_program(text)
    except InputError as error:
        print(error.message)
found = optimize({SPREAD!r}, memory_limit="500KB")
print(found.fits, found.compiled, "stablehlo.while" in found.program)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    sentence = "the module is for 8 devices, and jax was started with fewer"
    assert done.stdout.splitlines() == [sentence, sentence, "True False True"]


def test_what_is_written_for_each_device_of_a_mesh_of_one_is_split() -> None:
    text = """
    module attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
      sdy.mesh @mesh = <["d"=1]>
      func.func public @main(%x: tensor<512x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}, {}]>}, %y: tensor<8x512xf32>) -> tensor<512xf32> {
        %0 = sdy.manual_computation(%x, %y) in_shardings=[<@mesh, [{"d"}, {}]>, <@mesh, [{}, {}]>] out_shardings=[<@mesh, [{"d"}]>] manual_axes={"d"} (%a: tensor<512x8xf32>, %b: tensor<8x512xf32>) {
          %zero = stablehlo.constant dense<0.0> : tensor<f32>
          %1 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<512x8xf32>, tensor<8x512xf32>) -> tensor<512x512xf32>
          %2 = stablehlo.tanh %1 : tensor<512x512xf32>
          %3 = stablehlo.reduce(%2 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<512x512xf32>, tensor<f32>) -> tensor<512xf32>
          sdy.return %3 : tensor<512xf32>
        } : (tensor<512x8xf32>, tensor<8x512xf32>) -> tensor<512xf32>
        return %0 : tensor<512xf32>
      }
    }"""
    split = optimize(text, size_threshold="64KB", split_size="32KB").program
    assert "stablehlo.while" in split and 'sdy.sharding = #sdy.sharding<@mesh, [{"d"}, {}]>' in split
    assert all(one.passed for one in compare_modules(parse(text), parse(split)).comparisons)
