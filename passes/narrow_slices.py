"""narrow-slices: slices of narrow floats in loops on a CPU, read before the entire tensor is widened.

before:  while { %s = dynamic_slice %table, %i ... }
after:   while { %t, %j = optimization_barrier %table, %i;  %s = dynamic_slice %t, %j ... }

XLA:CPU neither slices nor gathers some narrow floats (`Machine.moves`): it widens the entire operand, and because every
trip of a loop would widen the same, it does so once, before the loop: a second table of twice the bytes. A barrier that
also holds an index of the loop stays in the loop. So does the widening after it, in one kernel with the slice: only the
slice is read and widened. A barrier returns its operands, so no number changes. Nothing is done for other machines,
outside of loops, for a tensor whose wider copy is not above --size-threshold, and if no index is computed in the loop:
then the slice itself moves out of it.
"""

from __future__ import annotations

from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir.types import Types
from exla_opt.ir.walk import inside_out
from exla_opt.memory.operation import moved_type
from exla_opt.options import Options
from exla_opt.remarks import Remark

_READERS = ("stablehlo.dynamic_slice", "stablehlo.gather")
_LOOP = "stablehlo.while"
_WIDE_BYTES = {"f16": 2, "f32": 4}


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Insert barriers before slices of narrow floats in loops of `module`, in place, if it is for a CPU."""
    types = Types()
    for op in inside_out(module, *_READERS):
        if _wide_bytes(op.operands[0], types, options) <= options.size_threshold:
            continue
        if places := _changing_places(op):
            _hold_back(op, places)
    return []


def _wide_bytes(value: ir.Value, types: Types, options: Options) -> int:
    """The bytes of the machine's wider copy of a tensor; 0 if it makes none."""
    kind = types.of(value)
    wide = moved_type(kind.dtype, options.machine)
    return prod(kind.shape) * _WIDE_BYTES[wide] if wide else 0


def _changing_places(op: ir.Operation) -> list[int]:
    """The operands after the first that are computed in a loop around the op, but not around the first operand.

    All of them go through the barrier: it must stay in the innermost loop in which one of them changes.
    """
    outside = _loops_around(op.operands[0])
    loops = [loop for loop in _loops_of(op) if loop not in outside]
    return [
        place
        for place in range(1, len(op.operands))
        if any(loop in loops for loop in _loops_around(op.operands[place]))
    ]


def _loops_around(value: ir.Value) -> list[ir.Operation]:
    """The loops in whose regions a value is computed, from the inside out."""
    owner = value.owner
    if not isinstance(owner, ir.Block):
        return _loops_of(owner.operation)
    outer = owner.owner.operation
    return ([outer] if outer.name == _LOOP else []) + _loops_of(outer)


def _loops_of(op: ir.Operation) -> list[ir.Operation]:
    """The loops whose regions contain an op, from the inside out."""
    found = []
    outer = op.parent
    while outer is not None and outer.name != "builtin.module":
        if outer.name == _LOOP:
            found.append(outer.operation)
        outer = outer.operation.parent
    return found


def _hold_back(op: ir.Operation, places: list[int]) -> None:
    held = [0, *places]
    with op.location, ir.InsertionPoint(op):
        barrier = stablehlo.OptimizationBarrierOp([op.operands[place] for place in held]).operation
    for place, result in zip(held, barrier.results, strict=True):
        op.operands[place] = result
