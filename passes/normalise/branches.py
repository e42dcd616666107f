"""Replaces a case or an if with a known branch by that branch."""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.walk import BRANCHES, inside_out
from exla_opt.ops.known import known_number


def take_known_branches(module: ir.Module) -> bool:
    """Replace each case and if whose index is computed from constants by its branch; return whether there was one.

    An index out of range selects the last branch of a case. JAX writes the diagonal of a matrix in this way.
    """
    changed = False
    for op in inside_out(module, *BRANCHES):
        branch = _known_branch(op)
        if branch is not None:
            _take(op, branch)
            changed = True
    return changed


def _known_branch(op: ir.Operation) -> ir.Block | None:
    chosen = known_number(op.operands[0])
    if len(op.attributes) or chosen is None:
        return None
    if op.name == "stablehlo.if":
        number = 0 if chosen else 1
    else:
        number = chosen if 0 <= chosen < len(op.regions) else len(op.regions) - 1
    block: ir.Block = op.regions[number].blocks[0]
    return block


def _take(op: ir.Operation, branch: ir.Block) -> None:
    *inner, last = [view.operation for view in branch.operations]
    for moved in inner:
        moved.move_before(op)
    for old, new in zip(op.results, last.operands, strict=True):
        old.replace_all_uses_with(new)
    op.erase()
