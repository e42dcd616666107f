"""Contracts the terms of a big sum separately, if each makes equality tests along its own direction.

    f(a(%d) + b(%d))  ->  f(a(%d) + 0) + f(0 + b(%d'))      f: linear, as products and sums are; %d': a copy of %d

The gradient of a minimum is where the tensor equals it, so a loop must see all elements that the minimum is taken of.
Tensors compared along their rows are cut between rows, and those compared along columns between columns: the distances
of two sets of points, each point to the nearest of the other set, can be cut neither way, but each half of their
gradient can.

NOTE [What is made twice]: ops that both terms use would join them again, so the second term depends on copies. No copy
may be compared with an original, as loops round differently: everything that depends on a big shared tensor is copied
with it. And a comparison is made once: the readers of its result are copied, or nothing is. Other big factors of the
sum would join them as well: they are copied too, unless they compare or take long.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.types import Types, element_type, float_bits
from exla_opt.ir.values import defining_op, has_discardable_attributes
from exla_opt.ir.walk import all_blocks
from exla_opt.ops.comparisons import asks
from exla_opt.ops.partial_sums import is_zero, linear_operands
from exla_opt.ops.traits import Trait, has_trait
from exla_opt.options import Options

from .copies import BlockOps, copy_behind, may_be_copied

# Sums of up to this many terms are distributed, one by one.
_MOST_TERMS = 8
# A narrower float is rounded at every addition.
_LEAST_BITS = 32


@dataclass(frozen=True, slots=True)
class _Sum:
    """A sum of two terms and the ops that depend on it.

    linear: the ops that are linear in the sum, in order, up to those with small results. copied: the ops that the
    second term depends on, from the big tensors on that the first one also depends on, and those that compute the big
    factors of the sum.
    """

    op: ir.Operation
    linear: list[ir.Operation]
    copied: list[ir.Operation]


def distribute_sums(module: ir.Module, options: Options) -> bool:
    """Distribute sums over the threshold whose terms compare different tensors; return whether there was one."""
    if not options.reassociate:
        return False
    found = False
    for block in list(all_blocks(module)):
        for _ in range(_MOST_TERMS):
            taken = _Sums(block, options.size_threshold).find()
            if taken is None:
                break
            _distribute(taken, options.size_threshold)
            found = True
    return found


class _Sums(BlockOps):
    """Finds such sums in a block."""

    def find(self) -> _Sum | None:
        """The first sum that can and should be distributed: each term has comparisons that the other lacks."""
        questions = self.questions()
        for place, op in enumerate(self.ops):
            if not self.is_sum(op):
                continue
            one, other = (questions.get(value, 0) for value in op.operands)
            if not one & ~other or not other & ~one:
                continue
            linear = self.linear_behind(place)
            copied = self.copied_for(place, self.factors_of(place, linear)) if linear else []
            if copied:
                return _Sum(op, linear, copied)
        return None

    def questions(self) -> dict[ir.Value, int]:
        """By tensor, the comparisons of big tensors that it depends on, as bits."""
        found: dict[ir.Value, int] = {}
        number = 0
        for op in self.ops:
            asked = 0
            for value in op.operands:
                asked |= found.get(value, 0)
            if not len(op.regions) and self.is_big(op.operands) and asks(op):
                asked |= 1 << number
                number += 1
            found.update(dict.fromkeys(op.results, asked))
        return found

    def is_sum(self, op: ir.Operation) -> bool:
        """Whether an op adds or subtracts two big tensors."""
        if len(op.operands) != 2 or not has_trait(op, Trait.POINTWISE) or has_discardable_attributes(op):
            return False
        if not self.is_big(op.results) or op.operands[0] == op.operands[1]:
            return False
        return float_bits(element_type(op.results[0])) >= _LEAST_BITS and linear_operands(op, (0, 1)) == (0, 1)

    def linear_behind(self, start: int) -> list[ir.Operation]:
        """The ops that compute small tensors from a sum, in order; empty if one of them is not linear in it."""
        inside = {self.ops[start].results[0]}
        found: list[ir.Operation] = []
        reads = 0
        for op in self.ops[start + 1 :]:
            places = [index for index, value in enumerate(op.operands) if value in inside]
            if not places:
                continue
            if len(op.results) != 1 or has_discardable_attributes(op):
                return []
            needed = linear_operands(op, places)
            if needed is None or float_bits(element_type(op.results[0])) < _LEAST_BITS:
                return []
            if not all(index in places or is_zero(op.operands[index]) for index in needed):
                return []
            found.append(op)
            reads += len(places)
            if self.is_big(op.results):
                inside.add(op.results[0])
        # Readers in a region, and the terminator, need the sum itself.
        return found if reads == sum(1 for value in inside for _ in value.uses) else []

    def factors_of(self, place: int, linear: Iterable[ir.Operation]) -> set[int]:
        """The positions of the ops that compute the big factors of a sum, if they may be copied."""
        inside = {self.ops[place].results[0], *(op.results[0] for op in linear)}
        others = {value for op in linear for value in op.operands if value not in inside and self.is_big((value,))}
        found: set[int] = set()
        for value in others:
            made_by = self.ancestors(value)
            if all(may_be_copied(self.ops[each]) and not asks(self.ops[each]) for each in made_by):
                found |= made_by
        return found

    def copied_for(self, place: int, factors: set[int]) -> list[ir.Operation]:
        """The ops to copy for the second term of a sum; empty if one of them may not be copied."""
        first, second = (self.ancestors(value) | factors for value in self.ops[place].operands)
        copied = self.compared_or_big(first, second)
        if not all(map(may_be_copied, copied)):
            return []
        answers: dict[ir.Value, int] = {}  # comparisons and their dependents, with the number of readers here
        for op in copied:
            for value in op.operands:
                if value in answers:
                    answers[value] += 1
            if asks(op) or any(value in answers for value in op.operands):
                answers.update(dict.fromkeys(op.results, 0))
        last = self.ops[place].operands[1]
        is_closed = all(readers + (value == last) == sum(1 for _ in value.uses) for value, readers in answers.items())
        return copied if is_closed else []

    def compared_or_big(self, first: set[int], second: set[int]) -> list[ir.Operation]:
        """The ops that both terms depend on: all big ones, and the small ones that lead to a comparison of a big
        tensor, or depend on its result."""
        anew: set[ir.Value] = set()
        shared: list[ir.Operation] = []
        for each in sorted(second):
            op = self.ops[each]
            if (each in first and self.is_big(op.results)) or not anew.isdisjoint(op.operands):
                shared.append(op)
                anew.update(op.results)
        compared: set[ir.Value] = set()
        answered: set[ir.Value] = set()
        for op in shared:
            if (asks(op) and self.is_big(op.operands)) or not answered.isdisjoint(op.operands):
                answered.update(op.results)
        for op in reversed(shared):
            if (asks(op) and self.is_big(op.operands)) or not compared.isdisjoint(op.results):
                compared.update(op.operands)
        return [
            op
            for op in shared
            if self.is_big(op.results) or not answered.isdisjoint(op.results) or not compared.isdisjoint(op.results)
        ]


def _distribute(taken: _Sum, most: int) -> None:
    """Write both terms, and add their contractions."""
    copies: dict[ir.Value, ir.Value] = {}
    for op in taken.copied:
        copies.update(copy_behind(op, copies))
    op, [first, second] = taken.op, taken.op.operands
    with ir.InsertionPoint(op), op.location:
        nothing = build.zeros(op.results[0].type)
    copies.update(copy_behind(op, {first: nothing, second: copies.get(second, second)}))
    op.operands[1] = nothing
    types = Types()
    for each in taken.linear:
        copies.update(copy_behind(each, copies))
        [result] = each.results
        if types.of(result).bytes > most:
            continue
        made = copies.pop(result)
        after = defining_op(made)
        assert after is not None
        with ir.InsertionPoint.after(after), each.location:
            total = stablehlo.add(result, made)
        result.replace_all_uses_except(total, total.owner.operation)
    for each in reversed(taken.copied):
        if not any(True for result in each.results for _ in result.uses):
            each.erase()
