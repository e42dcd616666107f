"""Gives slices of a shared iota an iota each: iota [n:2n] = iota + n.

Slices of one big iota would have to be cut together, at the iota.
"""

from __future__ import annotations

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integer, integers
from exla_opt.ir.clean_up import clean_up
from exla_opt.ir.types import Types, element_type
from exla_opt.ir.values import has_discardable_attributes
from exla_opt.ir.walk import walk_functions


def count_apart(module: ir.Module, largest: int) -> bool:
    """Give each slice of an integer iota of more than `largest` bytes its own, if only slices of it are read.

    Returns whether anything changed.
    """
    types, found = Types(), False
    for op in [op for op in walk_functions(module.operation) if op.name == "stablehlo.iota"]:
        count = op.results[0]
        readers = [use.owner.operation for use in count.uses]
        is_big = types.of(count).bytes > largest and isinstance(element_type(count), ir.IntegerType)
        if not is_big or len(readers) < 2 or not all(_is_part(reader) for reader in readers):
            continue
        dim = integer(op, "iota_dimension")
        for reader in readers:
            with ir.InsertionPoint(reader), reader.location:
                kind, start = build.tensor_of(reader.results[0]), integers(reader, "start_indices", [])[dim]
                made = stablehlo.iota(kind, dim)
                made = stablehlo.add(made, build.splat(kind, start)) if start else made
            reader.results[0].replace_all_uses_with(made)
            reader.erase()
            found = True
    if found:
        clean_up(module)
    return found


def _is_part(op: ir.Operation) -> bool:
    strides = integers(op, "strides", [])
    return op.name == "stablehlo.slice" and set(strides) == {1} and not has_discardable_attributes(op)
