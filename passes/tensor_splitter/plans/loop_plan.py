"""One loop of a plan: its runs of tiles, what it overwrites, and how its tiles overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from exla_opt.ops.shifts import may_shift

from ..graph import Graph
from ..regions.extents import Extents, Periods, Reads
from ..regions.overwrite import Overwritten, find_overwritten
from ..regions.region import Region, Stage
from ..regions.windows import Windows
from .runs import TileRun


@dataclass(frozen=True, slots=True)
class LoopPlan:
    """One stage of a region as code: its runs in order.

    overwritten: the outputs, by node and result, that overwrite a tensor, and that tensor.
    scratch: the bytes of a body with loops of the program once its own big tensors are cut; else 0.
    extents: the extra length of the tiles of an op. overlaps: whether tiles overlap, so that all ops are computed in
    every tile, even beyond the ends of their results. periods, reads: of the ops, and of outer tensors.
    windows: reads ahead of an overwrite. shifts: whether they overlap for slices, pads or joins.
    """

    stage: Stage
    runs: tuple[TileRun, ...]
    overwritten: Overwritten
    scratch: int = 0
    extents: Extents = field(default_factory=dict)
    overlaps: bool = False
    periods: Periods = field(default_factory=dict)
    reads: Reads = field(default_factory=dict)
    windows: Windows = field(default_factory=dict)
    shifts: bool = False

    @property
    def trips(self) -> int:
        """The total number of tiles."""
        return sum(run.trips for run in self.runs)

    @property
    def tile(self) -> int:
        """The length of the longest tile."""
        return max(run.tile for run in self.runs)


def overlapping_loop(
    graph: Graph,
    region: Region,
    stages: Sequence[Stage],
    stage: Stage,
    runs: tuple[TileRun, ...],
    extents: Extents,
    periods: Periods,
    reads: Reads,
    windows: Windows,
) -> LoopPlan:
    """The loop of a stage with overlapping tiles. It overwrites reads ahead only if no tile but the last is shorter."""
    regular = (
        runs[0].trips > 1 and len(runs) < 3 and all(run.trips == 1 and run.tile < runs[0].tile for run in runs[1:])
    )
    first, end = runs[0].start, runs[-1].start + runs[-1].tile * runs[-1].trips
    windows = {
        value: window
        for value, window in windows.items()
        if regular
        and (window.mapping.low, window.mapping.low + window.mapping.length) == (first, end)
        and runs[0].tile + window.extent[1] <= window.mapping.length
    }
    own = find_overwritten(graph, region.tiled, stages, stage)
    alone = {value for value in own.values() if value in windows and windows[value].extent == (0, 0)}
    overwritten = {(window.node, window.result): value for value, window in windows.items()}
    windows = {value: window for value, window in windows.items() if value not in alone}
    return LoopPlan(
        stage,
        runs,
        overwritten,
        extents=extents,
        overlaps=True,
        periods=periods,
        reads=reads,
        windows=windows,
        shifts=any(region.tiled[node].factor.reaches and may_shift(graph.nodes[node].name) for node in stage.nodes),
    )
