"""Modules of jax's former pmap, with `mhlo.num_replicas`: eight devices run all of it, in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# A step of training: each replica adds its number to its rows, and all add up their gradients. One matrix of 1 MB.
STEP = """
module @pmap_step attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 8 : i32} {
  func.func public @main(%x: tensor<256x16xf32>, %w: tensor<16x1024xf32> {tf.aliasing_output = 0 : i32}, %m: tensor<bf16>)
      -> (tensor<16x1024xf32>, tensor<ui32>, tensor<bf16>) {
    %r = stablehlo.replica_id : tensor<ui32>
    %f = stablehlo.convert %r : (tensor<ui32>) -> tensor<f32>
    %b = stablehlo.broadcast_in_dim %f, dims = [] : (tensor<f32>) -> tensor<256x16xf32>
    %y = stablehlo.add %x, %b : tensor<256x16xf32>
    %0 = stablehlo.dot_general %y, %w, contracting_dims = [1] x [0] : (tensor<256x16xf32>, tensor<16x1024xf32>) -> tensor<256x1024xf32>
    %1 = stablehlo.tanh %0 : tensor<256x1024xf32>
    %g = stablehlo.dot_general %y, %1, contracting_dims = [0] x [0] : (tensor<256x16xf32>, tensor<256x1024xf32>) -> tensor<16x1024xf32>
    %s = "stablehlo.all_reduce"(%g) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
    ^bb0(%c: tensor<f32>, %d: tensor<f32>):
      %e = stablehlo.add %c, %d : tensor<f32>
      stablehlo.return %e : tensor<f32>
    }) : (tensor<16x1024xf32>) -> tensor<16x1024xf32>
    %n = stablehlo.add %w, %s : tensor<16x1024xf32>
    return %n, %r, %m : tensor<16x1024xf32>, tensor<ui32>, tensor<bf16>
  }
}"""


def run(command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    code = f"from exla_opt.cli.{command} import main; main()"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


@pytest.fixture
def step(tmp_path: Path) -> str:
    path = tmp_path / "step.mlir"
    path.write_text(STEP)
    return str(path)


def test_all_replicas_of_a_split_program_run_and_are_compared(step: str, tmp_path: Path) -> None:
    smaller = str(tmp_path / "smaller.mlir")
    done = run("opt", step, "--memory-limit=500KB", "--strict", "--check", "-o", smaller)
    assert done.returncode == 0, done.stderr
    assert "fits into 500KB, in slices of " in done.stderr and "3 results equal" in done.stderr
    text = Path(smaller).read_text()
    assert "stablehlo.while" in text and "num_replicas = 8" in text and "tf.aliasing_output = 0" in text
    done = run("run", smaller, "--compare", step, "--repeat=1")
    assert done.returncode == 0 and done.stdout.endswith("PASSED\n"), done.stderr
    table = {line.split()[0]: line.split() for line in done.stdout.splitlines()}
    assert [table[number][1] for number in "012"] == ["float32[8,16,1024]", "uint32[8]", "bfloat16[8]"]
    assert table["devices,"][-1] == "8" and table["sent"][1:] == ["65.5KB", "65.5KB", "1"]


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ("%r = stablehlo.replica_id", "%r = stablehlo.constant dense<0>", "result 1: 7 of 8 elements differ"),
        ("[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8", "[[0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4", "result 0: error "),
        ("num_replicas = 8", "num_replicas = 4", "the signatures differ: 4 replicas in "),
    ],
    ids=["the first one alone is right", "two groups", "fewer"],
)
def test_a_difference_of_one_replica_is_found(step: str, tmp_path: Path, old: str, new: str, wrong: str) -> None:
    assert old in STEP
    other = tmp_path / "other.mlir"
    other.write_text(STEP.replace(old, new))
    done = run("run", str(other), "--compare", step, "--repeat=1")
    assert done.returncode == 1 and done.stdout.endswith("FAILED\n"), done.stderr
    assert wrong in done.stdout


def test_replicas_that_are_sharded_too_are_compiled_and_not_run(tmp_path: Path) -> None:
    path = tmp_path / "both.mlir"
    both = STEP.replace("num_partitions = 1", "num_partitions = 4").replace("num_replicas = 8", "num_replicas = 2")
    path.write_text(both.replace("[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8", "[[0, 1]]> : tensor<1x2"))
    assert run("run", str(path), "--no-run").returncode == 0
    done = run("run", str(path))
    assert (done.returncode, done.stderr) == (
        1,
        f"{path}: error: no module of 2 replicas on 4 devices each can be run here\n",
    )
