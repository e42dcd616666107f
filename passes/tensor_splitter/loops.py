"""The loops of a region, as far as they are legal: what they compute, store and leave, or why there are none.

Nothing here depends on the size of a tile, nor on the tensor of the region that was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from exla_opt.remarks import Reason

from .comparisons import asks
from .equality import find_repeated, find_unequal
from .graph import Graph
from .region import Region
from .stages import Output, Producers, Stage, find_copies, find_outline, find_producers, find_stages

# Every stage recomputes big tensors: attention cut over its keys has five, its gradient a few more.
_MOST_STAGES = 10
TOO_MANY_LOOPS = "EX308"
# Loops count in i32, as XLA does best.
_MOST_INDICES = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a tensor cannot be split along one dim, and the op that stops it."""

    reason: Reason
    node: int | None = None


@dataclass(frozen=True, slots=True)
class Loops:
    """The loops that a region becomes, before anything is known of tiles and costs.

    producers, copies: what `find_producers` and `find_copies` found. vanished: the big tensors that no loop brings out.
    """

    producers: Producers
    copies: frozenset[int]
    stages: tuple[Stage, ...]
    vanished: frozenset[int]

    @property
    def outputs(self) -> list[Output]:
        """The outputs of the loops, first to last."""
        return [output for stage in self.stages for output in stage.outputs]


def find_loops(graph: Graph, region: Region, is_big: Callable[[int], bool]) -> Loops | Refusal:
    """The loops of a region, or why it has none, whichever of its tensors is asked for.

    is_big: whether a tensor is over the threshold.
    """
    if not region.tiled:
        producer = graph.nodes[graph.tensors[region.seed].producer]
        return Refusal(region.blocked.get(producer.position, producer.rule.reason), producer.position)
    if any(graph.tensors[value].type.shape[mapping.dim] > _MOST_INDICES for value, mapping in region.mappings.items()):
        return Refusal(Reason("EX312", "it has more indices along that dimension than 32 bits can count"))
    producers = find_producers(graph, region)
    copies = find_copies(graph, producers)
    outline = find_outline(graph, region, producers, copies)
    if not outline.outputs:
        return _refuse_unread(graph, region)
    if len(outline.outputs) > _MOST_STAGES:
        return Refusal(Reason(TOO_MANY_LOOPS, f"it would take {len(outline.outputs)} loops, one after the other"))
    for big, keeps in _ways_to_store(graph, is_big):
        stages = find_stages(graph, region, producers, copies, outline, big, keeps)
        unequal = _unequal(graph, producers, stages)
        if unequal is None:
            break
    if unequal is not None:
        return Refusal(
            Reason("EX309", "a comparison for equality would need the very bits that another loop has made"), unequal
        )
    outputs = [output for stage in stages for output in stage.outputs]
    vanished = _vanished(graph, region, copies, outputs, is_big)
    return Loops(producers, frozenset(copies), tuple(stages), frozenset(vanished))


def _vanished(
    graph: Graph, region: Region, copies: set[int], outputs: list[Output], is_big: Callable[[int], bool]
) -> set[int]:
    """Big tensors of the region that nobody needs whole any more."""
    written = {graph.nodes[output.node].results[output.result] for output in outputs}
    gone = set()
    for position in region.tiled:
        for value in graph.nodes[position].results:
            read_outside = any(user not in region.tiled or index < 0 for user, index in graph.tensors[value].users)
            if is_big(value) and value not in written and not (position in copies and read_outside):
                gone.add(value)
    return gone


def _ways_to_store(graph: Graph, is_big: Callable[[int], bool]) -> Iterator[tuple[Callable[[int], bool], bool]]:
    """What counts as too big to be kept between loops, and whether anything is kept: the first sound way is taken."""
    yield is_big, True
    yield is_big, False

    # The answers to a question take a quarter of what it is about, or less, so big ones may be kept as well.
    def is_big_and_no_answer(value: int) -> bool:
        return is_big(value) and not asks(graph.nodes[graph.tensors[value].producer].op)

    yield is_big_and_no_answer, True


def _unequal(graph: Graph, producers: Producers, stages: list[Stage]) -> int | None:
    unequal = find_unequal(graph, producers, stages)
    return find_repeated(graph, stages) if unequal is None else unequal


def refuse_returned(graph: Graph) -> Refusal:
    """Why a tensor that the terminator reads cannot vanish."""
    return Refusal(Reason("EX103", "it is a result of this block"), graph.terminator)


def _refuse_unread(graph: Graph, region: Region) -> Refusal:
    """Why a region brings nothing out: whoever reads its cheap ops outside of it cannot be cut, or nobody does."""
    readers = (user for value in region.mappings for user, _ in graph.tensors[value].users if user in region.blocked)
    blocking = next(readers, None)
    if blocking is None:
        return Refusal(Reason("EX107", "nobody reads what is made of it"))
    return Refusal(region.blocked[blocking], blocking)


def refuse_unsplit(graph: Graph, region: Region, value: int) -> Refusal:
    """Why a tensor of a region that has loops exists unsplit all the same: some reader needs it complete."""
    for user, index in graph.tensors[value].users:
        node = graph.nodes[user]
        if user == graph.terminator:
            return refuse_returned(graph)
        if index < 0:
            return Refusal(Reason("EX303", f"the body of {node.name} uses it whole"), user)
        if user not in region.tiled:
            return Refusal(region.blocked.get(user, node.rule.reason), user)
        if region.tiled[user].operands[index] is None:
            return Refusal(Reason("EX304", f"{node.name} uses it whole as well"), user)
    return Refusal(Reason("EX306", "what is made of it is needed complete in the middle of the split"))
