"""Regions: the ops that one factor reaches from one dimension of one big tensor (design: regions).

Analysis only. A region's index runs over [0, extent); every member op knows how its own factor lies on
that index, so that a shifted slice, a pad or a merged dimension are read off in one place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field

from exla_opt.ir.walk import CONTROL_FLOW
from exla_opt.ops.rules import DimMapping, Factor, Kind
from exla_opt.remarks import Reason

from .graph import OUTSIDE, Graph, Node

# Ops that only move or convert data: cheaper to repeat in the loop than to read from memory.
CHEAP = frozenset(
    {"stablehlo." + name for name in ("broadcast_in_dim", "iota", "constant", "transpose", "reshape", "convert")}
)

# What lies directly between the big tensors of a region is near them: the search goes no further than this many
# ops, and eight for every op of the region itself, so that planning stays linear in the size of a network.
_MOST_BETWEEN = 64


@dataclass(frozen=True, slots=True)
class TiledOp:
    """One op of a region, with its factor laid on the region's index.

    Index r of the region is indices [r * scale + offset, (r + 1) * scale + offset) of the op's factor.
    operands, results: the mappings in terms of the region's index; None where the tensor does not carry it.
    """

    node: int
    factor: Factor
    scale: int
    offset: int
    operands: tuple[DimMapping | None, ...]
    results: tuple[DimMapping | None, ...]


@dataclass(slots=True)
class Region:
    """What one factor reaches. `mappings` holds every tensor that is cut; `blocked` says where it ended, and why.

    joined: where the search ended early, because what lies behind is known to be hopeless.
    """

    seed: int
    mappings: dict[int, DimMapping]
    members: dict[int, TiledOp] = field(default_factory=dict)
    blocked: dict[int, Reason] = field(default_factory=dict)
    joined: tuple[int, DimMapping] | None = None

    @property
    def low(self) -> int:
        """The smallest region index of any tensor."""
        return min(mapping.low for mapping in self.mappings.values())

    @property
    def high(self) -> int:
        """One past the largest region index of any tensor."""
        return max(mapping.low + mapping.length for mapping in self.mappings.values())


def lay_op(node: Node, factor: Factor, own: DimMapping, wanted: DimMapping) -> TiledOp | None:
    """Lay the factor of `node`, which stands at `own`, on the region so that `own` becomes `wanted`.

    None when the region's index is not a whole number of the factor's indices.
    """
    if wanted.inner % own.inner:
        return None
    scale = wanted.inner // own.inner
    if own.length != wanted.length * scale:
        return None
    offset = own.low - wanted.low * scale

    def on_region(mapping: DimMapping | None) -> DimMapping | None:
        if mapping is None:
            return None
        return DimMapping(mapping.dim, mapping.length // scale, mapping.inner * scale, (mapping.low - offset) // scale)

    present = [mapping for mapping in (*factor.operands, *factor.results) if mapping is not None]
    if any(mapping.length % scale or (mapping.low - offset) % scale for mapping in present):
        return None
    return TiledOp(
        node.position,
        factor,
        scale,
        offset,
        tuple(map(on_region, factor.operands)),
        tuple(map(on_region, factor.results)),
    )


def tiled_from_result(node: Node, index: int, wanted: DimMapping) -> TiledOp | None:
    """The member that makes result `index` of `node` in slices along `wanted`, if its rule allows."""
    factor = node.rule.at_result(index, wanted.dim)
    own = factor.results[index] if factor else None
    return lay_op(node, factor, own, wanted) if factor and own else None


def tiled_from_operand(node: Node, index: int, wanted: DimMapping) -> TiledOp | None:
    """The member that reads operand `index` of `node` in slices along `wanted`, if its rule allows."""
    factor = node.rule.at_operand(index, wanted.dim)
    own = factor.operands[index] if factor else None
    return lay_op(node, factor, own, wanted) if factor and own else None


class _Growth:
    """The search for one region: a work list of tensors, each op decided once."""

    def __init__(
        self,
        graph: Graph,
        region: Region,
        follow: Callable[[int], bool],
        allowed: Callable[[Node, Factor], bool],
        hopeless: Container[tuple[int, DimMapping]],
    ):
        self.graph = graph
        self.region = region
        self.follow = follow
        self.allowed = allowed
        self.hopeless = hopeless
        self.queue = [region.seed]

    def run(self) -> None:
        while self.queue:
            value = self.queue.pop()
            key = (value, self.region.mappings[value])
            if key in self.hopeless:
                self.region.joined = key
                return
            tensor = self.graph.tensors[value]
            if tensor.producer == OUTSIDE or not self.visit(self.graph.nodes[tensor.producer]):
                continue  # a tensor made elsewhere is sliced; it does not connect its readers
            if value != self.region.seed and is_free(self.graph, self.graph.nodes[tensor.producer], self.follow):
                continue  # each region makes it for itself: a mask or a scale is shared by all layers
            for user, index in tensor.users:
                if index >= 0:
                    self.visit(self.graph.nodes[user])

    def visit(self, node: Node) -> bool:
        """Make `node` a member if it can be one; True when it is."""
        if node.position in self.region.members:
            return True
        if node.name in CONTROL_FLOW or node.position == self.graph.terminator:
            return False
        if updates_carry(self.graph, node):
            reason = Reason("EX302", f"{node.name} updates what the loop carries")
            self.region.blocked.setdefault(node.position, reason)
            return False
        member = self.choose(node)
        if member is None:
            self.region.blocked.setdefault(node.position, node.rule.reason)
            return False
        if not self.allowed(node, member.factor):
            reason = Reason("EX310", "--no-reassociate forbids to sum in pieces")
            self.region.blocked.setdefault(node.position, reason)
            return False
        self.region.members[node.position] = member
        for value, mapping in zip((*node.operands, *node.results), (*member.operands, *member.results), strict=True):
            if mapping is not None and value not in self.region.mappings and self.follow(value):
                self.region.mappings[value] = mapping
                self.queue.append(value)
        return True

    def choose(self, node: Node) -> TiledOp | None:
        mappings = self.region.mappings
        for index, value in enumerate(node.results):
            if value in mappings:
                return self.checked(node, tiled_from_result(node, index, mappings[value]))
        for index, value in enumerate(node.operands):
            member = tiled_from_operand(node, index, mappings[value]) if value in mappings else None
            if member := self.checked(node, member):
                return member
        return None

    def checked(self, node: Node, member: TiledOp | None) -> TiledOp | None:
        """The member, unless one of its results is already cut in another way."""
        if member is None:
            return None
        for value, mapping in zip(node.results, member.results, strict=True):
            if value in self.region.mappings and self.region.mappings[value] != mapping:
                return None
        return member


def is_free(graph: Graph, node: Node, follow: Callable[[int], bool]) -> bool:
    """Whether any number of loops may make the op's result: it only spreads small tensors out."""
    return node.name in CHEAP and not any(map(follow, node.operands))


def updates_carry(graph: Graph, node: Node) -> bool:
    """Whether the op writes into what a loop carries, as an accumulator: cut, it would copy the whole of it."""
    if not graph.nested or graph.arguments.isdisjoint(node.operands):
        return False
    return not graph.returned.isdisjoint(node.results)


def grow(
    graph: Graph,
    seed: int,
    mapping: DimMapping,
    follow: Callable[[int], bool],
    allowed: Callable[[Node, Factor], bool],
    hopeless: Container[tuple[int, DimMapping]] = (),
) -> Region:
    """The region of `seed` cut along `mapping`: everything that the factor reaches through tensors to `follow`.

    allowed: whether an op may be cut along one of its factors. hopeless: where the search may end at once.
    """
    region = Region(seed, {seed: mapping})
    _Growth(graph, region, follow, allowed, hopeless).run()
    if region.members and region.joined is None:
        _add_between(graph, region, follow, allowed)
    return region


def _wanted_slices(region: Region, nodes: Iterable[int], graph: Graph) -> dict[int, DimMapping]:
    """The tensors that `nodes` read in slices and nobody in the region makes."""
    wanted: dict[int, DimMapping] = {}
    for position in nodes:
        member = region.members[position]
        for value, mapping in zip(graph.nodes[position].operands, member.operands, strict=True):
            if mapping is not None and value not in region.mappings:
                wanted.setdefault(value, mapping)
    return wanted


def _add_between(
    graph: Graph, region: Region, follow: Callable[[int], bool], allowed: Callable[[Node, Factor], bool]
) -> None:
    """Add the small ops that lead from the region back into it, and the cheap ones that feed it.

    Walking back from what members read in slices finds the candidates; a walk forward over them keeps
    those that a member feeds (a softmax's row maximum on its way back into the matrix) or that are cheap.
    """
    first = min(region.members)
    wanted = _wanted_slices(region, sorted(region.members), graph)
    candidates: dict[int, TiledOp] = {}
    queue = deque(wanted)
    most = _MOST_BETWEEN + 8 * len(region.members)
    while queue and len(candidates) < most:
        value = queue.popleft()
        tensor = graph.tensors[value]
        position = tensor.producer
        if position == OUTSIDE or position in region.members or position in candidates:
            continue
        node = graph.nodes[position]
        if position < first and node.name not in CHEAP:
            continue
        if any(follow(other) for other in (*node.operands, *node.results)):
            continue  # another region's big tensor: this one ends here
        member = tiled_from_result(node, tensor.result_index, wanted[value])
        if member is None or member.factor.kind is not Kind.INDEPENDENT or not allowed(node, member.factor):
            continue
        if any(wanted.get(v, s) != s for v, s in zip(node.results, member.results, strict=True)):
            continue
        candidates[position] = member
        for operand, mapping in zip(node.operands, member.operands, strict=True):
            if mapping is not None and operand not in wanted and operand not in region.mappings:
                wanted[operand] = mapping
                queue.append(operand)

    made: dict[int, DimMapping | None] = {}

    def record(position: int, member: TiledOp) -> None:
        made.update(zip(graph.nodes[position].results, member.results, strict=True))

    for position, member in sorted((region.members | candidates).items()):
        node = graph.nodes[position]
        if position in region.members:
            record(position, member)
            continue
        fed = any(
            mapping is not None and made.get(value) == mapping
            for value, mapping in zip(node.operands, member.operands, strict=True)
        )
        if fed or node.name in CHEAP:
            record(position, member)
            region.members[position] = member
    for position in candidates:
        if position not in region.members:
            continue
        member = region.members[position]
        for value, mapping in zip(graph.nodes[position].results, member.results, strict=True):
            if mapping is not None:
                region.mappings.setdefault(value, mapping)
    _drop_unread(graph, region, candidates)


def _drop_unread(graph: Graph, region: Region, candidates: dict[int, TiledOp]) -> None:
    """Take out the added ops that no member reads in slices any more."""
    for position in sorted(candidates, reverse=True):
        if position not in region.members:
            continue
        results = graph.nodes[position].results
        read = any(
            user in region.members and index >= 0 and region.members[user].operands[index] == region.mappings.get(value)
            for value in results
            for user, index in graph.tensors[value].users
        )
        if not read:
            del region.members[position]
            for value in results:
                region.mappings.pop(value, None)
