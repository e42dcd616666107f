"""Finds how a block of control flow runs on one tile: which of its values are cut, are partial sums, or unchanged.

NOTE [How a cut is followed through a block]

Some values are cut from the start: arguments that a loop carries in tiles, or captures. Values computed from them must
be cut, or become a partial sum, or the block is refused. An op with a cut operand and an independent one needs that one
in slices as well. The requirement is traced back: to an argument, which then also counts as cut, so that the caller
repeats the search; to a capture, which is then read in slices; through ops, which then compute only the tile; otherwise
the value stays unsplit, and a slice is cut from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from jaxlib.mlir import ir

from .block_content import AsksFactor, Content
from .block_flow import BARRIER, ControlFactor, Partial, Refused, State
from .factor import DimMapping, Factor, Kind, LaidFactor, OpRule, lay_factor
from .partial_sums import adds_up, is_zero, linear_operands
from .traits import Trait, traits_of


@dataclass(slots=True)
class BlockSearch:
    """One walk over a block; see the note above.

    rules: of the module's ops. states: of inputs that are cut or partial sums. returned: by position, the states that
    results must have. length: the number of indices that are cut. joined: further arguments that must be cut, or
    partial sums. captured: the slices in which captures are read. held: by a barrier's position, the operands that it
    holds in the tile, and how they are cut.
    """

    content: Content
    rules: Sequence[OpRule]
    length: int
    states: dict[ir.Value, State]
    returned: Mapping[int, State]
    joined: dict[ir.Value, State] = field(default_factory=dict)
    captured: dict[ir.Value, set[DimMapping]] = field(default_factory=dict)
    tiles: dict[int, list[LaidFactor]] = field(default_factory=dict)
    forms: set[tuple[ir.Value, DimMapping]] = field(default_factory=set)
    made: set[tuple[ir.Value, DimMapping]] = field(default_factory=set)
    cut_only: set[int] = field(default_factory=set)
    held: dict[int, dict[tuple[int, DimMapping | None], None]] = field(default_factory=dict)

    def run(self) -> list[State | None]:
        """Follow cut values to the end of the block; return the states of its results. Raises Refused."""
        *ops, last = self.content.ops
        for place, op in enumerate(ops):
            if not self.states.keys().isdisjoint(self.content.read[place]):
                self.visit(place, op)
        values = self.content.operands[-1]
        for index, state in self.returned.items():
            self.require(values[index], state, last)
        return [self.returned.get(index, self.states.get(value)) for index, value in enumerate(values)]

    def require(self, value: ir.Value, state: State, op: ir.Operation) -> None:
        """Require a value in this state."""
        known = self.states.get(value)
        if known is None and isinstance(state, DimMapping):
            self.want(value, state)
        elif known is None:
            self.want_sum(value, op)
        elif known != state:
            raise Refused("a split value comes back split differently", op)

    def visit(self, place: int, op: ir.Operation) -> None:
        operands, read = self.content.operands[place], self.content.read[place]
        if not self.states.keys().isdisjoint(read[len(operands) :]):
            raise Refused(f"a region of {op.name} reads a split value", op)
        states = {index: state for index, value in enumerate(operands) if (state := self.states.get(value)) is not None}
        if op.name == BARRIER:
            self.pass_through(place, op, states)
        elif Trait.CONTROL_FLOW in traits_of(op.name):
            self.enter(place, op, operands, states)
        elif any(isinstance(state, Partial) for state in states.values()):
            self.sum(op, states)
        else:
            self.cut(place, op, states)

    def pass_through(self, place: int, op: ir.Operation, states: Mapping[int, State]) -> None:
        """Visit a barrier: every result is in the state of its operand."""
        for index, state in states.items():
            self.states[op.results[index]] = state
            self.hold(place, index, state if isinstance(state, DimMapping) else None)

    def hold(self, place: int, index: int, mapping: DimMapping | None) -> None:
        """Record an operand of a barrier in the tile: one barrier holds all of them."""
        self.held.setdefault(place, {})[index, mapping] = None
        if mapping is not None:
            self.made.add((self.content.ops[place].results[index], mapping))

    def enter(self, place: int, op: ir.Operation, operands: Sequence[ir.Value], states: Mapping[int, State]) -> None:
        """Visit control flow, which is cut like its blocks."""
        rule = cast(AsksFactor, self.rules[self.content.numbers[place]])
        factor = rule.factor_from(states, self.length)
        if factor.is_unsplit() and factor.cuts_inside():
            raise Refused(f"{op.name} sums over the split dimension, and reads no split value", op)
        self.add_tile(place, op, LaidFactor(factor, 1, 0, factor.operands, factor.results))
        for index in factor.summed:
            start = operands[index] if len(op.operands) == len(op.results) else None
            if start is not None and self.states.get(start) is None:
                self.want_sum(start, op)
        for index, mapping in enumerate(factor.results):
            if mapping is not None:
                self.states[op.results[index]] = mapping
            elif index in factor.summed:
                self.states[op.results[index]] = Partial.SUM

    def sum(self, op: ir.Operation, states: Mapping[int, State]) -> None:
        """Visit an op on a partial sum."""
        partial = [index for index, state in states.items() if isinstance(state, Partial)]
        needed = linear_operands(op, partial)
        if needed is None or len(partial) < len(states):
            raise Refused(f"{op.name} needs the complete sum over the split dimension", op, needs_sum=True)
        for index in needed:
            if index not in states:
                self.want_sum(op.operands[index], op)
        self.states.update(dict.fromkeys(op.results, Partial.SUM))

    def cut(self, place: int, op: ir.Operation, states: Mapping[int, State]) -> None:
        """Visit an op on slices."""
        rule = self.rules[self.content.numbers[place]]
        for index, state in states.items():
            assert isinstance(state, DimMapping)
            laid = self.lay(rule.at_operand(index, state.dim, state.inner), index, state)
            if laid is not None and all(laid.operands[other] == known for other, known in states.items()):
                break
        else:
            raise Refused(rule.why().text, op)
        if laid.factor.kind is Kind.REDUCING and not adds_up(op, laid.factor):
            raise Refused(f"{op.name} over the split dimension is not a sum from zero", op, needs_sum=True)
        self.add_tile(place, op, laid)
        for result, mapping in zip(op.results, laid.results, strict=True):
            self.states[result] = mapping or Partial.SUM

    def lay(self, factor: Factor | None, index: int, wanted: DimMapping, of_result: bool = False) -> LaidFactor | None:
        """Lay a factor on the loop's indices, if it has neither an order nor an offset there."""
        own = None if factor is None else (factor.results if of_result else factor.operands)[index]
        laid = lay_factor(factor, own, wanted) if factor is not None and own is not None else None
        if laid is None or laid.factor.kind not in (Kind.INDEPENDENT, Kind.REDUCING) or laid.factor.least > 1:
            return None
        independent = laid.factor.kind is Kind.INDEPENDENT
        if laid.offset or (independent and None in laid.results and not isinstance(laid.factor, ControlFactor)):
            return None
        present = [mapping for mapping in (*laid.operands, *laid.results) if mapping is not None]
        return laid if all(mapping.low == 0 and mapping.length == self.length for mapping in present) else None

    def add_tile(self, place: int, op: ir.Operation, laid: LaidFactor) -> None:
        """Record how an op that depends on cut values is cut, and the operands that it needs in slices."""
        self.tiles.setdefault(place, []).append(laid)
        self.cut_only.add(place)
        self.note_made(place, laid)
        for value, mapping in zip(self.content.operands[place], laid.operands, strict=True):
            if mapping is not None and value not in self.states:
                self.want(value, mapping)

    def note_made(self, place: int, laid: LaidFactor) -> None:
        made = zip(self.content.results[place], laid.results, strict=True)
        self.made.update((result, mapping) for result, mapping in made if mapping is not None)

    def want(self, value: ir.Value, mapping: DimMapping) -> None:
        """Require slices of a value that does not depend on cut ones."""
        queue = [(value, mapping)]
        while queue:
            value, mapping = form = queue.pop()
            if form in self.forms or self.states.get(value) == mapping:
                continue
            self.forms.add(form)
            place = self.content.place.get(value)
            if place is None and value.owner == self.content.block:
                if value in self.states or self.joined.setdefault(value, mapping) != mapping:
                    raise Refused("a loop carry is read in two different slices")
                continue
            if place is None:
                self.captured.setdefault(value, set()).add(mapping)
                continue
            op, index = self.content.ops[place], ir.OpResult(value).result_number
            if op.name == BARRIER:
                self.hold(place, index, mapping)
                queue.append((op.operands[index], mapping))
                continue
            laid = self.from_result(place, index, mapping)
            if laid is None:
                continue  # a slice is cut from it
            self.tiles.setdefault(place, []).append(laid)
            self.note_made(place, laid)
            read = self.content.operands[place]
            queue += [(v, m) for v, m in zip(read, laid.operands, strict=True) if m is not None]

    def from_result(self, place: int, index: int, mapping: DimMapping) -> LaidFactor | None:
        """How an op independent of cut values can compute only a tile, or cut control flow can cut one more result."""
        if place in self.cut_only:
            return self.extended(place, index, mapping)
        found = self.rules[self.content.numbers[place]].at_result(index, mapping.dim, mapping.inner)
        laid = self.lay(found, index, mapping, of_result=True)
        if laid is None or laid.factor.kind is not Kind.INDEPENDENT or laid.factor.summed:
            return None
        return laid

    def extended(self, place: int, index: int, mapping: DimMapping) -> LaidFactor | None:
        """How control flow that is already cut can return one more of its results in slices."""
        before = self.tiles[place][-1]
        rule = self.rules[self.content.numbers[place]]
        if not isinstance(before.factor, ControlFactor):
            return None
        values = enumerate(self.content.operands[place])
        states = {number: state for number, value in values if (state := self.states.get(value)) is not None}
        results = {number: own for number, own in enumerate(before.results) if own is not None}
        try:
            factor = cast(AsksFactor, rule).factor_from(states, self.length, results | {index: mapping})
        except Refused:
            return None
        same_sums = factor.summed == before.factor.summed
        return LaidFactor(factor, 1, 0, factor.operands, factor.results) if same_sums else None

    def want_sum(self, value: ir.Value, op: ir.Operation) -> bool:
        """Require a partial sum, or zero: an argument of the block becomes one, through linear ops.

        Returns whether that cuts a sum that is independent of cut values: then nothing may read it unsplit.
        """
        if is_zero(value) or self.states.get(value) is Partial.SUM:
            return False
        if value.owner == self.content.block:
            if value in self.states or self.joined.setdefault(value, Partial.SUM) is not Partial.SUM:
                raise Refused("a loop carry is both split and summed", op)
            return False
        place = self.content.place.get(value)
        source = None if place is None else self.content.ops[place]
        if place is not None and source is not None and source.name == "stablehlo.while":
            self.want_sum_of_loop(place, source, ir.OpResult(value).result_number, op)
            return False
        if place is not None and self.add_up(place, value):
            return True
        needed = None if source is None or self.states.get(value) is not None else linear_operands(source, ())
        if not needed or source is None:
            raise Refused(f"{op.name} needs the complete sum over the split dimension", op, needs_sum=True)
        added = [self.want_sum(source.operands[index], op) for index in needed]
        if not any(added):
            return False
        if not is_read_once(source):
            raise Refused(
                f"the sum over the split dimension that {op.name} reads is needed complete as well", op, needs_sum=True
            )
        self.states[value] = Partial.SUM
        return True

    def want_sum_of_loop(self, place: int, loop: ir.Operation, index: int, op: ir.Operation) -> None:
        """Make a loop's result a partial sum, if the loop only adds to the carry, and its initial value, too."""
        rule = cast(AsksFactor, self.rules[self.content.numbers[place]])
        factor = rule.factor_from({index: Partial.SUM}, self.length)
        # The loop is unchanged: none of its sums is cut, nor their initial values, which other ops may read.
        if factor.cuts_inside() or any(self.want_sum(loop.operands[each], op) for each in factor.summed):
            raise Refused(f"{op.name} needs the complete sum over the split dimension", op, needs_sum=True)

    def add_up(self, place: int, value: ir.Value) -> bool:
        """Cut an independent sum over the same number of indices: another branch sums cut values."""
        op = self.content.ops[place]
        if place in self.tiles or not is_read_once(op) or Trait.CONTROL_FLOW in traits_of(op.name):
            return False
        for factor in self.rules[self.content.numbers[place]].factors:
            index = next((index for index, own in enumerate(factor.operands) if own is not None), None)
            if index is None or factor.size != self.length or not adds_up(op, factor):
                continue
            laid = self.lay(factor, index, cast(DimMapping, factor.operands[index]))
            if laid is not None:
                self.add_tile(place, op, laid)
                self.states[value] = Partial.SUM
                return True
        return False


def is_read_once(op: ir.Operation) -> bool:
    """Whether an op has one result with one use."""
    return len(op.results) == 1 and len(list(op.results[0].uses)) == 1
