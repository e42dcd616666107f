"""order-statistics: sorts with few elements read, medians and quantiles -> found by counting, without a sort.

    sort(x)[k]   ->   while: how many elements of x are below each of 15 numbers; 4 more bits of the k-th are known

Applies to sorts of a big tensor, along a dimension that is too long for one slice, of which slices and gathers read at
most 30 elements, at known or computed positions. The tensor is recomputed in every pass if that takes about as long as
the sort or less, so that the splitter can cut it there. The element found is the one that the sort puts there, to the
bit, except for the sign of a zero among zeros of both signs, and the bits of a NaN. Refuses, with a remark, an order
that is not known to be total, sorts that move other tensors along of which elements are read, and elements that are
compared with the tensor that they were selected from.
"""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.attributes import devices_of
from exla_opt.ir.locations import describe
from exla_opt.ir.order import restore_order
from exla_opt.ir.types import Types
from exla_opt.ir.walk import all_blocks, operations_of
from exla_opt.ops.effects import has_order
from exla_opt.options import Options
from exla_opt.remarks import Kind, Reason, Remark

from .candidate import Candidate, Refusal, candidate_of
from .selection import write

NAME = "order-statistics"
_SORT = "stablehlo.sort"


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Replace the sorts of which few elements are read; return the remarks."""
    if devices_of(module) > 1:
        return []
    types = Types()
    remarks: list[Remark] = []
    for block in list(all_blocks(module)):
        sorts = [op for op in operations_of(block) if op.name == _SORT]
        replaced = [_replace(sort, options, types, remarks) for sort in sorts]
        if any(replaced):
            restore_order(block, has_order)
    return remarks


def _replace(sort: ir.Operation, options: Options, types: Types, remarks: list[Remark]) -> bool:
    """Replace a sort, if possible; adds to `remarks`. The ops may be out of order then."""
    found = candidate_of(sort, options, types)
    if found is None:
        return False
    if isinstance(found, Refusal):
        reason = Reason(found.reason.code, f"not found by counting: {found.reason.text}")
        remarks.append(_remark(sort, Kind.MISSED, reason, types))
        return False
    remarks.append(_remark(sort, Kind.PASSED, _what_was_done(found), types))
    write(found)
    _erase(sort)
    return True


def _erase(sort: ir.Operation) -> None:
    """Erase the sort and all its readers, which are unused."""
    for result in sort.results:
        for op in [use.owner.operation for use in result.uses]:
            _erase(op)
    sort.erase()


def _what_was_done(candidate: Candidate) -> Reason:
    count = sum(reader.count for reader in candidate.reads.few)
    what = "element is" if count == 1 else "elements are"
    return Reason("EX008", f"not sorted: {count} {what} found by counting, in {candidate.passes} passes")


def _remark(sort: ir.Operation, kind: Kind, reason: Reason, types: Types) -> Remark:
    tensor = max((types.of(result) for result in sort.results), key=lambda each: each.bytes)
    return Remark(kind, reason.code, NAME, str(tensor), tensor.bytes, describe(sort), reason.text)
