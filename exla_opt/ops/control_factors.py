"""The factors of loops and branches: dimensions that every step treats independently, or sums over.

    while (%c : [i,j], %s : [j]) { return f(%c), %s + sum_i(%c) }    ([i,j], [j]) -> ([i,j], [j])    %s is a sum over i

A factor starts from one dimension of one carry, or of one capture. `block_search` follows it through the body; every
carry that it reaches is cut too, and the search is repeated until none is added. The condition of a loop must not
depend on any of them, unless it tests whether any element continues (`until_done.py`). Factors are computed on demand
and cached: most loops are never queried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

from jaxlib.mlir import ir

from exla_opt.ir.build import shape_of
from exla_opt.ir.locations import describe
from exla_opt.ir.walk import operands_of, walk_regions
from exla_opt.remarks import Reason

from .block_content import Content, captured_values_of, count_ops, read_content
from .block_finish import finish, only_added
from .block_flow import ControlFactor, Partial, Refused, State
from .block_search import BlockSearch
from .collectives import Inside, talks
from .effects import has_side_effect
from .factor import DimMapping, Factor, Kind, OpRule
from .partial_sums import is_zero
from .until_done import UntilDone, is_read, is_tested, search_condition, stops_alone, until_done

_LOOP = "stablehlo.while"
_UNTIL_DONE = "it runs until all elements along that dimension are done: its condition depends on a split value"
_Key = tuple[frozenset[tuple[int, State]], frozenset[tuple[int, State]], int]


@dataclass(frozen=True, eq=False)
class ControlRule(OpRule):
    """The rule of one loop or branch.

    op, number: the op, and its number among `rules`, those of the module. found: cached answers. shared: answers by
    each operand or result that they cut. refused: the reasons for refusals, the last one last.
    """

    op: ir.Operation
    number: int
    rules: Sequence[OpRule]
    found: dict[_Key, ControlFactor | Refused] = field(default_factory=dict)
    shared: dict[tuple[bool | int | DimMapping, ...], ControlFactor] = field(default_factory=dict)
    refused: list[Refused] = field(default_factory=list)

    @cached_property
    def values(self) -> list[ir.Value]:
        """The op's operands, followed by the captures of its blocks."""
        return operands_of(self.op)

    @cached_property
    def contents(self) -> list[Content]:
        """The blocks that are cut: the body of a loop, all blocks of a branch."""
        blocks = [region.blocks[0] for region in self.op.regions]
        firsts = accumulate(map(count_ops, blocks[:-1]), initial=self.number + 1)
        pairs = list(zip(blocks, firsts, strict=True))
        return [read_content(block, first, self.inside) for block, first in pairs[self.op.name == _LOOP :]]

    @cached_property
    def inside(self) -> Sequence[OpRule]:
        """The module's rules in a block that is cut from outside."""
        return Inside(self.rules)

    @cached_property
    def tested(self) -> frozenset[ir.Value]:
        """The captures of a loop's condition."""
        return frozenset(captured_values_of(self.op.regions[0].blocks[0]))

    @cached_property
    def condition(self) -> Content:
        """The condition of a loop."""
        return read_content(self.op.regions[0].blocks[0], self.number + 1, self.inside)

    @cached_property
    def done(self) -> UntilDone | None:
        """The condition of a loop that runs until all elements are done; None for others."""
        return until_done(*(region.blocks[0] for region in self.op.regions))

    @cached_property
    def effect(self) -> ir.Operation | None:
        """A nested op that must run once: every tile runs the blocks again. A branch that communicates is never cut."""
        once = has_side_effect if self.op.name == _LOOP else lambda op: has_side_effect(op) or talks(op)
        blocks = (block for region in self.op.regions for block in region.blocks)
        return next((op for block in blocks for op in walk_regions(block) if once(op)), None)

    @cached_property
    def talking(self) -> list[int]:
        """The positions of the ops in a loop's body that communicate with other devices, at any depth."""
        return [place for place, op in enumerate(self.contents[0].ops) if talks(op)]

    def at_operand(self, index: int, dim: int, inner: int = 1) -> Factor | None:
        """As for any op; an operand after the op's own is a capture."""
        return self.cut_at(self.values[index], {index: (dim, inner)}, {})

    def at_result(self, index: int, dim: int, inner: int = 1) -> Factor | None:
        """As for any op."""
        return self.cut_at(self.op.results[index], {}, {index: (dim, inner)})

    def why(self) -> Reason:
        """The general reason, and the last refusal."""
        if not self.refused:
            return self.reason
        refused = self.refused[-1]
        text = f"{self.reason.text}: {refused.reason}"
        if refused.op is None:
            return Reason(self.reason.code, text)
        return Reason(self.reason.code, text, refused.op.name, describe(refused.op))

    def cut_at(
        self, value: ir.Value, operands: Mapping[int, tuple[int, int]], results: Mapping[int, tuple[int, int]]
    ) -> Factor | None:
        """The factor of one dimension of one operand or result, given as (dim, inner)."""
        [(dim, inner)] = [*operands.values(), *results.values()]
        size = shape_of(value)[dim]
        if size % inner or size < 2 * inner:
            return None
        mapping = DimMapping(dim, size // inner, inner)
        known = self.shared.get((bool(results), *operands, *results, mapping))
        if known is not None:
            return known
        try:
            factor = self.factor_from(dict.fromkeys(operands, mapping), mapping.length, dict.fromkeys(results, mapping))
            self.check_starts(factor)
        except Refused as refused:
            self.refused.append(refused)
            return None
        # From each of these the search would find the same factor, or a part of it.
        for is_result, mappings in ((False, factor.operands), (True, factor.results)):
            for index, own in enumerate(mappings):
                if own is not None:
                    self.shared.setdefault((is_result, index, own), factor)
        return factor

    def extended(
        self, factor: ControlFactor, operands: Mapping[int, DimMapping], results: Mapping[int, DimMapping]
    ) -> ControlFactor | None:
        """The factor that cuts more operands and results; None if they cannot be cut."""
        before = {index: mapping for index, mapping in enumerate(factor.operands) if mapping is not None}
        after = {index: mapping for index, mapping in enumerate(factor.results) if mapping is not None}
        if any(mapping.length != factor.size for mapping in (*operands.values(), *results.values())):
            return None
        try:
            found = self.factor_from(before | dict(operands), factor.size, after | dict(results))
            self.check_starts(found)
        except Refused:
            return None
        return found

    def check_starts(self, factor: ControlFactor) -> None:
        """Check that sums can start from zero in every tile, with their initial values added at the end."""
        if self.op.name != _LOOP:
            return
        for index in factor.summed:
            if index not in factor.added and not is_zero(self.op.operands[index]):
                raise Refused("a sum over the split dimension does not start from zero")

    def factor_from(
        self, operands: Mapping[int, State], length: int, results: Mapping[int, State] | None = None
    ) -> ControlFactor:
        """The factor for operands, captured ones included, and results in these states.

        length: the number of indices that are cut. Raises Refused.
        """
        key = (frozenset(operands.items()), frozenset((results or {}).items()), length)
        if key not in self.found:
            try:
                if self.effect is not None:
                    raise Refused(f"{self.effect.name} must not be repeated for each slice", self.effect)
                find = self.of_loop if self.op.name == _LOOP else self.of_branch
                self.found[key] = find(operands, results or {}, length)
            except Refused as refused:
                self.found[key] = refused
        found = self.found[key]
        if isinstance(found, Refused):
            raise found
        return found

    def of_loop(self, operands: Mapping[int, State], results: Mapping[int, State], length: int) -> ControlFactor:
        condition, body = (region.blocks[0] for region in self.op.regions)
        count = len(self.op.operands)
        carried = {index: state for index, state in operands.items() if index < count} | dict(results)
        values = self.values
        captured = {values[index]: state for index, state in operands.items() if index >= count}
        [content] = self.contents
        arguments = list(body.arguments)
        while True:
            asks = any(map(is_read, (condition.arguments[index] for index in carried)))
            asks = asks or not self.tested.isdisjoint(captured)
            if asks and self.done is None:
                raise Refused(_UNTIL_DONE)
            states = {arguments[index]: state for index, state in carried.items()} | captured
            search = BlockSearch(content, self.inside, length, states, carried)
            try:
                after = search.run()
            except Refused as refused:
                if refused.op is not None and refused.needs_sum and is_tested(refused.op, condition, body):
                    raise Refused(_UNTIL_DONE, refused.op) from None
                raise
            joined = {ir.BlockArgument(value).arg_number: state for value, state in search.joined.items()}
            in_condition = None
            if asks:
                in_condition, more = search_condition(self.condition, self.inside, length, carried, captured)
                joined |= {index: state for index, state in more.items() if index not in joined}
            for index, state in enumerate(after):
                if state is not None and index not in carried and joined.setdefault(index, state) != state:
                    raise Refused("a split value comes back split differently")
            if not joined:
                break
            carried |= joined
        flow, needed = finish(search, self.tested if in_condition is None else set())
        stops = None
        if in_condition is not None:
            assert self.done is not None
            if not stops_alone(self.done, carried, count) or self.talking:
                raise Refused(_UNTIL_DONE)
            stops, also = finish(in_condition, set())
            needed |= also
            for value, forms in in_condition.captured.items():
                search.captured.setdefault(value, set()).update(forms)
        for place in self.talking:
            if len(flow.tiles.get(place, ())) != 1:
                raise Refused(f"{content.ops[place].name} would send as much again for each slice", content.ops[place])
        mappings = tuple(_mapping(carried.get(index)) for index in range(count))
        summed = tuple(sorted(index for index, state in carried.items() if isinstance(state, Partial)))
        return ControlFactor(
            Kind.INDEPENDENT,
            length,
            (*mappings, *_captured(values[count:], captured, search, needed)),
            mappings,
            summed=summed,
            flows=(flow,),
            added=tuple(index for index in summed if only_added(body, index, search)),
            condition=stops,
        )

    def of_branch(self, operands: Mapping[int, State], results: Mapping[int, State], length: int) -> ControlFactor:
        if 0 in operands:
            raise Refused("the branch that runs depends on a split value")
        values = self.values
        captured = {values[index]: state for index, state in operands.items()}
        wanted = dict(results)
        while True:
            searches = []
            joined: dict[int, State] = {}
            for content in self.contents:
                search = BlockSearch(content, self.inside, length, dict(captured), wanted)
                searches.append(search)
                for index, state in enumerate(search.run()):
                    if state is not None and index not in wanted and joined.setdefault(index, state) != state:
                        raise Refused("its branches are split in different ways")
            if not joined:
                break
            wanted |= joined
        finished = [finish(search, set()) for search in searches]
        needed = set().union(*(needed for _, needed in finished))
        for search in searches[1:]:
            for value, forms in search.captured.items():
                searches[0].captured.setdefault(value, set()).update(forms)
        return ControlFactor(
            Kind.INDEPENDENT,
            length,
            (None, *_captured(values[1:], captured, searches[0], needed)),
            tuple(_mapping(wanted.get(index)) for index in range(len(self.op.results))),
            summed=tuple(sorted(index for index, state in wanted.items() if isinstance(state, Partial))),
            flows=tuple(flow for flow, _ in finished),
        )


def _mapping(state: State | None) -> DimMapping | None:
    return state if isinstance(state, DimMapping) else None


def _captured(
    values: Sequence[ir.Value], known: Mapping[ir.Value, State], search: BlockSearch, needed: set[ir.Value]
) -> list[DimMapping | None]:
    """The slices in which each capture is read, if all its readers agree."""
    found = []
    for value in values:
        forms = search.captured.get(value, set())
        if value in known:
            found.append(_mapping(known[value]))
        else:
            found.append(next(iter(forms)) if len(forms) == 1 and value not in needed else None)
    return found
