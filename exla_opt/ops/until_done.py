"""Loops that run until all elements are done, as `vmap` turns a `while_loop` into.

    while any(p(%x)) { %x = select(p(%x), f(%x), %x) }

An element that is done stays as it is, whatever others do: p and f read it alone. So a tile may stop when all of its
own elements are done; the result is that of the entire loop. That requires a body that keeps every carry where the
condition's own p is false, or never changes it: a counter of steps would count those of the tile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jaxlib.mlir import ir

from exla_opt.ir.values import defining_op, has_discardable_attributes, splat_value
from exla_opt.ir.walk import captured_values, operations_of, terminator

from .block_content import Content
from .block_flow import Partial, Refused, State
from .block_search import BlockSearch
from .factor import Kind, OpRule
from .reducers import body_of, componentwise
from .traits import Trait, has_trait

# The comparison of the condition with the body stops after this many ops.
_MOST_OPS = 1000


@dataclass(frozen=True, slots=True)
class UntilDone:
    """Such a loop. anyone: the reduce of the condition. fixed: the carries that no step changes."""

    anyone: ir.Operation
    fixed: frozenset[int]


def until_done(condition: ir.Block, body: ir.Block) -> UntilDone | None:
    """Recognise a loop that runs until all elements are done; None for any other loop."""
    [asked] = terminator(condition).operands
    anyone = defining_op(asked, "stablehlo.reduce")
    if anyone is None or len(anyone.operands) != 2 or has_discardable_attributes(anyone):
        return None
    if componentwise(body_of(anyone)) != ("or",) or splat_value(anyone.operands[1]) != 0:
        return None
    going_on = anyone.operands[0]
    pairs = _Pairs(condition, body)
    fixed: set[int] = set()
    for index, value in enumerate(terminator(body).operands):
        own = body.arguments[index]
        if value == own:
            fixed.add(index)
            continue
        chosen = defining_op(value, "stablehlo.select")
        if chosen is None or chosen.operands[2] != own or not pairs.are_same(going_on, _unmoved(chosen.operands[0])):
            return None
    return UntilDone(anyone, frozenset(fixed))


def stops_alone(done: UntilDone, carried: Mapping[int, State], count: int) -> bool:
    """Whether stopping a tile early changes nothing else: each of `count` carries is cut, or never changes."""
    cut = {index for index, state in carried.items() if not isinstance(state, Partial)}
    return len(cut) == len(carried) and cut | done.fixed == set(range(count))


def is_tested(op: ir.Operation, condition: ir.Block, body: ir.Block) -> bool:
    """Whether the condition depends on an op of the body, at the end of the same step."""
    reached: set[ir.Value] = set(op.results)
    for later in operations_of(body):
        read = [*later.operands, *(captured_values(later) if len(later.regions) else ())]
        if not reached.isdisjoint(read):
            reached.update(later.results)
    returned = terminator(body).operands
    return any(value in reached and is_read(condition.arguments[index]) for index, value in enumerate(returned))


def is_read(value: ir.Value) -> bool:
    """Whether anything reads a value."""
    return any(True for _ in value.uses)


def _unmoved(value: ir.Value) -> ir.Value:
    """A predicate before it is broadcast."""
    op = defining_op(value, "stablehlo.broadcast_in_dim")
    return value if op is None or has_discardable_attributes(op) else _unmoved(op.operands[0])


class _Pairs:
    """Finds values of a loop's condition that are also computed in its body, from the same carries."""

    def __init__(self, condition: ir.Block, body: ir.Block):
        self.arguments: dict[ir.Value, ir.Value] = dict(zip(condition.arguments, body.arguments, strict=True))
        self.known: dict[ir.Value, ir.Value] = {}

    def are_same(self, one: ir.Value, other: ir.Value) -> bool:
        """Whether a value of the condition equals one of the body."""
        stack = [(one, other)]
        for _ in range(_MOST_OPS):
            if not stack:
                return True
            one, other = stack.pop()
            if self.known.get(one, self.arguments.get(one, one)) == other:
                continue
            first, second = defining_op(one), defining_op(other)
            if first is None or second is None or not _do_the_same(first, second):
                return False
            self.known[one] = other
            stack += zip(first.operands, second.operands, strict=True)
        return False


def _do_the_same(one: ir.Operation, other: ir.Operation) -> bool:
    if one.name != other.name or len(one.operands) != len(other.operands):
        return False
    if len(one.results) != 1 or one.results[0].type != other.results[0].type:
        return False
    if _attributes_of(one) != _attributes_of(other):
        return False
    if len(one.regions):
        return has_trait(one, Trait.REDUCES) and len(one.regions) == 1 and _reduce_alike(one, other)
    traits = (Trait.POINTWISE, Trait.MOVES, Trait.GENERATES, Trait.CONTRACTS)
    return any(has_trait(one, trait) for trait in traits)


def _reduce_alike(one: ir.Operation, other: ir.Operation) -> bool:
    """Whether two ops reduce by the same monoid, in the same precision."""
    bodies = [body_of(op) for op in (one, other)]
    kinds = [[(op.name, *(value.type for value in op.results)) for op in operations_of(body)] for body in bodies]
    return kinds[0] == kinds[1] and (componentwise(bodies[0]) or ()) == componentwise(bodies[1])


def _attributes_of(op: ir.Operation) -> dict[str, ir.Attribute]:
    return {op.attributes[place].name: op.attributes[place].attr for place in range(len(op.attributes))}


class ConditionSearch(BlockSearch):
    """A search of the condition, which then tests only the elements of the tile."""

    def cut(self, place: int, op: ir.Operation, states: Mapping[int, State]) -> None:
        if place != len(self.content.ops) - 2 or len(states) > 1:
            super().cut(place, op, states)
            return
        [(index, state)] = states.items()
        assert not isinstance(state, Partial)
        rule = self.rules[self.content.numbers[place]]
        laid = self.lay(rule.at_operand(index, state.dim, state.inner), index, state)
        if laid is None or laid.factor.kind is not Kind.REDUCING:
            raise Refused(rule.why().text, op)
        self.add_tile(place, op, laid)
        self.states.update(dict.fromkeys(op.results, Partial.SUM))


def search_condition(
    content: Content,
    rules: Sequence[OpRule],
    length: int,
    carried: Mapping[int, State],
    captured: Mapping[ir.Value, State],
) -> tuple[ConditionSearch, dict[int, State]]:
    """The search of such a loop's condition, and further carries that it needs cut.

    carried, captured: the values that are cut, and how. Raises Refused.
    """
    arguments = list(content.block.arguments)
    states = {arguments[index]: state for index, state in carried.items()} | dict(captured)
    search = ConditionSearch(content, rules, length, states, {})
    search.run()
    return search, {ir.BlockArgument(value).arg_number: own for value, own in search.joined.items()}
