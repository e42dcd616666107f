"""Stages: which ops of a region can share one loop, and the outputs of each (design: stages).

What is reduced over the factor is complete only after its loop; whoever needs it waits for the next stage.
Big tensors never cross a stage: they are recomputed in every loop that needs them.
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


Producers = dict[int, tuple[int | None, ...]]


def find_producers(graph: Graph, region: Region) -> Producers:
    """For every tiled op and operand the position of the tiled op whose result it is, in that very tile."""
    made: dict[int, tuple[int, DimMapping]] = {}
    for position, tiled in region.tiled.items():
        for value, mapping in zip(graph.nodes[position].results, tiled.results, strict=True):
            if mapping is not None:
                made[value] = (position, mapping)

    def producer(value: int, mapping: DimMapping | None) -> int | None:
        found = made.get(value) if mapping is not None else None
        return found[0] if found and found[1] == mapping else None

    return {
        position: tuple(map(producer, graph.nodes[position].operands, tiled.operands))
        for position, tiled in region.tiled.items()
    }


def _stage_numbers(
    graph: Graph, region: Region, producers: Producers, copies: set[int]
) -> tuple[dict[int, int], dict[int, int]]:
    """The earliest stage of every tiled op, and the stage before which every whole value is ready (0 left out).

    One walk in program order.
    """
    ready: dict[int, int] = {}  # what is not in it is there before the first loop
    stages: dict[int, int] = {}
    first, last = min(region.tiled), max(region.tiled)
    for node in graph.nodes[first : last + 1]:  # nothing before the first tiled op waits for one
        after = 0
        for value in (*node.operands, *node.captures):
            if value in ready and ready[value] > after:
                after = ready[value]
        if node.position in region.tiled:
            stages[node.position] = _member_stage(node, producers[node.position], ready, stages)
            if node.position not in copies:  # the original of a copy stays: it is ready when its operands are
                after = stages[node.position] + 1
        if after:
            ready.update(dict.fromkeys(node.results, after))
    return stages, ready


def _member_stage(node: Node, producers: tuple[int | None, ...], ready: dict[int, int], stages: dict[int, int]) -> int:
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
        if mapping is None:
            outputs.append(Output(position, index, None))
        elif _needed_whole(graph, producers, value):
            outputs.append(Output(position, index, mapping))
    return outputs


def find_copies(graph: Graph, producers: Producers) -> set[int]:
    """The cheap ops that the loop only repeats: everything they read comes from outside the region."""
    copies: set[int] = set()
    for position in sorted(producers):
        if Trait.CHEAP not in graph.nodes[position].traits:
            continue
        if all(producer is None or producer in copies for producer in producers[position]):
            copies.add(position)
    return copies


@dataclass(frozen=True, slots=True)
class Outline:
    """What is known of the loops of a region before their bodies are.

    numbers: the earliest stage of every tiled op. ready: the stage before which every unsplit value is, where that is
    not the first. outputs: by stage, its outputs; a stage that is missing has no loop.
    """

    numbers: dict[int, int]
    ready: dict[int, int]
    outputs: dict[int, dict[tuple[int, int], Output]]


def find_outline(graph: Graph, region: Region, producers: Producers, copies: set[int]) -> Outline:
    """How many loops a region takes, and for what. producers, copies: what `find_producers` and `find_copies` found."""
    numbers, ready = _stage_numbers(graph, region, producers, copies)
    outputs: dict[int, dict[tuple[int, int], Output]] = {}
    for position, number in numbers.items():
        if position in copies:
            continue  # the original stays where it is for whoever else reads it
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
    keeps: bool = True,
) -> list[Stage]:
    """The loops of a region, first to last.

    producers, copies, outline: what `find_producers`, `find_copies` and `find_outline` found.
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
        computed[number] = needed
        stages.append((number, sorted(needed), awaited))
    return [
        Stage(number, tuple(nodes), tuple(out for _, out in sorted(outputs[number].items())), frozenset(awaited))
        for number, nodes, awaited in stages
    ]
