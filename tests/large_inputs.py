"""Inputs that are large rather than damaged: exla-opt answers in bounded time and memory; prints a Markdown table.

    python -m tests.large_inputs                          # the whole: 10 GB of memory, 5 GB of disk, some minutes
    python -m tests.large_inputs --ops=10000 --bytes=1000000

Each case is one run of the command. It must end with the status that is expected, say so in one diagnostic at most, and
leave either a whole module or nothing.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_COMMAND = Path(sys.executable).parent / "exla-opt"
_BLOCK = 2**20
# MLIR's own parser crashes on so many, which exla-opt reports.
_DEEP = 10_000


@dataclass(frozen=True, slots=True)
class Case:
    """One input: how it is written, and the exit status that exla-opt must end with."""

    name: str
    write: Callable[[Path], None]
    status: int


def cases(ops: int, constant_bytes: int) -> Iterator[Case]:
    """All of them. ops: how many the long module has. constant_bytes: what the large constant takes."""
    yield Case(f"a chain of {ops:,} ops", lambda path: _chain(path, ops), 0)
    yield Case(f"a constant of {constant_bytes:,} bytes", lambda path: _constant(path, constant_bytes), 0)
    yield Case(f"{ops:,} open parentheses", lambda path: _repeated(path, "(", ops), 1)
    yield Case(f"{_DEEP:,} loops inside each other", lambda path: _nested(path, _DEEP), 1)
    yield Case(f"{constant_bytes:,} bytes of zeros", lambda path: _repeated(path, "\0", constant_bytes), 1)


def _chain(path: Path, ops: int) -> None:
    with path.open("w") as file:
        file.write("func.func @main(%0: tensor<8x8xf32>) -> tensor<8x8xf32> {\n")
        file.writelines(f"  %{index + 1} = stablehlo.sine %{index} : tensor<8x8xf32>\n" for index in range(ops))
        file.write(f"  return %{ops} : tensor<8x8xf32>\n}}\n")


def _constant(path: Path, size: int) -> None:
    kind = f"tensor<{size // 4}xf32>"
    with path.open("w") as file:
        file.write(f'func.func @main(%x: {kind}) -> {kind} {{\n  %c = stablehlo.constant dense<"0x')
        for start in range(0, size // 4 * 4, _BLOCK):
            file.write(os.urandom(min(_BLOCK, size // 4 * 4 - start)).hex().upper())
        file.write(f'"> : {kind}\n  %y = stablehlo.add %x, %c : {kind}\n  return %y : {kind}\n}}\n')


def _repeated(path: Path, character: str, times: int) -> None:
    with path.open("w") as file:
        for start in range(0, times, _BLOCK):
            file.write(character * min(_BLOCK, times - start))


def _nested(path: Path, depth: int) -> None:
    with path.open("w") as file:
        file.write("func.func @main(%x: tensor<f32>, %go: tensor<i1>) -> tensor<f32> {\n")
        for level in range(depth):
            file.write(f"%l{level} = stablehlo.while(%i{level} = %x) : tensor<f32>\n")
            file.write("cond { stablehlo.return %go : tensor<i1> } do {\n")
        file.write("stablehlo.return %x : tensor<f32> }\n" * depth)
        file.write("return %x : tensor<f32>\n}\n")


def run_case(case: Case, folder: Path) -> tuple[list[str], str]:
    """The cells of its row, and what is wrong, "" if nothing is."""
    source, result = folder / "large.mlir", folder / "smaller.mlir"
    case.write(source)
    begin = time.perf_counter()
    process = subprocess.Popen([_COMMAND, source, "-o", result], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - begin
    cells = [case.name, str(process.returncode), f"{seconds:.0f}", f"{used.ru_maxrss / 1e6:.2f}"]
    left = result.exists()
    source.unlink()
    result.unlink(missing_ok=True)
    if process.returncode != case.status or "Traceback" in said or said.count(" error: ") != case.status:
        return cells, f"{case.name}: exit status {process.returncode}: {said[-500:]!r}"
    if left != (case.status == 0) or list(folder.iterdir()):
        return cells, f"{case.name}: files were left, or none"
    return cells, ""


def main() -> None:
    """Run all, print a row each, and exit with 1 if there was a fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", type=int, default=1_000_000)
    parser.add_argument("--bytes", type=int, default=10**9)
    arguments = parser.parse_args()
    faults = []
    print("| input | exit status | seconds | memory, GB |\n| --- | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        for case in cases(arguments.ops, arguments.bytes):
            cells, fault = run_case(case, Path(folder))
            print(f"| {' | '.join(cells)} |", flush=True)
            faults += [fault] if fault else []
    print("\n".join(faults))
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
