"""Equality tests: a result that depends on the exact bits of a number needs both operands from one loop.

NOTE [What asks for equality]

A later loop recomputes big tensors, and XLA may round them differently there: a dot depending on the shape of the tile,
a division depending on its fusion. This is harmless for nearly every program, as its results move by as much. It is not
for one that tests two numbers for equality: the gradient of a maximum tests which elements equal it, and after
recomputation none may.

So an op tests for equality, within one loop, if its result is discrete and depends both on a value that an earlier loop
has completed (awaited) and on a value recomputed in this loop that the awaited one depends on. Whether the result
depends on exact bits is decided by the operands:

1. equal or not equal: if the two sides depend on different awaited values; and, against anything, a constant too, if an
   awaited value was picked by order (a maximum, a sorted element) from recomputed ones, as in exp(x - max(x)) == 1: x
   equals its own maximum somewhere, by definition and not by chance.
2. any other comparison: if one side is a picked value, moved or passed through ops of one operand, and the other
   depends on the tensor that it was picked from: x >= max(x) says x == max(x).
3. a comparison, a sign, a step (floor, ceil, a conversion to integers) of a value that combines the two in one op, like
   the difference x - max(x) or the ratio x / max(x), possibly followed by constants and ops of one operand.

A tensor that is read complete, as its transpose is, counts as picked from itself: k > k' also says k[i, i] > k[i, i].
The sum and the product of both are no joined values.

All other order comparisons may flip if two numbers that are equal by chance are rounded: the mask of a relu, of a clip,
of a dropout. x == max(x, y) is one of those, as it says x >= y. Ops that move elements do not round, and integers are
never rounded: values recomputed by such ops alone do not count as recomputed.

For the same reason only one loop may contain a test: if x is at a bound by definition, as the diagonal of a correlation
matrix is 1, two loops could get different results, and sums that should cancel would not. This holds for the loops of
two plans as well, and for recomputation in the bodies of two loops of the program. A loop of the program that is cut
from outside counts as a test if one of its ops does; its operands there are not examined.

Limits: an element compared with a multiple of the maximum, rounding to the nearest, a test for finite numbers, as in 1
/ (x - max(x)), and values picked inside a custom call, or returned by some branches, are not recognised as tests; nor
is the difference multiplied or divided by another awaited value. x - max(x) > -10 counts as one, though it is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import permutations
from operator import or_
from typing import NamedTuple

from exla_opt.ops.barriers import BarrierRule
from exla_opt.ops.comparisons import (
    EQUALITY,
    MOST_STEPS,
    SYMMETRIC,
    compares_inside,
    direction_of,
    is_float_name,
    jumps_inside,
)
from exla_opt.ops.traits import Trait

from ..graph import OUTSIDE, Graph, Node
from .region import Producers, Stage

# For pointwise ops: each element of the result is the one at its position in one of the operands.
_CHOICE = Trait.SELECTS | Trait.POINTWISE
# A collective moves elements between devices, or picks the largest of all devices.
_MOVES = Trait.MOVES | Trait.COLLECTIVE
_BY_ELEMENT = Trait.POINTWISE | _MOVES
# Ops that may return what was picked; a barrier does too.
_PASSES = _BY_ELEMENT | Trait.CONTROL_FLOW


class _Flow(NamedTuple):
    """The dependences of one value of a loop's body, as sets of awaited values: a bit for each.

    awaited: those that it depends on. recomputed: those that depend on values that were recomputed here and that it
    also depends on. picked: the picked ones that it is, except for moves and ops of one operand. joined: the picked
    ones that one op has combined with the tensors that they were picked from. elements: those of which elementwise ops
    and moves compute it. again: those that these compute from the same numbers as it, which were recomputed.
    """

    awaited: int = 0
    recomputed: int = 0
    picked: int = 0
    joined: int = 0
    elements: int = 0
    again: int = 0


_NOTHING = _Flow()


class _Awaited:
    """The values that the loops of a region wait for: their bits, which of them are picked, and their dependences."""

    def __init__(self, graph: Graph, stages: Sequence[Stage]):
        self.graph = graph
        values = sorted({value for stage in stages for value in stage.awaited})
        self.bits = {value: 1 << place for place, value in enumerate(values)}
        self.sources, self.elements = dict[int, int](), dict[int, int]()
        self.picked = 0
        self.unchanged = 0  # picked ones that are unchanged, except for moves and ops of one operand
        if values:
            first = min(node for stage in stages for node in stage.nodes)
            last = max(graph.tensors[value].producer for value in values)
            self.sources = self.trace_back(first, last, by_element=False)
            self.elements = self.trace_back(first, last, by_element=True)
            self.trace_picks(first, last)

    def trace_back(self, first: int, last: int, by_element: bool) -> dict[int, int]:
        """By op, the awaited values that depend on it. by_element: through elementwise ops and moves alone."""
        sources: dict[int, int] = {}
        into = dict(self.bits)
        for node in reversed(self.graph.nodes[first : last + 1]):
            if found := reduce(or_, (into.get(value, 0) for value in node.results), 0):
                sources[node.position] = found
                for value in () if by_element and not _is_by_element(node) else (*node.operands, *node.captures):
                    into[value] = into.get(value, 0) | found
        return sources

    def trace_picks(self, first: int, last: int) -> None:
        picks: dict[int, bool] = {}  # of what pointwise ops and moves made of a choice: whether it still is the chosen
        for node in self.graph.nodes[first : last + 1]:
            found = [picks[value] for value in (*node.operands, *node.captures) if value in picks]
            if node.selects():
                picks.update(dict.fromkeys(node.results, True))
            elif found and (node.traits & _PASSES or isinstance(node.rule, BarrierRule)):
                kept = any(found) and (not node.traits & Trait.POINTWISE or _keeps(node) or _is_selection(node))
                picks.update(dict.fromkeys(node.results, kept))
        for value, bit in self.bits.items():
            if value in picks:
                self.picked |= bit
                self.unchanged |= bit if picks[value] else 0

    def of(self, value: int, stage: Stage) -> _Flow:
        """The dependences of a value from outside the loop of `stage`."""
        if value not in stage.awaited:
            return _NOTHING
        bit = self.bits[value]
        return _Flow(bit, picked=bit & self.unchanged, elements=bit)


def find_unequal(graph: Graph, producers: Producers, stages: Sequence[Stage]) -> int | None:
    """The first op that tests for equality with a result of another loop; see the note above."""
    awaited = _Awaited(graph, stages)
    if not awaited.bits:
        return None
    found = (_find_asking(graph, producers, stage, awaited) for stage in stages)
    return next((position for position in found if position is not None), None)


def _find_asking(graph: Graph, producers: Producers, stage: Stage, awaited: _Awaited) -> int | None:
    if not stage.awaited:
        return None
    flows: dict[int, _Flow] = {}
    for position in stage.nodes:
        node = graph.nodes[position]
        sides = [
            flows[value] if producer is not None and value in flows else awaited.of(value, stage)
            for value, producer in zip(node.operands, producers[position], strict=True)
        ]
        follows = any(side is not _NOTHING for side in sides)
        if follows and _asks(graph, node, sides, awaited):
            return position
        flow = _flow_of(graph, node, sides, awaited) if follows or position in awaited.sources else _NOTHING
        for value in node.results:
            flows[value] = _NOTHING if graph.tensors[value].type.dtype == "i1" else flow
    return None


def _flow_of(graph: Graph, node: Node, sides: Sequence[_Flow], awaited: _Awaited) -> _Flow:
    """The dependences of an op's results."""
    into = recomputed = picked = joined = elements = again = 0
    for side in sides:
        into |= side.awaited
        recomputed |= side.recomputed
        picked |= side.picked
        joined |= side.joined
        if _is_by_element(node):
            elements, again = elements | side.elements, again | side.again
    if _rounds(graph, node):
        recomputed |= awaited.sources.get(node.position, 0)
        again |= awaited.elements.get(node.position, 0)
    if not _keeps(node) and not _is_selection(node):
        operands = dict(zip(node.operands, sides, strict=True))  # a square reads one value twice
        others = [value for value, side in operands.items() if side == _NOTHING]
        follows = Trait.POINTWISE in node.traits and all(_is_constant(graph, value) for value in others)
        alone = len(others) + 1 == len(operands)
        joined = (joined if follows and alone else 0) | _join(node, sides)
        picked = 0
    return _Flow(into, recomputed, picked, joined, elements, again)


def _join(node: Node, sides: Sequence[_Flow]) -> int:
    """The picked values that a pointwise op combines with the tensors that they were picked from."""
    if Trait.POINTWISE not in node.traits:
        return 0
    if node.name in SYMMETRIC:
        sides = [side._replace(elements=0) for side in sides]
    return _across(sides)


def _across(sides: Sequence[_Flow]) -> int:
    """The picked values on one side that were picked from values on another side."""
    pairs = permutations(sides, 2)
    return reduce(or_, ((one.picked & other.recomputed) | (one.elements & other.again) for one, other in pairs), 0)


def _asks(graph: Graph, node: Node, sides: Sequence[_Flow], awaited: _Awaited) -> bool:
    """Whether the result of an op may depend on the bits of recomputed values: the three rules of the note."""
    if Trait.CONTROL_FLOW in node.traits:
        return bool(_met(sides)) and (node.asks() or (_across(sides) != 0 and jumps_inside(node.op)))
    if not _is_discrete(graph, node):
        return False
    if len(sides) > 1 and node.operands[0] == node.operands[1]:
        return False  # a NaN test
    if any(side.joined for side in sides):
        return True  # rule 3
    if len(sides) < 2:
        return False
    if _across(sides):
        return True  # rule 2, and 1 if it is the same value
    if direction_of(node.op) not in (*EQUALITY, "") or _says_order(graph, node):
        return False
    differ = len({side.awaited for side in sides}) > 1 and not any(
        _is_constant(graph, value) for value in node.operands
    )
    return bool(_met(sides) & (awaited.picked if not differ else -1))


def _met(sides: Sequence[_Flow]) -> int:
    """The awaited values that an op reads together with a recomputed one that it depends on."""
    return reduce(or_, (side.awaited for side in sides), 0) & reduce(or_, (side.recomputed for side in sides), 0)


def _is_discrete(graph: Graph, node: Node) -> bool:
    """Whether an op computes a comparison, a sign, a step: a result that jumps."""
    traits = node.traits
    if traits & (Trait.COMPARES | Trait.STEPS):
        return True
    if Trait.POINTWISE not in traits:
        return False
    if len(node.op.regions):
        return compares_inside(node.op)
    [result] = node.results
    kind = graph.tensors[result].type.dtype
    return not is_float_name(kind) and kind != "i1" and is_float_name(graph.tensors[node.operands[0]].type.dtype)


def _says_order(graph: Graph, node: Node) -> bool:
    """Whether an equality test is one of order: x == max(x, y) says x >= y."""
    for value, other in (node.operands[:2], node.operands[1::-1]):
        producer = graph.tensors[value].producer
        if producer == OUTSIDE:
            continue
        made = graph.nodes[producer]
        if _CHOICE in made.traits and other in made.operands:
            return graph.tensors[made.operands[0]].type.dtype != "i1"
    return False


def _rounds(graph: Graph, node: Node) -> bool:
    """Whether an op computes floats: recomputed, they may differ in the last bits."""
    if node.traits & (Trait.MOVES | Trait.GENERATES):
        return False
    return any(is_float_name(graph.tensors[value].type.dtype) for value in node.results)


def _keeps(node: Node) -> bool:
    """Whether a picked value stays one: the op moves it, or maps each element by an op of one operand."""
    traits = node.traits
    return bool(traits & _MOVES) or (Trait.POINTWISE in traits and len(node.operands) == 1)


def _is_selection(node: Node) -> bool:
    """Whether each element of the result is the one at its position in one of the operands."""
    return _CHOICE in node.traits


def _is_by_element(node: Node) -> bool:
    """Whether each element of the result depends on one of each operand."""
    return bool(node.traits & _BY_ELEMENT)


def _is_constant(graph: Graph, value: int) -> bool:
    """Whether a tensor depends on nothing: a constant, moved or converted."""
    for _ in range(MOST_STEPS):
        producer = graph.tensors[value].producer
        if producer == OUTSIDE:
            return False
        node = graph.nodes[producer]
        if not node.operands:
            return Trait.GENERATES in node.traits
        if not _keeps(node):
            return False
        value = node.operands[0]
    return False


def find_repeated(graph: Graph, stages: Sequence[Stage]) -> int | None:
    """The first equality test that more than one loop contains."""
    seen: set[int] = set()
    for stage in stages:
        asking = {position for position in stage.nodes if graph.nodes[position].asks()}
        if both := seen & asking:
            return min(both)
        seen |= asking
    return None
