"""normalise: one flat function without leftovers, which is what the other passes expect.

before:  %1 = call @f(%0)   private @f   a while that carries a value it never changes   x + x twice   case 0
after:   the body of @f in place   no @f   the value captured from outside   x + x once   its first branch

Applies to every function and every region. Inlines calls and loops of one trip, unpacks tuples that calls return,
merges equal counters of loops and reads what they leave, takes the branches that constants select, turns iota
components of indices into batching dimensions and windows at known positions into slices, splits the indices of a
gather instead of its batch, drops dead private functions, dead ops, copies (`mhlo.copy`) and loop-invariant carries,
and merges equal ops. Refuses recursion (InputError). Leaves chlo ops, locations, signatures, argument, result and
module attributes and symbol names alone. It is idempotent.
"""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.clean_up import clean_up
from exla_opt.ir.copies import drop_copies
from exla_opt.ir.loops import drop_carries
from exla_opt.ir.tuples import unpack_tuples
from exla_opt.ir.walk import inside_out, terminator
from exla_opt.options import Options
from exla_opt.remarks import Remark

from .branches import take_known_branches
from .composites import restore_chlo_ops
from .constant_windows import read_constant_windows
from .counters import merge_counters, read_counters
from .counting_indices import count_batches
from .index_batches import split_batches
from .inline import inline_calls
from .short_loops import inline_short_loops


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Normalise `module` in place. Raises InputError for recursive calls."""
    restore_chlo_ops(module)
    drop_copies(module)
    inline_calls(module)
    unpack_tuples(module)
    take_known_branches(module)
    clean_up(module)
    # Constants that one of them creates can be used by the other.
    while merge_counters(module) | _capture_invariants(module) or read_counters(module) or inline_short_loops(module):
        clean_up(module)
    # Windows at known positions first: those are iotas as well.
    if read_constant_windows(module) + count_batches(module) + split_batches(module):
        clean_up(module)
    while drop_copies(module):  # merged reshapes may be to the same shape
        clean_up(module)
    return []


def _capture_invariants(module: ir.Module) -> bool:
    """Turn invariant carries into captured values; inner loops first, since that frees outer carries."""
    changed = False
    for loop in inside_out(module, "stablehlo.while"):
        if invariant := _invariant_carries(loop):
            drop_carries(loop, invariant)
            changed = True
    return changed


def _invariant_carries(loop: ir.Operation) -> list[int]:
    """The carries that the body returns unchanged. Empty if the loop should be left alone."""
    if len(loop.attributes):  # such as a sharding, which has one entry per carry
        return []
    body = loop.regions[1].blocks[0]
    returned = terminator(body).operands
    found = [index for index, argument in enumerate(body.arguments) if returned[index] == argument]
    # A loop must carry something; one that carries only constants ends at once or never, and is left alone.
    return found if len(found) < len(loop.operands) else []
