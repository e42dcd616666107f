"""exla-opt --crash-reproducer: a file with the module and the options, written if exla-opt itself fails."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from exla_opt import __version__
from exla_opt.cli.pending import drop, keep, pending_path
from exla_opt.cli.supervise import keep_after_crash

if TYPE_CHECKING:  # at run time this would load MLIR
    from jaxlib.mlir import ir


@contextmanager
def reproducer(path: str | None, module: ir.Module, words: Sequence[str]) -> Iterator[None]:
    """Write the module and the options to `path` if the code inside fails through exla-opt's own fault.

    module: the unchanged input. words: the options. Raises InputError, before anything is done, when `path` cannot be
    written.
    """
    from exla_opt.ir.diagnostics import InputError
    from exla_opt.ir.write import serialise, write_file

    if path is None:
        yield
        return
    command = shlex.join(["exla-opt", path, *words])
    header = f"// Written by exla-opt {__version__}. The same again:\n//   {command}\n"
    write_file(header.encode() + serialise(module, "text"), pending_path(path))
    keep_after_crash(path)
    try:
        yield
    except (InputError, click.ClickException, click.exceptions.Exit, BrokenPipeError, KeyboardInterrupt):
        raise
    except Exception as error:
        where = keep(path, " ".join(f"{type(error).__name__}: {error}".split()))
        error.add_note(where or f"the reproducer {path} could not be written")
        raise
    finally:
        drop(path)
