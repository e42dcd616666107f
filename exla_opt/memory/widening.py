"""Ops on floats that XLA:CPU has no arithmetic for: it widens all operands, and rounds the results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from jaxlib.mlir import ir

from exla_opt.ir.walk import captured_values

from .block import Operation
from .builder import Builder
from .machine import Machine
from .operation import moved_type, widened_type
from .products import add_rounded, is_read_wide

Append = Callable[[Builder, ir.Operation, Operation], None]

# Ops in kernels of their own, or of libraries. Ops fused with their readers and operands are widened there, element by
# element, and products and reductions as their libraries need it.
_COMPUTED = frozenset(("reduce_window",))
_MOVED = frozenset("concatenate scatter sort top_k".split())


def is_widened(builder: Builder, made: Operation, machine: Machine) -> bool:
    """Whether the machine widens an op's operands before it, and rounds its results after it."""
    dtypes = builder.block.dtypes
    return any(_wider(made, dtypes[value], machine) for value in (*made.operands, *made.results))


def _wider(made: Operation, dtype: str, machine: Machine) -> str:
    """The element type to which an op's floats of a type are widened; "" if they are not."""
    if made.name in _MOVED:
        return moved_type(dtype, machine)
    return widened_type(dtype) if made.name in _COMPUTED and machine.widens else ""


def add_widened(builder: Builder, op: ir.Operation, made: Operation, machine: Machine, append: Append) -> None:
    """Append, with `append`, the op on wider floats, and the ops that widen and round."""
    block = builder.block
    operands, results = list(made.operands), list(made.results)
    for side, narrow in enumerate(operands):
        dtype = _wider(made, block.dtypes[narrow], machine) if block.shapes[narrow] else ""
        if not dtype:
            continue
        operands[side] = builder.widened(narrow, op.results[0], dtype)
        if narrow in builder.viewed:  # the copy is the one read in another shape
            builder.viewed.add(operands[side])
            builder.plain.add(narrow)
    for side, (result, value) in enumerate(zip(made.results, op.results, strict=True)):
        dtype = _wider(made, block.dtypes[result], machine)
        if dtype == "f32" and result == builder.of(value) and is_read_wide(value):
            builder.make_wide(result)  # nothing is rounded in between
        elif dtype:
            results[side] = builder.fresh_wide(result, value, dtype)
    captures = builder.all_of(captured_values(op)) if len(op.regions) else ()
    wide = replace(made, operands=tuple(operands), results=tuple(results), captures=captures, narrow=frozenset())
    append(builder, op, wide)
    for own, result in zip(results, made.results, strict=True):
        if own != result:
            add_rounded(builder, own, result)
