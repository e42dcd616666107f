"""Rewrites programs in jax's own forms, and returns the same form."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jax import export, stages
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.diagnostics import PARSER_FILE
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.runtime import pjrt
from exla_opt.runtime.exported import module_of
from exla_opt.runtime.exported_file import replaced

if TYPE_CHECKING:
    from exla_opt.rewriting import Rewriting

Run = Callable[[ir.Module], "Rewriting"]


def rewritten(program: Any, run: Run) -> tuple[Any, Rewriting]:
    """Rewrite the program's module by `run`; return both outcomes. Raises TypeError for other programs."""
    if isinstance(program, ir.Module):
        found = run(_own(serialise(program, "bytecode")))
        return found.module, found
    if isinstance(program, export.Exported):
        return _exported(program, run)
    if isinstance(program, stages.Lowered):
        found = run(_own(serialise(module_of(program), "bytecode")))
        module = parse_module(PARSER_FILE, serialise(found.module, "bytecode"), module_of(program).context).module
        return pjrt.lowered_with(program, module), found
    raise TypeError(
        "exla_opt.optimize takes text, bytes, an ir.Module, or a result of jax.export.export(...)(...) or "
        f"jax.jit(...).lower(...), not {type(program).__name__}"
    )


def _exported(program: export.Exported, run: Run) -> tuple[export.Exported, Rewriting]:
    def rewrite(module: bytes) -> bytes:
        return serialise(run(_own(module)).module, "portable")

    found = run(_own(program.mlir_module_serialized))
    return replaced(program, serialise(found.module, "portable"), rewrite), found


def _own(data: bytes) -> ir.Module:
    """The module in a context of our own, which has all dialects."""
    return parse_module("<program>", data, new_context()).module
