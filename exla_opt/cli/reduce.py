"""exla-reduce: makes a module smaller for as long as a command finds it interesting."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from exla_opt import __version__
from exla_opt.cli.common import Command, is_terminal, read_source
from exla_opt.sizes import format_size

# Everything that loads MLIR is imported inside the functions: --help and usage errors answer at once.
if TYPE_CHECKING:
    from exla_opt.reduce import Search

_EPILOG = """\b
CMD is a shell command that exits with 0 as long as the module is
interesting: when it still shows what you are after. Any other status, and
more than --timeout seconds, mean that it is not. The module's file stands
where CMD has {}, or else becomes its last argument. CMD must give the same
answer for the same module.

\b
Examples:
  exla-reduce model.mlir -o small.mlir \\
      --check 'exla-opt {} --quiet | grep -q stablehlo.while'
  exla-reduce model.mlir --check ./still-fails.sh > small.mlir
  exla-reduce model.mlir -o small.mlir \\
      --check 'exla-opt {} 2>&1 | grep -q "internal error"'

\b
Every module that CMD gets is valid StableHLO; it is written with a name of
its own, and FILE is never changed. Ctrl-C writes the smallest
interesting module found so far.

\b
Exit status: 0 done; 1 FILE cannot be read or is not interesting itself;
2 wrong usage; 130 interrupted."""


@click.command("exla-reduce", cls=Command, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("source", metavar="FILE")
@click.option(
    "--check", required=True, metavar="CMD", help="A shell command that exits with 0 while the module is interesting."
)
@click.option("-o", "--output", metavar="FILE", default="-", help="Where to write; - (the default) is standard output.")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=300, help="Maximum seconds of a check [300]."
)
@click.option("--quiet", is_flag=True, help="No progress and no summary, only errors.")
@click.version_option(__version__, message="exla-reduce %(version)s")
def main(source: str, check: str, output: str, timeout: float, quiet: bool) -> None:
    """Make the StableHLO module FILE smaller for as long as the command CMD exits with 0 for it.

    Ops, functions, results, arguments, loops, attributes and locations are dropped, and dimensions become smaller,
    consistently. FILE is MLIR text, MLIR bytecode or a StableHLO portable artifact, gzipped or not, or - for standard
    input; text is written.
    """
    if output != "-" and source != "-" and os.path.exists(output) and os.path.samefile(source, output):
        raise click.UsageError("--output is the input file, which is never overwritten")
    if not check.strip():
        raise click.UsageError("--check needs a command")
    if not _run(source, check, output, timeout, quiet):
        sys.exit(128 + signal.SIGINT)


def _run(source: str, check: str, output: str, timeout: float, quiet: bool) -> bool:
    """Reduce and write; return False if the user interrupted."""
    from exla_opt.ir.diagnostics import InputError
    from exla_opt.ir.write import serialise, write_data
    from exla_opt.reduce import NotInteresting, reduce_module

    start = time.perf_counter()
    read = read_source(source)
    context = read.module.context
    first = serialise(read.module, "text")
    smallest = [first]
    done = True
    with tempfile.TemporaryDirectory(prefix="exla-reduce-") as folder, _progress(quiet) as show:
        path = Path(folder, "module.mlir")
        statuses: list[int | None] = []
        checks = 0

        def interesting(text: bytes) -> bool:
            path.write_bytes(text)
            statuses.append(_status(check, str(path), timeout))
            return statuses[-1] == 0

        def progressed(step: str, search: Search) -> None:
            nonlocal checks
            smallest[0], checks = search.text, search.checks
            show(f"{step}: {format_size(len(search.text))} after {search.checks} checks")

        try:
            reduce_module(first, context, interesting, progressed)
        except NotInteresting:
            raise InputError(_boring(statuses[0], timeout), file=read.name) from None
        except KeyboardInterrupt:
            done = False
    write_data(smallest[0], output)
    if not quiet:
        ops = [_count_ops(text) for text in (first, smallest[0])]
        sizes = [format_size(len(text)) for text in (first, smallest[0])]
        how = f"{checks} checks, {time.perf_counter() - start:.1f} s{'' if done else ', interrupted'}"
        click.echo(f"{read.name}: {ops[0]} ops, {sizes[0]}, became {ops[1]} ops, {sizes[1]} ({how})", err=True)
    return done


def _boring(status: int | None, timeout: float) -> str:
    what = f"does not end within {timeout:g} seconds" if status is None else f"exits with {status}"
    return f"the module is not interesting itself: the command {what} for it, and 0 means interesting"


def _status(check: str, path: str, timeout: float) -> int | None:
    """The exit status of the command for this file; None if it was killed."""
    quoted = shlex.quote(path)
    line = check.replace("{}", quoted) if "{}" in check else f"{check} {quoted}"
    nothing = subprocess.DEVNULL
    with subprocess.Popen(
        line, shell=True, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True
    ) as process:
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.returncode is None:  # too slow or interrupted: kill it with all its children
                os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows a line of progress, on a terminal only."""
    if quiet or not is_terminal(sys.stderr):
        yield lambda line: None
        return
    from rich.console import Console

    with Console(stderr=True).status("the module as it is") as status:
        yield lambda line: status.update(line)


def _count_ops(text: bytes) -> int:
    """The number of ops in a module, functions not counted."""
    from jaxlib.mlir import ir

    from exla_opt.ir.context import new_context

    count = 0

    def visit(op: ir.Operation) -> ir.WalkResult:
        nonlocal count
        count += op.name not in ("builtin.module", "func.func", "func.return", "stablehlo.return")
        return ir.WalkResult.ADVANCE

    ir.Module.parse(text, new_context()).operation.walk(visit)
    return count
