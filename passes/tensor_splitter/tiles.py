"""The tiles of one loop's body: every op on its slices, longer if tiles overlap, and the outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.types import element_type
from exla_opt.ops import tiling
from exla_opt.ops.rules import DimMapping, Kind
from exla_opt.ops.stack_sums import add_in_place
from exla_opt.ops.tile import read_padded
from exla_opt.ops.traits import Trait
from exla_opt.passes.algebra.running import ones_like

from .graph import OUTSIDE, Graph, TiledOp
from .plans.loop_plan import LoopPlan
from .plans.plan import Plan
from .plans.runs import TileRun
from .regions.overwrite import read_in
from .running import shifted, shifts_of
from .windows import beginning, next_window, ring_slice, window_key

# The extra indices of a tile before and after its own, and those of one that has none.
Extent = tuple[int, int]
_OWN = (0, 0)


class Tiles:
    """The body of one loop at one index: computes every op's tile in order, and combines them into the state."""

    def __init__(
        self,
        graph: Graph,
        plan: Plan,
        loop: LoopPlan,
        run: TileRun,
        start: ir.Value,
        kept: Mapping[int, ir.Value | None],
    ):
        self.graph = graph
        self.plan = plan
        self.loop = loop
        self.run = run
        self.start = start
        self.kept = kept
        self.carried: dict[int, ir.Value] = {}
        self.made: dict[int, tuple[DimMapping | None, ir.Value, Extent]] = {}
        self.slices: dict[tuple[int, DimMapping, Extent], ir.Value] = {}
        self.repeated: dict[int, ir.Value] = {}
        self.rings: dict[tuple[int, DimMapping], ir.Value] = {}
        self.offsets: dict[tuple[int, int], ir.Value] = {}
        self.shifts: dict[int, tuple[ir.Value, ir.Value]] = {}  # subtrahends, before this tile and after it

    def present(self, mapping: DimMapping | None) -> bool:
        """Whether the tensor has the indices of this run (between two borders it has all or none).

        If tiles overlap all tensors have them, possibly as numbers that are never used.
        """
        return self.loop.overlaps or self.holds(mapping)

    def holds(self, mapping: DimMapping | None) -> bool:
        """Whether the tensor itself has the indices of this run."""
        return mapping is None or mapping.low <= self.run.start < mapping.low + mapping.length

    def covers(self, mapping: DimMapping) -> bool:
        """Whether the tensor has all the indices of this run."""
        last = self.run.start + self.run.tile * self.run.trips
        return mapping.low <= self.run.start and last <= mapping.low + mapping.length

    def offset(self, scale: int, shift: int) -> ir.Value:
        """start * scale + shift, computed once."""
        key = (scale, shift)
        if key not in self.offsets:
            scaled = self.start if scale == 1 else times(self.start, scale)
            self.offsets[key] = scaled if shift == 0 else stablehlo.add(scaled, build.scalar_like(scaled, shift))
        return self.offsets[key]

    def position_in(self, mapping: DimMapping) -> ir.Value:
        """The start of the tile in the tensor's own dimension."""
        return self.offset(mapping.inner, -mapping.low * mapping.inner)

    def operand(self, tiled: TiledOp, index: int, value: ir.Value) -> ir.Value:
        number, mapping = self.graph.nodes[tiled.node].operands[index], tiled.operands[index]
        made, tile, extent = self.made.get(number, (None, None, _OWN))
        wanted = self.extent_of(tiled, index)
        if tile is not None and made == mapping:
            return tile if mapping is None else self.part(tile, mapping, extent, wanted)
        if mapping is None:
            return self.whole(number, value)
        if tile is not None and made is None:  # the same in every tile
            value = tile
        key = (number, mapping, wanted)
        if key not in self.slices:
            made_here = self.generated(number, mapping) if wanted == _OWN else None
            source = self.carried.get(number, value)
            self.slices[key] = made_here or self.read(number, source, mapping, wanted)
        return self.slices[key]

    def extent_of(self, tiled: TiledOp, index: int) -> Extent:
        """The extra indices before and after its own of the tile of an operand."""
        before, after = self.loop.extents.get(tiled.node, _OWN)
        more, further = tiled.reach(index)
        return (before + more, after + further)

    def part(self, tile: ir.Value, mapping: DimMapping, extent: Extent, wanted: Extent) -> ir.Value:
        """A tile without the extra indices that this reader does not need."""
        if extent == wanted:
            return tile
        shape = build.shape_of(tile)
        starts, limits = [0] * len(shape), list(shape)
        starts[mapping.dim] = (extent[0] - wanted[0]) * mapping.inner
        limits[mapping.dim] -= (extent[1] - wanted[1]) * mapping.inner
        return stablehlo.slice(tile, starts, limits, [1] * len(shape))

    def read(self, number: int, source: ir.Value, mapping: DimMapping, wanted: Extent) -> ir.Value:
        """A slice of an unsplit tensor. Near the ends of a periodic one, all readers read the same extension."""
        read = self.loop.reads.get((number, mapping))
        if read is None or not read.period:
            return self.slice_of(source, mapping, wanted)
        key = (number, mapping)
        if key not in self.rings:
            place = self.position_in(mapping)
            self.rings[key] = ring_slice(source, mapping, place, self.run.tile, read.extent)
        return self.part(self.rings[key], mapping, read.extent, wanted)

    def slice_of(self, source: ir.Value, mapping: DimMapping, wanted: Extent) -> ir.Value:
        """A slice of an unsplit tensor; zeros replace elements beyond its ends."""
        place, length = self.position_in(mapping), (self.run.tile + sum(wanted)) * mapping.inner
        if self.loop.overlaps and not self.covers(mapping):
            # Beyond its ends by any number of elements: the existing ones are at their positions all the same.
            fill = build.zeros(build.with_shape(build.tensor_of(source), []))
            begin = self.offset(mapping.inner, length - (wanted[0] + mapping.low) * mapping.inner)
            return read_padded(source, mapping.dim, begin, length, (length, length, 0), fill)
        if wanted == _OWN:
            return build.slice_along(source, mapping.dim, place, length)
        low, high = (each * mapping.inner for each in wanted)
        fill = build.zeros(build.with_shape(build.tensor_of(source), []))
        return read_padded(source, mapping.dim, place, length, (low, high, 0), fill)

    def generated(self, number: int, mapping: DimMapping) -> ir.Value | None:
        """A slice of a tensor without inputs, such as an iota along both dimensions: else the loop would capture it."""
        producer = self.graph.tensors[number].producer
        if producer == OUTSIDE or Trait.GENERATES not in self.graph.nodes[producer].traits:
            return None
        node, length = self.graph.nodes[producer], self.run.tile * mapping.inner
        for factor in node.rule.factors:
            [made] = factor.results
            if made is not None and made.dim == mapping.dim and made.inner == 1:
                return tiling.build_tile(node.op, factor, [], self.position_in(mapping), [], [(0, length)])[0]
        return None

    def whole(self, number: int, value: ir.Value) -> ir.Value:
        """A tensor used unsplit. Captures of a loop are written, but those that a reader can absorb are cloned."""
        running = self.loop.stage.running
        if running is not None and number in running.ones:
            return ones_like(value)
        if number in self.shifts:
            return self.shifts[number][1]
        producer = self.graph.tensors[number].producer
        if producer == OUTSIDE or producer in self.plan.tiled:
            return value
        traits = self.graph.nodes[producer].traits
        if Trait.REARRANGES not in traits or Trait.VIEW in traits:
            return value
        if number not in self.repeated:
            clone = self.graph.nodes[producer].op.clone(ip=ir.InsertionPoint.current)
            self.repeated[number] = clone.operation.results[0]
        return self.repeated[number]

    def emit(self, states: dict[int, list[ir.Value]]) -> dict[int, list[ir.Value]]:
        """Build all tiles. states: by node, the combined partial results so far, or the outputs written so far."""
        states = dict(states)
        for (position, result), number in self.loop.overwritten.items():
            self.carried[number] = self.state_of(states, position, result)
        for number, window in self.loop.windows.items():
            [near] = states[window_key(number)]
            self.made[number] = (window.mapping, beginning(near, window, self.run.tile), window.extent)
        for position in self.loop.stage.nodes:
            tiled = self.plan.tiled[position]
            node = self.graph.nodes[position]
            if not all(map(self.present, tiled.results)):
                continue
            if tiled.factor.kind is not Kind.INDEPENDENT and not all(map(self.holds, tiled.operands)):
                continue
            with node.op.location:
                results = self.tiles_of(tiled, states.get(position))
                scanned: list[ir.Value] = []
                if tiled.factor.kind is Kind.SCAN:
                    before = states[position][: len(results)]
                    results, scanned = tiling.resume(node.op, tiled.factor, before, results)
                elif tiled.factor.kind is not Kind.INDEPENDENT:
                    states[position] = self.combined(tiled, states[position], results)
                    continue
                if position in states:
                    wholes = states[position][len(scanned) :]
                    states[position] = scanned + self.write(tiled, wholes, results)
                for index, (number, mapping) in enumerate(zip(node.results, tiled.results, strict=True)):
                    if self.reads_back(position, index):  # other readers read it back
                        written = self.state_of(states, position, index)
                        self.carried[number] = build.reshaped(written, self.graph.tensors[number].type.shape)
                    elif mapping is not None or tiled.factor.is_same(index):
                        self.made[number] = (mapping, results[index], self.loop.extents.get(position, _OWN))
        for number, window in self.loop.windows.items():
            if self.run.trips > 1:
                [near] = states[window_key(number)]
                written = self.state_of(states, window.node, window.result)
                inner = window.mapping.inner
                behind = self.offset(inner, (self.run.tile + window.extent[1] - window.mapping.low) * inner)
                length = self.run.tile * inner
                states[window_key(number)] = [next_window(near, window, written, behind, length, self.kept[number])]
        return states

    def reads_back(self, position: int, index: int) -> bool:
        """Whether an output is read from the tensor that it is written to."""
        number = self.loop.overwritten.get((position, index))
        return number is not None and number not in self.loop.windows

    def combined(self, tiled: TiledOp, state: list[ir.Value], results: list[ir.Value]) -> list[ir.Value]:
        """The state after one more tile; sums with running subtrahends are converted to the current ones."""
        node, running = self.graph.nodes[tiled.node], self.loop.stage.running
        if running is None:
            return tiling.combine(node.op, tiled.factor, state, results, self.offset(tiled.scale, tiled.offset))
        cut = tiled.operands[0]
        place = None if cut is None else self.position_in(cut)
        state = [shifted(running, tiled, total, self.shifts, place) for total in state]
        after = tiling.combine(node.op, tiled.factor, state, results, self.offset(tiled.scale, tiled.offset))
        for number, shift in running.shifts.items():
            if shift.op == tiled.node:
                found = shifts_of(self.graph, tiled, number, shift, (state[0], after[0]), place, self.run.tile)
                self.shifts[number] = found
        return after

    def state_of(self, states: dict[int, list[ir.Value]], position: int, result: int) -> ir.Value:
        """An output of an independent op as far as it is written, in the shape of what it is written over."""
        return states[position][outputs_of(self.loop, position).index(result)]

    def tiles_of(self, tiled: TiledOp, state: list[ir.Value] | None) -> list[ir.Value]:
        node, factor = self.graph.nodes[tiled.node], tiled.factor
        length = self.run.tile * tiled.scale
        before, after = (each * tiled.scale for each in self.loop.extents.get(tiled.node, _OWN))
        operands = []
        for index, (mapping, value) in enumerate(zip(tiled.operands, node.values(), strict=True)):
            if index in factor.chained:
                assert state is not None
                operands.append(state[factor.chained.index(index)])
            elif tiling.starts_anew(node.op, factor, index):
                operands.append(build.zeros(value.type))
            else:
                operands.append(self.operand(tiled, index, value) if self.present(mapping) else value)
        period = self.loop.periods.get(tiled.node, 0)
        return tiling.build_tile(
            node.op,
            replace(factor, period=period) if period else factor,
            operands,
            self.offset(tiled.scale, tiled.offset),
            [self.range_of(tiled, index, mapping) for index, mapping in enumerate(tiled.operands)],
            [None if mapping is None else (-before, length + after) for mapping in tiled.results],
        )

    def range_of(self, tiled: TiledOp, index: int, mapping: DimMapping | None) -> tuple[int, int] | None:
        """The indices of an op's factor in the tile of an operand, counted from its start."""
        if mapping is None or not self.present(mapping):
            return None if mapping is None else (0, 0)
        before, after = self.extent_of(tiled, index)
        return (-before * tiled.scale, (self.run.tile + after) * tiled.scale)

    def write(self, tiled: TiledOp, wholes: list[ir.Value], results: list[ir.Value]) -> list[ir.Value]:
        """Write the tiles of a node's outputs to the complete tensors; an output without tiles is the same in each."""
        written = []
        for whole, output in zip(wholes, outputs_of(self.loop, tiled.node), strict=True):
            mapping, made = tiled.results[output], results[output]
            if mapping is not None and self.holds(mapping):
                made = self.part(made, mapping, self.loop.extents.get(tiled.node, _OWN), _OWN)
                before = self.loop.overwritten.get((tiled.node, output))
                if before is not None:
                    user, index = read_in(self.graph, self.loop.stage, before)
                    mapping = self.plan.tiled[user].operands[index] or mapping
                    shape = build.shape_of(whole)  # that of the tensor that it is written over
                    shape[mapping.dim] = self.run.tile * mapping.inner
                    made = build.reshaped(made, shape)
                made = build.update_along(whole, made, mapping.dim, self.position_in(mapping))
            elif mapping is not None:
                made = whole
            elif output in tiled.factor.summed and not add_in_place(whole, made):
                made = stablehlo.add(whole, build.convert(made, element_type(whole)))
            written.append(made)
        return written


def outputs_of(loop: LoopPlan, position: int) -> list[int]:
    """The results of an op that a loop outputs."""
    return [output.result for output in loop.stage.outputs if output.node == position]


def times(index: ir.Value, number: int) -> ir.Value:
    """An integer tensor times a number."""
    return stablehlo.multiply(index, build.scalar_like(index, number))
