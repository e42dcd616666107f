"""Portable artifacts: serialised for readers of a given StableHLO version."""

from __future__ import annotations

import io
import re
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir.diagnostics import InputError, error_at

_VERSION = re.compile(r"\d+\.\d+\.\d+")
_VERSIONED_OP = re.compile(r"operation 'vhlo\.(\w+)_v\d+'")


def check_version(version: str) -> None:
    """Raise ValueError for what is not a version of StableHLO, and for one that this jaxlib cannot write."""
    oldest, newest = stablehlo.get_minimum_version(), stablehlo.get_current_version()
    if not _VERSION.fullmatch(version):
        raise ValueError(f"{version!r} is not a version of StableHLO; write it as {newest}")
    if not _numbers(oldest) <= _numbers(version) <= _numbers(newest):
        raise ValueError(f"this jaxlib writes StableHLO {oldest} to {newest}, and not {version}")


def portable_artifact(module: ir.Module, version: str | None = None) -> bytes:
    """The module for readers of this StableHLO version and newer ones; None is the newest. The module is unchanged.

    Ops of chlo and sdy stay as they are. Raises InputError for ops that the version lacks, ValueError like
    `check_version`.
    """
    if version is not None:
        check_version(version)
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    # Serialising converts a module to VHLO in place, so it works on a copy.
    copy = ir.Module.parse(buffer.getvalue(), module.context)
    said: list[tuple[ir.Location, str]] = []

    def hear(diagnostic: ir.Diagnostic) -> bool:
        said.append((diagnostic.location, diagnostic.message))
        return True

    handler: Any = module.context.attach_diagnostic_handler(hear)
    target = stablehlo.get_current_version() if version is None else version
    try:
        artifact: bytes = stablehlo.serialize_portable_artifact(copy, target, True)
    except ValueError:
        if not said:
            raise
        raise _not_in(target, *said[0]) from None
    finally:
        handler.detach()
    return artifact


def _not_in(version: str, location: ir.Location, message: str) -> InputError:
    newest = stablehlo.get_current_version()
    found = _VERSIONED_OP.search(message)
    if found is None:
        first = message.splitlines()[0]
        return error_at(location, f"a portable artifact of StableHLO {version} cannot hold this module: {first}")
    what = f"StableHLO {version} has no stablehlo.{found[1]} as it is used here"
    return error_at(location, what, help=f"ask for a newer version, up to {newest}, or for another form than portable")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
