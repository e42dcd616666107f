"""Merges a loop with the one that waits for its result.

    m = max x; s = sum exp(x - m)     ->   in every tile: m' = max(m, x); s' = s exp(m - m') + sum exp(x - m')
    m = mean x; s = sum (x - m)^2     ->   in every tile: m' = mean so far; s' = s + count (m - m')^2 + sum (x - m')^2
    c = f(sum x); s = sum c y         ->   s' = s + sum y, and c s' behind the loop

Legal if everything that the second loop computes from awaited values is sums in which exp(x - m) is a factor of each
term, once, or in which the terms are exactly the squares, and common factors of a sum's terms, such as the divisor of a
softmax: those multiply the sum after the loop, which need not wait for them. The tiles are then computed once less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace

from jaxlib.mlir import ir

from exla_opt.ops.rules import Kind
from exla_opt.passes.algebra import means
from exla_opt.passes.algebra.formula import Factor, Formula
from exla_opt.passes.algebra.places import Place
from exla_opt.passes.algebra.running import handed_on, is_below, is_guard, is_maximum, subtracted, terms_of

from ..graph import OUTSIDE, Graph
from .region import Dims, Producers, Region, Running, Shift, Stage, Sum


def find_online(
    graph: Graph, region: Region, producers: Producers, stages: Sequence[Stage], ready: Mapping[int, int]
) -> tuple[Stage, ...] | None:
    """The stages with those merged that can be; None if none can.

    ready: the stage before which awaited values are ready, unless a stage writes them in slices.
    """
    joined = list(stages[:1])
    for stage in stages[1:]:
        waited = {value for value in stage.awaited if ready.get(value, stage.number) > joined[-1].number}
        both = _join(graph, region, producers, joined[-1], stage, waited - joined[-1].awaited)
        joined[-1:] = [joined[-1], stage] if both is None else [both]
    return tuple(joined) if len(joined) < len(stages) else None


def _join(
    graph: Graph, region: Region, producers: Producers, first: Stage, second: Stage, waited: Set[int]
) -> Stage | None:
    """Both stages as one, if everything that the second computes from awaited values is sums of the right form."""
    if any(graph.tensors[value].producer in region.tiled and _is_cut(graph, region, value) for value in waited):
        return None
    before = first.running or Running({}, {})
    shifts = {**before.shifts, **_find_shifts(graph, region, first, waited - before.shifts.keys())}
    sums = _sums(graph, region, producers, second, waited, shifts)
    if sums is None:
        return None
    used = {each.shift for each in (*before.sums.values(), *sums.values())}
    ones = before.ones | (waited - used)
    if used & ones or any(value in used for each in sums.values() for value, _, _ in each.later):
        return None  # a subtrahend cannot count as 1 in the loop
    return replace(
        first,
        nodes=tuple(sorted({*first.nodes, *second.nodes})),
        outputs=tuple(sorted({*first.outputs, *second.outputs}, key=lambda each: (each.node, each.result))),
        awaited=first.awaited | (second.awaited - waited),
        running=Running(
            {value: shift for value, shift in shifts.items() if value in used}, {**before.sums, **sums}, ones
        ),
    )


def _is_cut(graph: Graph, region: Region, value: int) -> bool:
    tensor = graph.tensors[value]
    return region.tiled[tensor.producer].results[tensor.result_index] is not None


def _find_shifts(graph: Graph, region: Region, stage: Stage, waited: Set[int]) -> dict[int, Shift]:
    """The awaited values that a maximum or a sum of the stage leads to, by ops that can be repeated in the loop."""
    return {value: shift for value in sorted(waited) for shift in _leading_to(graph, region, stage, value)}


def _leading_to(graph: Graph, region: Region, stage: Stage, value: int) -> Iterator[Shift]:
    for output in stage.outputs:
        node = graph.nodes[output.node]
        if output.mapping is not None or not (is_maximum(node.op) or means.is_sum(node.op)):
            continue
        mean = means.is_sum(node.op)
        between = _between(graph, region, value, node.results[output.result], means.handed_on if mean else handed_on)
        if between is None or (mean and not means.is_mean(node.op, [graph.nodes[each].op for each in between])):
            continue
        yield Shift(output.node, between, mean, any(is_guard(graph.nodes[each].op) for each in between))


def _between(
    graph: Graph, region: Region, value: int, found: int, handed_on: Callable[[ir.Operation], int | None]
) -> tuple[int, ...] | None:
    """The ops outside of the region that lead from the result to a value, in program order; None for other values."""
    between: set[int] = set()
    while value != found:
        producer = graph.tensors[value].producer
        if producer == OUTSIDE or producer in region.tiled:
            return None
        node = graph.nodes[producer]
        index = handed_on(node.op)
        if index is None:
            return None
        between.add(producer)
        if is_guard(node.op):
            between.add(graph.tensors[node.operands[0]].producer)
        value = node.operands[index]
    return tuple(sorted(between))


def _sums(
    graph: Graph,
    region: Region,
    producers: Producers,
    stage: Stage,
    waited: Set[int],
    shifts: Mapping[int, Shift],
) -> dict[int, Sum] | None:
    """By op, the sums of a stage that depend on awaited values; None if something else does."""
    hanging = _hanging(graph, producers, stage, waited)
    made = {graph.tensors[value].value: position for position in hanging for value in graph.nodes[position].results}
    sums = {}
    for output in stage.outputs:
        if output.node not in hanging:
            continue
        if output.mapping is not None or region.tiled[output.node].factor.kind is not Kind.REDUCING:
            return None
        found = _sum(graph, region, output.node, waited, shifts, made)
        if found is None:
            return None
        sums[output.node] = found
    return sums or None


def _hanging(graph: Graph, producers: Producers, stage: Stage, waited: Set[int]) -> set[int]:
    """The ops of a stage that depend on awaited values."""
    found: set[int] = set()
    for position in stage.nodes:
        node = graph.nodes[position]
        read = zip(node.operands, producers[position], strict=True)
        if not waited.isdisjoint(node.captures) or any(
            made in found or (made is None and value in waited) for value, made in read
        ):
            found.add(position)
    return found


def _sum(
    graph: Graph,
    region: Region,
    position: int,
    waited: Set[int],
    shifts: Mapping[int, Shift],
    made: Mapping[ir.Value, int],
) -> Sum | None:
    """One sum: its factors that do not wait, at most one difference to a shift, and the common factors of its terms.

    made: by value, those that depend on awaited values.
    """
    leaves = {graph.tensors[value].value: value for value in waited}
    read = terms_of(graph.nodes[position].op, leaves)
    if read is None:
        return None
    formula, place = read
    found = Sum()
    shared = []
    for factor, power in formula.powers.items():
        if factor.value in leaves:
            along = _along(factor.place, place)
            if along is None or factor.role != "number" or abs(power) != 1:
                return None  # quotients by a norm may have finite squares where their numerators have not
            shared.append((leaves[factor.value], power, along))
        elif factor.value in made:
            taken = None if found.shift is not None else _taken(graph, region, position, read, factor, shifts, made)
            if taken is None:
                return None
            found = taken
    if shared and any(factor.role != "number" for factor in formula.powers):
        return None  # a completely masked sum is 0, and not 0 / 0 then
    return replace(found, later=tuple(shared))


def _taken(
    graph: Graph,
    region: Region,
    position: int,
    read: tuple[Formula, Place],
    factor: Factor,
    shifts: Mapping[int, Shift],
    made: Mapping[ir.Value, int],
) -> Sum | None:
    """A sum whose terms have exp(x - shift) as a factor, or are (x - shift)^2; None for all others."""
    formula, place = read
    for value, shift in shifts.items():
        below = (means.subtracted if shift.mean else subtracted)(factor, graph.tensors[value].value)
        if below is None or below[0] in made:
            continue
        dims = _along(below[1], place)
        if dims is None:
            return None
        if not shift.mean:
            maximum, between = graph.nodes[shift.op].op, [graph.nodes[each].op for each in shift.between]
            found = means.place_behind(below[1], between)
            bounded = found is not None and is_below(formula, factor, below[0], found, maximum)
            return Sum(value, dims) if bounded and formula.powers[factor] == 1 else None
        weight = _weight(
            graph, region, position, means.Squares(graph.nodes[position].op, *read, factor, below[1]), shift
        )
        return None if weight is None else Sum(value, dims, weight)
    return None


def _weight(graph: Graph, region: Region, position: int, squares: means.Squares, shift: Shift) -> float | None:
    """A sum of squares if all squares are 1, if its tiles have exactly the elements of the running mean."""
    cut, same = region.tiled[shift.op].operands[0], region.tiled[position].operands[0]
    if cut is None or same is None or replace(cut, dim=0) != replace(same, dim=0):
        return None
    between = [graph.nodes[each].op for each in shift.between]
    found = squares.are_about(graph.nodes[shift.op].op, between, (cut.dim, same.dim))
    return squares.weight if found else None


def _along(letters: Place, place: Place) -> Dims | None:
    """For each dimension that of the sum; None if the sum does not have all of them."""
    if any(letter is not None and letter not in place for letter in letters):
        return None
    return tuple(None if letter is None else place.index(letter) for letter in letters)
