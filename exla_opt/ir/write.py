"""Writing a module: completely or not at all."""

from __future__ import annotations

import errno
import io
import os
import re
import stat
import sys
import tempfile
from typing import Literal

from jaxlib.mlir import ir

from exla_opt.ir.diagnostics import PARSER_FILE, InputError
from exla_opt.ir.hlo import hlo_of
from exla_opt.ir.portable import portable_artifact

Emit = Literal["text", "bytecode", "portable", "hlo"]

_PARSER_POSITION = re.compile(rf'"{PARSER_FILE}":\d+:\d+')


def write_data(data: bytes, destination: str) -> None:
    """Write to the file `destination`, which appears complete or stays as it was, or to standard output for `-`.

    Raises InputError when it cannot be written, and BrokenPipeError when the reader of standard output is gone.
    """
    if destination == "-":
        if sys.stdout is None:
            raise InputError("standard output is closed", file="<stdout>")
        try:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise InputError(f"cannot write: {error.strerror}", file="<stdout>") from None
        return
    write_file(data, destination)


def check_writable(destination: str) -> None:
    """Raise the InputError of `write_file` if it is predictable, so that no work is lost."""
    if destination == "-":
        return
    _check_name(destination)
    try:
        mode = _mode(destination)
    except OSError as error:
        raise InputError(f"cannot write output file: {error.strerror}", file=destination) from None
    folder = os.path.dirname(os.path.realpath(destination))
    number = 0
    if mode is not None and stat.S_ISDIR(mode):
        number = errno.EISDIR
    elif mode is not None and not stat.S_ISREG(mode):  # a device or a pipe is opened directly
        number = 0 if os.access(destination, os.W_OK) else errno.EACCES
    elif not os.path.isdir(folder):
        number = errno.ENOENT
    elif not os.access(folder, os.W_OK):
        number = errno.EACCES
    if number:
        raise InputError(f"cannot write output file: {os.strerror(number)}", file=destination)


def _check_name(destination: str) -> None:
    if destination.endswith("/") or not destination:
        raise InputError("cannot write output file: this names no file", file=destination or "''")


def write_file(data: bytes, destination: str) -> None:
    """Write a file that appears complete or stays as it was. Raises InputError when it cannot be written."""
    _check_name(destination)
    try:
        _write_file(destination, data)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InputError(f"cannot write output file: {error.strerror}", file=destination) from None


def serialise(module: ir.Module, emit: Emit, version: str | None = None) -> bytes:
    """The module as bytes. Text carries locations exactly if the input had any of its own.

    version: the StableHLO version that a portable artifact is written for; None is the newest. Raises InputError for
    ops that the version lacks.
    """
    operation = module.operation
    if emit == "text":
        text = str(operation.get_asm(enable_debug_info=has_own_locations(module)))
        return text.encode() if text.endswith("\n") else text.encode() + b"\n"
    if emit == "portable":
        return portable_artifact(module, version)
    buffer = io.BytesIO()
    operation.write_bytecode(buffer)
    return hlo_of(buffer.getvalue()) if emit == "hlo" else buffer.getvalue()


def has_own_locations(module: ir.Module) -> bool:
    """Whether any op or block argument has a location that the parser did not derive from its input's lines."""
    known: set[str] = set()

    def is_own(location: ir.Location) -> bool:
        text = str(location)
        if text in known:
            return False
        known.add(text)
        return '"' in _PARSER_POSITION.sub("", text)

    stack = [module.operation]
    while stack:
        op = stack.pop()
        if is_own(op.location):
            return True
        for region in op.regions:
            for block in region.blocks:
                if any(is_own(argument.location) for argument in block.arguments):
                    return True
                stack.extend(view.operation for view in block.operations)
    return False


def _write_file(destination: str, data: bytes) -> None:
    mode = _mode(destination)
    if mode is not None and not stat.S_ISREG(mode):  # a device or a pipe cannot be replaced
        with open(destination, "wb") as file:
            file.write(data)
        return
    path = os.path.realpath(destination)  # a link stays a link
    handle, temporary = tempfile.mkstemp(prefix=f".{os.path.basename(path)}.", dir=os.path.dirname(path))
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, _default_mode() if mode is None else stat.S_IMODE(mode))
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _mode(path: str) -> int | None:
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return None


def _default_mode() -> int:
    """The mode of a file created by `open`; mkstemp's is for secrets."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
