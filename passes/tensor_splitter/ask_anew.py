"""Repeats a pick in a later loop that compares its result with the tensor that it was picked from.

    m = min(d, rows); g = f(sum(m)); use(d == m, g)   ->   m = min(d); g = f(sum(m)); use(d' == min(d'), g)

The gradient of a minimum is where the tensor equals it. If that also depends on a function of all the minima, like the
gradient of the root of their mean, it runs in a second loop, which would have to recompute exactly the bits of the
first. It need not: it has the entire row, and can find the minimum of the recomputed values. d' is d recomputed, and in
one loop the compiler merges both.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from jaxlib.mlir import ir

from exla_opt.ir.walk import all_blocks
from exla_opt.ops.comparisons import asks
from exla_opt.ops.reducers import selects
from exla_opt.ops.traits import Trait, has_trait
from exla_opt.options import Options

from .copies import BlockOps, copy_behind, may_be_copied

# The maximum number of picks of a block that are repeated.
_MOST_PICKS = 8


@dataclass(frozen=True, slots=True)
class _Pick:
    """asking: the ops that compare with the picked value. copied: the ops to repeat, whose results they read."""

    asking: list[ir.Operation]
    copied: list[ir.Operation]


def ask_anew(module: ir.Module, options: Options) -> bool:
    """Repeat picks if a comparison depends on all picks; return whether there was such a pick."""
    answered: set[ir.Value] = set()
    for block in list(all_blocks(module)):
        for _ in range(_MOST_PICKS):
            pick = _Picks(block, options.size_threshold).find(answered)
            if pick is None:
                break
            _copy(pick)
            answered.update(op.results[0] for op in pick.asking)
    return bool(answered)


class _Picks(BlockOps):
    """Finds such picks in a block."""

    def find(self, answered: Container[ir.Value]) -> _Pick | None:
        """The first one. answered: the results of the comparisons that have their own picks."""
        for place, op in enumerate(self.ops):
            if not has_trait(op, Trait.REDUCES) or not selects(op) or not self.is_big(op.operands):
                continue
            moved, asking, others = self.questions_about(op)
            asking = [each for each in asking if each.results[0] not in answered]
            if not asking or not others or not self.waits(place, moved, asking):
                continue
            copied = self.copied_for(place, asking)
            if copied:
                return _Pick(asking, copied)
        return None

    def questions_about(self, pick: ir.Operation) -> tuple[set[ir.Value], list[ir.Operation], bool]:
        """The picked value and its moved copies, the ops that compare those with a big tensor, and whether anything
        else reads them: if not, it was picked for these comparisons."""
        moved: set[ir.Value] = set(pick.results)
        asking: list[ir.Operation] = []
        others = False
        queue: list[ir.Value] = list(pick.results)
        while queue:
            for use in queue.pop().uses:
                op = use.owner.operation
                if op in asking:
                    continue
                if op.block == pick.block and has_trait(op, Trait.MOVES) and len(op.operands) == 1:
                    moved.update(op.results)
                    queue += op.results
                elif op.block == pick.block and not len(op.regions) and self.is_big(op.operands) and asks(op):
                    asking.append(op)
                else:
                    others = True
        return moved, asking, others

    def waits(self, place: int, moved: set[ir.Value], asking: list[ir.Operation]) -> bool:
        """Whether something big depends both on a comparison and on many picks: a loop must end in between."""
        answers = {result for op in asking for result in op.results}
        of_one, of_many = set(moved), set[ir.Value]()
        for op in self.ops[place + 1 :]:
            many = not of_many.isdisjoint(op.operands)
            if not answers.isdisjoint(op.operands):
                if many and len(op.results) and self.is_big((*op.operands, *op.results)):
                    return True
                answers.update(op.results)
                of_many.update(op.results if many else ())
            elif many or not of_one.isdisjoint(op.operands):
                alone = has_trait(op, Trait.POINTWISE) or has_trait(op, Trait.MOVES)
                (of_many if many or not alone else of_one).update(op.results)
        return False

    def copied_for(self, place: int, asking: list[ir.Operation]) -> list[ir.Operation]:
        """The comparisons' operands, from the pick's big sources on; empty if one may not be copied."""
        pick = self.ops[place]
        first = self.ancestors(pick.results[0])
        read = {each for op in asking for value in op.operands for each in self.ancestors(value)}
        anew: set[ir.Value] = set()
        copied: list[ir.Operation] = []
        for each in sorted(read):
            op = self.ops[each]
            if not (each in first and self.is_big(op.results)) and anew.isdisjoint(op.operands):
                continue
            if not may_be_copied(op) or asks(op):
                return []
            copied.append(op)
            anew.update(op.results)
        return copied if anew.issuperset(pick.results) else []


def _copy(pick: _Pick) -> None:
    copies: dict[ir.Value, ir.Value] = {}
    for op in pick.copied:
        copies.update(copy_behind(op, copies))
    for op in pick.asking:
        for index, value in enumerate(op.operands):
            op.operands[index] = copies.get(value, value)
