"""Finds the positions at which the loops of a block would need its tensors, if they are cut where parts of them meet.

NOTE [Positions]: index 0 of each tensor is laid at a position in the loop, that of most tensors at 0. A slice from
`start` reads its operand laid at its own position - start, and a join reads its operands where they are in the result.

    t = f(x); a, b = t[:n], t[n:]; p = dot(a', b)     a and b at 0: t at 0, its first half, and at -n, its second half
    concatenate(g(b, p), h(a, p))                     b at 0 and a at n: t at -n, its second half, and at n, its first

A region has one position for each tensor, so a tensor that is needed at two is computed twice: only the range of its
indices that is needed at each. An op that multiplies matrices is computed twice only if the ranges do not overlap.

NOTE [Not compared]: two copies may round differently, so nothing is done in a block if an op tests for equality what is
computed from a tensor that is computed in parts, or if one that a part reaches asks which of two tensors with these
indices is larger.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from jaxlib.mlir import ir

from exla_opt.ir.attributes import integer
from exla_opt.ir.values import has_discardable_attributes
from exla_opt.ops.ranges import JOIN, PAD, SLICE, cut_dim, parts_among
from exla_opt.ops.rules import DimMapping, Kind
from exla_opt.ops.tile import Range
from exla_opt.ops.traits import Trait

from .copies import may_be_copied
from .graph import OUTSIDE, Graph, Node, TiledOp, tiled_from_operand, tiled_from_result

# The maximum number of positions of a tensor: four parts, each of which is needed with every other, have seven.
_MOST_POSITIONS = 8
# Ops that may be computed twice: they take about as long as reading their operands.
_CHEAP = (Trait.POINTWISE, Trait.MOVES, Trait.GENERATES, Trait.REDUCES)


def _is_cheap(node: Node) -> bool:
    return any(trait in node.traits for trait in _CHEAP)


@dataclass
class Positions:
    """The positions at which a block's loops would need the indices of its tensors; see NOTE [Positions].

    most: bytes, over which a tensor is big. along: how each tensor that carries the indices is cut, at position 0.
    wanted: by tensor and position, the range of indices that is needed there. placed: by op, how it is cut with its
    result at each of these; for an op of which no result is needed at one, where its operands are. fixed: the positions
    of products and of what is computed from them, which only move with the product.
    """

    graph: Graph
    most: int
    along: dict[int, DimMapping] = field(default_factory=dict)
    wanted: dict[int, dict[int, Range]] = field(default_factory=dict)
    fixed: dict[int, int] = field(default_factory=dict)
    placed: dict[int, dict[int, TiledOp]] = field(default_factory=dict)

    def find(self) -> bool:
        """Search the block; return whether tensors may and should be computed separately."""
        reached = self.reached()
        if not reached:
            return False
        # Joins first: they say where products are needed, and where sums of what is computed from these can be taken.
        self.sweep({place: tiled for place, tiled in reached.items() if self.is_join(self.graph.nodes[place])})
        self.fix(reached)
        self.sweep(reached)
        group = reached.keys() | self.placed.keys()
        if self.are_tested() or any(self.is_compared(self.graph.nodes[place]) for place in group):
            return False
        return self.repeats_big()

    def repeats_big(self) -> bool:
        """Whether big tensors, or big parts of them, are computed at several positions: else nothing is gained."""
        return any(
            self.is_big(node.results[0]) and not self.is_original(node, position, part)
            for node in (self.graph.nodes[place] for place in self.placed)
            if node.name != SLICE
            for position, part in self.wanted.get(node.results[0], {}).items()
        )

    def is_big(self, value: int) -> bool:
        return self.graph.tensors[value].type.bytes > self.most

    def reached(self) -> dict[int, TiledOp]:
        """The ops that parts reach along their indices, by position in the block, with their factors."""
        slices: dict[int, list[ir.Operation]] = {}
        at: dict[ir.Value, int] = {}
        for node in self.graph.nodes:
            if node.name == SLICE and self.is_big(node.operands[0]):
                slices.setdefault(node.operands[0], []).append(node.op)
                at[node.op.results[0]] = node.position
        parts = {at[op.results[0]] for found in slices.values() for op in parts_among(found)}
        reached: dict[int, TiledOp] = {}
        for node in self.graph.nodes[min(parts, default=len(self.graph.nodes)) : -1]:
            if node.position in parts:
                dim = cut_dim(node.op)
                assert dim is not None
                result = node.results[0]
                self.along[result] = DimMapping(dim, self.graph.tensors[result].type.shape[dim])
                continue
            if Trait.CONTROL_FLOW in node.traits:
                continue
            for index, value in enumerate(node.operands):
                mapping = self.along.get(value)
                tiled = None if mapping is None else tiled_from_operand(node, index, mapping)
                if tiled is not None and tiled.factor.kind in (Kind.INDEPENDENT, Kind.REDUCING):
                    reached[node.position] = tiled
                    for result, laid in zip(node.results, tiled.results, strict=True):
                        if laid is not None:
                            self.along.setdefault(result, replace(laid, low=0))
                    break
        return reached

    def is_join(self, node: Node) -> bool:
        """Whether the op's result has its operands at other positions than their own."""
        if node.name == JOIN:
            return node.results[0] in self.along and integer(node.op, "dimension") == self.along[node.results[0]].dim
        return node.name == PAD

    def takes_part(self, node: Node, tiled: TiledOp) -> bool:
        """Whether the op is a slice of a range of the indices."""
        result = tiled.results[0]
        return node.name == SLICE and result is not None and cut_dim(node.op) == result.dim

    def sweep(self, reached: Mapping[int, TiledOp]) -> None:
        """Find what is needed, from the last op to the first. reached: the ops whose operands are, in any case."""
        for node in reversed(self.graph.nodes[:-1]):
            wanted = self.wanted.get(node.results[0], {}) if len(node.results) == 1 else {}
            if wanted:
                self.place(node, dict(wanted))
            elif node.position in reached:
                self.end(node, reached[node.position])

    def fix(self, reached: Mapping[int, TiledOp]) -> None:
        """Note where products are needed, and what is computed from them: no product is computed at two positions."""
        for position, tiled in reached.items():
            node = self.graph.nodes[position]
            if tiled.factor.kind is not Kind.INDEPENDENT or self.is_join(node):
                continue
            wanted = self.wanted.get(node.results[0], {})
            known = [self.fixed[value] for value in node.operands if value in self.fixed]
            if known:
                self.fixed[node.results[0]] = known[0]
            elif len(wanted) == 1 and not _is_cheap(node):
                self.fixed[node.results[0]] = next(iter(wanted))

    def end(self, node: Node, tiled: TiledOp) -> None:
        """An op whose results nothing else needs at a position: at 0, or where its operands are needed anyway."""
        carried = [(value, each) for value, each in zip(node.operands, tiled.operands, strict=True) if each]
        # The position of the op at which an operand is where others already need it.
        first = tiled.results[0] or DimMapping(0, 0)
        fixed = [self.fixed[value] - each.low + first.low for value, each in carried if value in self.fixed]
        known = {low - each.low + first.low for value, each in carried for low in self.wanted.get(value, ())}
        position = fixed[0] if fixed else 0 if 0 in known or not known else min(known)
        moved = position - first.low
        laid = [each and replace(each, low=each.low + moved) for each in tiled.operands]
        self.placed[node.position] = {position: replace(tiled, operands=tuple(laid))}
        for value, mapping in zip(node.operands, laid, strict=True):
            if mapping is not None:
                self.want(value, mapping, (0, mapping.length))

    def want(self, value: int, mapping: DimMapping, part: Range) -> None:
        """Record that a tensor is needed as laid by `mapping`, its indices `part` only."""
        own = replace(mapping, low=0)
        if self.graph.tensors[value].producer == OUTSIDE or self.along.setdefault(value, own) != own:
            return
        positions = self.wanted.setdefault(value, {})
        start, stop = positions.get(mapping.low, part)
        positions[mapping.low] = min(start, part[0]), max(stop, part[1])

    def place(self, node: Node, wanted: dict[int, Range]) -> None:
        """Record what an op needs for its result at some positions; if that is impossible, the result is complete."""
        [result] = node.results
        laid = {position: self.laid(node, position) for position in wanted}
        if any(each is None for each in laid.values()) or not self.may_repeat(node, wanted):
            del self.wanted[result]
            self.placed.pop(node.position, None)
            return
        self.placed[node.position] = {position: each for position, each in laid.items() if each is not None}
        for position, tiled in self.placed[node.position].items():
            for value, mapping, part in self.reads(node, tiled, wanted[position]):
                self.want(value, mapping, part)

    def laid(self, node: Node, position: int) -> TiledOp | None:
        """The op with its result at a position; None if it is not computed index by index."""
        if Trait.CONTROL_FLOW in node.traits:
            return None
        tiled = tiled_from_result(node, 0, replace(self.along[node.results[0]], low=position))
        if tiled is None or tiled.factor.kind is not Kind.INDEPENDENT or tiled.factor.reaches or tiled.scale != 1:
            return None
        result = tiled.results[0]
        carried = [mapping for mapping in tiled.operands if mapping is not None]
        if self.is_join(node) or self.takes_part(node, tiled):
            return tiled if carried else None
        is_alike = all(result and (each.low, each.length) == (result.low, result.length) for each in carried)
        return tiled if is_alike else None

    def may_repeat(self, node: Node, wanted: dict[int, Range]) -> bool:
        """Whether the op may be computed once for each position."""
        [result] = node.results
        if len(wanted) == 1 and self.is_original(node, *next(iter(wanted.items()))):
            return True
        if len(wanted) > _MOST_POSITIONS or not may_be_copied(node.op) or has_discardable_attributes(node.op):
            return False
        if _is_cheap(node):
            return True
        read = sum(stop - start for start, stop in wanted.values())
        return read <= self.along[result].length and not self.is_read_complete(result)

    def is_read_complete(self, value: int) -> bool:
        """Whether an op reads the tensor that is not placed."""
        for user, index in self.graph.tensors[value].users:
            placed = self.placed.get(user)
            if not placed or any(index < 0 or tiled.operands[index] is None for tiled in placed.values()):
                return True
        return False

    def is_original(self, node: Node, position: int, part: Range) -> bool:
        """Whether the op itself computes what is needed at a position: everything, at 0."""
        return position == 0 and part == self.complete(node)

    def complete(self, node: Node) -> Range:
        """All indices of the op's result."""
        return 0, self.along[node.results[0]].length

    def reads(self, node: Node, tiled: TiledOp, part: Range) -> Iterator[tuple[int, DimMapping, Range]]:
        """The operands that carry the indices, as needed for a part of the result, at the positions in `tiled`."""
        result = tiled.results[0]
        assert result is not None
        within = self.joined(node, tiled, part)
        for index, (value, mapping) in enumerate(zip(node.operands, tiled.operands, strict=True)):
            if mapping is None or (within is not None and index != within):
                continue
            moved = result.low - mapping.low
            if self.is_join(node) and within is None:
                yield value, mapping, (0, mapping.length)
            else:
                yield value, mapping, (part[0] + moved, part[1] + moved)

    def joined(self, node: Node, tiled: TiledOp, part: Range) -> int | None:
        """The operand of a concatenation along the indices that a part of the result is in, unless in several."""
        result = tiled.results[0]
        if node.name != JOIN or not self.is_join(node) or result is None:
            return None
        for index, mapping in enumerate(tiled.operands):
            start = mapping.low - result.low if mapping is not None else 0
            if mapping is not None and start <= part[0] and part[1] <= start + mapping.length:
                return index
        return None

    def are_tested(self) -> bool:
        """Whether an op tests for equality what is computed from tensors of which there would be several copies."""
        after = {result for place in self.placed for result in self.graph.nodes[place].results}
        for node in self.graph.nodes[:-1]:
            if not after.isdisjoint(node.operands):
                if node.asks():
                    return True
                after.update(node.results)
        return False

    def is_compared(self, node: Node) -> bool:
        """Whether the op asks which of two tensors with these indices is larger."""
        return Trait.COMPARES in node.traits and sum(map(self.is_computed, node.operands)) > 1

    def is_computed(self, value: int) -> bool:
        """Whether a big tensor has numbers of its own: not only those of a small one, in every row."""
        producer = self.graph.tensors[value].producer
        is_free = producer != OUTSIDE and Trait.FREE in self.graph.nodes[producer].traits
        return value in self.along and self.is_big(value) and not is_free
