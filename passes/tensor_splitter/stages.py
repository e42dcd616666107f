"""Stages: which ops of a region can share one loop, and what each loop must bring out (design: stages).

What is reduced over the factor is complete only after its loop; whoever needs it waits for the next stage.
Big tensors never cross a stage: they are made again in every loop that needs them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from exla_opt.analysis.factors import Slot
from exla_opt.analysis.graph import Graph, Node

from .regions import CHEAP, Member, Region


@dataclass(frozen=True, slots=True)
class Output:
    """One result that a loop brings out: written slice by slice along `slot`, or combined when it is None."""

    node: int
    result: int
    slot: Slot | None


@dataclass(frozen=True, slots=True)
class Stage:
    """One loop: the ops of its body in program order, and its outputs."""

    number: int
    nodes: tuple[int, ...]
    outputs: tuple[Output, ...]


def tile_local(graph: Graph, region: Region, member: Member, operand: int) -> int | None:
    """The position of the member that makes this operand as the very tile it is read in, if there is one."""
    slot = member.operands[operand]
    tensor = graph.tensors[graph.nodes[member.node].operands[operand]]
    maker = region.members.get(tensor.producer)
    if slot is None or maker is None or maker.results[tensor.result_index] != slot:
        return None
    return maker.node


def _stage_numbers(graph: Graph, region: Region, copies: set[int]) -> dict[int, int]:
    """The earliest stage of every member: one walk in program order over readiness of whole values."""
    ready = [0] * len(graph.tensors)
    stages: dict[int, int] = {}
    first, last = min(region.members), max(region.members)
    for node in graph.nodes[first : last + 1]:  # nothing before the first member waits for one
        member = region.members.get(node.position)
        after = max((ready[value] for value in (*node.operands, *node.captures)), default=0)
        if member is not None:
            stages[node.position] = _member_stage(graph, region, member, node, ready, stages)
            if node.position not in copies:  # the original of a copy stays: it is ready when its operands are
                after = stages[node.position] + 1
        for value in node.results:
            ready[value] = after
    return stages


def _member_stage(
    graph: Graph, region: Region, member: Member, node: Node, ready: list[int], stages: dict[int, int]
) -> int:
    stage = max((ready[value] for value in node.captures), default=0)
    for index, value in enumerate(node.operands):
        maker = tile_local(graph, region, member, index)
        stage = max(stage, ready[value] if maker is None else stages[maker])
    return stage


def _needed_whole(graph: Graph, region: Region, value: int) -> bool:
    """Whether some reader outside the region, or a member that does not cut it, needs the complete tensor."""
    for user, index in graph.tensors[value].users:
        member = region.members.get(user)
        if member is None or index < 0 or tile_local(graph, region, member, index) is None:
            return True
    return False


def _own_outputs(graph: Graph, region: Region, position: int) -> list[Output]:
    member = region.members[position]
    outputs = []
    for index, (value, slot) in enumerate(zip(graph.nodes[position].results, member.results, strict=True)):
        if slot is None:
            outputs.append(Output(position, index, None))
        elif _needed_whole(graph, region, value):
            outputs.append(Output(position, index, slot))
    return outputs


def find_copies(graph: Graph, region: Region) -> set[int]:
    """The cheap ops that the loop only repeats: everything they read comes from outside the region."""
    copies: set[int] = set()
    for position, member in sorted(region.members.items()):
        if graph.nodes[position].name not in CHEAP:
            continue
        makers = (tile_local(graph, region, member, index) for index in range(len(member.operands)))
        if all(maker is None or maker in copies for maker in makers):
            copies.add(position)
    return copies


def find_stages(graph: Graph, region: Region, is_big: Callable[[int], bool]) -> list[Stage]:
    """The loops of a region, first to last.

    is_big: whether a tensor is too big to be kept between two loops.
    """
    copies = find_copies(graph, region)
    numbers = _stage_numbers(graph, region, copies)
    outputs: dict[int, dict[tuple[int, int], Output]] = {}
    for position, number in numbers.items():
        if position in copies:
            continue  # the original stays where it is for whoever else reads it
        for output in _own_outputs(graph, region, position):
            if graph.tensors[graph.nodes[position].results[output.result]].users:
                outputs.setdefault(number, {})[position, output.result] = output

    stages: list[tuple[int, list[int]]] = []
    computed: dict[int, set[int]] = {}
    for number in range(max(numbers.values(), default=-1) + 1):
        if number not in outputs:
            continue
        needed: set[int] = set()
        queue = [position for position, _ in outputs[number]]
        while queue:
            position = queue.pop()
            if position in needed:
                continue
            needed.add(position)
            member = region.members[position]
            for index, value in enumerate(graph.nodes[position].operands):
                maker = tile_local(graph, region, member, index)
                if maker is None:
                    continue
                home = numbers[maker]
                stored = home < number and maker in computed.get(home, ()) and maker not in copies
                if stored and not is_big(value):
                    result = graph.tensors[value].result_index
                    slot = region.members[maker].results[result]
                    outputs[home].setdefault((maker, result), Output(maker, result, slot))
                    continue
                queue.append(maker)
        computed[number] = needed
        stages.append((number, sorted(needed)))
    return [
        Stage(number, tuple(nodes), tuple(output for _, output in sorted(outputs[number].items())))
        for number, nodes in stages
    ]
