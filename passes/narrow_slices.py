"""narrow-slices: slices of narrow floats in loops on a CPU, read before all of the tensor is widened.

before:  while { %s = dynamic_slice %table, %i ... }
after:   while { %t, %j = optimization_barrier %table, %i;  %s = dynamic_slice %t, %j ... }

XLA:CPU neither slices nor gathers some narrow floats (`Machine.moves`): it widens the operand, all of it, and because
every trip of a loop would widen the same, it does so once, before the loop: a second table of twice the bytes. A
barrier through which an index of the loop goes stays in the loop. What widens behind it stays too, and is one kernel
with the slice: only what the slice takes is read and widened. A barrier returns what it is given, so no number
changes. Nothing is done for other machines, outside of loops, for a tensor whose wider copy is not above
--size-threshold, and where no index is made in the loop: there the slice itself moves out of it.
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
    """Put barriers before the slices that `module` takes of narrow floats in loops, in place, if it is for a CPU."""
    types = Types()
    for op in inside_out(module, *_READERS):
        if _wide_bytes(op.operands[0], types, options) <= options.size_threshold:
            continue
        if places := _changing_places(op):
            _hold_back(op, places)
    return []


def _wide_bytes(value: ir.Value, types: Types, options: Options) -> int:
    """The bytes of the wider copy that the machine would make of a tensor; 0 where it makes none."""
    kind = types.of(value)
    wide = moved_type(kind.dtype, options.machine)
    return prod(kind.shape) * _WIDE_BYTES[wide] if wide else 0


def _changing_places(op: ir.Operation) -> list[int]:
    """The operands besides the first that are made in a loop, of the loops around the op that the first one is not.

    All of them go through the barrier: it has to stay in the innermost loop in which one of them changes.
    """
    outside = _loops_around(op.operands[0])
    loops = [loop for loop in _loops_of(op) if loop not in outside]
    return [
        place
        for place in range(1, len(op.operands))
        if any(loop in loops for loop in _loops_around(op.operands[place]))
    ]


def _loops_around(value: ir.Value) -> list[ir.Operation]:
    """The loops in whose regions a value is made, from the inside out."""
    owner = value.owner
    if not isinstance(owner, ir.Block):
        return _loops_of(owner.operation)
    outer = owner.owner.operation
    return ([outer] if outer.name == _LOOP else []) + _loops_of(outer)


def _loops_of(op: ir.Operation) -> list[ir.Operation]:
    """The loops in whose regions an op stands, from the inside out."""
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
