"""Shared by the commands: sizes as option values, and errors without tracebacks."""

from __future__ import annotations

import errno
import gc
import json
import logging
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from exla_opt import __version__
from exla_opt.cli.supervise import INTERRUPTED, bounded_reading, doing, supervise
from exla_opt.sizes import parse_size

if TYPE_CHECKING:  # at run time this would load MLIR
    from jaxlib.mlir import ir

    from exla_opt.ir.read import Source


# The prediction of memory recurses into nested regions, of which a module may have 1,000.
_DEEPEST_CALLS = 20_000
# So many new objects are collected at once, not Python's 700.
_COLLECTED_AFTER = 20_000


class Size(click.ParamType[int]):
    """An option value such as 500MB, passed to the command in bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The bytes of `value`. Raises click's BadParameter for anything that is not a size."""
        if isinstance(value, int):
            return value
        try:
            return parse_size(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def read_source(name: str, given: bytes | None = None) -> Source:
    """Read the module in the file `name`, in a context of its own. Raises InputError like `read_module`.

    given: the contents of the file, if already read.
    """
    from exla_opt.ir.context import new_context
    from exla_opt.ir.read import is_exported, parse_module, read_file

    shown, data = read_file(name) if given is None else (name, given)
    doing("reading", shown)
    exported = data if is_exported(data) else b""
    if exported:
        data = _module_in(shown, data)
    with bounded_reading(len(data)):
        source = replace(parse_module(shown, data, new_context()), exported=exported)
    doing("working on it", source.name)
    return source


def _module_in(name: str, data: bytes) -> bytes:
    """The module in a file of jax.export."""
    from exla_opt.ir.diagnostics import InputError

    load_jax(uses_gpu=False)
    from exla_opt.runtime.exported_file import module_in

    try:
        return module_in(data)
    except InputError as error:
        error.locate(name, b"")
        raise


def as_it_came(source: Source) -> ir.Module:
    """The module as it was read."""
    from exla_opt.ir.read import parse_module

    return parse_module(source.name, source.data, source.module.context).module


@contextmanager
def naming(source: Source) -> Iterator[None]:
    """Name the module in errors raised inside this context."""
    from exla_opt.ir.diagnostics import InputError

    doing("working on it", source.name)
    try:
        yield
    except InputError as error:
        error.locate(source.name, source.data)
        raise


def write_json(path: str, data: dict[str, Any]) -> None:
    """Write `data` to the file `path`, completely or not at all. Raises InputError when that cannot be done."""
    from exla_opt.ir.write import write_file

    write_file(json.dumps(data, indent=2).encode() + b"\n", path)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether the stream is a terminal; None is a closed standard stream."""
    return stream is not None and stream.isatty()


# What the user asked for, before we ask for the CPU.
_PLATFORMS = os.environ.get("JAX_PLATFORMS")


def load_jax(*, uses_gpu: bool) -> None:
    """Import jax with its own and XLA's messages silenced: errors become exceptions.

    Raises click's ClickException when it cannot be loaded.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    logging.getLogger("jax").setLevel(logging.CRITICAL)
    if not uses_gpu:
        # A CUDA plugin on a machine without a driver prints a traceback that nobody asked for.
        os.environ["JAX_PLATFORMS"] = "cpu"
    elif sys.modules.get("jax") and _PLATFORMS is None:
        # Reading a file of jax.export has loaded jax for the CPU alone.
        os.environ.pop("JAX_PLATFORMS", None)
        sys.modules["jax"].config.update("jax_platforms", None)
    # By default jax takes three quarters of a GPU's memory, which what runs there already may need.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        import jax  # noqa: F401
    except (ImportError, RuntimeError) as error:  # a RuntimeError if jaxlib is of another version
        reason = " ".join(str(error).split())
        raise click.ClickException(f"jax cannot be loaded: {reason}") from None


def collect_rarely() -> None:
    """Let the garbage collector run rarely in this process: a search makes millions of objects, few of them cycles.

    Saves a twentieth of its time, and needs a few megabytes.
    """
    gc.set_threshold(_COLLECTED_AFTER)


class Command(click.Command):
    """A command that ends with 0 (done), 1 (the input's or our fault) or 2 (usage), and never with a traceback.

    Ctrl-C ends it with 130.
    """

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command line; failures of --help and the like are printed as one line too."""
        if not args and kwargs.get("args") is None:  # in a process of its own
            supervise(self.name or "exla-opt")
            sys.setrecursionlimit(_DEEPEST_CALLS)
            collect_rarely()
        try:
            return super().main(*args, **kwargs)
        except OSError as error:
            click.echo(_explain(error, self.name or "exla-opt"), err=True)
            sys.exit(1)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; print an InputError as it is and anything unexpected as one line."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise  # click prints these itself, with its own exit codes
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # ignore further ones while cleaning up
            click.echo(f"{ctx.command_path}: interrupted", err=True)
            ctx.exit(INTERRUPTED)
        except MemoryError:
            click.echo(f"{ctx.command_path}: error: out of memory", err=True)
            ctx.exit(1)
        except Exception as error:
            help = _REPRODUCER_HELP if "crash_reproducer" in ctx.params else _REPORT_HELP
            click.echo(_explain(error, ctx.command_path, help), err=True)
            ctx.exit(getattr(error, "exit_status", 1))


_REPORT_HELP = "please report this with the command line and, if you can, the module"
_REPRODUCER_HELP = "please report this with what --crash-reproducer=FILE writes: the module and the options"


def _explain(error: Exception, command: str, help: str = _REPORT_HELP) -> str:
    from exla_opt.ir.diagnostics import InputError  # here, so that --help does not load MLIR

    if isinstance(error, InputError):
        return str(error)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EIO, errno.EBADF):
        return f"{error.filename or '<stdout>'}: error: cannot write: {error.strerror}"
    frame = traceback.extract_tb(error.__traceback__)[-1]
    what = " ".join(f"{type(error).__name__}: {error}".split())[:500]
    notes: list[str] = getattr(error, "__notes__", [])  # the failing pass, and the path of the reproducer
    places = [note for note in notes if note.startswith("in pass ")]
    where = ", ".join([f"at {Path(frame.filename).name}:{frame.lineno}", *places, f"version {__version__}"])
    notice = "; ".join(note for note in notes if note not in places)
    return f"{command}: internal error: {what} ({where}); {f'{notice}; please report this' if notice else help}"
