"""Builds a plan: while loops over tiles, straight-line code for the rest, and the old ops erased."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.loops import after_input
from exla_opt.ir.types import Types
from exla_opt.ir.walk import walk
from exla_opt.ops import tiling
from exla_opt.ops.rules import Kind
from exla_opt.ops.traits import Trait
from exla_opt.passes.algebra.running import as_it_was, times_power

from .graph import TILE_MARK, Graph
from .plans.last_input import find_depths, last_input
from .plans.loop_plan import LoopPlan
from .plans.plan import Plan
from .plans.runs import TileRun
from .regions.overwrite import read_in
from .tiles import Tiles, outputs_of, times
from .windows import first_window, rows_behind, window_key

_MOST_I32 = 2**31 - 1


def _initial_states(graph: Graph, plan: Plan, loop: LoopPlan, depths: Sequence[int]) -> dict[int, list[ir.Value]]:
    """By node: a scan's initial state, then an empty or overwritten tensor for each output; or the initial sums."""
    states: dict[int, list[ir.Value]] = {}
    written = {output.node for output in loop.stage.outputs}
    after, types = last_input(graph, loop, depths), Types()
    for position in loop.stage.nodes:
        node, factor = graph.nodes[position], plan.tiled[position].factor
        if position not in written and factor.kind is not Kind.SCAN:
            continue
        with node.op.location:
            states[position] = [] if factor.kind is Kind.INDEPENDENT else tiling.initial_state(node.op, factor)
            if factor.kind in (Kind.INDEPENDENT, Kind.SCAN):
                for index in outputs_of(loop, position):
                    summed = index in factor.summed
                    kind = tiling.sum_type(node.op, index) if summed else node.op.results[index].type
                    states[position].append(build.zeros(kind))
            if factor.kind is not Kind.CHAIN:
                states[position] = [after_input(value, after, types.of(value).bytes) for value in states[position]]
    for (position, result), number in loop.overwritten.items():
        user, index = read_in(graph, loop.stage, number)
        # The current one: another loop may have replaced it.
        states[position][outputs_of(loop, position).index(result)] = graph.nodes[user].values()[index]
    return states


def _flatten(states: dict[int, list[ir.Value]]) -> list[ir.Value]:
    return [value for position in sorted(states) for value in states[position]]


def _like(states: dict[int, list[ir.Value]], values: Sequence[ir.Value]) -> dict[int, list[ir.Value]]:
    remaining = iter(values)
    return {position: [next(remaining) for _ in states[position]] for position in sorted(states)}


def _index_type(graph: Graph, loop: LoopPlan) -> ir.RankedTensorType:
    """A 0-d integer tensor that can index everything that the loop reads and writes: i32, which XLA prefers, or i64."""
    nodes, types = [graph.nodes[position] for position in loop.stage.nodes], Types()
    inside = [op for node in nodes if Trait.CONTROL_FLOW in node.traits for op in _ops_inside(node.op)]
    shapes = [graph.tensors[value].type.shape for node in nodes for value in (*node.operands, *node.results)]
    shapes += [types.of(value).shape for op in inside for value in op.results]
    wide = any(size > _MOST_I32 for shape in shapes for size in shape)
    return ir.RankedTensorType.get([], ir.IntegerType.get_signless(64 if wide else 32))


def _ops_inside(op: ir.Operation) -> Iterator[ir.Operation]:
    return (inner for region in op.regions for block in region.blocks for inner in walk(block))


def _build_while(
    graph: Graph,
    plan: Plan,
    loop: LoopPlan,
    run: TileRun,
    index_type: ir.RankedTensorType,
    states: dict[int, list[ir.Value]],
    kept: Mapping[int, ir.Value | None],
) -> tuple[ir.Value, dict[int, list[ir.Value]]]:
    """The loop over one run of tiles. Returns its final counter and states."""
    initial = [build.scalar_i32(0), *_flatten(states)]
    types = [value.type for value in initial]
    made = stablehlo.WhileOp(types, initial)
    made.operation.attributes[TILE_MARK] = ir.UnitAttr.get()
    condition, body = (region.blocks.append(*types) for region in made.operation.regions)
    with ir.InsertionPoint(condition):
        stablehlo.return_([build.less_than(condition.arguments[0], build.scalar_i32(run.trips))])
    with ir.InsertionPoint(body):
        counter, *carried = body.arguments
        start = times(build.convert(counter, index_type.element_type), run.tile)
        if run.start:
            start = stablehlo.add(start, build.splat(index_type, run.start))
        after = Tiles(graph, plan, loop, run, start, kept).emit(_like(states, carried))
        stablehlo.return_([stablehlo.add(counter, build.scalar_i32(1)), *_flatten(after)])
    results = list(made.operation.results)
    return results[0], _like(states, results[1:])


def _build_loop(graph: Graph, plan: Plan, loop: LoopPlan, depths: Sequence[int]) -> None:
    """Insert one stage before its last op, and replace the old results by its outputs."""
    last = graph.nodes[max(loop.stage.nodes)].op
    with ir.InsertionPoint(last), graph.nodes[graph.tensors[plan.seed].producer].op.location:
        states = _initial_states(graph, plan, loop, depths)
        kept: dict[int, ir.Value | None] = {}
        for number, window in loop.windows.items():
            value = graph.tensors[number].value
            states[window_key(number)] = [first_window(value, window, loop.runs[0].tile)]
            kept[number] = rows_behind(value, window, loop.runs)
        counter: ir.Value | None = None
        index_type = _index_type(graph, loop)
        for run in loop.runs:
            if run.trips > 1:
                counter, states = _build_while(graph, plan, loop, run, index_type, states, kept)
                ended = run
                continue
            start = build.splat(index_type, run.start)
            if counter is not None:
                # Counted from the end of the loop: XLA must not run this tile while the loop runs.
                reached = times(build.convert(counter, index_type.element_type), ended.tile)
                start = stablehlo.add(reached, build.splat(index_type, run.start - ended.tile * ended.trips))
            states = Tiles(graph, plan, loop, run, start, kept).emit(states)
        results = {
            position: _results_of(graph, plan, loop, position, state)
            for position, state in states.items()
            if position >= 0
        }
    # After all are written: one may be multiplied with a tensor that another one replaces.
    for position, found in results.items():
        for index, value in found.items():
            graph.nodes[position].op.results[index].replace_all_uses_with(value)


def _results_of(graph: Graph, plan: Plan, loop: LoopPlan, position: int, state: list[ir.Value]) -> dict[int, ir.Value]:
    """The loop's versions of an op's results, by number."""
    op, tiled = graph.nodes[position].op, plan.tiled[position]
    with op.location:
        if tiled.factor.kind in (Kind.INDEPENDENT, Kind.SCAN):
            outputs = outputs_of(loop, position)
            written = zip(outputs, state[len(state) - len(outputs) :], strict=True)
            results = {index: build.reshaped(value, build.shape_of(op.results[index])) for index, value in written}
            for index in tiled.factor.summed:
                if index in results:
                    results[index] = tiling.add_start(op, index, results[index])
        else:
            results = dict(enumerate(tiling.finish(op, tiled.factor, _as_before(graph, loop, position, state))))
    return results


def _as_before(graph: Graph, loop: LoopPlan, position: int, state: list[ir.Value]) -> list[ir.Value]:
    """The state of sums with the loop's own running values, and with their factors after the loop.

    After an infinite maximum they are NaN, as they were.
    """
    running = loop.stage.running
    if running is None or position not in running.sums:
        return state
    found = running.sums[position]
    shift = None if found.shift is None else running.shifts[found.shift]
    if found.shift is not None and shift is not None and not shift.mean and not shift.guarded:
        state = [as_it_was(total, graph.tensors[found.shift].value, found.dims) for total in state]
    for value, power, dims in found.later:
        state = [times_power(total, graph.tensors[value].value, power, dims) for total in state]
    return state


def build_plans(graph: Graph, plans: Sequence[Plan]) -> None:
    """Write the plans' loops into the graph's block and erase the ops that they replace.

    The block is out of order afterwards: a reader may be before the loop (see `order`).
    """
    depths = find_depths(graph)
    for plan in plans:
        for loop in plan.loops:
            _build_loop(graph, plan, loop, depths)
    # After all are built: two plans may compute the same tensor, each for itself.
    for position in sorted({position for plan in plans for position in plan.tiled}, reverse=True):
        op = graph.nodes[position].op
        if not any(True for result in op.results for _ in result.uses):
            op.erase()
