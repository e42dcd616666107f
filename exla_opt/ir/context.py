"""The MLIR context: our own, never one of jax's, so that no flag leaks between the two."""

from __future__ import annotations

from functools import cache

from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import chlo, mhlo, sdy, stablehlo


@cache
def _register_passes() -> None:
    """Pass registration is global to the process and must happen once."""
    stablehlo.register_stablehlo_passes()
    mhlo.register_mhlo_passes()


def new_context() -> ir.Context:
    """A new context with the dialects of XLA programs.

    Unregistered dialects stay forbidden: an unknown op could not be compiled, either.
    """
    _register_passes()
    context = ir.Context()
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    for dialect in (sdy, chlo, stablehlo):
        dialect.register_dialect(context)
    mhlo.register_mhlo_dialect(context)
    return context
