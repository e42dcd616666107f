"""Reading a module: text, MLIR bytecode or a StableHLO portable artifact, gzipped or not, recognised by content."""

from __future__ import annotations

import gzip
import os
import re
import sys
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo
from jaxlib.version import __version__ as jaxlib_version

from exla_opt.ir.attributes import PARTITIONS, REPLICAS
from exla_opt.ir.diagnostics import InputError, error_at
from exla_opt.ir.hlo import AFTER_HELP, is_hlo, partitions_of, replicas_of, stablehlo_of
from exla_opt.ir.parse_errors import BOUNDED, BYTECODE, DYNAMIC, SPECIALISE, explain
from exla_opt.ir.refine import with_known_shapes
from exla_opt.ir.walk import is_private

_GZIP = b"\x1f\x8b"
_PORTABLE = re.compile(rb"StableHLO_v(\d+)\.(\d+)\.(\d+)")

# MLIR itself overflows its stack at a few times this depth.
_DEEPEST = 1000


@dataclass(frozen=True)
class Source:
    """A module and its origin: its name for diagnostics, its bytes (unzipped), and the parsed module.

    exported: the jax.export file that contained the bytes; b"" if they were the file.
    """

    name: str
    data: bytes
    module: ir.Module
    exported: bytes = b""


def read_module(source: str, context: ir.Context) -> Source:
    """Read and check the module in file `source`; `-` is standard input.

    Raises InputError when the file cannot be read, is not a module, or is one that exla-opt does not support: without a
    public function, with dynamic shapes, or with constants that were elided in printing.
    """
    return parse_module(*read_file(source), context)


def read_file(source: str) -> tuple[str, bytes]:
    """The name for diagnostics and the bytes of file `source`; `-` is standard input.

    Raises InputError when the file cannot be read.
    """
    name = "<stdin>" if source == "-" else source or "''"
    try:
        return name, _read_bytes(source)
    except InputError as error:
        error.locate(name, b"")
        raise


def parse_module(name: str, data: bytes, context: ir.Context) -> Source:
    """Parse and check a module given as bytes, in any of the forms; `name` is for diagnostics.

    Raises InputError like `read_module`.
    """
    try:
        data = _unzip(data)
        module = _checked(_parse(data, context), data)
    except InputError as error:
        if "after_optimizations" in name and error.help != AFTER_HELP:  # buffers and kernels: XLA dumps them too
            error = InputError("this is what XLA made of a program, not the program", help=AFTER_HELP)
        error.locate(name, data)
        raise error from None
    return Source(name, data, module)


def is_exported(data: bytes) -> bool:
    """Whether this is a file from `jax.export.Exported.serialize`: it contains a module and much else."""
    return b"\0" in data[:16] and not data.startswith((BYTECODE, _GZIP)) and data.find(BYTECODE) > 0


def _read_bytes(source: str) -> bytes:
    if source == "-":
        if sys.stdin is None:
            raise InputError("standard input is closed")
        return sys.stdin.buffer.read()
    try:
        with open(source, "rb") as file:
            return file.read()
    except OSError as error:
        hint = "give one file; among XLA's dumps, that called *before_optimizations*"
        raise InputError(
            f"cannot open input file: {error.strerror}", help=hint if isinstance(error, IsADirectoryError) else ""
        ) from None
    except ValueError as error:  # a NUL in the name
        raise InputError(f"cannot open input file: {error}") from None


def _unzip(data: bytes) -> bytes:
    if not data.startswith(_GZIP):
        return data
    try:
        return gzip.decompress(data)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise InputError("the gzip data is damaged or cut short", help="copy or export the file again") from None


def _parse(data: bytes, context: ir.Context) -> ir.Module:
    if not data.strip():
        raise InputError("the file is empty")
    counts = {}
    if is_hlo(data):
        counts = {PARTITIONS: partitions_of(data), REPLICAS: replicas_of(data)}
        with _captured_stderr():
            data = stablehlo_of(data)
    program = data if data.startswith(BYTECODE) else _decode(data)
    try:
        if (version := _portable_version(data)) is not None:
            return _parse_portable(data, version, context)
        with _captured_stderr():  # C++ messages before a crash help nobody
            return _spread(ir.Module.parse(program, context), counts)
    except ir.MLIRError as error:
        raise explain(error, data) from None
    except ValueError as error:  # of a container that cannot grow to the length that a type or attribute asks for
        raise InputError(f"MLIR cannot represent the module: {error}") from None


def _spread(module: ir.Module, counts: Mapping[str, int]) -> ir.Module:
    """Add the numbers of devices to the module, by attribute, which jaxlib's converter leaves out."""
    for name, count in counts.items():
        if count > 1:
            number = ir.IntegerType.get_signless(32, module.context)
            module.operation.attributes[name] = ir.IntegerAttr.get(number, count)
    return module


def _decode(data: bytes) -> str:
    position = data.find(b"\0")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        position = error.start if position < 0 else min(error.start, position)
    if position >= 0:
        raise InputError(
            "this is neither text, MLIR bytecode, a StableHLO portable artifact, HLO nor what jax.export wrote"
            f" (byte 0x{data[position]:02x} at offset {position})"
        )
    return text


def _portable_version(data: bytes) -> tuple[int, ...] | None:
    """The StableHLO version of a portable artifact; None for anything else."""
    found = _PORTABLE.search(data[:64]) if data.startswith(BYTECODE) else None
    return None if found is None else tuple(int(part) for part in found.groups())


def _parse_portable(data: bytes, version: tuple[int, ...], context: ir.Context) -> ir.Module:
    current = stablehlo.get_current_version()
    if version > tuple(int(part) for part in current.split(".")):
        written = ".".join(map(str, version))
        raise InputError(
            f"this artifact is written in StableHLO {written}; jaxlib {jaxlib_version} reads up to {current}",
            help=f"upgrade jaxlib, or export the artifact for version {current}",
        )
    with _captured_stderr() as printed:
        try:
            return stablehlo.deserialize_portable_artifact(context, data)
        except ValueError:
            pass
    detail = re.search(r"error: (.*)", printed[0]) if printed else None
    raise InputError(
        "the StableHLO portable artifact is damaged or cut short" + (f": {detail[1]}" if detail else ""),
        help="copy or export the file again",
    )


# The descriptor belongs to the process: of two threads, one would restore the other's file.
_STANDARD_ERROR = Lock()


@contextmanager
def _captured_stderr() -> Iterator[list[str]]:
    """Capture C++ output on file descriptor 2: the deserialiser prints its errors instead of raising them."""
    printed: list[str] = []
    with _STANDARD_ERROR:
        try:
            saved = os.dup(2)
        except OSError:  # standard error is closed: nothing to keep clean
            yield printed
            return
        if sys.stderr is not None:
            sys.stderr.flush()
        yield from _captured(saved, printed)


def _captured(saved: int, printed: list[str]) -> Iterator[list[str]]:
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield printed
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            file.seek(0)
            printed.append(file.read().decode("utf-8", "replace"))


def _checked(module: ir.Module, data: bytes) -> ir.Module:
    """The module if it is supported, with the shapes that follow from its arguments'. Raises InputError otherwise."""
    try:
        _check(module, data)
    except InputError as error:
        known = with_known_shapes(module) if error.message.startswith(DYNAMIC.partition("{")[0]) else None
        if known is None:
            raise
        _check(known, data)
        return known
    return module


def _check(module: ir.Module, data: bytes) -> None:
    operations = [view.operation for view in module.body.operations]
    if not operations:
        raise InputError("the module is empty: it has no function")
    modules = sum(op.name == "builtin.module" for op in operations)
    if modules:
        raise InputError(
            f"the file holds {modules} modules" if modules > 1 else "the module holds another module",
            help="give exla-opt one module at a time, with its functions directly in it",
        )
    functions = [op for op in operations if op.name == "func.func" and len(op.regions[0].blocks)]
    if not functions:
        raise InputError("the module has no function with a body")
    if all(is_private(function) for function in functions):
        raise InputError(
            "the module has no public function, so nothing in it is used",
            help="one function, usually @main, must not be private",
        )
    if b"__elided__" in data:
        raise InputError(
            "a constant's data was elided when this module was printed",
            help="print it again without an elements limit, or export bytecode",
        )
    for function in functions:
        _check_function(function)


def _check_function(function: ir.Operation) -> None:
    """Raise InputError for the first value of a dynamic or impossible shape, and for regions nested too deep."""
    static: set[ir.Type] = set()

    def check(value: ir.Value, op: ir.Operation) -> None:
        if (kind := value.type) in static:
            return
        if isinstance(kind, ir.UnrankedTensorType) or (
            isinstance(kind, ir.RankedTensorType) and not kind.has_static_shape
        ):
            raise error_at(op.location, DYNAMIC.format(kind), help=BOUNDED if "bounds" in str(kind) else SPECIALISE)
        if isinstance(kind, ir.RankedTensorType) and any(size < 0 for size in kind.shape):
            raise error_at(op.location, f"{kind} has a size below zero: the file is damaged")
        static.add(kind)

    stack = [(function, 0)]
    while stack:
        op, depth = stack.pop()
        if depth > _DEEPEST:
            raise error_at(op.location, f"its regions are nested more than {_DEEPEST:,} deep")
        for result in op.results:
            check(result, op)
        inner: list[ir.Operation] = []
        for region in op.regions:
            for block in region.blocks:
                for argument in block.arguments:
                    check(argument, op)
                inner.extend(view.operation for view in block.operations)
        stack.extend((below, depth + 1) for below in reversed(inner))
