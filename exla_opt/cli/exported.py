"""Files of jax.export on the command line: reading and writing them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from exla_opt.cli.common import load_jax

if TYPE_CHECKING:  # at run time these are imported inside the functions, for they load MLIR and jax
    from jaxlib.mlir import ir

    from exla_opt.cli.request import Request
    from exla_opt.ir.read import Source


def written_exported(source: Source, module: ir.Module, request: Request) -> bytes:
    """The file of `source` with its rewritten module, and with its derivatives rewritten likewise.

    Raises InputError if `source` was not read from such a file.
    """
    from exla_opt.ir.context import new_context
    from exla_opt.ir.diagnostics import InputError
    from exla_opt.ir.read import parse_module
    from exla_opt.ir.write import serialise
    from exla_opt.rewriting import rewrite

    if not source.exported:
        raise InputError(
            "--emit=jax writes what jax.export.deserialize reads, and needs such a file as its input",
            file=source.name,
            help="write exported.serialize() to a file, and give that",
        )
    load_jax(uses_gpu=request.target == "cuda")
    from exla_opt.runtime.exported_file import with_module

    def rewritten(derivative: bytes) -> bytes:
        parsed = parse_module(source.name, derivative, new_context()).module
        found = rewrite(parsed, request.options, request.limit, request.target, request.passes)
        return serialise(found.module, "portable")

    return with_module(source.exported, serialise(module, "portable"), rewritten)
