"""The loops of a region, as far as they are legal: the ops and outputs of their stages, or why there are none.

A sum over the factor is complete only after its loop; ops that need it are moved to the next stage. Big tensors never
cross a stage: they are recomputed in every loop that needs them. Nothing here depends on the size of a tile, nor on the
tensor of the region that was requested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from exla_opt.remarks import Reason

from ..graph import Graph, Node
from .equality import find_repeated, find_unequal
from .kept import ways_to_store
from .online import find_online
from .region import Output, Producers, Region, Stage, Work, find_copies, find_producers
from .talking import find_resent, find_sent

# Every loop recomputes big tensors that others need too: all loops together may take this many times the work of one
# pass. Eleven loops take that if each recomputes everything before it.
_MOST_RECOMPUTED = 6.0
TOO_MANY_LOOPS = "EX308"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a tensor cannot be split along one dim, and the op that prevents it.

    outputs: of the loops that it would take, if these are too many.
    """

    reason: Reason
    node: int | None = None
    outputs: tuple[Output, ...] = ()

    def stored(self, graph: Graph) -> set[int]:
        """The tensors that one of these loops would write slice by slice."""
        return _stored(graph, self.outputs)


@dataclass(frozen=True, slots=True)
class Loops:
    """The loops that a region becomes, before tiles and costs are known.

    producers, copies: from `find_producers` and `find_copies`. vanished: the big tensors that no loop writes. online:
    fewer stages, with a maximum that is read while it is computed, if possible.
    """

    producers: Producers
    copies: frozenset[int]
    stages: tuple[Stage, ...]
    vanished: frozenset[int]
    online: tuple[Stage, ...] | None = None

    @property
    def outputs(self) -> list[Output]:
        """The outputs of the loops, first to last."""
        return [output for stage in self.stages for output in stage.outputs]

    def stored(self, graph: Graph) -> set[int]:
        """The tensors that a loop writes slice by slice, because something needs them complete."""
        return _stored(graph, self.outputs)


def _stored(graph: Graph, outputs: Iterable[Output]) -> set[int]:
    return {graph.nodes[output.node].results[output.result] for output in outputs if output.mapping is not None}


def find_loops(
    graph: Graph, region: Region, is_big: Callable[[int], bool], work: Mapping[int, float]
) -> Loops | Refusal:
    """The loops of a region, or why it has none, whichever of its tensors is requested.

    is_big: whether a tensor is over the threshold. work: by position, the seconds of an op's arithmetic.
    """
    if not region.tiled:
        producer = graph.nodes[graph.tensors[region.seed].producer]
        return Refusal(region.blocked.get(producer.position, producer.rule.why()), producer.position)
    if (partly := region.partly_cut(graph)) is not None:
        return Refusal(
            Reason("EX301", f"{graph.nodes[partly].name} would have no elements in some of its slices"), partly
        )
    sent = find_sent(graph, region)
    if sent and region.reaches():  # what tiles overlap in would be sent twice
        sender = graph.nodes[graph.tensors[min(sent)].producer]
        return Refusal(Reason("EX301", f"{sender.name} would send more in tiles that overlap"), sender.position)
    producers = find_producers(graph, region)
    copies = find_copies(graph, producers)
    outline = find_outline(graph, region, producers, copies)
    if not outline.outputs:
        return _refuse_unread(graph, region)
    most = _MOST_RECOMPUTED * sum(work.get(position, 0.0) for position in region.tiled)
    for big, keeps in ways_to_store(graph, is_big, sent):
        stages = find_stages(graph, region, producers, copies, outline, big, Work(work, most), keeps)
        if stages is None:
            text = f"it would take {len(outline.outputs)} consecutive loops, which recompute most of it"
            outputs = tuple(output for stage in outline.outputs.values() for output in stage.values())
            refused = Refusal(Reason(TOO_MANY_LOOPS, text), outputs=outputs)
            continue
        if (resent := find_resent(graph, stages)) is not None:
            refused = Refusal(
                Reason("EX301", f"{graph.nodes[resent].name} would send as much again in another loop"), resent
            )
            continue
        unequal = _unequal(graph, producers, stages)
        if unequal is None:
            break
        text = "a comparison for equality would need the exact bits that another loop computed"
        refused = Refusal(Reason("EX309", text), unequal)
    else:
        return refused
    vanished = _vanished(graph, region, copies, [output for stage in stages for output in stage.outputs], is_big)
    fewer = find_online(graph, region, producers, stages, outline.ready)
    sound = fewer and _unequal(graph, producers, fewer) is None and find_resent(graph, fewer) is None
    return Loops(producers, frozenset(copies), tuple(stages), frozenset(vanished), fewer if sound else None)


def _vanished(
    graph: Graph, region: Region, copies: set[int], outputs: list[Output], is_big: Callable[[int], bool]
) -> set[int]:
    """Big tensors of the region that nothing needs unsplit any more."""
    written = {graph.nodes[output.node].results[output.result] for output in outputs}
    gone = set()
    for position in region.tiled:
        for value in graph.nodes[position].results:
            read_outside = any(user not in region.tiled or index < 0 for user, index in graph.tensors[value].users)
            if is_big(value) and value not in written and not (position in copies and read_outside):
                gone.add(value)
    return gone


def _unequal(graph: Graph, producers: Producers, stages: Sequence[Stage]) -> int | None:
    unequal = find_unequal(graph, producers, stages)
    return find_repeated(graph, stages) if unequal is None else unequal


def refuse_returned(graph: Graph) -> Refusal:
    """The refusal for a tensor that the terminator reads, which cannot vanish."""
    return Refusal(Reason("EX103", "it is a result of this block"), graph.terminator)


def _refuse_unread(graph: Graph, region: Region) -> Refusal:
    """Why a region has no outputs: the outer readers of its cheap ops cannot be cut, or there are none."""
    users = (user for value in region.mappings for user, _ in graph.tensors[value].users)
    blocking = next((user for user in users if user in region.blocked), None)
    reason = Reason("EX107", "its uses lead to no result") if blocking is None else region.blocked[blocking]
    return Refusal(reason, blocking)


def _used_whole(region: Region, node: Node) -> Reason:
    """Why the blocks of control flow read a tensor unsplit."""
    text, blocked = f"the body of {node.name} uses it unsplit", region.blocked.get(node.position)
    _, _, why = blocked.text.partition(": ") if blocked else ("", "", "")
    if blocked is None or not why:
        return Reason("EX303", text)
    return replace(blocked, code="EX303", text=f"{text}: {why}")


def refuse_unsplit(graph: Graph, region: Region, value: int) -> Refusal:
    """Why a tensor of a region with loops still exists unsplit: some reader needs it complete."""
    for user, index in graph.tensors[value].users:
        node = graph.nodes[user]
        if user == graph.terminator:
            return refuse_returned(graph)
        if index < 0 or (user not in region.tiled and index >= node.own):
            return Refusal(_used_whole(region, node), user)
        if user not in region.tiled:
            return Refusal(region.blocked.get(user, node.rule.why()), user)
        if region.tiled[user].operands[index] is None:
            return Refusal(Reason("EX304", f"{node.name} uses it unsplit as well"), user)
    return Refusal(Reason("EX306", "a value computed from it is needed complete between two loops"))


def _stage_numbers(
    graph: Graph, region: Region, producers: Producers, copies: set[int]
) -> tuple[dict[int, int], dict[int, int]]:
    """The earliest stage of every tiled op, and the stage before which every unsplit value is ready (0 left out).

    One pass in program order.
    """
    ready: dict[int, int] = {}  # all others are ready before the first loop
    stages: dict[int, int] = {}
    first, last = min(region.tiled), max(region.tiled)
    for node in graph.nodes[first : last + 1]:  # nothing before the first tiled op waits for one
        after = 0
        for value in (*node.operands, *node.captures):
            if value in ready and ready[value] > after:
                after = ready[value]
        if node.position in region.tiled:
            stages[node.position] = _tiled_stage(node, producers[node.position], ready, stages)
            if node.position not in copies:  # the original of a copy stays: it is ready when its operands are
                after = stages[node.position] + 1
        if after:
            ready.update(dict.fromkeys(node.results, after))
    return stages, ready


def _tiled_stage(node: Node, producers: tuple[int | None, ...], ready: dict[int, int], stages: dict[int, int]) -> int:
    stage = max((ready.get(value, 0) for value in node.captures), default=0)
    for value, producer in zip(node.operands, producers, strict=True):
        stage = max(stage, ready.get(value, 0) if producer is None else stages[producer])
    return stage


def _needed_whole(graph: Graph, producers: Producers, value: int) -> bool:
    """Whether some reader outside the region, or a tiled op that does not cut it, needs the complete tensor."""
    return any(
        index < 0 or user not in producers or producers[user][index] is None
        for user, index in graph.tensors[value].users
    )


def _own_outputs(graph: Graph, region: Region, producers: Producers, position: int) -> list[Output]:
    tiled = region.tiled[position]
    outputs = []
    for index, (value, mapping) in enumerate(zip(graph.nodes[position].results, tiled.results, strict=True)):
        if mapping is None and not tiled.factor.is_same(index):
            outputs.append(Output(position, index, None))
        elif _needed_whole(graph, producers, value):
            outputs.append(Output(position, index, mapping))
    return outputs


@dataclass(frozen=True, slots=True)
class Outline:
    """The loops of a region before their bodies are determined.

    numbers: the earliest stage of every tiled op. ready: the stage before which every unsplit value is ready, if not
    the first. outputs: by stage, its outputs; a missing stage has no loop.
    """

    numbers: dict[int, int]
    ready: dict[int, int]
    outputs: dict[int, dict[tuple[int, int], Output]]


def find_outline(graph: Graph, region: Region, producers: Producers, copies: set[int]) -> Outline:
    """The loops that a region needs, and their outputs. producers, copies: from `find_producers` and `find_copies`."""
    numbers, ready = _stage_numbers(graph, region, producers, copies)
    outputs: dict[int, dict[tuple[int, int], Output]] = {}
    for position, number in numbers.items():
        if position in copies:
            continue  # the original stays for its other readers
        for output in _own_outputs(graph, region, producers, position):
            if graph.tensors[graph.nodes[position].results[output.result]].users:
                outputs.setdefault(number, {})[position, output.result] = output
    return Outline(numbers, ready, outputs)


def find_stages(
    graph: Graph,
    region: Region,
    producers: Producers,
    copies: set[int],
    outline: Outline,
    is_big: Callable[[int], bool],
    work: Work,
    keeps: bool = True,
) -> list[Stage] | None:
    """The loops of a region, first to last; None if they would exceed the allowed work.

    producers, copies, outline: from `find_producers`, `find_copies` and `find_outline`.
    is_big: whether a tensor is too big to be kept between two loops. keeps: whether smaller ones are kept.
    """
    numbers, ready = outline.numbers, outline.ready
    outputs = {number: dict(found) for number, found in outline.outputs.items()}
    stages: list[tuple[int, list[int], set[int]]] = []
    computed: dict[int, set[int]] = {}
    spent = 0.0
    for number in sorted(outputs):
        needed: set[int] = set()
        awaited: set[int] = set()
        queue = [position for position, _ in outputs[number]]
        while queue:
            position = queue.pop()
            if position in needed:
                continue
            needed.add(position)
            for value, producer in zip(graph.nodes[position].operands, producers[position], strict=True):
                if producer is None:
                    if value in ready:
                        awaited.add(value)
                    continue
                home = numbers[producer]
                stored = keeps and home < number and producer in computed.get(home, ()) and producer not in copies
                if stored and not is_big(value):
                    result = graph.tensors[value].result_index
                    mapping = region.tiled[producer].results[result]
                    awaited.add(value)
                    outputs[home].setdefault((producer, result), Output(producer, result, mapping))
                    continue
                queue.append(producer)
        spent += sum(work.of.get(position, 0.0) for position in needed)
        if spent > work.most:
            return None
        computed[number] = needed
        stages.append((number, sorted(needed), awaited))
    return [
        Stage(number, tuple(nodes), tuple(out for _, out in sorted(outputs[number].items())), frozenset(awaited))
        for number, nodes, awaited in stages
    ]
