"""Writes out what big draws of random bits compute, so that a loop can draw its slice alone."""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.types import Types
from exla_opt.ir.values import has_discardable_attributes
from exla_opt.ir.walk import walk_functions
from exla_opt.ops.draw_bits import draw
from exla_opt.ops.traits import Trait, has_trait
from exla_opt.options import Options

# Those whose compilers expand the op in the same way.
_EXPANDING = ("cpu", "gpu")


def expand_draws(module: ir.Module, options: Options) -> bool:
    """Replace draws of big tensors of bits by elementwise ops that compute the same bits; whether there was one."""
    if options.machine.kind not in _EXPANDING:
        return False
    types, found = Types(), False
    draws = [op for op in walk_functions(module.operation) if has_trait(op, Trait.RANDOM)]
    for op in draws:
        if types.of(op.results[-1]).bytes <= options.size_threshold or has_discardable_attributes(op):
            continue
        with ir.InsertionPoint(op), op.location:
            made = draw(op)
        if made is None:
            continue
        for result, value in zip(op.results, made, strict=True):
            result.replace_all_uses_with(value)
        op.erase()
        found = True
    return found
