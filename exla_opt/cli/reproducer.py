"""exla-opt --crash-reproducer: a file with the module and the options, for when something goes wrong that must not."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from exla_opt import __version__
from exla_opt.cli.supervise import keep_after_crash
from exla_opt.options import Options

if TYPE_CHECKING:  # at run time this would load MLIR
    from jaxlib.mlir import ir


def kept(path: str, reason: str) -> str:
    """Keep the reproducer of a process that a signal has ended; a clause that says so, or "" where there is none."""
    return _told(path) if os.path.exists(_pending(path)) and _keep(path, reason) else ""


@contextmanager
def reproducer(path: str | None, module: ir.Module, words: Sequence[str]) -> Iterator[None]:
    """Write the module and the options to `path` if what is done inside goes wrong by our fault, and only then.

    module: the input, before anything has changed it. words: the options. Raises InputError when `path` cannot be
    written, before anything is done.
    """
    from exla_opt.ir.diagnostics import InputError
    from exla_opt.ir.write import serialise, write_file

    if path is None:
        yield
        return
    command = shlex.join(["exla-opt", path, *words])
    header = f"// Written by exla-opt {__version__}. The same again:\n//   {command}\n"
    write_file(header.encode() + serialise(module, "text"), _pending(path))
    keep_after_crash(path)
    try:
        yield
    except (InputError, click.ClickException, click.exceptions.Exit, BrokenPipeError, KeyboardInterrupt):
        raise
    except Exception as error:
        _keep(path, " ".join(f"{type(error).__name__}: {error}".split()))
        error.add_note(_told(path))
        raise
    finally:
        drop(path)


def drop(path: str) -> None:
    """Take away what is pending for the reproducer `path`, which is not needed."""
    if os.path.exists(_pending(path)):
        os.unlink(_pending(path))


def option_words(names: Sequence[str], options: Options, flags: dict[str, Any]) -> list[str]:
    """The options with which the same happens again."""
    words = [f"--passes={','.join(names)}"]
    if flags["memory_limit"] is None and flags["target"] is None:
        words.append(f"--size-threshold={options.size_threshold}")
        words += [] if options.split_size is None else [f"--split-size={options.split_size}"]
    words += [] if flags["memory_limit"] is None else [f"--memory-limit={flags['memory_limit']}"]
    words += [] if flags["target"] is None else [f"--target={flags['target']}"]
    words += [] if options.reassociate else ["--no-reassociate"]
    words += [] if options.chain_cost == Options().chain_cost else [f"--chain-cost={options.chain_cost}"]
    words += [f"--op-rule={target}={rule}" for target, rule in options.op_rules]
    words += [] if flags["verify_each"] else ["--no-verify-each"]
    words += ["--check"] if flags["check"] else []
    return words + ([] if flags["check_memory"] is None else [f"--check-memory={flags['check_memory']}"])


def _told(path: str) -> str:
    return f"the module and the options are in {path}"


def _pending(path: str) -> str:
    """What lies there while it is not known whether it will be needed."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.pending")


def _keep(path: str, reason: str) -> bool:
    """Make what is pending the reproducer; whether that could be done."""
    from exla_opt.ir.diagnostics import InputError
    from exla_opt.ir.write import write_file

    try:
        with open(_pending(path), "rb") as file:
            data = file.read()
        write_file(f"// {reason}\n".encode() + data, path)
        os.unlink(_pending(path))
    except (OSError, InputError):
        return False
    return True
