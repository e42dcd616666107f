"""Files that are no modules, signals and crashes: one sentence, the right exit status, and no half-written file."""

import gzip
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

EXLA_OPT = str(Path(sys.executable).with_name("exla-opt"))
EXLA_RUN = str(Path(sys.executable).with_name("exla-run"))
MODULE = """func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.sine %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""
T = "tensor<f32>"


def nested(depth: int) -> str:
    """A module of cases, each within the last."""
    opening = ['%w = "stablehlo.case"(%k) ({'.replace("%w", f"%w{number}") for number in range(depth)]
    closing = [
        f"stablehlo.return %w{number + 1 if number + 1 < depth else 's'} : {T}\n}}) : (tensor<i32>) -> {T}"
        for number in reversed(range(depth))
    ]
    body = [*opening, f"%ws = stablehlo.sine %x : {T}", *closing, f"return %w0 : {T}"]
    return f"func.func public @main(%x: {T}, %k: tensor<i32>) -> {T} {{\n" + "\n".join(body) + "\n}\n"


def refused(path: Path, tmp_path: Path) -> str:
    """The diagnostic for the file, once it is sure that it is the only one and that an old output stays."""
    output = tmp_path / "out.mlir"
    output.write_text("old")
    before = sorted(tmp_path.iterdir())
    done = subprocess.run([EXLA_OPT, str(path), "-o", str(output)], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    assert done.stderr.count("error: ") == 1
    assert done.stderr.startswith(str(path))
    assert output.read_text() == "old"
    assert sorted(tmp_path.iterdir()) == before
    return done.stderr


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "the file is empty"),
        (bytes(range(256)) * 9, "neither text, MLIR bytecode, a StableHLO portable artifact"),
        (MODULE.encode("utf-16"), "neither text, MLIR bytecode, a StableHLO portable artifact"),
        (gzip.compress(MODULE.encode())[:40], "the gzip data is damaged or cut short"),
        (b"PK\x03\x04" + bytes(60), "neither text, MLIR bytecode, a StableHLO portable artifact"),
        (b"ML\xefR" + bytes(60), "the MLIR bytecode is damaged or cut short"),
        (MODULE.replace("4xf32", "99999999999999999999xf32").encode(), "invalid dimension"),
        (nested(1200).encode(), "its regions are nested more than 1,000 deep"),
        (nested(30_000).encode(), "MLIR crashed while reading it (SIGSEGV)"),
    ],
    ids=["empty", "junk", "utf-16", "gzip", "zip", "bytecode", "huge dimension", "deep", "deeper"],
)
def test_what_is_no_module(tmp_path: Path, data: bytes, sentence: str) -> None:
    path = tmp_path / "in.mlir"
    path.write_bytes(data)
    assert sentence in refused(path, tmp_path)


def test_a_folder(tmp_path: Path) -> None:
    (tmp_path / "folder.mlir").mkdir()
    assert "cannot open input file: Is a directory" in refused(tmp_path / "folder.mlir", tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "in.mlir"
    path.write_text(MODULE)
    path.chmod(0)
    assert "cannot open input file: Permission denied" in refused(path, tmp_path)


def test_functions_that_call_each_other(tmp_path: Path) -> None:
    path = tmp_path / "in.mlir"
    call = "  %0 = func.call @{}(%x) : (tensor<4xf32>) -> tensor<4xf32>\n  return %0 : tensor<4xf32>\n}}\n"
    path.write_text(
        "".join(
            f"func.func {kind} @{name}(%x: tensor<4xf32>) -> tensor<4xf32> {{\n" + call.format(callee)
            for kind, name, callee in (("public", "main", "f"), ("private", "f", "g"), ("private", "g", "f"))
        )
    )
    assert "calls itself: recursion cannot be compiled" in refused(path, tmp_path)


@pytest.mark.parametrize(
    ("number", "status", "sentence"),
    [(signal.SIGINT, 130, "exla-opt: interrupted\n"), (signal.SIGTERM, 143, ""), (signal.SIGHUP, 129, "")],
)
def test_signals(tmp_path: Path, number: signal.Signals, status: int, sentence: str) -> None:
    output = tmp_path / "out.mlir"
    output.write_text("old")
    # What runs in the background of a script ignores these, and so would its children.
    command = ["env", "--default-signal=INT,HUP", EXLA_OPT, "-", "-o", str(output)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 300
    while not children(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1)  # by now it waits for its input
    process.send_signal(number)
    process.wait(timeout=600)  # communicate() closes its input, and it may see that before the signal
    _, said = process.communicate()
    assert (process.returncode, said) == (status, sentence)
    assert [path.name for path in tmp_path.iterdir()] == ["out.mlir"]
    assert output.read_text() == "old"


def test_a_child_that_hears_nothing_is_ended_all_the_same() -> None:
    """Inside MLIR and XLA no Python runs, so that a signal waits until they are done: perhaps for ever."""
    script = (
        "import signal, sys, time\nfrom exla_opt.cli.supervise import supervise\nsupervise('exla-opt')\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})\nprint('deaf', flush=True)\ntime.sleep(600)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "deaf\n"
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=600)
    assert (process.returncode, said) == (143, "exla-opt: interrupted\n")


def test_a_signal_in_a_callback_of_the_collector_ends_the_child_without_a_traceback() -> None:
    """jax has such a callback, and Python drops the exceptions that are raised in one."""
    script = (
        "import gc, os, signal, time\nfrom exla_opt.cli.supervise import supervise\nsupervise('exla-opt')\n"
        "gc.callbacks.append(lambda phase, info: os.kill(os.getpid(), signal.SIGTERM) if phase == 'start' else None)\n"
        "try:\n    gc.collect()\n    time.sleep(600)\nfinally:\n    print('cleaned up', flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (143, "cleaned up\n", "")


def children(process: int) -> str:
    """The processes that a process has started; of Linux alone."""
    path = Path(f"/proc/{process}/task/{process}/children")
    return path.read_text() if path.exists() else "unknown"


@pytest.mark.parametrize(
    ("end", "sentence"),
    [
        ("os.kill(os.getpid(), signal.SIGABRT)", "f.mlir: error: MLIR crashed while reading it (SIGABRT)"),
        ("os.kill(os.getpid(), signal.SIGVTALRM)", "f.mlir: error: MLIR did not finish reading it"),
        (
            "os.kill(os.getpid(), signal.SIGKILL)",
            "f.mlir: error: ended by SIGKILL while reading: perhaps memory ran out",
        ),
        ("doing('working on it', 'g.mlir'); os.abort()", "g.mlir: internal error: ended by SIGABRT (version"),
        (
            "doing('compiling', 'g.mlir'); os.abort()",
            "g.mlir: error: XLA crashed while it compiled a program for the limit",
        ),
    ],
)
def test_a_crash_is_told(end: str, sentence: str) -> None:
    script = (
        "import os, signal\nfrom exla_opt.cli.supervise import doing, supervise\n"
        f"supervise('exla-opt')\ndoing('reading', 'f.mlir')\n{end}\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith(sentence)


def test_the_exit_status_of_the_child_is_told() -> None:
    script = "import sys\nfrom exla_opt.cli.supervise import supervise\nsupervise('exla-opt')\nsys.exit(7)\n"
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 7


def test_a_crash_of_xla_is_told_as_such() -> None:
    script = (
        "import os\nfrom exla_opt.cli.supervise import doing, supervise\n"
        "supervise('exla-run')\ndoing('working on it', 'f.mlir')\nos.abort()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith("f.mlir: error: XLA crashed while it compiled or ran it (SIGABRT)\nhelp: ")


@pytest.mark.parametrize("kind", ["junk", "cut", "npy", "pickle", "other names", "other shape", "folder"])
def test_inputs_of_a_run(tmp_path: Path, kind: str) -> None:
    module, inputs = tmp_path / "in.mlir", tmp_path / "in.npz"
    module.write_text(MODULE)
    array = np.zeros(4, np.float32)
    np.savez_compressed(inputs, arg0=array)
    if kind == "junk":
        inputs.write_bytes(b"PK\x03\x04" + bytes(100))
    elif kind == "cut":
        inputs.write_bytes(inputs.read_bytes()[:-30])
    elif kind == "npy":
        with inputs.open("wb") as file:
            np.save(file, array)
    elif kind == "pickle":
        np.savez(inputs, arg0=np.array([{}, []], dtype=object))
    elif kind == "other names":
        np.savez(inputs, x=array)
    elif kind == "other shape":
        np.savez(inputs, arg0=np.zeros(5, np.float32))
    else:
        inputs.unlink()
        inputs.mkdir()
    done = subprocess.run([EXLA_RUN, str(module), f"--inputs={inputs}"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 1
    assert done.stderr.startswith(f"{inputs}: error: ")
    assert done.stderr.count("error: ") == 1
