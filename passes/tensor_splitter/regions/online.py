"""A loop that finds a maximum and the next one, which sums exponentials of what is below it, as one loop.

    m = max x; s = sum exp(x - m)   ->   in every tile: m' = max(m, x); s' = s exp(m - m') + sum exp(x - m')

Legal where all that the second loop makes with what it waits for is sums to which every term brings exp(x - m) as a
factor, once, and nothing else of the maximum. What all terms of a sum share, as what a softmax divides its row by, is
multiplied with the sum behind the loop: the loop need not wait for it either. The tiles are computed once less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from jaxlib.mlir import ir

from exla_opt.ops.rules import Kind
from exla_opt.passes.algebra.places import Place
from exla_opt.passes.algebra.running import handed_on, is_guard, is_maximum, subtracted, terms_of

from ..graph import OUTSIDE, Graph
from .region import Dims, Producers, Region, Running, Stage, Sum


def find_online(
    graph: Graph, region: Region, producers: Producers, stages: Sequence[Stage]
) -> tuple[Stage, ...] | None:
    """The stages with those joined that can be; None where none can."""
    joined = list(stages[:1])
    for stage in stages[1:]:
        both = _join(graph, region, producers, joined[-1], stage)
        joined[-1:] = [joined[-1], stage] if both is None else [both]
    return tuple(joined) if len(joined) < len(stages) else None


def _join(graph: Graph, region: Region, producers: Producers, first: Stage, second: Stage) -> Stage | None:
    waited = second.awaited - first.awaited
    if any(graph.tensors[value].producer in region.tiled and _is_cut(graph, region, value) for value in waited):
        return None
    running = first.running
    if running is not None:
        return _joined(graph, region, producers, first, second, running)
    for output in first.outputs:
        if output.mapping is not None or not is_maximum(graph.nodes[output.node].op):
            continue
        for shift in sorted(waited):
            between = _between(graph, region, shift, graph.nodes[output.node].results[output.result])
            if between is not None:
                guarded = any(is_guard(graph.nodes[position].op) for position in between)
                found = Running(output.node, shift, between, {}, guarded)
                return _joined(graph, region, producers, first, second, found)
    return None


def _is_cut(graph: Graph, region: Region, value: int) -> bool:
    tensor = graph.tensors[value]
    return region.tiled[tensor.producer].results[tensor.result_index] is not None


def _joined(
    graph: Graph, region: Region, producers: Producers, first: Stage, second: Stage, running: Running
) -> Stage | None:
    """Both stages as one, if all that the second makes with what it waits for is sums of the right form."""
    waited = second.awaited - first.awaited
    sums = _sums(graph, region, producers, second, waited, running.shift)
    if sums is None:
        return None
    ones = running.ones | (waited - {running.shift})
    return replace(
        first,
        nodes=tuple(sorted({*first.nodes, *second.nodes})),
        outputs=tuple(sorted({*first.outputs, *second.outputs}, key=lambda each: (each.node, each.result))),
        running=replace(running, sums={**running.sums, **sums}, ones=ones),
    )


def _between(graph: Graph, region: Region, value: int, maximum: int) -> tuple[int, ...] | None:
    """The ops outside of the region that hand a maximum on to a value, in program order; None for any other value."""
    found: set[int] = set()
    while value != maximum:
        producer = graph.tensors[value].producer
        if producer == OUTSIDE or producer in region.tiled:
            return None
        node = graph.nodes[producer]
        index = handed_on(node.op)
        if index is None:
            return None
        found.add(producer)
        if is_guard(node.op):
            found.add(graph.tensors[node.operands[0]].producer)
        value = node.operands[index]
    return tuple(sorted(found))


def _sums(
    graph: Graph, region: Region, producers: Producers, stage: Stage, waited: Set[int], shift: int
) -> dict[int, Sum] | None:
    """By op, the sums of a stage that hang on what it waits for; None where something else does."""
    hanging = _hanging(graph, producers, stage, waited)
    made = {graph.tensors[value].value: position for position in hanging for value in graph.nodes[position].results}
    sums = {}
    for output in stage.outputs:
        if output.node not in hanging:
            continue
        if output.mapping is not None or region.tiled[output.node].factor.kind is not Kind.REDUCING:
            return None
        found = _sum(graph, output.node, waited, shift, made)
        if found is None:
            return None
        sums[output.node] = found
    return sums or None


def _hanging(graph: Graph, producers: Producers, stage: Stage, waited: Set[int]) -> set[int]:
    """The ops of a stage that depend on what it waits for."""
    found: set[int] = set()
    for position in stage.nodes:
        node = graph.nodes[position]
        read = zip(node.operands, producers[position], strict=True)
        if not waited.isdisjoint(node.captures) or any(
            made in found or (made is None and value in waited) for value, made in read
        ):
            found.add(position)
    return found


def _sum(graph: Graph, position: int, waited: Set[int], shift: int, made: Mapping[ir.Value, int]) -> Sum | None:
    """One sum: a product of what does not wait, of exp(x - shift) at most once, and of what all its terms share.

    made: what depends on what is waited for, by value.
    """
    leaves = {graph.tensors[value].value: value for value in waited}
    found = terms_of(graph.nodes[position].op, leaves)
    if found is None:
        return None
    formula, place = found
    dims: Dims | None = None
    shared = []
    for factor, power in formula.powers.items():
        if factor.value in leaves:
            along = _along(factor.place, place)
            if along is None or factor.role != "number" or leaves[factor.value] == shift:
                return None
            shared.append((leaves[factor.value], power, along))
        elif factor.value in made:
            below = subtracted(factor, graph.tensors[shift].value)
            if below is None or below[0] in made or power != 1 or dims is not None:
                return None
            dims = _along(below[1], place)
            if dims is None:
                return None
    return Sum(dims, tuple(shared))


def _along(letters: Place, place: Place) -> Dims | None:
    """For each dimension that of the sum; None where the sum has not all of them."""
    if any(letter is not None and letter not in place for letter in letters):
        return None
    return tuple(None if letter is None else place.index(letter) for letter in letters)
