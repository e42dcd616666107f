"""Gives every reader of a broadcast its own one, so that dimensions of equal length are not taken for one dimension.

%z = broadcast 0 : 64xf32    →    %z = broadcast 0 : 64xf32    %z2 = broadcast 0 : 64xf32
add %x, %z   add %y, %z           add %x, %z                   add %y, %z2
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir

from exla_opt.ir.attributes import is_splat
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import all_blocks

_LENGTHENED = frozenset("stablehlo.broadcast_in_dim stablehlo.iota chlo.constant stablehlo.constant".split())
_PASSED_ON = frozenset("stablehlo.reshape stablehlo.convert".split())


def separate_broadcasts(module: ir.Module) -> list[list[ir.Operation]]:
    """Copy constants of one value, iotas and broadcasts for each of their uses, in place; return the copies of each op.

    Each list begins with the op itself. Its number of ops grows by that of the uses.
    """
    copies = []
    for block in list(all_blocks(module)):
        for view in reversed(list(block.operations)):  # readers first: their copies are uses as well
            op = view.operation
            if _is_separable(op):
                copies.append(_copied_for_uses(op))
    return [each for each in copies if len(each) > 1]


def join_broadcasts(copies: Sequence[Sequence[ir.Operation]]) -> None:
    """Undo `separate_broadcasts` where copies still have the same type: XLA plans other memory for more ops."""
    for ops in copies:
        first: dict[ir.Type, ir.Operation] = {}
        for op in ops:
            kept = first.setdefault(op.results[0].type, op)
            if kept is not op:
                op.results[0].replace_all_uses_with(kept.results[0])
    for ops in copies:  # readers first, as above
        for op in ops:
            if next(iter(op.results[0].uses), None) is None:
                op.erase()


def _is_separable(op: ir.Operation) -> bool:
    """Whether the op, or what it reads, creates elements. To resize complex constants replaces them: they stay."""
    if op.name.endswith(".constant"):
        is_complex = isinstance(ir.RankedTensorType(op.results[0].type).element_type, ir.ComplexType)
        return op.name in _LENGTHENED and is_splat(op) and not is_complex
    if op.name in _PASSED_ON:
        source = defining_op(op.operands[0])
        return source is not None and _is_separable(source)
    return op.name in _LENGTHENED


def _copied_for_uses(op: ir.Operation) -> list[ir.Operation]:
    uses = [(use.owner, use.operand_number) for use in op.results[0].uses]
    copies = [op]
    for user, number in uses[1:]:
        copies.append(op.clone(ip=ir.InsertionPoint(op)).operation)
        user.operands[number] = copies[-1].results[0]
    return copies
