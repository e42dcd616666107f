"""Grows regions: from one dimension of one big tensor along a factor, as far as it reaches. Analysis only."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import replace

from exla_opt.ops.barriers import BarrierRule
from exla_opt.ops.block_flow import ControlFactor
from exla_opt.ops.control_factors import ControlRule
from exla_opt.ops.rules import DimMapping, Factor
from exla_opt.ops.shifts import lay_shift, may_shift
from exla_opt.ops.traits import Trait
from exla_opt.remarks import Reason

from ..graph import (
    OUTSIDE,
    TILE_MARK,
    Graph,
    Node,
    TiledOp,
    lay_op,
    tiled_from_operand,
    tiled_from_result,
    updates_carry,
    updates_in_place,
)
from .behind_barriers import add_behind_barriers
from .between import add_between
from .region import Region


class _Growth:
    """The search for one region: a work list of tensors, each op decided once."""

    def __init__(
        self,
        graph: Graph,
        region: Region,
        follow: Callable[[int], bool],
        allowed: Callable[[Node, Factor], bool],
        hopeless: Container[tuple[int, DimMapping]],
        overlaps: bool,
        shifts: bool,
        anchors: Container[int],
    ):
        self.shifts = shifts
        self.anchors = anchors
        self.graph = graph
        self.region = region
        self.follow = follow
        self.allowed = allowed
        self.hopeless = hopeless
        self.overlaps = overlaps
        self.queue = [region.seed]
        self.seen: dict[int, DimMapping] = {}  # of shifts' operands and results

    def run(self) -> None:
        while self.queue:
            value = self.queue.pop()
            key = (value, self.region.mappings[value])
            if key in self.hopeless:
                self.region.joined = key
                return
            tensor = self.graph.tensors[value]
            if tensor.producer == OUTSIDE or not self.visit(self.graph.nodes[tensor.producer]):
                continue  # a tensor from outside is sliced; it does not connect its readers
            if value != self.region.seed and is_free(self.graph, self.graph.nodes[tensor.producer], self.follow):
                continue  # each region computes it for itself: all layers share a mask or a scale
            for user, index in tensor.users:
                if index >= 0:
                    self.visit(self.graph.nodes[user])

    def may_update(self, node: Node) -> bool:
        """Whether an op that updates a carry may be cut: in place, or as a small product, in another buffer anyway."""
        if Trait.CONTRACTS in node.traits:
            return not any(map(self.follow, node.results))
        return updates_in_place(self.graph, node)

    def visit(self, node: Node) -> bool:
        """Make `node` a tiled op if it can be one; True when it is."""
        if node.position in self.region.tiled:
            self.extend(node)
            return True
        if TILE_MARK in node.op.attributes or node.position == self.graph.terminator:
            return False
        # Functions of other elements of a loop's carry are read ahead (`windows.py`).
        ahead = self.shifts and (Trait.POINTWISE in node.traits or may_shift(node.name))
        if not ahead and updates_carry(self.graph, node) and not self.may_update(node):
            reason = Reason("EX302", f"{node.name} updates a loop carry")
            self.region.blocked.setdefault(node.position, reason)
            return False
        tiled = self.choose(node)
        if tiled is None:
            self.region.blocked.setdefault(node.position, node.rule.why())
            return False
        if not self.allowed(node, tiled.factor):
            reason = Reason("EX310", "--no-reassociate forbids summing tile by tile")
            self.region.blocked.setdefault(node.position, reason)
            return False
        self.take(node, self.with_other_results(node, tiled))
        return True

    def take(self, node: Node, tiled: TiledOp) -> None:
        self.region.tiled[node.position] = tiled
        if may_shift(node.name) and tiled.factor.reaches:
            pairs = zip(node.operands, tiled.operands, strict=True)
            self.seen.update((value, mapping) for value, mapping in pairs if mapping is not None)
        for value, mapping in zip((*node.operands, *node.results), (*tiled.operands, *tiled.results), strict=True):
            if value in self.anchors or mapping is None or value in self.region.mappings:
                continue
            if self.follow(value):
                self.region.mappings[value] = mapping
                self.queue.append(value)

    def extend(self, node: Node) -> None:
        """Cut more of a loop or a barrier that is already cut: values that the region has cut since."""
        tiled = self.region.tiled[node.position]
        more = self.extended_by(node, tiled, self.region.mappings, self.region.mappings)
        if more is not tiled:
            self.take(node, more)

    def extended_by(
        self, node: Node, tiled: TiledOp, reads: Mapping[int, DimMapping], makes: Mapping[int, DimMapping]
    ) -> TiledOp:
        """A loop or a barrier with more of it cut, if possible. reads, makes: the required mappings, by tensor."""
        if not isinstance(node.rule, (BarrierRule, ControlRule)):
            return tiled
        operands = {
            index: reads[value]
            for index, value in enumerate(node.operands)
            if value in reads and tiled.operands[index] is None and index not in tiled.factor.summed
        }
        results = {
            index: makes[value]
            for index, value in enumerate(node.results)
            if value in makes and tiled.factor.is_same(index)
        }
        if any(mapping.low != -tiled.offset for mapping in (*operands.values(), *results.values())):
            return tiled
        for more, after in ((operands, results), ({}, results), (operands, {})):
            laid = self.extended(node, tiled, more, after) if more or after else None
            if laid is not None:
                return laid
        return tiled

    def with_other_results(self, node: Node, tiled: TiledOp) -> TiledOp:
        """A cut loop with those of its big results cut as well that every tile would otherwise compute completely."""
        if not isinstance(node.rule, ControlRule):
            return tiled
        [own, *_] = filter(None, (*tiled.results, *tiled.operands))
        for index, value in enumerate(node.results):
            shape = self.graph.tensors[value].type.shape
            if not tiled.factor.is_same(index) or value in self.region.mappings or not self.follow(value):
                continue
            dims = [dim for dim, size in enumerate(shape) if size == own.length * own.inner]
            for dim in sorted(dims, key=lambda dim: dim != own.dim):
                more = self.extended(node, tiled, {}, {index: replace(own, dim=dim)})
                if more is not None:
                    tiled = more
                    break
        return tiled

    def extended(
        self, node: Node, tiled: TiledOp, operands: Mapping[int, DimMapping], results: Mapping[int, DimMapping]
    ) -> TiledOp | None:
        """A cut loop or barrier, cut in more operands and results; None if that is impossible."""
        found = _extended(node, tiled.factor, _from_zero(operands), _from_zero(results))
        if found is None or not self.allowed(node, found):
            return None
        [own, *_] = filter(None, (*found.operands, *found.results))
        return self.checked(node, lay_op(node, found, own, replace(own, low=-tiled.offset)))

    def hold_small(self) -> None:
        """Cut also small tensors of barriers if all of the region's ops read them in the same slices."""
        for position in sorted(self.region.tiled, reverse=True):
            node, tiled = self.graph.nodes[position], self.region.tiled[position]
            if not isinstance(node.rule, BarrierRule):
                continue
            wanted = {}
            for index, value in enumerate(node.results):
                users = self.graph.tensors[value].users if tiled.results[index] is None else ()
                forms = {read.operands[place] for user, place in users if (read := self.region.tiled.get(user))}
                if len(forms) == 1 and (mapping := forms.pop()) is not None:
                    wanted[value] = mapping
            more = self.extended_by(node, tiled, {}, wanted)
            if more is not tiled:
                self.take(node, more)

    def choose(self, node: Node) -> TiledOp | None:
        if self.shifts and (shifted := self.checked(node, self.shifted(node))):
            return shifted
        mappings = self.region.mappings
        for index, value in enumerate(node.results):
            if value in mappings:
                tiled = tiled_from_result(node, index, mappings[value], self.overlaps)
                return self.checked(node, tiled and self.extended_by(node, tiled, mappings, mappings))
        for index, value in enumerate(node.operands):
            if value not in mappings:
                continue
            tiled = tiled_from_operand(node, index, mappings[value], self.overlaps)
            if tiled := self.checked(node, tiled):
                return tiled
        return None

    def shifted(self, node: Node) -> TiledOp | None:
        """An op that shifts parts along the cut dimension, laid by the positions of its operands and result."""
        if not may_shift(node.name):
            return None
        result = self.laid(node.results[0])
        self.lay_moved(node, result)
        factor = lay_shift(node.op, [self.laid(value) for value in node.operands], result)
        return None if factor is None else TiledOp(node.position, factor, 1, 0, factor.operands, factor.results)

    def lay_moved(self, node: Node, result: DimMapping | None) -> None:
        """Align the slices that an op shifts, such as the two of a roll, with the tensor that they are slices of.

        If that has no mapping yet it begins with the result, as for tensors of about one length.
        """
        for value in node.operands:
            before = self.graph.tensors[value].producer
            if before == OUTSIDE or before in self.region.tiled:
                continue
            sliced = self.graph.nodes[before]
            if Trait.CUTS not in sliced.traits or not may_shift(sliced.name):
                continue
            [source] = sliced.operands
            if self.laid(source) is None and self.laid(value) is None and result is not None and result.inner == 1:
                size = self.graph.tensors[source].type.shape[result.dim]
                self.seen[source] = replace(result, length=size)
            if self.laid(source) is not None:
                self.visit(sliced)

    def laid(self, value: int) -> DimMapping | None:
        """How a tensor is cut, including small and outer ones, if known."""
        tensor = self.graph.tensors[value]
        if value not in self.region.mappings and tensor.producer in self.region.tiled:
            return self.region.tiled[tensor.producer].results[tensor.result_index]
        return self.region.mappings.get(value) or self.seen.get(value)

    def checked(self, node: Node, tiled: TiledOp | None) -> TiledOp | None:
        """The tiled op, unless one of its results is already cut in another way."""
        if tiled is None:
            return None
        for value, mapping in zip(node.results, tiled.results, strict=True):
            if value in self.region.mappings and self.region.mappings[value] != mapping:
                return None
        return tiled


def is_free(graph: Graph, node: Node, follow: Callable[[int], bool]) -> bool:
    """Whether any number of loops may compute the op's result: it only broadcasts small tensors."""
    return Trait.CHEAP in node.traits and not any(map(follow, node.operands))


def is_seam(graph: Graph, value: int, follow: Callable[[int], bool], inside: Container[int]) -> bool:
    """Whether a search from the tensor connects more than others: a free one with readers not in `inside`."""
    tensor = graph.tensors[value]
    if tensor.producer == OUTSIDE or not is_free(graph, graph.nodes[tensor.producer], follow):
        return False
    readers = {user for user, _ in tensor.users}
    return len(readers) > 1 and any(user not in inside for user in readers)


def grow(
    graph: Graph,
    seed: int,
    mapping: DimMapping,
    follow: Callable[[int], bool],
    allowed: Callable[[Node, Factor], bool],
    hopeless: Container[tuple[int, DimMapping]] = (),
    overlaps: bool = False,
    shifts: bool = False,
    anchors: Container[int] = (),
) -> Region:
    """The region of `seed` cut along `mapping`: everything that the factor reaches through tensors to `follow`.

    allowed: whether an op may be cut along one of its factors. hopeless: where the search may stop at once. overlaps:
    whether the region continues at ops that read more of an operand than their part, which is then in longer tiles.
    shifts: whether slices, pads and joins along the cut dimension are such ops. anchors: tensors at which the region
    ends, even if they are to follow (`plans/search.py`).
    """
    region = Region(seed, {seed: mapping})
    growth = _Growth(graph, region, follow, allowed, hopeless, overlaps, shifts, anchors)
    growth.run()
    growth.hold_small()
    if region.tiled and region.joined is None:
        add_between(graph, region, follow, allowed)
        add_behind_barriers(graph, region, follow)
    return region


def _extended(
    node: Node, factor: Factor, operands: Mapping[int, DimMapping], results: Mapping[int, DimMapping]
) -> Factor | None:
    """The factor that cuts more of a loop or a barrier, if there is one."""
    if isinstance(node.rule, BarrierRule):
        return node.rule.extended(factor, operands, results)
    if isinstance(node.rule, ControlRule) and isinstance(factor, ControlFactor):
        return node.rule.extended(factor, operands, results)
    return None


def _from_zero(mappings: Mapping[int, DimMapping]) -> dict[int, DimMapping]:
    return {index: replace(mapping, low=0) for index, mapping in mappings.items()}
