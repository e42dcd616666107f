"""Files written by `jax.export.Exported.serialize`: read the module, or replace it."""

from __future__ import annotations

import dataclasses

from jax import export

from exla_opt.ir.diagnostics import InputError
from exla_opt.runtime.exported import Rewrite


def module_in(data: bytes) -> bytes:
    """The module of an exported function, as a portable artifact. Raises InputError for a damaged file."""
    return _read(data).mlir_module_serialized


def with_module(data: bytes, module: bytes, rewrite: Rewrite) -> bytes:
    """The file with another module of the same signature; `rewrite` rewrites the derivatives stored in it.

    Raises whatever `rewrite` raises.
    """
    exported = _read(data)
    order, last = 0, exported
    while last.has_vjp():
        order, last = order + 1, last.vjp()
    return bytes(replaced(exported, module, rewrite).serialize(vjp_order=order))


def replaced(exported: export.Exported, module: bytes, rewrite: Rewrite) -> export.Exported:
    """The function with another module; `rewrite` rewrites its derivatives on demand."""

    def derivative(_: export.Exported) -> export.Exported:
        found = exported.vjp()
        return replaced(found, rewrite(found.mlir_module_serialized), rewrite)

    return dataclasses.replace(
        exported, mlir_module_serialized=module, _get_vjp=derivative if exported.has_vjp() else None
    )


def _read(data: bytes) -> export.Exported:
    try:
        return export.deserialize(bytearray(data))
    except ImportError:
        raise InputError("reading what jax.export wrote needs flatbuffers", help="pip install flatbuffers") from None
    except Exception as error:  # flatbuffers passes on the errors of struct
        what = f"{type(error).__name__}: {error}"
        raise InputError(f"jax cannot read this exported function ({what})", help="export it again") from None
