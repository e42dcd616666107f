"""The bytes that a local program sends to other devices, counted on its ops."""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.loops import trip_count
from exla_opt.ir.types import Types
from exla_opt.ir.walk import CONTROL_FLOW, operations_of
from exla_opt.ops.traits import Trait, has_trait

# The tolerance for traffic: compilers may differ by as much for equal programs.
MORE = 1.02


def bytes_sent(module: ir.Module) -> int:
    """The larger of the bytes read and written by each collective, summed; those in loops once per trip.

    A loop with an unknown trip count counts as one trip. Linear in the ops.
    """
    types = Types()
    return sum(
        _of(block, types)
        for function in operations_of(module.body)
        for region in function.regions
        for block in region.blocks
    )


def _of(block: ir.Block, types: Types) -> int:
    total = 0
    for op in operations_of(block):
        if has_trait(op, Trait.COLLECTIVE):
            read, written = (sum(types.of(value).bytes for value in values) for values in (op.operands, op.results))
            total += max(read, written)
        elif op.name in CONTROL_FLOW:
            inner = [_of(region.blocks[0], types) for region in op.regions]
            trips = trip_count(op) if op.name == "stablehlo.while" else None
            total += sum(inner) * (trips or 1) if op.name == "stablehlo.while" else max(inner, default=0)
    return total
