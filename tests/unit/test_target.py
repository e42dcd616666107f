"""Whether a module would fit: targets, the answer that exla-run gives, and what it says where it cannot answer."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from click.testing import CliRunner, Result

from exla_opt import optimize
from exla_opt.cli.run import main
from exla_opt.ir.context import new_context
from exla_opt.ir.diagnostics import InputError
from exla_opt.ir.read import parse_module
from exla_opt.memory.peak import Memory
from exla_opt.runtime import pjrt, target, tpus
from exla_opt.runtime.judge import judge_of
from exla_opt.runtime.memory import measure_memory
from exla_opt.runtime.target import Compiled, Target, TargetError, compiled_memory, parse_target
from exla_opt.runtime.workspace import tight, workspace_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "attention.mlir"
TRANSPOSE = """
func.func public @main(%x: tensor<100x50xf32>) -> tensor<50x100xf32> {
  %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<100x50xf32>) -> tensor<50x100xf32>
  return %0 : tensor<50x100xf32>
}"""
TRANSPOSE_PEAK = 2 * 100 * 50 * 4
GPU = """
gpu_device_info {
  # device_memory_size: 7
  device_memory_size: 24000000000
  threads_per_warp: 32 block_dim_limit_x: 65535 shared_memory_per_block_optin : 101376
  cuda_compute_capability { major: 8 minor: 9 }
}"""


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command sets these for its process; here the process is the tests'."""
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")


@pytest.fixture
def transpose(tmp_path: Path) -> str:
    path = tmp_path / "transpose.mlir"
    path.write_text(TRANSPOSE)
    return str(path)


def run(*arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(main, arguments, input=stdin)


def rows(result: Result) -> dict[str, list[str]]:
    return {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines()[1:]}


def test_known_gpus_have_their_memory() -> None:
    assert parse_target("cuda:h200").memory > 140e9 > parse_target("cuda:h100").memory > 80e9
    assert parse_target("cuda:h200") == parse_target("cuda:h200")


def test_a_gpu_is_read_from_its_description(tmp_path: Path) -> None:
    path = tmp_path / "gpu.txtpb"
    path.write_text(GPU)
    found = parse_target(f"cuda:{path}")
    assert (found.name, found.memory, found.description) == (f"cuda:{path}", 24_000_000_000, GPU)


def test_the_cpu_is_this_machine() -> None:
    cpu = parse_target("cpu")
    assert cpu.memory > 10**8
    assert cpu.description == ""


def test_a_gpu_that_is_here_tries_out_kernels_if_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    sorting = "  ROOT %y = (f32[1024,16]{1,0}, s32[1024,16]{1,0}) sort(%x, %i), dimensions={1}"
    here, elsewhere = Memory(1, 1, 0, 10, "autotuned"), Memory(1, 1, 0, 20)
    place = Target("cuda", 10**9, GPU, is_here=True)
    monkeypatch.setattr(target, "_compiled_here", lambda data, place: Compiled(here))
    monkeypatch.setattr(target, "_devices", lambda place, count: [None])
    monkeypatch.setattr(target, "_compile_for_gpu", lambda *arguments: None)
    monkeypatch.setattr(target, "memory_of", lambda executable, gemm: elsewhere)
    monkeypatch.setattr(pjrt, "optimised_hlo", lambda executable: sorting)
    assert compiled_memory(TRANSPOSE, place).memory is here

    def refuse(data: bytes, place: Target) -> Compiled:
        raise InputError("no room")

    monkeypatch.setattr(target, "_compiled_here", refuse)
    found = compiled_memory(TRANSPOSE, place)
    assert found.memory is elsewhere
    sorts = "sorts may need more: XLA asks a GPU how much while it tries out kernels"
    assert found.note == f"no kernels were tried out: no room; {sorts}"
    newer = replace(place, description=GPU.replace("major: 8", "major: 9"))
    assert compiled_memory(TRANSPOSE, newer).note.startswith("no kernels were tried out, and products may need 33.6MB")
    assert compiled_memory(TRANSPOSE, replace(place, is_here=False)).note.startswith("sorts may need more")
    sorting = (
        "  %s = (f32[9,9999]{1,0}, f32[9]{0}, f32[9]{0}, f32[9]{0}, f32[9]{0}, /*index=5*/f32[9]{0}) sort(%x), "
        "dimensions={0}"
    )
    assert compiled_memory(TRANSPOSE, replace(place, is_here=False)).note
    sorting = "  %sort.1.0 = s32[2]{0} sort(%start), dimensions={0}"
    assert not compiled_memory(TRANSPOSE, replace(place, is_here=False)).note


@pytest.mark.parametrize(("name", "workspace"), [("h200", 2**25), ("b200", 2**25), ("l4", 0), ("a100-80", 0)])
def test_new_gpus_may_give_products_a_larger_workspace(name: str, workspace: int) -> None:
    assert workspace_of(parse_target(f"cuda:{name}").description) == workspace
    assert judge_of(f"cuda:{name}").workspace == workspace
    assert not workspace_of(GPU)


@pytest.mark.parametrize(("limit", "is_said"), [(99, False), (100, True), (149, True), (150, False)])
def test_a_program_that_fits_by_less_than_a_workspace_has_a_note(limit: int, is_said: bool) -> None:
    product = parse_module("module", EXAMPLE.read_bytes(), new_context()).module
    assert bool(tight(product, 100, limit, 50)) is is_said
    assert not tight(parse_module("module", TRANSPOSE.encode(), new_context()).module, 100, limit, 50)


def test_a_gpu_is_looked_for_after_a_file_was_read_for_the_cpu() -> None:
    code = """
import os
os.environ.pop("JAX_PLATFORMS", None)
from exla_opt.cli.common import load_jax
load_jax(uses_gpu=False)
import jax
assert jax.config.jax_platforms == os.environ["JAX_PLATFORMS"] == "cpu"
load_jax(uses_gpu=True)
assert jax.config.jax_platforms is None and "JAX_PLATFORMS" not in os.environ
"""
    done = in_fresh_process(code)
    assert (done.returncode, done.stderr) == (0, "")


def complaint(target: str) -> str:
    with pytest.raises(TargetError) as raised:
        parse_target(target)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("text", ["", "gpus", "cuda:", "cpu:0", "h200", "CPU"])
def test_what_is_no_target_is_told(text: str) -> None:
    assert complaint(text).startswith(f"--target={text}: error: no such target: give cpu, ")


def test_an_unknown_gpu_is_told_with_the_known_ones() -> None:
    message = complaint("cuda:h300")
    assert message.startswith("--target=cuda:h300: error: neither a GPU that is known (h200, h100, ")
    assert message.endswith(" nor a file: No such file or directory")


def test_a_gpu_that_cuda_left_behind_is_told() -> None:
    assert complaint("cuda:v100").endswith("no longer compiles for an NVIDIA V100 32GB")


def test_amd_and_unknown_tpus_are_told() -> None:
    assert "only where ROCm is installed" in complaint("rocm:mi300")
    assert complaint("tpu:v9").endswith("no such TPU is known: give tpu:v4, tpu:v5e, tpu:v5p, tpu:v6e, tpu:v7x")


def test_a_file_that_is_no_text_is_told(tmp_path: Path) -> None:
    (tmp_path / "gpu").write_bytes(b"\xff\xfe\x00")
    assert complaint(f"cuda:{tmp_path / 'gpu'}").endswith("error: the file is not text")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("threads_per_warp: 32", ""),
        ("threads_per_warp: 32", "threads_per_warp: 0"),
        ("device_memory_size: 24000000000", ""),
        ("block_dim_limit_x: 65535", "# block_dim_limit_x: 65535\n"),
        ("cuda_compute_capability { major: 8 minor: 9 }", ""),
    ],
)
def test_a_description_that_would_crash_xla_is_refused(tmp_path: Path, old: str, new: str) -> None:
    path = tmp_path / "gpu.txtpb"
    assert old in GPU
    path.write_text(GPU.replace(old, new))
    assert "error: the description of a GPU has to give device_memory_size, threads_per_warp" in complaint(
        f"cuda:{path}"
    )


def nearest(x: Any, centres: Any) -> Any:
    return jnp.argmin(((x[:, None] - centres) ** 2).sum(-1), 1)


def test_the_memory_of_one_device_of_several_counts_everything() -> None:
    """Without XLA's YNN fusions the distances stay in a kernel; with them, as every user has it, they are written."""
    shapes = [jax.ShapeDtypeStruct((size, 16), jnp.float32) for size in (1000, 300)]
    text = str(jax.jit(nearest).lower(*shapes).compiler_ir("stablehlo"))
    memory = compiled_memory(text, parse_target("cpu")).memory
    assert memory == measure_memory(text) and memory.temp >= 1000 * 300 * 4


def test_memory_on_the_cpu_counts_everything() -> None:
    text = EXAMPLE.read_text()
    memory = compiled_memory(text, parse_target("cpu")).memory
    assert memory == compiled_memory(text.encode(), parse_target("cpu")).memory == measure_memory(text)
    assert memory.temp >= 2 * 4096 * 4096 * 4
    assert memory.gemm == ""


def test_a_module_that_fits(transpose: str) -> None:
    result = run(transpose, "--target", "cpu")
    assert result.exit_code == 0, result.stderr
    table = rows(result)
    assert list(table) == ["arguments", "results", "temp", "peak", "cpu", "fits"]
    assert (table["peak"], table["fits"]) == (["40KB"], ["yes"])
    assert result.stderr == ""


@pytest.mark.parametrize(("limit", "status", "answer"), [(TRANSPOSE_PEAK, 0, "yes"), (TRANSPOSE_PEAK - 1, 1, "no")])
def test_the_limit_is_the_last_byte_that_fits(transpose: str, limit: int, status: int, answer: str) -> None:
    result = run(transpose, "--target=cpu", f"--limit={limit}")
    assert result.exit_code == status, result.stderr
    assert (rows(result)["limit"], rows(result)["fits"]) == (["40KB"], [answer])
    assert result.stderr == ""


def test_a_module_that_does_not_fit_names_its_tensors() -> None:
    done = run(str(EXAMPLE), "--target=cpu", "--limit=100MB")
    assert done.exit_code == 1
    assert re.search(r"alive at the peak .*\n +67.1MB  4096x4096xf32  stablehlo.dot_general at .*:4:10\n", done.stdout)
    assert "alive" not in run(str(EXAMPLE), "--target=cpu", "--limit=1GB").stdout


@pytest.mark.parametrize("first_is_small", [True, False])
def test_of_two_modules_the_first_decides(tmp_path: Path, transpose: str, first_is_small: bool) -> None:
    names = [transpose, str(EXAMPLE)] if first_is_small else [str(EXAMPLE), transpose]
    path = tmp_path / "x.json"
    result = run(names[0], "--compare", names[1], "--target=cpu", "--limit=1MB", "--json", str(path))
    assert result.exit_code == (0 if first_is_small else 1), result.stderr
    assert result.stdout.splitlines()[0].split() == [*names, "ratio"]
    assert rows(result)["fits"] == (["yes", "no"] if first_is_small else ["no", "yes"])
    data = json.loads(path.read_text())
    assert (data["target"], data["limit_bytes"]) == ("cpu", 10**6)
    assert [module["fits"] for module in data["modules"]] == [first_is_small, not first_is_small]
    assert [module["file"] for module in data["modules"]] == names


def test_a_module_may_come_from_standard_input() -> None:
    result = run("-", "--target=cpu", stdin=TRANSPOSE)
    assert result.exit_code == 0, result.stderr
    assert "<stdin>" in result.stdout


def test_a_module_that_cannot_be_read_is_no_fault_of_the_target(tmp_path: Path) -> None:
    result = run(str(tmp_path / "none.mlir"), "--target=cpu")
    assert result.exit_code == 1
    assert "none.mlir: error: cannot open" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--limit=1GB"],
        ["--target=cpu", "--limit=0"],
        ["--target=cpu", "--limit=much"],
        ["--target=cpu", "--seed=1"],
        ["--target=cpu", "--inputs=x.npz"],
        ["--target=cpu", "--device=cpu"],
        ["--target=cpu", "--repeat=5"],
        ["--target=cpu", "--compare=-", "--rtol=1"],
        ["--target=cpu", "--no-run"],
        ["--target=tpu"],
    ],
)
def test_wrong_usage_exits_with_two(transpose: str, arguments: list[str]) -> None:
    result = run(transpose, *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""


def test_what_is_missing_is_one_sentence(transpose: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_plugin(description: str, count: int) -> Any:
        raise NotImplementedError("topology not implemented for cuda")

    monkeypatch.setattr(pjrt, "described_devices", without_plugin)
    result = run(transpose, "--target=cuda:h200")
    assert result.exit_code == 2
    expected = "--target=cuda:h200: error: compiling for a GPU needs jax's CUDA plugin: pip install 'exla-opt[cuda]'\n"
    assert result.stderr == expected
    assert result.stdout == ""


def copies(bytes: int, trips: str = "1") -> str:
    """Optimised HLO that copies so many bytes in each trip of a loop."""
    return f"""HloModule f
%body (x: s8[{bytes}]) -> s8[{bytes}] {{
  %x = s8[{bytes}]{{0}} parameter(0)
  ROOT %y = s8[{bytes}]{{0}} copy(%x)
}}
ENTRY %main (x: s8[{bytes}]) -> s8[{bytes}] {{
  %x = s8[{bytes}]{{0}} parameter(0)
  ROOT %w = s8[{bytes}]{{0}} while(%x), condition=%body, body=%body{trips and f', {{"known_trip_count":{{"n":"{trips}"}}}}'}
}}
"""


def compile_as(
    monkeypatch: pytest.MonkeyPatch, peaks: dict[bool, int | str], hlo: dict[int, str] | None = None
) -> None:
    """Let a compile for a GPU give a peak, or fail with a message, by whether Triton multiplies matrices.

    hlo: what is compiled, by the peak.
    """

    def compile_for(device: Any, module: Any, flags: Any, **partitioning: Any) -> int:
        found = peaks[dict(flags)["xla_gpu_enable_triton_gemm"]]
        if isinstance(found, str):
            raise pjrt.XlaError(found)
        return found

    monkeypatch.setattr(pjrt, "described_devices", lambda description, count: [None])
    monkeypatch.setattr(pjrt, "compile_for", compile_for)
    monkeypatch.setattr(pjrt, "optimised_hlo", lambda temp: (hlo or {}).get(temp, ""))
    monkeypatch.setattr("exla_opt.runtime.target.memory_of", lambda temp, gemm: Memory(0, 0, 0, temp, gemm))


def test_all_replicas_are_compiled_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def compile_for(devices: list[None], module: Any, flags: Any, *, replicas: int, **others: Any) -> int:
        asked.append((len(devices), replicas))
        return 0

    compile_as(monkeypatch, {}, {0: "ENTRY %main (x: f32[1]) -> f32[1] {\n  ROOT %x = f32[1]{0} parameter(0)\n}\n"})
    monkeypatch.setattr(pjrt, "described_devices", lambda description, count: [None] * count)
    monkeypatch.setattr(pjrt, "compile_for", compile_for)
    for counts in ("mhlo.num_replicas = 4 : i32", "mhlo.num_replicas = 2 : i32, mhlo.num_partitions = 4 : i32"):
        compiled_memory(f"module attributes {{{counts}}} {{ {TRANSPOSE} }}", parse_target("gpu"), ["cuBLAS"])
    assert asked == [(4, 4), (8, 2)]
    monkeypatch.setattr(tpus, "has_tpu_compiler", lambda: False)
    with pytest.raises(TargetError, match="compiling for a TPU needs libtpu"):
        compiled_memory(f"module attributes {{mhlo.num_replicas = 4 : i32}} {{ {TRANSPOSE} }}", parse_target("tpu:v5e"))


NO_TILES = "INTERNAL: Couldn't find output tile sizes that satisfy hlo."


@pytest.mark.parametrize(
    ("peaks", "expected", "left_out"),
    [
        ({True: 7, False: 9}, (9, "cuBLAS"), ""),
        ({True: 9, False: 9}, (9, "Triton"), ""),
        ({True: NO_TILES, False: 9}, (9, "cuBLAS"), "Triton"),
        ({True: 7, False: "no"}, (7, "Triton"), "cuBLAS"),
    ],
)
def test_of_two_kinds_of_matrix_products_one_may_fail(
    monkeypatch: pytest.MonkeyPatch, peaks: dict[bool, int | str], expected: tuple[int, str], left_out: str
) -> None:
    compile_as(monkeypatch, peaks)
    found = compiled_memory(TRANSPOSE, parse_target("gpu"))
    assert (found.memory.peak, found.memory.gemm) == expected
    assert found.note.partition("'s matrix products left out: XLA cannot compile this module")[0] == left_out


def test_where_both_fail_the_module_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_as(monkeypatch, {True: NO_TILES, False: "no"})
    with pytest.raises(InputError, match="Couldn't find output tile sizes"):
        compiled_memory(TRANSPOSE, parse_target("gpu"))


def test_a_missing_assembler_is_no_fault_of_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_as(monkeypatch, {True: "UNAVAILABLE: No PTX compilation provider is available", False: 9})
    with pytest.raises(TargetError, match="assembler"):
        compiled_memory(TRANSPOSE, parse_target("gpu"))


def test_what_was_left_out_is_a_note(transpose: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_as(monkeypatch, {True: NO_TILES, False: 9})
    result = run(transpose, "--target=cuda:h200")
    assert (result.exit_code, rows(result)["gemm"]) == (0, ["cuBLAS"])
    what = "XLA cannot compile this module for cuda:h200: INTERNAL: Couldn't find output tile sizes that satisfy hlo"
    assert result.stderr == f"{transpose}: note: Triton's matrix products left out: {what}\n"


@pytest.mark.parametrize(("triton", "cublas", "megabytes"), [(7, 9, 16), (9, 7, 16), (7, "no", 8)])
def test_the_time_is_that_with_cublas_where_that_compiles(
    monkeypatch: pytest.MonkeyPatch, triton: int, cublas: int | str, megabytes: int
) -> None:
    found = {triton: copies(4 * 10**6)} | ({} if isinstance(cublas, str) else {cublas: copies(8 * 10**6)})
    compile_as(monkeypatch, {True: triton, False: cublas}, found)
    time = compiled_memory(TRANSPOSE, parse_target("gpu")).time
    assert time is not None
    assert time.traffic == megabytes * 10**6


def test_h200_and_h100_differ_in_bandwidth(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_as(monkeypatch, {True: 7, False: 9}, {9: copies(4 * 10**9)})
    times = [compiled_memory(TRANSPOSE, parse_target(f"cuda:{name}")).time for name in ("h100", "h200")]
    slow, fast = (0.0 if time is None else time.seconds for time in times)
    assert slow / fast == pytest.approx(4.8 / 3.352, rel=0.01)


@pytest.mark.parametrize(("target", "hlo"), [("gpu", "no HLO"), ("unknown", copies(8))])
def test_where_nothing_is_known_no_time_is_printed(
    tmp_path: Path, transpose: str, monkeypatch: pytest.MonkeyPatch, target: str, hlo: str
) -> None:
    (tmp_path / "gpu").write_text(GPU)
    compile_as(monkeypatch, {True: 7, False: 9}, {9: hlo})
    result = run(transpose, f"--target={'gpu' if target == 'gpu' else f'cuda:{tmp_path}/gpu'}")
    assert result.exit_code == 0, result.stderr
    assert list(rows(result))[-2:] == ["gemm", "fits"]


def test_the_estimated_time_is_printed(tmp_path: Path, transpose: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_as(monkeypatch, {True: 7, False: 9}, {9: copies(2 * 10**9, trips="500")})
    path = tmp_path / "x.json"
    result = run(transpose, "--compare", transpose, "--target=cuda:h200", "--json", str(path))
    assert result.exit_code == 0, result.stderr
    table = [line.split() for line in result.stdout.splitlines()]
    seconds = 500 * (4e9 / (0.85 * 4.8e12) + 3.2e-6)
    time = f"{seconds * 1e3:.3g}"
    assert table[-4:] == [
        ["est.", "time", time, "ms", time, "ms", "1"],
        ["traffic", "2TB", "2TB", "1"],
        ["launches", "500", "500", "1"],
        ["overhead", "0.3%", "0.3%"],
    ]
    found = json.loads(path.read_text())["modules"][0]["estimated"]
    assert found.pop("seconds") == pytest.approx(seconds)
    assert found.pop("overhead_share") == pytest.approx(500 * 3.2e-6 / seconds)
    assert found == {"traffic_bytes": 2 * 10**12, "launches": 500, "at_least": False}


def test_a_time_of_unknown_trips_is_at_least_that(transpose: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_as(monkeypatch, {True: 7, False: 9}, {9: copies(2 * 10**9, trips="")})
    result = run(transpose, "--target=cuda:h200")
    assert "est. time  at least " in result.stdout


def has_plugin() -> bool:
    try:
        return find_spec("jax_plugins.xla_cuda13") is not None
    except ModuleNotFoundError:
        return False


needs_plugin = pytest.mark.skipif(not has_plugin(), reason="jax's CUDA plugin is not here: pip install '.[cuda]'")


def in_fresh_process(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The plugin loads without a driver only if jax has been configured before, so not in the tests' process."""
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)


@needs_plugin
def test_splitting_makes_a_module_fit_a_gpu(tmp_path: Path) -> None:
    text = EXAMPLE.read_text().replace("4096", "16384")
    model, smaller = tmp_path / "model.mlir", tmp_path / "smaller.mlir"
    model.write_text(text)
    smaller.write_text(optimize(text, size_threshold=10**8, split_size=10**8).program)
    code = "from exla_opt.cli.run import main; main()"
    options = ("--target=cuda:h200", "--limit=500MB", "--json", str(tmp_path / "x.json"))
    done = in_fresh_process(code, str(smaller), "--compare", str(model), *options)
    assert (done.returncode, done.stderr) == (0, "")
    after, before = json.loads((tmp_path / "x.json").read_text())["modules"]
    assert (after["fits"], before["fits"]) == (True, False)
    # cuBLAS writes a slice, its exponential is another one, and there is a workspace of 4 to 32 MiB.
    assert after["temp_bytes"] < 2 * 10**8 + 2**25
    assert before["temp_bytes"] >= 2 * 16384 * 16384 * 4
    assert {after["gemm"], before["gemm"]} <= {"Triton", "cuBLAS"}


@needs_plugin
def test_the_time_of_a_split_attention_on_a_gpu(tmp_path: Path) -> None:
    """Two products and a softmax, once for all queries and once for each of 64 slices of them."""
    text = EXAMPLE.read_text().replace("4096", "16384")
    model, smaller = tmp_path / "model.mlir", tmp_path / "smaller.mlir"
    model.write_text(text)
    smaller.write_text(optimize(text, size_threshold=10**8, split_size=2**24).program)
    code = "from exla_opt.cli.run import main; main()"
    options = ("--target=cuda:h200", "--json", str(tmp_path / "x.json"))
    done = in_fresh_process(code, str(smaller), "--compare", str(model), *options)
    assert (done.returncode, done.stderr) == (0, "")
    after, before = (each["estimated"] for each in json.loads((tmp_path / "x.json").read_text())["modules"])
    # The f32 scores are written and read twice: by products, and by what lies between them.
    assert 1.0 < before["traffic_bytes"] / (4 * 16384 * 16384 * 4) < 1.6
    assert before["launches"] < 10 < 3 * 64 <= after["launches"]
    assert before["overhead_share"] < 0.02 < after["overhead_share"]
    assert 0.5 < after["seconds"] / before["seconds"] < 3
    assert not before["at_least"] and not after["at_least"]


@needs_plugin
def test_many_modules_compile_for_many_gpus_in_one_process(tmp_path: Path, transpose: str) -> None:
    code = """
import os
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import sys
from exla_opt.runtime.target import compiled_memory, parse_target
for name in ("cuda:h200", "cpu", "cuda:h100", "cuda:h200"):
    print(compiled_memory(open(sys.argv[1], "rb").read(), parse_target(name)).memory.peak)
"""
    done = in_fresh_process(code, transpose)
    assert done.stderr == ""
    assert done.stdout.split() == [str(TRANSPOSE_PEAK)] * 4


@needs_plugin
@pytest.mark.parametrize(
    ("description", "module", "status", "message"),
    [
        (GPU + "}", TRANSPOSE, 2, "XLA cannot take this GPU: "),
        (GPU, TRANSPOSE.replace("@main", "@other"), 1, "XLA cannot compile this module for cuda:"),
    ],
)
def test_what_xla_refuses_is_one_sentence(
    tmp_path: Path, description: str, module: str, status: int, message: str
) -> None:
    (tmp_path / "gpu.txtpb").write_text(description)
    (tmp_path / "x.mlir").write_text(module)
    code = "from exla_opt.cli.run import main; main()"
    done = in_fresh_process(code, str(tmp_path / "x.mlir"), f"--target=cuda:{tmp_path / 'gpu.txtpb'}")
    assert done.returncode == status
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
