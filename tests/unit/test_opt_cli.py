"""exla-opt as a person or a script meets it: a process with options, streams and an exit status."""

import gzip
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from jaxlib.mlir.dialects import stablehlo

from exla_opt import __version__
from exla_opt.pipeline import DEFAULT_PASSES, PASSES
from exla_opt.report.text import timing_lines

EXLA_OPT = str(Path(sys.executable).with_name("exla-opt"))

# A kernel matrix times a vector: 4 MB in the middle of nothing.
KERNEL = """module @kernel {
  func.func public @main(%x: tensor<1000x4xf32>, %v: tensor<1000xf32>) -> tensor<1000xf32> {
    %0 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [1] : (tensor<1000x4xf32>, tensor<1000x4xf32>) -> tensor<1000x1000xf32>
    %1 = stablehlo.exponential %0 : tensor<1000x1000xf32>
    %2 = stablehlo.dot_general %1, %v, contracting_dims = [1] x [0] : (tensor<1000x1000xf32>, tensor<1000xf32>) -> tensor<1000xf32>
    return %2 : tensor<1000xf32>
  }
}
"""
# A sort needs its dimension whole, and there is no other.
SORT = """func.func public @main(%x: tensor<100000xf32>) -> tensor<f32> {
  %n = stablehlo.negate %x : tensor<100000xf32>
  %0 = "stablehlo.sort"(%n) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
  }) {dimension = 0 : i64} : (tensor<100000xf32>) -> tensor<100000xf32>
  %1 = stablehlo.slice %0 [7:8] : (tensor<100000xf32>) -> tensor<1xf32>
  %2 = stablehlo.reshape %1 : (tensor<1xf32>) -> tensor<f32>
  return %2 : tensor<f32>
}
"""
SMALL = ("--size-threshold=1MB", "--split-size=500KB")


def opt(*arguments: str, stdin: str | bytes = "", columns: int = 80) -> subprocess.CompletedProcess[str]:
    """Run exla-opt; its output as text."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    done = subprocess.run(
        [EXLA_OPT, *arguments], input=data, capture_output=True, timeout=60, env={"COLUMNS": str(columns)}
    )
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
    )


def test_the_shell_completes_options() -> None:
    given = {"_EXLA_OPT_COMPLETE": "bash_complete", "COMP_WORDS": "exla-opt --memory", "COMP_CWORD": "1"}
    done = subprocess.run([EXLA_OPT], env=given, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "plain,--memory-limit\n"


def test_a_filter_in_a_pipe() -> None:
    done = opt(*SMALL, stdin=KERNEL)
    held = r"<stdin>: note: peak 398KB, predicted, 327KB of it 143x572xf32 at <stdin>:\d+:\d+\n"
    assert done.returncode == 0 and re.fullmatch(held, done.stderr)
    assert opt(*SMALL, "--quiet", stdin=KERNEL).stderr == ""
    assert "stablehlo.while" in done.stdout
    assert "1000x1000" not in done.stdout
    assert (
        "func.func public @main(%arg0: tensor<1000x4xf32>, %arg1: tensor<1000xf32>) -> tensor<1000xf32>" in done.stdout
    )


def test_a_second_run_changes_nothing() -> None:
    once = opt(*SMALL, stdin=KERNEL).stdout
    assert opt(*SMALL, stdin=once).stdout == once
    assert opt(*SMALL, stdin=KERNEL).stdout == once


def test_files_in_and_out(tmp_path: Path) -> None:
    source, target = tmp_path / "in.mlir", tmp_path / "out.mlir"
    source.write_text(KERNEL)
    done = opt(str(source), *SMALL, "--quiet", "-o", str(target))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert target.read_text() == opt("-", *SMALL, stdin=KERNEL).stdout
    assert opt(str(source), *SMALL, "-o", str(source)).returncode == 0
    assert source.read_text() == target.read_text()


@pytest.mark.parametrize("emit", ["bytecode", "portable"])
def test_every_form_of_output_is_a_form_of_input(tmp_path: Path, emit: str) -> None:
    target = tmp_path / "out"
    assert opt("-", "--passes=normalise", f"--emit={emit}", "-o", str(target), stdin=KERNEL).returncode == 0
    assert target.read_bytes().startswith(b"ML\xefR")
    packed = gzip.compress(target.read_bytes())
    assert opt(stdin=packed).stdout == opt("--passes=normalise", stdin=KERNEL).stdout


def test_a_portable_artifact_is_of_the_version_that_was_asked_for(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for target, more in ((old, ["--stablehlo-version=1.9.1"]), (new, [])):
        assert opt("--emit=portable", *more, "-o", str(target), stdin=KERNEL).returncode == 0
    assert b"StableHLO_v1.9.1" in old.read_bytes()
    assert b"StableHLO_v1.9.1" not in new.read_bytes()
    assert opt(str(old)).stdout == opt(str(new)).stdout


def test_what_an_old_version_does_not_know_is_refused_where_it_stands() -> None:
    gather = """func.func @main(%x: tensor<3x7xf32>, %i: tensor<3x1xi32>) -> tensor<3xf32> {
  %0 = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [1],
    operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 1>,
    slice_sizes = array<i64: 1, 1>}> : (tensor<3x7xf32>, tensor<3x1xi32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}
"""
    done = opt("--emit=portable", "--stablehlo-version=0.9.0", stdin=gather)
    assert (done.returncode, done.stdout) == (1, "")
    first, *_, last = done.stderr.splitlines()
    assert first == "<stdin>:2:8: error: StableHLO 0.9.0 has no stablehlo.gather as it is used here"
    assert last.startswith("help: ask for a newer version, up to 1.")
    assert opt("--emit=portable", "--stablehlo-version=1.1.0", stdin=gather).returncode == 0


def test_what_cannot_be_split_comes_out_with_its_reason(tmp_path: Path) -> None:
    path = tmp_path / "sort.mlir"
    path.write_text(SORT)
    done = opt(str(path), "--size-threshold=100KB")
    assert done.returncode == 0
    assert "stablehlo.sort" in done.stdout
    assert done.stderr
    *remarks, why, held = done.stderr.splitlines()
    assert remarks and why == f"{path}: note: the peak did not fall: 100000xf32 (400KB) stays"
    assert held == f"{path}: note: peak 800KB, predicted, 400KB of it arguments and results"
    for line in remarks:
        assert re.fullmatch(
            rf"{re.escape(str(path))}:\d+:\d+: remark: 100000xf32 \(400KB\) .* \[(tensor-splitter|order-statistics), EX\d{{3}}\]",
            line,
        )
    quiet = opt(str(path), "--size-threshold=100KB", "--quiet")
    assert (quiet.stdout, quiet.stderr) == (done.stdout, "")


def test_the_summary_says_when_nothing_is_gained() -> None:
    lines = opt("--summary", stdin=KERNEL).stderr.splitlines()
    assert lines[-1] == "Nothing was split: no tensor is over 1GB; the largest is 4MB."
    stays = opt("--size-threshold=100KB", "--summary", stdin=SORT).stderr
    assert "The peak did not fall: 100000xf32 (400KB) stays." in stays


def test_a_pipe_reads_in_one_line_that_nothing_is_gained() -> None:
    done = opt(stdin=KERNEL)
    assert done.stderr == "<stdin>: note: nothing was split: no tensor is over 1GB; the largest is 4MB\n"
    assert done.stdout == opt("--quiet", stdin=KERNEL).stdout
    assert opt("--quiet", stdin=KERNEL).stderr == ""
    assert opt("--passes=normalise", stdin=KERNEL).stderr == "", "nothing was to be split"
    gained = opt(*SMALL, stdin=KERNEL).stderr
    assert gained.startswith("<stdin>: note: peak ") and len(gained.splitlines()) == 1, "something was gained"


@pytest.mark.parametrize("columns", [60, 100])
def test_the_report_fits(columns: int) -> None:
    done = opt(*SMALL, "--summary", stdin=KERNEL, columns=columns)
    assert done.returncode == 0
    lines = done.stderr.splitlines()
    assert max(map(len, lines)) <= columns
    text = " ".join(done.stderr.split())
    assert re.search(r"Peak memory │ \S+B, predicted │ \S+B, predicted │", text)
    assert re.search(r"Time, predicted │ 1 x │ \S+ x │", text)
    assert re.search(r"Largest tensor( outside loops)? │ 4MB │ 22.9KB │", text)
    assert "1000x1000xf32" in text
    assert re.search(r"Loops │ 0 │ 1 \(\+1\)", text)
    assert "Not changed" not in text


def test_the_report_names_what_was_not_split() -> None:
    text = opt("--size-threshold=100KB", "--summary", stdin=SORT, columns=60).stderr
    assert "Not changed" in text
    assert "<stdin>:" in text


def test_ir_after_each_pass_goes_to_standard_error() -> None:
    done = opt(*SMALL, "--quiet", "--print-ir-after-all", stdin=KERNEL)
    dumps = done.stderr.split("// -----// IR Dump After ")[1:]
    assert [dump.split(" ", 1)[0] for dump in dumps] == [*DEFAULT_PASSES]
    assert dumps[0].startswith("normalise //----- //\nmodule @kernel {\n")
    place = DEFAULT_PASSES.index("symmetric-products")  # as the matrix is
    assert ["stablehlo.while" in dump for dump in dumps] == [number >= place for number in range(len(DEFAULT_PASSES))]
    assert dumps[-1].split("\n", 1)[1].strip() == done.stdout.strip()


def test_timing() -> None:
    done = opt(*SMALL, "--timing", stdin=KERNEL)
    rows = re.findall(r"^ +(\d+\.\d{4}) \( *(\d+\.\d)%\)  (.+)$", done.stderr, re.MULTILINE)
    assert [name for _, _, name in rows] == [
        "Parser", *DEFAULT_PASSES, "Output", "Rest", "Total",
    ]  # fmt: skip
    assert sum(float(seconds) for seconds, _, _ in rows[:-1]) == pytest.approx(float(rows[-1][0]), abs=1e-3)
    assert "... Execution time report ..." in done.stderr


def test_timing_of_a_search() -> None:
    done = opt("--memory-limit=2MB", "--timing", stdin=KERNEL)
    assert "fits into 2MB, in slices of" in done.stderr, "not the first attempt"
    rows = re.findall(r"^ +(\d+\.\d{4}) \( *(\d+\.\d)%\)  (.+)$", done.stderr, re.MULTILINE)
    ran = [name for name in DEFAULT_PASSES if name != "recompute"]  # the slices alone are within the limit
    assert [name for _, _, name in rows] == ["Parser", "Other attempts, compiles", *ran, "Output", "Rest", "Total"]
    seconds = [float(each) for each, _, _ in rows]
    assert sum(seconds[:-1]) == pytest.approx(seconds[-1], abs=1e-3)
    assert seconds[1] > 0, "what was compiled took some time"


def test_timing_of_nothing() -> None:
    assert timing_lines([], 0.0)[-1] == "    0.0000 (  0.0%)  Total"


def test_which_passes_run() -> None:
    for flag in ("--passes=normalise", "--pass-pipeline=normalise", "--pass-pipeline=builtin.module( normalise )"):
        assert "stablehlo.while" not in opt(*SMALL, flag, stdin=KERNEL).stdout
    for flag in ("--passes=normalise,tensor-splitter", "--pass-pipeline=builtin.module(tensor-splitter)"):
        assert "stablehlo.while" in opt(*SMALL, flag, stdin=KERNEL).stdout
    for flag in ("--passes=", "--pass-pipeline=builtin.module()"):
        assert opt(flag, stdin=KERNEL.replace("%x", "%arg0").replace("%v", "%arg1")).returncode == 0


def test_list_passes() -> None:
    done = opt("--list-passes")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[0] for line in done.stdout.splitlines()] == [*PASSES]


def test_version_and_help() -> None:
    versions = f"jaxlib {version('jaxlib')}, StableHLO {stablehlo.get_current_version()}"
    assert opt("--version").stdout == f"exla-opt {__version__} ({versions})\n"
    text = opt("--help").stdout
    for part in ("1MB = 1000000", "1MiB = 1048576", "Examples:", "--split-size", "Exit status"):
        assert part in text
    assert re.search(r"Others:\n  --version", text)  # and not INPUT, which the first lines describe


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--split-szie=5MB"], "Did you mean.*--split-size"),
        (["--split-size=5M"], "did you mean 5MB or 5MiB"),
        (["--size-threshold=lots"], "'lots' is not a size"),
        (["--split-size=2GB"], r"--split-size \(2GB\) is above --size-threshold \(1GB\)"),
        (["--emit=pdf"], "'pdf' is not one of"),
        (["--stablehlo-version=1.9.1"], "--stablehlo-version is for --emit=portable"),
        (["--emit=portable", "--stablehlo-version=new"], "'new' is not a version of StableHLO; write it as 1."),
        (["--emit=portable", "--stablehlo-version=99.0.0"], "writes StableHLO 0.9.0 to 1.*, and not 99.0.0"),
        (["--passes=tensor-spliter"], "unknown pass 'tensor-spliter'. Did you mean 'tensor-splitter'"),
        (["--passes=xyz"], "unknown pass 'xyz'. The passes are normalise, rce, euclidean-distance, "),
        (["--passes=normalise,"], "unknown pass ''"),
        (["--passes=normalise", "--pass-pipeline=normalise"], "exclude each other"),
        (["--summary", "--quiet"], "exclude each other"),
        (["--op-rule=my_kernel"], "is not of the form 'target="),
        (["--op-rule==([i])->([i])"], "is not of the form 'target="),
        (["--op-rule=f=([i)->([i])"], "'--op-rule'.*f"),
        (["a.mlir", "b.mlir"], "unexpected extra argument"),
    ],
)
def test_wrong_usage(arguments: list[str], sentence: str) -> None:
    done = opt(*arguments, stdin=KERNEL)
    assert done.returncode == 2
    assert done.stdout == ""
    assert re.search(sentence, " ".join(done.stderr.split()), re.IGNORECASE)


def test_bad_input_gets_one_diagnostic_and_no_output(tmp_path: Path) -> None:
    target = tmp_path / "out.mlir"
    done = opt("-o", str(target), stdin=KERNEL.replace("%1, %v", "%1, %w"))
    assert done.returncode == 1
    assert done.stdout == ""
    first, quoted, caret = done.stderr.splitlines()
    assert first == "<stdin>:5:36: error: use of undeclared SSA value name"
    assert quoted.startswith("    %2 = stablehlo.dot_general %1, %w, contracting_dims")
    assert caret == " " * 35 + "^"
    assert not target.exists()


def test_what_the_cplusplus_side_prints_is_not_seen_twice(tmp_path: Path) -> None:
    path = tmp_path / "artifact"
    opt("-", "--emit=portable", "-o", str(path), stdin=KERNEL)
    done = opt(stdin=path.read_bytes()[:200])
    assert done.returncode == 1
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == ["<stdin>", "help"]


def test_recursion_is_the_inputs_fault() -> None:
    done = opt(
        stdin=SORT.replace("stablehlo.negate %x :", "func.call @main(%x) : (tensor<100000xf32>) -> tensor<f32> //")
    )
    assert done.returncode == 1
    assert done.stderr.startswith("<stdin>:")
    assert "Traceback" not in done.stderr


def test_an_output_that_cannot_be_written(tmp_path: Path) -> None:
    done = opt("-o", str(tmp_path / "none" / "out"), stdin=KERNEL)
    assert done.returncode == 1
    assert done.stderr == f"{tmp_path}/none/out: error: cannot write output file: No such file or directory\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk_is_told_in_one_line(tmp_path: Path) -> None:
    module = tmp_path / "module.mlir"
    module.write_text("func.func @main(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }")
    command = [Path(sys.executable).with_name("exla-opt"), module]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "<stdout>: error: cannot write: No space left on device\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
@pytest.mark.parametrize("option", ["--help", "--list-passes"])
def test_help_on_a_full_disk_is_told_in_one_line(option: str) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([EXLA_OPT, option], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "<stdout>: error: cannot write: No space left on device\n")


@pytest.mark.parametrize(
    ("redirection", "sentence"),
    [
        ("<&-", "<stdin>: error: standard input is closed\n"),
        (">&-", "<stdout>: error: standard output is closed\n"),
        ("2>&- >/dev/null", ""),
    ],
)
def test_closed_standard_streams(redirection: str, sentence: str) -> None:
    command = f"{EXLA_OPT} - {redirection}"
    done = subprocess.run(["bash", "-c", command], input=KERNEL, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1 if sentence else 0, sentence)


def test_the_output_file_may_be_a_pipe() -> None:
    done = subprocess.run(
        ["bash", "-c", f"{EXLA_OPT} -o /dev/stdout | head -n 1"], input=KERNEL.encode(), capture_output=True, timeout=60
    )
    assert done.stdout.startswith(b"module @kernel")


@pytest.mark.parametrize("name", ["", "directory/"])
def test_an_output_that_names_no_file(name: str) -> None:
    done = opt("-o", name, stdin=KERNEL)
    assert done.returncode == 1
    assert done.stderr == f"{name or repr(name)}: error: cannot write output file: this names no file\n"


def test_remarks_name_the_file_also_where_something_stands_in_the_way(tmp_path: Path) -> None:
    file = tmp_path / "sort.mlir"
    file.write_text(SORT)
    done = opt(str(file), "--size-threshold=1KB")
    assert f"{file}:" in done.stderr
    assert "<stdin>" not in done.stderr


def test_a_closed_pipe_is_no_drama() -> None:
    big = KERNEL.replace("module @kernel", f'module @kernel attributes {{mhlo.x = "{"x" * 1_000_000}"}}')
    done = subprocess.run(
        ["bash", "-c", f"{EXLA_OPT} --passes=normalise | head -c 10"],
        input=big.encode(),
        capture_output=True,
        timeout=60,
    )
    assert done.stdout == b"module @ke"
    assert done.stderr == b""


def test_an_internal_error_is_one_line_and_asks_for_a_report() -> None:
    code = """
import sys
from exla_opt import pipeline
from exla_opt.cli.opt import main
def fail(module, options):
    raise ZeroDivisionError("two\\nlines")
pipeline.PASSES["normalise"] = fail
sys.argv = ["exla-opt"]
main()
"""
    done = subprocess.run([sys.executable, "-c", code], input=KERNEL.encode(), capture_output=True, timeout=60)
    assert done.returncode == 1
    assert done.stdout == b""
    (line,) = done.stderr.decode().splitlines()
    assert "internal error: ZeroDivisionError: two lines (at <string>:6" in line
    assert "please report" in line


@pytest.mark.parametrize("arguments", [[], [*SMALL, "--timing", "--report=REPORT.json", "--report=REPORT.html"]])
def test_a_run_without_a_limit_loads_neither_jax_nor_rich(tmp_path: Path, arguments: list[str]) -> None:
    given = [argument.replace("REPORT", str(tmp_path / "report")) for argument in arguments]
    code = f"""
import sys
from exla_opt.cli.opt import main
sys.argv = ["exla-opt", "-o", "/dev/null", *{given}]
assert "jaxlib" not in sys.modules
try:
    main()
except SystemExit as done:
    assert done.code == 0
print(sorted({{"jax", "rich", "scipy"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], input=KERNEL.encode(), capture_output=True, timeout=60)
    assert done.stdout == b"[]\n"
    nothing = b"<stdin>: note: nothing was split: no tensor is over 1GB; the largest is 4MB\n"
    assert done.stderr == nothing if not arguments else done.stderr


def failing(statement: str) -> str:
    """A program that is exla-opt with a pass rce in which something is wrong."""
    return f"""
import os, sys
from exla_opt import pipeline
from exla_opt.cli.opt import main
def fail(module, options):
    {statement}
pipeline.PASSES["rce"] = fail
main(prog_name="exla-opt")
"""


def fail(statement: str, *arguments: str, stdin: str = KERNEL) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", failing(statement), *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("raise ZeroDivisionError('two\\nlines')", "ZeroDivisionError: two lines"),
        ("os.abort()", "ended by SIGABRT"),
        ("list(module.body.operations)[0].operation.attributes['function_type'] = None", "TypeError: "),
    ],
)
def test_a_crash_leaves_a_reproducer(tmp_path: Path, statement: str, reason: str) -> None:
    crash, output = tmp_path / "crash.mlir", tmp_path / "out.mlir"
    done = fail(statement, *SMALL, "--no-reassociate", f"--crash-reproducer={crash}", "-o", str(output))
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = [line for line in done.stderr.splitlines() if "internal error" in line]
    assert reason in line
    assert f"the module and the options are in {crash}" in line
    assert [path.name for path in tmp_path.iterdir()] == ["crash.mlir"]
    why, _, command, *_ = crash.read_text().splitlines()
    assert why.startswith(f"// {reason}")
    words = command.removeprefix("//   exla-opt ").split()
    assert words[0] == str(crash)
    assert opt(*words).stdout == opt(*SMALL, "--no-reassociate", stdin=KERNEL).stdout


def test_a_crash_without_a_reproducer_tells_how_to_get_one() -> None:
    done = fail("raise ZeroDivisionError('no')")
    assert "in pass rce" in done.stderr
    assert "--crash-reproducer=FILE" in done.stderr


def test_no_crash_leaves_no_reproducer(tmp_path: Path) -> None:
    crash = tmp_path / "crash.mlir"
    assert opt(*SMALL, f"--crash-reproducer={crash}", stdin=KERNEL).stdout == opt(*SMALL, stdin=KERNEL).stdout
    recursion = SORT.replace("stablehlo.negate %x :", "func.call @main(%x) : (tensor<100000xf32>) -> tensor<f32> //")
    done = opt(f"--crash-reproducer={crash}", stdin=recursion)
    assert (done.returncode, "internal error" in done.stderr) == (1, False)
    assert not list(tmp_path.iterdir())
    done = opt(f"--crash-reproducer={tmp_path}/none/crash.mlir", stdin=KERNEL)
    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot write output file" in done.stderr


@pytest.mark.parametrize("word", ["--verify-each=false", "--no-verify-each"])
def test_passes_need_not_be_verified(word: str) -> None:
    wrong = (
        "op = module.body.operations[0].regions[0].blocks[0].operations[0]; op.result.set_type(op.lhs.type); return []"
    )
    assert "pass 'rce' left an invalid module" in fail(wrong, "--passes=rce", "--verify-each=true").stderr
    assert "left an invalid module" not in fail(wrong, "--passes=rce", word).stderr
    assert opt(word, *SMALL, stdin=KERNEL).stdout == opt(*SMALL, stdin=KERNEL).stdout


@pytest.mark.parametrize("option", ["--report", "--remarks-output", "--crash-reproducer", "--output"])
def test_what_cannot_be_written_is_told_before_anything_is_read(tmp_path: Path, option: str) -> None:
    done = opt(str(tmp_path / "not-there.mlir"), f"{option}={tmp_path / 'none' / 'file.json'}")
    assert done.returncode == 1
    assert done.stderr == f"{tmp_path}/none/file.json: error: cannot write output file: No such file or directory\n"


def test_with_a_limit_only_the_passes_of_what_is_taken_are_printed(tmp_path: Path) -> None:
    done = opt("--memory-limit=2MB", "--print-ir-after-all", "--quiet", "-o", str(tmp_path / "out.mlir"), stdin=KERNEL)
    assert done.returncode == 0
    assert done.stderr.count("IR Dump After tensor-splitter") == 1
    *_, last = done.stderr.split("// -----// IR Dump After normalise //----- //\n")
    assert last.strip() == (tmp_path / "out.mlir").read_text().strip()
