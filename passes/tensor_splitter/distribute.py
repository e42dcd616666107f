"""Contracts the terms of a big sum one by one, where each asks for equality about its own direction.

    f(a(%d) + b(%d))  ->  f(a(%d) + 0) + f(0 + b(%d'))      f: linear, as products and sums are; %d': %d once more

The gradient of a minimum is where the tensor equals it, so a loop must see all that the minimum is taken of. What is
compared along its rows is cut between them, and what is compared along its columns between those: the distances of two
sets of points, each point to the nearest of the other set, can be cut neither way, but each half of their gradient can.

NOTE [What is made twice]: what both terms are made of would join them again, so the second term is made of copies.
No copy may be compared with an original, for loops round in their own ways: all that a big shared tensor leads to
is copied with it. And a question is asked once: who reads its answer is copied, or there is no copy at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.types import Types, element_type, float_bits
from exla_opt.ir.values import defining_op, has_discardable_attributes
from exla_opt.ir.walk import all_blocks, operations_of
from exla_opt.ops.comparisons import asks
from exla_opt.ops.effects import may_be_merged
from exla_opt.ops.partial_sums import is_zero, linear_operands
from exla_opt.ops.traits import Trait, has_trait
from exla_opt.options import Options

# A sum of so many terms is taken apart, one by one.
_MOST_TERMS = 8
# A float of fewer bits is rounded wherever it is added.
_LEAST_BITS = 32


# Not made twice: what no second one may be of, or what takes long.
_MADE_ONCE = (Trait.CONTROL_FLOW, Trait.LIBRARY)


@dataclass(frozen=True, slots=True)
class _Sum:
    """A sum of two terms and what is computed of it.

    linear: the ops that are linear in the sum, in order, up to those with small results. copied: the ops that the
    second term is made of, from the big tensors on that the first one is made of as well.
    """

    op: ir.Operation
    linear: list[ir.Operation]
    copied: list[ir.Operation]


def distribute_sums(module: ir.Module, options: Options) -> bool:
    """Take apart the sums over the threshold whose terms ask about different tensors; whether there was one."""
    if not options.reassociate:
        return False
    found = False
    for block in list(all_blocks(module)):
        for _ in range(_MOST_TERMS):
            taken = _Block(block, options.size_threshold).find()
            if taken is None:
                break
            _distribute(taken, options.size_threshold)
            found = True
    return found


class _Block:
    """A block as it stands, its ops by their places. most: bytes, over which a tensor is big."""

    def __init__(self, block: ir.Block, most: int):
        self.ops = operations_of(block)
        self.types, self.most = Types(), most
        self.place: dict[ir.Value, int] = {}
        for place, op in enumerate(self.ops):
            self.place.update(dict.fromkeys(op.results, place))

    def is_big(self, values: Iterable[ir.Value]) -> bool:
        """Whether one of the tensors is."""
        return any(self.types.of(value).bytes > self.most for value in values)

    def find(self) -> _Sum | None:
        """The first sum that can be taken apart, and should be: each term asks for what the other does not."""
        questions = self.questions()
        for place, op in enumerate(self.ops):
            if not self.is_sum(op):
                continue
            one, other = (questions.get(value, 0) for value in op.operands)
            if not one & ~other or not other & ~one:
                continue
            linear = self.linear_behind(place)
            copied = self.copied_for(place) if linear else []
            if copied:
                return _Sum(op, linear, copied)
        return None

    def questions(self) -> dict[ir.Value, int]:
        """By tensor the ops that ask for what it is made of, a bit for each that asks about something big."""
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
        """Whether an op adds two big tensors, or subtracts them."""
        if len(op.operands) != 2 or not has_trait(op, Trait.POINTWISE) or has_discardable_attributes(op):
            return False
        if not self.is_big(op.results) or op.operands[0] == op.operands[1]:
            return False
        return float_bits(element_type(op.results[0])) >= _LEAST_BITS and linear_operands(op, (0, 1)) == (0, 1)

    def linear_behind(self, start: int) -> list[ir.Operation]:
        """The ops that compute small tensors of a sum, in order; none where one of them is not linear in it."""
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
        # Who reads in a region, or returns it, needs the sum itself.
        return found if reads == sum(1 for value in inside for _ in value.uses) else []

    def copied_for(self, place: int) -> list[ir.Operation]:
        """What has to be made anew for the second term of a sum; none where something may not be."""
        first, second = (self.ancestors(value) for value in self.ops[place].operands)
        anew: set[ir.Value] = set()
        answers: dict[ir.Value, int] = {}  # what asks, or is made of an answer, by the number of its readers here
        copied: list[ir.Operation] = []
        for each in sorted(second):
            op = self.ops[each]
            if not (each in first and self.is_big(op.results)) and anew.isdisjoint(op.operands):
                continue
            if not may_be_merged(op) or any(has_trait(op, trait) for trait in _MADE_ONCE):
                return []
            copied.append(op)
            anew.update(op.results)
            for value in op.operands:
                if value in answers:
                    answers[value] += 1
            if asks(op) or any(value in answers for value in op.operands):
                answers.update(dict.fromkeys(op.results, 0))
        last = self.ops[place].operands[1]
        is_closed = all(readers + (value == last) == sum(1 for _ in value.uses) for value, readers in answers.items())
        return copied if is_closed else []

    def ancestors(self, value: ir.Value) -> set[int]:
        """The places of the ops that a tensor is made by."""
        found: set[int] = set()
        stack = [value]
        while stack:
            place = self.place.get(stack.pop())
            if place is not None and place not in found:
                found.add(place)
                stack += list(self.ops[place].operands)
        return found


def _distribute(taken: _Sum, most: int) -> None:
    """Write out both terms, and add what is computed of them."""
    copies: dict[ir.Value, ir.Value] = {}
    for op in taken.copied:
        copies.update(_copy(op, copies))
    op, [first, second] = taken.op, taken.op.operands
    with ir.InsertionPoint(op), op.location:
        nothing = build.zeros(op.results[0].type)
    copies.update(_copy(op, {first: nothing, second: copies.get(second, second)}))
    op.operands[1] = nothing
    types = Types()
    for each in taken.linear:
        copies.update(_copy(each, copies))
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


def _copy(op: ir.Operation, operands: Mapping[ir.Value, ir.Value]) -> dict[ir.Value, ir.Value]:
    """Put a copy of an op behind it, with other operands; the results of the copy, by those of the op."""
    made = op.clone(ip=ir.InsertionPoint.after(op)).operation
    for index, value in enumerate(made.operands):
        made.operands[index] = operands.get(value, value)
    return dict(zip(op.results, made.results, strict=True))
