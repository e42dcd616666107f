"""Stages: which ops of a region can share one loop, and what each loop must bring out (design: stages).

What is reduced over the factor is complete only after its loop; whoever needs it waits for the next stage.
Big tensors never cross a stage: they are made again in every loop that needs them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from exla_opt.ops.rules import DimMapping
from exla_opt.ops.traits import Trait

from .graph import Graph, Node
from .region import Region


@dataclass(frozen=True, slots=True)
class Output:
    """One result that a loop brings out: written slice by slice along `mapping`, or combined when it is None."""

    node: int
    result: int
    mapping: DimMapping | None


@dataclass(frozen=True, slots=True)
class Stage:
    """One loop: the ops of its body in program order, its outputs, and what it reads that earlier loops lead to."""

    number: int
    nodes: tuple[int, ...]
    outputs: tuple[Output, ...]
    awaited: frozenset[int] = frozenset()


Makers = dict[int, tuple[int | None, ...]]


def find_makers(graph: Graph, region: Region) -> Makers:
    """For every member and operand the position of the member that makes it as the very tile it is read in, if any."""
    made: dict[int, tuple[int, DimMapping]] = {}
    for position, member in region.members.items():
        for value, mapping in zip(graph.nodes[position].results, member.results, strict=True):
            if mapping is not None:
                made[value] = (position, mapping)

    def maker(value: int, mapping: DimMapping | None) -> int | None:
        found = made.get(value) if mapping is not None else None
        return found[0] if found and found[1] == mapping else None

    return {
        position: tuple(map(maker, graph.nodes[position].operands, member.operands))
        for position, member in region.members.items()
    }


def _stage_numbers(
    graph: Graph, region: Region, makers: Makers, copies: set[int]
) -> tuple[dict[int, int], dict[int, int]]:
    """The earliest stage of every member, and the stage before which every whole value is ready (0 left out).

    One walk in program order.
    """
    ready: dict[int, int] = {}  # what is not in it is there before the first loop
    stages: dict[int, int] = {}
    first, last = min(region.members), max(region.members)
    for node in graph.nodes[first : last + 1]:  # nothing before the first member waits for one
        after = 0
        for value in (*node.operands, *node.captures):
            if value in ready and ready[value] > after:
                after = ready[value]
        if node.position in region.members:
            stages[node.position] = _member_stage(node, makers[node.position], ready, stages)
            if node.position not in copies:  # the original of a copy stays: it is ready when its operands are
                after = stages[node.position] + 1
        if after:
            ready.update(dict.fromkeys(node.results, after))
    return stages, ready


def _member_stage(node: Node, makers: tuple[int | None, ...], ready: dict[int, int], stages: dict[int, int]) -> int:
    stage = max((ready.get(value, 0) for value in node.captures), default=0)
    for value, maker in zip(node.operands, makers, strict=True):
        stage = max(stage, ready.get(value, 0) if maker is None else stages[maker])
    return stage


def _needed_whole(graph: Graph, makers: Makers, value: int) -> bool:
    """Whether some reader outside the region, or a member that does not cut it, needs the complete tensor."""
    return any(
        index < 0 or user not in makers or makers[user][index] is None for user, index in graph.tensors[value].users
    )


def _own_outputs(graph: Graph, region: Region, makers: Makers, position: int) -> list[Output]:
    member = region.members[position]
    outputs = []
    for index, (value, mapping) in enumerate(zip(graph.nodes[position].results, member.results, strict=True)):
        if mapping is None:
            outputs.append(Output(position, index, None))
        elif _needed_whole(graph, makers, value):
            outputs.append(Output(position, index, mapping))
    return outputs


def find_copies(graph: Graph, makers: Makers) -> set[int]:
    """The cheap ops that the loop only repeats: everything they read comes from outside the region."""
    copies: set[int] = set()
    for position in sorted(makers):
        if Trait.CHEAP not in graph.nodes[position].traits:
            continue
        if all(maker is None or maker in copies for maker in makers[position]):
            copies.add(position)
    return copies


@dataclass(frozen=True, slots=True)
class Outline:
    """What is known of the loops of a region before their bodies are.

    numbers: the earliest stage of every member. ready: the stage before which every whole value is ready, where that is
    not the first. outputs: by stage, what it must bring out; a stage that is missing has no loop.
    """

    numbers: dict[int, int]
    ready: dict[int, int]
    outputs: dict[int, dict[tuple[int, int], Output]]


def find_outline(graph: Graph, region: Region, makers: Makers, copies: set[int]) -> Outline:
    """How many loops a region takes, and for what. makers, copies: what `find_makers` and `find_copies` found."""
    numbers, ready = _stage_numbers(graph, region, makers, copies)
    outputs: dict[int, dict[tuple[int, int], Output]] = {}
    for position, number in numbers.items():
        if position in copies:
            continue  # the original stays where it is for whoever else reads it
        for output in _own_outputs(graph, region, makers, position):
            if graph.tensors[graph.nodes[position].results[output.result]].users:
                outputs.setdefault(number, {})[position, output.result] = output
    return Outline(numbers, ready, outputs)


def find_stages(
    graph: Graph,
    region: Region,
    makers: Makers,
    copies: set[int],
    outline: Outline,
    is_big: Callable[[int], bool],
    keeps: bool = True,
) -> list[Stage]:
    """The loops of a region, first to last.

    makers, copies, outline: what `find_makers`, `find_copies` and `find_outline` found.
    is_big: whether a tensor is too big to be kept between two loops. keeps: whether smaller ones are kept.
    """
    numbers, ready = outline.numbers, outline.ready
    outputs = {number: dict(found) for number, found in outline.outputs.items()}
    stages: list[tuple[int, list[int], set[int]]] = []
    computed: dict[int, set[int]] = {}
    for number in sorted(outputs):
        needed: set[int] = set()
        awaited: set[int] = set()
        queue = [position for position, _ in outputs[number]]
        while queue:
            position = queue.pop()
            if position in needed:
                continue
            needed.add(position)
            for value, maker in zip(graph.nodes[position].operands, makers[position], strict=True):
                if maker is None:
                    if value in ready:
                        awaited.add(value)
                    continue
                home = numbers[maker]
                stored = keeps and home < number and maker in computed.get(home, ()) and maker not in copies
                if stored and not is_big(value):
                    result = graph.tensors[value].result_index
                    mapping = region.members[maker].results[result]
                    awaited.add(value)
                    outputs[home].setdefault((maker, result), Output(maker, result, mapping))
                    continue
                queue.append(maker)
        computed[number] = needed
        stages.append((number, sorted(needed), awaited))
    return [
        Stage(number, tuple(nodes), tuple(out for _, out in sorted(outputs[number].items())), frozenset(awaited))
        for number, nodes, awaited in stages
    ]
