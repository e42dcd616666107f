"""Exports the zoo as StableHLO modules, one file a program; nothing is compiled or run.

    python -m benchmarks.zoo DIRECTORY --platform=cuda --half=fitting

Programs of libraries that are not installed are left out, and so is what jax cannot export; each is named.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any

import jax

from .programs import Field, Program, half

FIELDS = (
    "arrays attention derivatives equinoxes flaxes generative graphs kernels language optimisers "
    "physics precisions recurrent sampling solvers vision"
).split()


def main() -> None:
    """Write DIRECTORY/NAME.mlir for each program and print how many there are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--platform", choices=("cpu", "cuda"), default="cpu", help="what to export for [cpu]")
    parser.add_argument("--half", choices=("fitting", "held out"), help="only the programs of this half")
    parser.add_argument("--only", nargs="*", help="only the programs of these names")
    arguments = parser.parse_args()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    written = 0
    for name, program in programs().items():
        if arguments.half not in (None, half(name)) or (arguments.only and name not in arguments.only):
            continue
        try:
            text = export(program, arguments.platform)
        except Exception as error:  # whatever jax or a library raises: it costs this program only
            print(f"{name}: {type(error).__name__}: {str(error).partition(chr(10))[0]}", file=sys.stderr)
            continue
        (arguments.directory / f"{name}.mlir").write_text(text)
        written += 1
    print(f"{written} programs written to {arguments.directory}")


def programs() -> dict[str, Program]:
    """All programs by name, of those fields whose libraries are installed."""
    found: dict[str, Program] = {}
    for name in FIELDS:
        try:
            field: Field = importlib.import_module(f"benchmarks.zoo.{name}").FIELD
        except ModuleNotFoundError as error:
            print(f"{name} left out: {error}", file=sys.stderr)
            continue
        if twice := found.keys() & field.programs.keys():
            raise ValueError(f"two programs are called {min(twice)}")
        found |= field.programs
    return found


def export(program: Program, platform: str) -> str:
    """The program as the text of a module for a platform, cpu or cuda."""
    with jax.enable_x64(program.wide):
        function, shapes = program.make()
        jitted: Any = function if hasattr(function, "lower") else jax.jit(function)
        return str(jax.export.export(jitted, platforms=[platform])(*shapes).mlir_module())


if __name__ == "__main__":
    main()
