"""Regions: the ops that one factor reaches from one dimension of one big tensor (design: regions).

Analysis only. A region's index runs over [0, extent); every member op knows how its own factor lies on
that index, so that a shifted slice, a pad or a merged dimension are read off in one place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field

from exla_opt.analysis.factors import Factor, Kind, Slot
from exla_opt.analysis.graph import CONTROL_FLOW, OUTSIDE, Graph, Node
from exla_opt.remarks import Reason

# Ops that only move or convert data: cheaper to repeat in the loop than to read from memory.
CHEAP = frozenset(
    {"stablehlo." + name for name in ("broadcast_in_dim", "iota", "constant", "transpose", "reshape", "convert")}
)

# What lies directly between the big tensors of a region is near them: the search goes no further than this many
# ops, and eight for every op of the region itself, so that planning stays linear in the size of a network.
_MOST_BETWEEN = 64


@dataclass(frozen=True, slots=True)
class Member:
    """One op of a region, with its factor laid on the region's index.

    Index r of the region is indices [r * granularity + origin, (r + 1) * granularity + origin) of the op's factor.
    operands, results: the slots in terms of the region's index; None where the tensor does not carry it.
    """

    node: int
    factor: Factor
    granularity: int
    origin: int
    operands: tuple[Slot | None, ...]
    results: tuple[Slot | None, ...]


@dataclass(slots=True)
class Region:
    """What one factor reaches. `slots` holds every tensor that is cut; `blocked` says where it ended, and why.

    joined: where the search ended early, because what lies behind is known to be hopeless.
    """

    seed: int
    slots: dict[int, Slot]
    members: dict[int, Member] = field(default_factory=dict)
    blocked: dict[int, Reason] = field(default_factory=dict)
    joined: tuple[int, Slot] | None = None

    @property
    def low(self) -> int:
        """The smallest region index of any tensor."""
        return min(slot.low for slot in self.slots.values())

    @property
    def high(self) -> int:
        """One past the largest region index of any tensor."""
        return max(slot.low + slot.length for slot in self.slots.values())


def lay_member(node: Node, factor: Factor, own: Slot, wanted: Slot) -> Member | None:
    """Lay the factor of `node`, which stands at `own`, on the region so that `own` becomes `wanted`.

    None when the region's index is not a whole number of the factor's indices.
    """
    if wanted.inner % own.inner:
        return None
    granularity = wanted.inner // own.inner
    if own.length != wanted.length * granularity:
        return None
    origin = own.low - wanted.low * granularity

    def on_region(slot: Slot | None) -> Slot | None:
        if slot is None:
            return None
        return Slot(slot.dim, slot.length // granularity, slot.inner * granularity, (slot.low - origin) // granularity)

    present = [slot for slot in (*factor.operands, *factor.results) if slot is not None]
    if any(slot.length % granularity or (slot.low - origin) % granularity for slot in present):
        return None
    return Member(
        node.position,
        factor,
        granularity,
        origin,
        tuple(map(on_region, factor.operands)),
        tuple(map(on_region, factor.results)),
    )


def member_from_result(node: Node, index: int, wanted: Slot) -> Member | None:
    """The member that makes result `index` of `node` in slices along `wanted`, if its rule allows."""
    factor = node.rule.at_result(index, wanted.dim)
    own = factor.results[index] if factor else None
    return lay_member(node, factor, own, wanted) if factor and own else None


def member_from_operand(node: Node, index: int, wanted: Slot) -> Member | None:
    """The member that reads operand `index` of `node` in slices along `wanted`, if its rule allows."""
    factor = node.rule.at_operand(index, wanted.dim)
    own = factor.operands[index] if factor else None
    return lay_member(node, factor, own, wanted) if factor and own else None


class _Growth:
    """The search for one region: a work list of tensors, each op decided once."""

    def __init__(
        self,
        graph: Graph,
        region: Region,
        follow: Callable[[int], bool],
        allowed: Callable[[Node, Factor], bool],
        hopeless: Container[tuple[int, Slot]],
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
            key = (value, self.region.slots[value])
            if key in self.hopeless:
                self.region.joined = key
                return
            tensor = self.graph.tensors[value]
            if tensor.producer == OUTSIDE or not self.visit(self.graph.nodes[tensor.producer]):
                continue  # a tensor made elsewhere is sliced; it does not connect its readers
            if value != self.region.seed and self.is_free(self.graph.nodes[tensor.producer]):
                continue  # each region makes it for itself: a mask or a scale is shared by all layers
            for user, index in tensor.users:
                if index >= 0:
                    self.visit(self.graph.nodes[user])

    def is_free(self, node: Node) -> bool:
        """Whether any number of loops may make the op's result: it only spreads small tensors out."""
        return node.name in CHEAP and not any(map(self.follow, node.operands))

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
        for value, slot in zip((*node.operands, *node.results), (*member.operands, *member.results), strict=True):
            if slot is not None and value not in self.region.slots and self.follow(value):
                self.region.slots[value] = slot
                self.queue.append(value)
        return True

    def choose(self, node: Node) -> Member | None:
        slots = self.region.slots
        for index, value in enumerate(node.results):
            if value in slots:
                return self.checked(node, member_from_result(node, index, slots[value]))
        for index, value in enumerate(node.operands):
            member = member_from_operand(node, index, slots[value]) if value in slots else None
            if member := self.checked(node, member):
                return member
        return None

    def checked(self, node: Node, member: Member | None) -> Member | None:
        """The member, unless one of its results is already cut in another way."""
        if member is None:
            return None
        for value, slot in zip(node.results, member.results, strict=True):
            if value in self.region.slots and self.region.slots[value] != slot:
                return None
        return member


def updates_carry(graph: Graph, node: Node) -> bool:
    """Whether the op writes into what a loop carries, as an accumulator: cut, it would copy the whole of it."""
    in_loop = graph.nodes[graph.terminator].name == "stablehlo.return"
    if not in_loop or graph.arguments.isdisjoint(node.operands):
        return False
    returned = graph.nodes[graph.terminator].operands
    return any(value in returned for value in node.results)


def grow(
    graph: Graph,
    seed: int,
    slot: Slot,
    follow: Callable[[int], bool],
    allowed: Callable[[Node, Factor], bool],
    hopeless: Container[tuple[int, Slot]] = (),
) -> Region:
    """The region of `seed` cut along `slot`: everything that the factor reaches through tensors to `follow`.

    allowed: whether an op may be cut along one of its factors. hopeless: where the search may end at once.
    """
    region = Region(seed, {seed: slot})
    _Growth(graph, region, follow, allowed, hopeless).run()
    if region.members and region.joined is None:
        _add_between(graph, region, follow, allowed)
    return region


def _wanted_slices(region: Region, nodes: Iterable[int], graph: Graph) -> dict[int, Slot]:
    """The tensors that `nodes` read in slices and nobody in the region makes."""
    wanted: dict[int, Slot] = {}
    for position in nodes:
        member = region.members[position]
        for value, slot in zip(graph.nodes[position].operands, member.operands, strict=True):
            if slot is not None and value not in region.slots:
                wanted.setdefault(value, slot)
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
    candidates: dict[int, Member] = {}
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
        member = member_from_result(node, tensor.result_index, wanted[value])
        if member is None or member.factor.kind is not Kind.INDEPENDENT or not allowed(node, member.factor):
            continue
        if any(wanted.get(v, s) != s for v, s in zip(node.results, member.results, strict=True)):
            continue
        candidates[position] = member
        for operand, slot in zip(node.operands, member.operands, strict=True):
            if slot is not None and operand not in wanted and operand not in region.slots:
                wanted[operand] = slot
                queue.append(operand)

    made: dict[int, Slot | None] = {}

    def record(position: int, member: Member) -> None:
        made.update(zip(graph.nodes[position].results, member.results, strict=True))

    for position, member in sorted((region.members | candidates).items()):
        node = graph.nodes[position]
        if position in region.members:
            record(position, member)
            continue
        fed = any(
            slot is not None and made.get(value) == slot
            for value, slot in zip(node.operands, member.operands, strict=True)
        )
        if fed or node.name in CHEAP:
            record(position, member)
            region.members[position] = member
    for position in candidates:
        if position not in region.members:
            continue
        member = region.members[position]
        for value, slot in zip(graph.nodes[position].results, member.results, strict=True):
            if slot is not None:
                region.slots.setdefault(value, slot)
    _drop_unread(graph, region, candidates)


def _drop_unread(graph: Graph, region: Region, candidates: dict[int, Member]) -> None:
    """Take out the added ops that no member reads in slices any more."""
    for position in sorted(candidates, reverse=True):
        if position not in region.members:
            continue
        results = graph.nodes[position].results
        read = any(
            user in region.members and index >= 0 and region.members[user].operands[index] == region.slots.get(value)
            for value in results
            for user, index in graph.tensors[value].users
        )
        if not read:
            del region.members[position]
            for value in results:
                region.slots.pop(value, None)
