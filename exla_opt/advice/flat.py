"""The copy of a module that advice changes: as it came, but with its calls inlined, as XLA inlines them."""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.rewrite import copy_of
from exla_opt.passes.normalise.composites import restore_chlo_ops
from exla_opt.passes.normalise.inline import inline_calls


def flat_copy(module: ir.Module) -> ir.Module:
    """A copy without calls. `normalise` would do more, and change the peak by itself.

    Raises InputError for recursive calls.
    """
    copy = copy_of(module)
    restore_chlo_ops(copy)
    inline_calls(copy)
    return copy
