"""Has a compiler plan the memory of the zoo's programs, as they are and split; writes modules and truth.json.

    JAX_PLATFORMS=cpu python -m benchmarks.zoo.measure DIRECTORY --platform=cpu

A module is DIRECTORY/modules/NAME.FORM.PLATFORM.mlirbc. A form is unsplit, or split4 and split16: split at a quarter
and at a sixteenth of the unsplit temp, where that is over 16 MB. truth.json has a row for each: {name, form, half,
platform, file, threshold, arguments, results, aliased, temp, peak, note}, in bytes; where something failed, note says
what, and the bytes are null. Rows that are there already are not taken again.
"""

from __future__ import annotations

import argparse
import json
import os
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.runtime.target import compiled_memory, parse_target

from .__main__ import export, programs
from .programs import half

Row = dict[str, Any]
# What a program of less temp would be split into says little.
_LEAST_TEMP = 16_000_000
_PARTS = {"unsplit": 0, "split4": 4, "split16": 16}
_BYTES = ("arguments", "results", "aliased", "temp", "peak")


def main() -> None:
    """Measure what is not measured yet, one form after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--platform", choices=("cpu", "h200"), default="cpu", help="who compiles [cpu]")
    parser.add_argument("--only", nargs="*", help="only the programs of these names")
    parser.add_argument("--limit", type=float, default=60, help="the most seconds that one module may take [60]")
    arguments = parser.parse_args()
    (arguments.directory / "modules").mkdir(parents=True, exist_ok=True)
    truth = Truth(arguments.directory / "truth.json", arguments.platform)
    names = [name for name in programs() if not arguments.only or name in arguments.only]
    child = Child(arguments.limit)
    for form, parts in _PARTS.items():
        for name in names:
            temp = truth.temp(name, "unsplit")
            if truth.has(name, form) or (parts and temp <= _LEAST_TEMP):
                continue
            file = f"{name}.{form}.{arguments.platform}.mlirbc"
            threshold = temp // parts if parts else None
            job = (name, str(arguments.directory / "modules" / file), threshold, arguments.platform)
            row = truth.add(name, form, {"file": file, "threshold": threshold, **child.run(job)})
            print(f"{form} {name}: {row['note'] or row['temp']}", flush=True)
    child.stop()


class Truth:
    """The rows of a file, of which those of one platform are asked for and added to."""

    def __init__(self, path: Path, platform: str):
        self.path = path
        self.platform = platform
        self.rows: list[Row] = json.loads(path.read_text()) if path.exists() else []
        self.own = {(row["name"], row["form"]): row for row in self.rows if row["platform"] == platform}

    def has(self, name: str, form: str) -> bool:
        """Whether this was tried."""
        return (name, form) in self.own

    def temp(self, name: str, form: str) -> int:
        """The temp in bytes; 0 where it is not known."""
        return self.own.get((name, form), {}).get("temp") or 0

    def add(self, name: str, form: str, found: Row) -> Row:
        """Write one row more; an interrupted run loses none."""
        row = {"name": name, "form": form, "half": half(name), "platform": self.platform, **found}
        self.rows.append(row)
        self.own[name, form] = row
        fresh = self.path.with_suffix(".new")
        fresh.write_text("[\n" + ",\n".join(map(json.dumps, self.rows)) + "\n]\n")
        os.replace(fresh, self.path)
        return row


class Child:
    """A process that makes and compiles modules, one after the other; one that takes too long or dies is replaced."""

    def __init__(self, limit: float):
        self.limit = limit
        self.context = get_context("spawn")
        self.start()

    def start(self) -> None:
        """Start a process, and wait until it has imported what it needs."""
        self.pipe, other = self.context.Pipe()
        self.process = self.context.Process(target=_serve, args=(other,), daemon=True)
        self.process.start()
        other.close()
        self.pipe.recv()

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.join()

    def run(self, job: tuple[Any, ...]) -> Row:
        """The bytes of one module, or a note why there are none."""
        self.pipe.send(job)
        try:
            if self.pipe.poll(self.limit):
                found: Row = self.pipe.recv()
                return found
            note = f"over {self.limit:.0f} s"
        except EOFError:
            note = "the compiler ended its process"
        self.stop()
        self.start()
        return _failed(note)


def _failed(note: str) -> Row:
    return {**dict.fromkeys(_BYTES), "note": note}


def _serve(pipe: Connection) -> None:
    known = programs()
    pipe.send(None)
    while True:
        try:
            name, path, threshold, platform = pipe.recv()
        except EOFError:
            return
        try:
            data = _module(export(known[name], "cpu" if platform == "cpu" else "cuda"), threshold)
            Path(path).write_bytes(data)
            found = compiled_memory(data, parse_target("cpu" if platform == "cpu" else f"cuda:{platform}"))
            memory = found.memory
            pipe.send({**{key: getattr(memory, key) for key in _BYTES}, "note": found.note})
        except Exception as error:  # whatever jax, a library or a compiler raises: it costs this module only
            pipe.send(_failed(f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"))


def _module(text: str, threshold: int | None) -> bytes:
    """The module as bytecode, normalised, and split at a threshold in bytes if there is one."""
    with new_context() as context:
        module = parse_module("module", text.encode(), context).module
        if threshold is None:
            run_pipeline(module, ("normalise",), Options())
        else:
            run_pipeline(module, DEFAULT_PASSES, Options(threshold, threshold))
        return serialise(module, "bytecode")


if __name__ == "__main__":
    main()
