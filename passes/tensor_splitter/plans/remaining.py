"""The bytes of a plan besides its tiles: tensors that stay unsplit, and the sums of its loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from exla_opt.ir.types import element_type, float_bits
from exla_opt.memory.machine import Machine
from exla_opt.ops.rules import Kind
from exla_opt.ops.tiling import is_widened
from exla_opt.ops.traits import Trait

from ..graph import OUTSIDE, Graph
from ..regions.region import Output, Region, Stage
from .body import MOST_SLICES_ALIVE
from .loop_plan import LoopPlan

# The bits of the floats in which sums of narrow ones are kept.
_WIDE = 32


def remaining_bytes(
    graph: Graph,
    region: Region,
    outputs: Sequence[Output],
    planned: Sequence[LoopPlan],
    slice_bytes: int,
    is_big: Callable[[int], bool],
) -> int:
    """The bytes of `Plan.remaining`."""
    anyway = min(_exists_anyway(graph), MOST_SLICES_ALIVE * slice_bytes)
    stays = [graph.tensors[value].type.bytes for value in _stays_unsplit(graph, region, outputs, is_big)]
    stays += [graph.tensors[value].type.bytes for value in _not_overwritten(graph, planned)]
    return sum(size for size in stays if size > anyway)


def _exists_anyway(graph: Graph) -> int:
    """The bytes of a function's largest argument or result: splitting smaller tensors costs time and gains nothing."""
    if graph.nested:
        return 0  # a loop's inputs may have any size: it reads slices
    return max((graph.tensors[value].type.bytes for value in graph.arguments | graph.returned), default=0)


def _stays_unsplit(graph: Graph, region: Region, outputs: Sequence[Output], is_big: Callable[[int], bool]) -> set[int]:
    """Big tensors of the region that exist unsplit after the split, except function arguments and results."""
    stays = {
        value
        for output in outputs
        if is_big(value := graph.nodes[output.node].results[output.result]) and value not in graph.returned
    }
    for value in region.mappings:
        producer = graph.tensors[value].producer
        if is_big(value) and producer != OUTSIDE and producer not in region.tiled:
            stays.add(value)
    return stays


def _not_overwritten(graph: Graph, loops: Sequence[LoopPlan]) -> set[int]:
    """The results that could overwrite one of their operands, and do not: there are two buffers at a time."""
    written = {
        value: (output.node, output.result) in loop.overwritten
        for loop in loops
        for output in loop.stage.outputs
        if (value := graph.nodes[output.node].results[output.result]) in graph.overwritten
    }
    return {value for value, in_place in written.items() if not in_place}


def widened_bytes(graph: Graph, region: Region, value: int, output: Output) -> int:
    """The bytes of the f32 in which the sums of a narrow result are kept."""
    op = graph.nodes[output.node].op
    if not is_widened(op, region.tiled[output.node].factor):
        return 0
    return graph.tensors[value].type.bytes * _WIDE // float_bits(element_type(op.results[output.result]))


def largest_term(graph: Graph, region: Region, stage: Stage, machine: Machine) -> int:
    """The bytes of the largest result of one tile that is then added to a carry of the loop."""
    most = 0
    for output in stage.outputs:
        node = graph.nodes[output.node]
        in_place = machine.accumulates and Trait.CONTRACTS in node.traits
        if region.tiled[output.node].factor.kind is Kind.REDUCING and not in_place:
            most = max(most, graph.tensors[node.results[output.result]].type.bytes)
    return most
