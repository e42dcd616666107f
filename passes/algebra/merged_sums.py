"""Merges sums that loops of tiles compute only to be added to one another: one carry for all of them.

    %s:2 = while (%a = 0, %b = 0) {                     %s = while (%a = 0) {
      return %a + x(%i), %b + y(%i)             ->        return %a + x(%i) + y(%i)
    }                                                   }
    %t = add %s#0, %s#1                                 %t is %s

    %s = while (%a = 0) { return %a + x(%i) }           %s = while (%a = 0) { return %a + x(%i) }
    %t = while (%b = 0) { return %b + y(%i) }   ->      %t = while (%b = %s) { return %b + y(%i) }
    %u = add %s, %t                                     %u is %t

Weights that a network uses more than once have such gradients: of two views, of real and of generated images, of a
slope that is itself a gradient. Each of the sums is as large as the weights, and all would be alive at once.

Legal: addition is reordered, as in sums over tiles. A sum is only merged if nothing else reads it, on the way to the
common addition or in the loop, and if it starts from zero. Worthwhile: if all terms of a total are big together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import combinations

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir.additions import ADD, next_addition, terms_of_sum
from exla_opt.ir.attributes import named
from exla_opt.ir.loops import drop_carries, starts_with_zeros
from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op, has_discardable_attributes
from exla_opt.ir.walk import terminator
from exla_opt.ops.traits import Trait, traits_of

# So many terms may be big together: smaller ones are not looked at, since each merge looks at all.
_MOST_TERMS = 32
# Ops without a buffer of their own: they are computed where they are read.
_MADE_BY_READERS = Trait.POINTWISE | Trait.MOVES | Trait.GENERATES
# An op between a sum and the addition: its name, its attributes and the type of its result.
_Between = tuple[str, tuple[tuple[str, ir.Attribute], ...], ir.Type]
# Such ops: moving or rounding a total is moving or rounding each sum.
_BETWEEN = frozenset({"stablehlo.transpose", "stablehlo.reshape", "stablehlo.convert"})


@dataclass(frozen=True, slots=True)
class _Sum:
    """A sum that a loop computes and one addition reads.

    carry: its number in the loop. additions: to it, in the loop's body, in order. leaf: the operand of the outer
    addition. between: the ops before that. reader: the outer addition.
    """

    loop: ir.Operation
    carry: int
    additions: tuple[ir.Operation, ...]
    leaf: ir.Value
    between: tuple[_Between, ...]
    reader: ir.Operation

    @property
    def kind(self) -> tuple[ir.Type, tuple[_Between, ...]]:
        """The properties that merged sums must share."""
        return self.loop.results[self.carry].type, self.between


def merge_sums(block: ir.Block, mark: str, types: Types, least: int) -> bool:
    """Merge the sums of the block's loops of tiles; return whether there were any.

    least: the bytes that all terms of a total must exceed together.
    """
    merged = False
    while merge := next(_merges(block, mark, types, least), None):
        merge()
        merged = True
    return merged


def _merges(block: ir.Block, mark: str, types: Types, least: int) -> Iterator[Callable[[], None]]:
    """The possible merges: of two sums of one loop, or of one with a term that exists before its loop."""
    ops = [view.operation for view in block.operations]
    place: dict[ir.Value, int] = {value: number for number, op in enumerate(ops) for value in op.results}
    totals: dict[ir.Operation, list[_Sum]] = {}
    for loop in ops:
        if mark not in loop.attributes:
            continue
        for carry, value in enumerate(loop.results):
            if types.of(value).bytes * _MOST_TERMS > least and (found := _sum_of(loop, carry)) is not None:
                totals.setdefault(_total(found.reader), []).append(found)
    for total, sums in list(totals.items()):
        inside = sum(len(found.additions) - 1 for found in sums)  # merged before
        if types.of(total.results[0]).bytes * (len(terms_of_sum(total)) + inside) <= least:
            del totals[total]
    pairs = [pair for sums in totals.values() for pair in combinations(sums, 2) if pair[0].kind == pair[1].kind]
    # First those of one loop: one that begins with another sum is not known to be a sum any more.
    for first, second in sorted(pairs, key=lambda pair: pair[0].loop != pair[1].loop):
        yield partial(_add_in_loop if first.loop == second.loop else _start_from_sum, first, second)
    for total, sums in totals.items():
        for found in sums:
            for leaf in terms_of_sum(total):
                if _may_begin(leaf, found) and place[leaf] < place[found.loop.results[0]]:
                    yield partial(_start_from, leaf, found)


def _may_begin(leaf: ir.Value, found: _Sum) -> bool:
    """Whether a loop may start from a term of the sum: one with a buffer of its own and no other reader."""
    if leaf == found.leaf or found.between or _only_reader(leaf) is None:
        return False
    op = source = defining_op(leaf)
    while source is not None and Trait.REARRANGES in traits_of(source.name):
        source = defining_op(source.operands[0])
    if op is None or source is None or op.block != found.loop.block:
        return False
    return not traits_of(source.name) & _MADE_BY_READERS


def _sum_of(loop: ir.Operation, carry: int) -> _Sum | None:
    """A carry as a sum that can be merged with others."""
    if not starts_with_zeros(loop.operands[carry]):
        return None
    body = loop.regions[1].blocks[0]
    total, additions = body.arguments[carry], []
    while (addition := _only_reader(total)) is not None and addition.name == ADD and addition.block == body:
        additions.append(addition)
        total = addition.results[0]
    if not additions or addition != terminator(body) or addition.operands[carry] != total:
        return None
    leaf, between = loop.results[carry], []
    while (reader := _only_reader(leaf)) is not None and reader.name in _BETWEEN:
        between.append((reader.name, named(reader), reader.results[0].type))
        leaf = reader.results[0]
    if reader is None or reader.name != ADD or reader.block != loop.block or has_discardable_attributes(reader):
        return None
    return _Sum(loop, carry, tuple(additions), leaf, tuple(between), reader)


def _only_reader(value: ir.Value) -> ir.Operation | None:
    uses = list(value.uses)
    return uses[0].owner.operation if len(uses) == 1 else None


def _total(addition: ir.Operation) -> ir.Operation:
    """The last of the additions of a sum."""
    while (reader := next_addition(addition)) is not None:
        addition = reader
    return addition


def _other(addition: ir.Operation, value: ir.Value) -> ir.Value:
    left, right = addition.operands
    return right if left == value else left


def _leave_out(leaf: ir.Value) -> None:
    """Remove a term: its addition is replaced by the other operand."""
    addition = _only_reader(leaf)
    assert addition is not None
    addition.results[0].replace_all_uses_with(_other(addition, leaf))
    addition.erase()


def _add_in_loop(first: _Sum, second: _Sum) -> None:
    """Add the second sum's term of each trip to the first one."""
    body = first.loop.regions[1].blocks[0]
    last = terminator(body)
    total: ir.Value = body.arguments[second.carry]
    for addition in second.additions:
        with ir.InsertionPoint(last), addition.location:
            last.operands[first.carry] = stablehlo.add(last.operands[first.carry], _other(addition, total))
        total = addition.results[0]
    last.operands[second.carry] = body.arguments[second.carry]
    for addition in reversed(second.additions):
        addition.erase()
    _leave_out(second.leaf)
    drop_carries(first.loop, [second.carry])


def _start_from_sum(first: _Sum, second: _Sum) -> None:
    """Start the second loop from the sum of the first one."""
    _leave_out(first.leaf)
    second.loop.operands[second.carry] = first.loop.results[first.carry]


def _start_from(leaf: ir.Value, found: _Sum) -> None:
    """Start a loop from a term of the sum."""
    _leave_out(leaf)
    found.loop.operands[found.carry] = leaf
