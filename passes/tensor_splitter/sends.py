"""Lets collectives be cut like other ops: each tile of a loop sends its part.

    %y = all_reduce(%x)              for each slice of %x:
    use(%y)                   ->         use(all_reduce(slice))

Ops that communicate end a region otherwise, so in a network of which every layer adds up over devices, all those sums
are stored. All devices run the same tiles in the same order, and together the tiles send as many bytes as before. They
send them in more messages, so the driver tries this only where a program needs too much without it.
"""

from __future__ import annotations

from collections.abc import Iterator

from jaxlib.mlir import ir

from exla_opt.ir.types import Types
from exla_opt.ir.walk import walk_functions
from exla_opt.ops.collectives import MARK
from exla_opt.ops.traits import Trait, has_trait
from exla_opt.options import Options


def sends_big_tensors(module: ir.Module, options: Options) -> bool:
    """Whether the result of a collective is over the threshold."""
    types = Types()
    results = (result for op in _collectives(module) for result in op.results)
    return any(types.of(result).bytes > options.size_threshold for result in results)


def send_slices(module: ir.Module, options: Options) -> bool:
    """Mark the collectives, so that their rules allow a cut; return whether there are any."""
    found = list(_collectives(module))
    for op in found:
        op.attributes[MARK] = ir.UnitAttr.get(op.context)
    return bool(found)


def remove_marks(module: ir.Module) -> None:
    """Remove the marks of `send_slices`."""
    for op in _collectives(module):
        if MARK in op.attributes:
            del op.attributes[MARK]


def _collectives(module: ir.Module) -> Iterator[ir.Operation]:
    return (op for op in walk_functions(module.operation) if has_trait(op, Trait.COLLECTIVE))
