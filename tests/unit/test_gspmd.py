"""Shardings of GSPMD's in Shardy's words: the axes that they have in common, and programs that are executed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from jaxlib.mlir import ir

from exla_opt import optimize
from exla_opt.ir.attributes import replicas_of
from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.sharding.mesh import Mesh
from exla_opt.sharding.partition import CannotPartition, is_partitioned, partition
from exla_opt.sharding.tile_assignment import NoAxes, axes_of, common_mesh, read_tiles, spelled

ROOT = Path(__file__).parents[2]
# Constraints, computations written for one device, over all axes or some, loops, and what only some devices have.
PROGRAMS = [
    "batch",
    "megatron",
    "neighbours of points",
    "ring, gradient",
    "shard_map over some axes",
    "scan, batch",
    "orders of axes",
    "moved between devices",
    "no even parts",
    "pmap",
    "kernel times vector",
]


def test_programs_of_gspmd_on_eight_devices() -> None:
    command = [sys.executable, "-m", "tests.sharded", "--gspmd", *PROGRAMS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = {each["name"]: each for each in map(json.loads, done.stdout.splitlines())}
    assert list(found) == PROGRAMS
    for name, each in found.items():
        assert each["local"] and each["equal"], name
        if not each["kept"]:
            (before, after), (sent, sends) = each["temp"], each["sent"]
            assert before >= each["gain"] * after and sends <= 1.02 * sent, name
    gained = ("batch", "megatron", "neighbours of points", "ring, gradient", "pmap", "kernel times vector")
    assert not any(found[name]["kept"] for name in gained)
    # The result has no sharding: as with jax.jit, each device keeps the rows that it computed.
    assert found["kernel times vector"]["sent"] == [0, 0]


def parts_of(text: str, mesh: Mesh, rank: int) -> list[tuple[int, ...]]:
    """Which part of a tensor each device has, by the mesh."""
    sharding, _ = axes_of(read_tiles(text), rank, mesh)
    return [tuple(mesh.index(place, axes) for axes in sharding) for place in range(mesh.count)]


@pytest.mark.parametrize(
    ("text", "tiles", "devices"),
    [
        ("{devices=[8,1]<=[8]}", (8, 1), range(8)),
        ("{devices=[4,2]<=[2,4]T(1,0)}", (4, 2), np.arange(8).reshape(2, 4).T.ravel()),
        ("{devices=[1,8]<=[2,2,2]T(2,0,1)}", (1, 8), np.arange(8).reshape(2, 2, 2).transpose(2, 0, 1).ravel()),
        ("{devices=[2,4]0,2,4,6,1,3,5,7}", (2, 4), [0, 2, 4, 6, 1, 3, 5, 7]),
        ("{devices=[2,4]0,1,2,3,4,5,6,7}", (2, 4), range(8)),
        ("{devices=[2,1,4]<=[8] last_tile_dim_replicate}", (2, 1, 4), range(8)),
        ("{devices=[1,2,4]<=[4,2]T(1,0) last_tile_dims={replicated}}", (1, 2, 4), np.arange(8).reshape(4, 2).T.ravel()),
        ("{devices=[2,3]<=[6]}", (2, 3), range(6)),
        ("{devices=[6,1]<=[3,2]T(1,0)}", (6, 1), np.arange(6).reshape(3, 2).T.ravel()),
    ],
)
def test_each_device_has_the_part_that_the_text_says(text: str, tiles: tuple[int, ...], devices: list[int]) -> None:
    count = len(list(devices))
    expected = {int(device): np.unravel_index(place, tiles)[:2] for place, device in enumerate(devices)}
    mesh = common_mesh("mesh", count, [read_tiles(text)])
    found = parts_of(text, mesh, 2)
    assert [tuple(map(int, expected[device])) for device in range(count)] == found
    sharding, _ = axes_of(read_tiles(text), 2, mesh)
    assert parts_of(spelled(sharding, mesh), mesh, 2) == found  # and back


def test_several_shardings_share_the_coarsest_axes() -> None:
    texts = ["{devices=[8,1]<=[8]}", "{devices=[1,2,4]<=[4,2]T(1,0) last_tile_dim_replicate}", "{replicated}"]
    mesh = common_mesh("mesh", 8, map(read_tiles, texts))
    assert [size for _, size in mesh.axes] == [4, 2]


def test_axes_that_the_program_names_itself() -> None:
    tiles = read_tiles("{devices=[1,1,2,4]<=[8] last_tile_dims={manual, replicated}}")
    mesh = common_mesh("mesh", 8, [tiles])
    assert axes_of(tiles, 2, mesh) == (((), ()), frozenset({"axis_0"}))
    assert axes_of(read_tiles("{manual}"), 1, mesh) == (((),), frozenset({"axis_0", "axis_1"}))


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        (["{maximal device=0}"], "a sharding is {maximal device=0}"),
        (["{devices=[8]0,2,1,3,4,5,6,7}"], "in no regular order"),
        (["{devices=[8]0,1,2,3,4,5,6,6}"], "in no regular order"),
        (["{devices=[2,4]<=[8] last_tile_dims={unreduced}}"], "a sharding is"),
        (["{devices=[4]<=[4]}"], "other devices"),
        (["{devices=[2,3]<=[6]}", "{devices=[3,2]<=[6]}"], "no axes in common"),
    ],
)
def test_shardings_without_axes(texts: list[str], why: str) -> None:
    count = 6 if "6]}" in texts[0] else 8
    with pytest.raises(NoAxes, match=why.replace("{", r"\{")):
        common_mesh("mesh", count, map(read_tiles, texts))


# 32 KB of a product on each device.
SPREAD = """
module @m attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%x: tensor<1024x64xf32> {mhlo.sharding = "{devices=[8,1]<=[8]}"}, %y: tensor<64x1024xf32>) -> tensor<1024xf32> {
    %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<1024x64xf32>, tensor<64x1024xf32>) -> tensor<1024x1024xf32>
    %z = stablehlo.constant dense<0.0> : tensor<f32>
    %2 = stablehlo.reduce(%0 init: %z) applies stablehlo.add across dimensions = [1] : (tensor<1024x1024xf32>, tensor<f32>) -> tensor<1024xf32>
    return %2 : tensor<1024xf32>
  }
}"""
# A part of a vector that no end takes back.
ENDLESS = """
module @m attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%x: tensor<64xf32>) -> tensor<8xf32> {
    %0 = stablehlo.custom_call @Sharding(%x) {mhlo.sharding = "{devices=[8]<=[8]}"} : (tensor<64xf32>) -> tensor<64xf32>
    %1 = stablehlo.custom_call @SPMDFullToShardShape(%0) {mhlo.sharding = "{manual}"} : (tensor<64xf32>) -> tensor<8xf32>
    return %1 : tensor<8xf32>
  }
}"""


# The number of a device along an axis, in a computation over all axes within one over some: XLA's GSPMD crashes on it.
NESTED = """
module @m attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%x: tensor<16x8xi32> {mhlo.sharding = "{devices=[2,4]<=[8]}"}) -> tensor<16x8xi32> {
    %0 = stablehlo.custom_call @Sharding(%x) {backend_config = "unspecified_dims=[0,1]", mhlo.sharding = "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"} : (tensor<16x8xi32>) -> tensor<16x8xi32>
    %1 = stablehlo.custom_call @SPMDFullToShardShape(%0) {backend_config = "unspecified_dims=[0,1]", mhlo.sharding = "{devices=[1,1,2,4]<=[8] last_tile_dims={manual, replicated}}"} : (tensor<16x8xi32>) -> tensor<8x8xi32>
    %c = stablehlo.constant dense<4> : tensor<ui32>
    %2 = stablehlo.partition_id : tensor<ui32>
    %3 = stablehlo.divide %2, %c : tensor<ui32>
    %4 = stablehlo.custom_call @Sharding(%3) {mhlo.sharding = "{manual}"} : (tensor<ui32>) -> tensor<ui32>
    %5 = stablehlo.custom_call @SPMDShardToFullShape(%4) {mhlo.sharding = "{devices=[2,4]<=[8] last_tile_dims={manual, replicated}}"} : (tensor<ui32>) -> tensor<ui32>
    %6 = stablehlo.convert %5 : (tensor<ui32>) -> tensor<i32>
    %7 = stablehlo.broadcast_in_dim %6, dims = [] : (tensor<i32>) -> tensor<8x8xi32>
    %8 = stablehlo.add %1, %7 : tensor<8x8xi32>
    %9 = stablehlo.custom_call @Sharding(%8) {backend_config = "unspecified_dims=[0,1]", mhlo.sharding = "{devices=[1,1,2,4]<=[8] last_tile_dims={manual, replicated}}"} : (tensor<8x8xi32>) -> tensor<8x8xi32>
    %10 = stablehlo.custom_call @SPMDShardToFullShape(%9) {backend_config = "unspecified_dims=[0,1]", mhlo.sharding = "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"} : (tensor<8x8xi32>) -> tensor<16x8xi32>
    return %10 : tensor<16x8xi32>
  }
}"""


def test_a_computation_over_the_other_axes_within_one() -> None:
    local = str(partition(ir.Module.parse(NESTED, new_context())).local)
    assert "stablehlo.partition_id" in local and "stablehlo.add %arg0" in local and "tensor<8x2xi32>" in local


def test_the_result_is_in_the_words_of_the_module() -> None:
    found = partition(ir.Module.parse(SPREAD, new_context()))
    assert "tensor<128x1024xf32>" in str(found.local)
    joined = str(found.joined(found.local))
    assert "@SPMDFullToShardShape" in joined and "sdy" not in joined
    again = partition(ir.Module.parse(joined, new_context()))
    assert "tensor<128x1024xf32>" in str(again.local)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (SPREAD.replace("{devices=[8,1]<=[8]}", "{maximal device=3}"), "a sharding is {maximal device=3}"),
        (SPREAD.replace("{devices=[8,1]<=[8]}", "{devices=[8]<=[8]}"), "a sharding of a tensor of rank 2"),
        (SPREAD.replace("{\n  func", '{\n  sdy.mesh @mesh = <["d"=8]>\n  func'), "some of its shardings are Shardy's"),
        (ENDLESS, "a manual computation has no end"),
    ],
)
def test_what_has_no_words_of_shardys_is_a_sentence(text: str, why: str) -> None:
    with pytest.raises(CannotPartition) as raised:
        partition(ir.Module.parse(text, new_context()))
    assert why in str(raised.value) and "export with the Shardy partitioner" in str(raised.value)
    assert "jax_use_shardy_partitioner" in str(raised.value)
    assert "stablehlo.while" not in optimize(text).program


def test_a_dump_of_a_program_for_several_devices_is_read_as_one() -> None:
    text = """HloModule m, entry_computation_layout={(f32[1024,64]{1,0})->f32[1024,64]{1,0}}, num_partitions=8

ENTRY %main (x: f32[1024,64]) -> f32[1024,64] {
  %x = f32[1024,64]{1,0} parameter(0), sharding={devices=[8,1]<=[8]}
  ROOT %y = f32[1024,64]{1,0} sine(%x)
}
"""
    module = parse_module("dump.txt", text.encode(), new_context()).module
    assert "stablehlo.sine %arg0 : tensor<128x64xf32>" in str(partition(module).local)
    alone = parse_module("dump.txt", text.replace(", num_partitions=8", "").encode(), new_context()).module
    assert not is_partitioned(alone) and replicas_of(alone) == 1
    old = parse_module("dump.txt", text.replace("num_partitions", "replica_count").encode(), new_context()).module
    assert not is_partitioned(old) and replicas_of(old) == 8
