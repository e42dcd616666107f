"""Plans: one way to split one region, with everything the loop builder needs and a predicted cost.

A plan is a frozen value: it refers to nodes and tensors by number and touches no IR. A refusal is a value too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from math import log2, prod

from jaxlib.mlir import ir

from exla_opt.analysis.factors import Kind, Slot
from exla_opt.analysis.graph import OUTSIDE, Graph, Node
from exla_opt.analysis.memory import Operation, materialised, peak_bytes

from .regions import Member, Region
from .stages import Output, Stage, find_copies, find_stages, tile_local

# Rough speeds of one core, only to compare plans with each other.
_FLOPS_PER_SECOND = 4e10
_BYTES_PER_SECOND = 8e9
_SECONDS_PER_TRIP = 3e-5
_SECONDS_PER_OP = 2e-6
_FULL_SPEED_ROWS = 128
_NOMINAL_TILE = 64
_MOST_BORDERS = 6
# Every stage makes big tensors again: attention cut over its keys has five, its gradient a few more.
_MOST_STAGES = 10
# A body holds several tiles at a time; a gradient's may hold ten. More than this many make the tile shorter.
_MOST_SLICES_ALIVE = 4
_SLOW = frozenset("exponential log tanh power logistic sine cosine erf erfc atan2 divide sqrt rsqrt".split())


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of equal tiles: region indices [start, start + tile * trips); one trip is straight-line code."""

    start: int
    tile: int
    trips: int


@dataclass(frozen=True, slots=True)
class LoopPlan:
    """One stage of a region as code: its pieces in order."""

    stage: Stage
    pieces: tuple[Piece, ...]

    @property
    def trips(self) -> int:
        """Tiles in all."""
        return sum(piece.trips for piece in self.pieces)

    @property
    def tile(self) -> int:
        """The length of the longest tile."""
        return max(piece.tile for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class Plan:
    """One way to split one region.

    copies: the members that the loops only repeat: the originals stay for whoever else reads them.
    vanished: the big tensors that exist only in tiles afterwards. remaining: bytes of big tensors of the region
    that stay whole although they are neither arguments nor results. peak: predicted bytes alive in the worst
    loop, outputs included. seconds: predicted time, for comparison only. too_big: how
    many times the split size one index takes.
    """

    seed: int
    slot: Slot
    members: dict[int, Member]
    loops: tuple[LoopPlan, ...]
    copies: frozenset[int]
    vanished: frozenset[int]
    remaining: int
    peak: int
    seconds: float
    too_big: int

    def rank(self, slice_bytes: int) -> tuple[int, int, float]:
        """The order among plans, best first: what stays whole, then memory by powers of two, then time."""
        room = max(self.peak / (_MOST_SLICES_ALIVE * slice_bytes), 1.0)
        return (self.remaining, round(log2(room)), self.seconds)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a tensor cannot be split along one dim: the sentence, and the op that stops it."""

    reason: str
    node: int | None = None


def short_name(node: Node) -> str:
    """The op's name without its dialect."""
    return node.name.rpartition(".")[2]


def operation_of(graph: Graph, node: Node) -> Operation:
    """The op as the memory model sees it."""
    name = short_name(node)
    reduced: tuple[int, ...] = ()
    if name == "reduce":
        shape = graph.tensors[node.operands[0]].type.shape
        reduced = tuple(shape[dim] for dim in ir.DenseI64ArrayAttr(node.op.attributes["dimensions"]))
    same = bool(node.operands and node.results) and (
        graph.tensors[node.operands[0]].type == graph.tensors[node.results[0]].type
    )
    return Operation(name, node.operands + node.captures, node.results, reduced, same_type=same)


def _tile_shape(shape: tuple[int, ...], slot: Slot | None, tile: int) -> tuple[int, ...]:
    if slot is None:
        return shape
    return (*shape[: slot.dim], min(tile, slot.length) * slot.inner, *shape[slot.dim + 1 :])


@dataclass(slots=True)
class _Body:
    """A loop's body for the memory model: ops, and the slot of every tensor that is a tile in it."""

    ops: list[Operation]
    slots: dict[int, Slot]
    returned: set[int]
    types: dict[int, int]  # a slice's own number -> the tensor it is cut from


def _body_of(graph: Graph, region: Region, stage: Stage) -> _Body:
    body = _Body([], {}, set(), {})
    inside = set(stage.nodes)
    fresh = len(graph.tensors)
    cut: dict[tuple[int, Slot], int] = {}
    for position in stage.nodes:
        node, member = graph.nodes[position], region.members[position]
        op = operation_of(graph, node)
        operands = list(op.operands)
        for index, slot in enumerate(member.operands):
            if slot is None:
                continue
            maker = tile_local(graph, region, member, index)
            if maker is not None and maker in inside:
                continue
            key = (node.operands[index], slot)
            if key not in cut:
                cut[key] = fresh
                body.types[fresh] = node.operands[index]
                body.slots[fresh] = slot
                body.ops.append(Operation("dynamic_slice", (), (fresh,)))
                fresh += 1
            operands[index] = cut[key]
        for value, slot in zip(node.results, member.results, strict=True):
            if slot is not None:
                body.slots[value] = slot
        body.ops.append(replace(op, operands=tuple(operands)))
    body.returned = {graph.nodes[output.node].results[output.result] for output in stage.outputs if output.slot is None}
    return body


def _shapes(graph: Graph, body: _Body, tile: int) -> dict[int, tuple[int, ...]]:
    numbers = {value for op in body.ops for value in (*op.operands, *op.results)}
    return {
        value: _tile_shape(graph.tensors[body.types.get(value, value)].type.shape, body.slots.get(value), tile)
        for value in numbers
    }


def _bytes_per_index(graph: Graph, body: _Body) -> int:
    """The most that one index takes among the tensors that the body writes to memory."""
    shapes = _shapes(graph, body, _NOMINAL_TILE)
    written = materialised(body.ops, shapes, body.returned).last_read
    stored = {value for value in written if value in body.slots}
    return max((-(-graph.tensors[body.types.get(v, v)].type.bytes // body.slots[v].length) for v in stored), default=0)


def _body_peak(graph: Graph, body: _Body, tile: int) -> int:
    shapes = _shapes(graph, body, tile)
    sizes = {
        value: prod(shape) * graph.tensors[body.types.get(value, value)].type.element_bytes
        for value, shape in shapes.items()
    }
    return peak_bytes(body.ops, shapes, sizes, body.returned, free=body.returned)


def _longest_tile(graph: Graph, body: _Body, slice_bytes: int, longest: int) -> int:
    """The longest tile, of at most `longest` indices, whose body as a whole stays within a few slices."""
    if longest < 2:
        return 1
    fixed = _body_peak(graph, body, 1)
    grown = _body_peak(graph, body, longest)
    room = _MOST_SLICES_ALIVE * slice_bytes
    if grown <= room or grown <= fixed:
        return longest
    return max(min(longest, (room - fixed) * (longest - 1) // (grown - fixed)), longest // _MOST_SLICES_ALIVE, 1)


def balanced_tile(extent: int, longest: int) -> int:
    """The tile length for `extent` indices of which at most `longest` fit: few trips, and even ones.

    A divisor of the extent when one is near, else a multiple of 16 that leaves a shorter last tile.
    """
    if longest >= extent:
        return extent
    trips = -(-extent // longest)
    for more in range(trips, 2 * trips + 1):
        if extent % more == 0:
            return extent // more
    even = -(-extent // trips)
    rounded = -(-even // 16) * 16
    return rounded if rounded <= longest else longest


def cut_pieces(borders: list[int], longest: int) -> tuple[Piece, ...]:
    """The tiles between consecutive borders, each run of equal tiles one piece."""
    pieces = []
    for start, stop in pairwise(borders):
        tile = balanced_tile(stop - start, longest)
        trips, rest = divmod(stop - start, tile)
        pieces.append(Piece(start, tile, trips))
        if rest:
            pieces.append(Piece(stop - rest, rest, 1))
    return tuple(pieces)


def _borders(graph: Graph, region: Region, stage: Stage) -> list[int]:
    """The region indices at which some tensor begins or ends; between two of them all ops look alike."""
    low, high = region.low, region.high
    borders = {low, high}
    for position in stage.nodes:
        member = region.members[position]
        for slot in (*member.operands, *member.results):
            if slot is not None:
                borders |= {min(max(slot.low, low), high), min(max(slot.low + slot.length, low), high)}
    return sorted(borders)


def flops_of(graph: Graph, node: Node) -> float:
    """A rough count of an op's arithmetic, for comparison only."""
    elements = sum(prod(graph.tensors[value].type.shape) for value in node.results)
    name = short_name(node)
    if name in ("dot_general", "dot", "convolution"):
        return 2.0 * elements * prod(f.size for f in node.rule.factors if f.kind is Kind.REDUCING)
    if name in ("triangular_solve", "custom_call"):
        return 1.0 * elements * (graph.tensors[node.operands[0]].type.shape or (1,))[-1]
    if name in ("sort", "top_k"):
        return 20.0 * sum(prod(graph.tensors[value].type.shape) for value in node.operands)
    if name == "reduce":
        return 1.0 * prod(graph.tensors[node.operands[0]].type.shape)
    return elements * (10.0 if name in _SLOW else 0.5)


def _seconds(graph: Graph, region: Region, loop: LoopPlan) -> float:
    trips = loop.trips
    seconds = trips * (_SECONDS_PER_TRIP + _SECONDS_PER_OP * len(loop.stage.nodes))
    for position in loop.stage.nodes:
        node, factor = graph.nodes[position], region.members[position].factor
        flops = flops_of(graph, node)
        one_sided = sum(slot is not None for slot in factor.operands) == 1 or factor.kind is not Kind.INDEPENDENT
        if short_name(node) in ("dot_general", "dot", "triangular_solve") and one_sided:
            flops /= min(1.0, loop.tile / _FULL_SPEED_ROWS) ** 0.5
        seconds += flops / _FLOPS_PER_SECOND
    for output in loop.stage.outputs:
        size = graph.tensors[graph.nodes[output.node].results[output.result]].type.bytes
        seconds += (3 * trips if output.slot is None else 1) * size / _BYTES_PER_SECOND
    return seconds


def is_returned(graph: Graph, value: int) -> bool:
    return any(user == graph.terminator for user, _ in graph.tensors[value].users)


def _stays_whole(graph: Graph, region: Region, outputs: list[Output], is_big: Callable[[int], bool]) -> set[int]:
    """Big tensors of the region that exist whole after the split, function arguments and results apart."""
    stays = {
        value
        for output in outputs
        if is_big(value := graph.nodes[output.node].results[output.result]) and not is_returned(graph, value)
    }
    for value in region.slots:
        producer = graph.tensors[value].producer
        if is_big(value) and producer != OUTSIDE and producer not in region.members:
            stays.add(value)
    return stays


def _vanished(graph: Graph, region: Region, outputs: list[Output], is_big: Callable[[int], bool]) -> set[int]:
    """Big tensors of the region that nobody needs whole any more."""
    written = {graph.nodes[output.node].results[output.result] for output in outputs}
    copies = find_copies(graph, region)
    gone = set()
    for position in region.members:
        for value in graph.nodes[position].results:
            read_outside = any(user not in region.members or index < 0 for user, index in graph.tensors[value].users)
            if is_big(value) and value not in written and not (position in copies and read_outside):
                gone.add(value)
    return gone


def make_plan(graph: Graph, region: Region, slice_bytes: int, is_big: Callable[[int], bool]) -> Plan | Refusal:
    """The plan for a region, or why there is none.

    slice_bytes: the most that one tile may take. is_big: whether a tensor is over the threshold.
    """
    seed = graph.tensors[region.seed]
    if not region.members:
        producer = graph.nodes[seed.producer]
        return Refusal(region.blocked.get(producer.position, producer.rule.reason), producer.position)
    stages = find_stages(graph, region, is_big)
    if len(stages) > _MOST_STAGES:
        return Refusal(f"it would take {len(stages)} loops, one after the other", seed.producer)
    outputs = [output for stage in stages for output in stage.outputs]
    vanished = _vanished(graph, region, outputs, is_big)
    if region.seed not in vanished:
        return _why_whole(graph, region, outputs)
    loops = []
    too_big = 1
    peak = 0
    for stage in stages:
        borders = _borders(graph, region, stage)
        if len(borders) > _MOST_BORDERS:
            return Refusal("its slices are shifted against each other in too many ways", seed.producer)
        body = _body_of(graph, region, stage)
        per_index = max(_bytes_per_index(graph, body), 1)
        too_big = max(too_big, -(-per_index // slice_bytes))
        longest = _longest_tile(graph, body, slice_bytes, slice_bytes // per_index)
        loop = LoopPlan(stage, cut_pieces(borders, longest))
        loops.append(loop)
        peak = max(peak, _body_peak(graph, body, loop.tile) // too_big)
    if all(loop.trips < 2 for loop in loops):
        return Refusal("XLA fuses it into its readers: all of it that is ever in memory fits one slice", seed.producer)
    kept = {graph.nodes[output.node].results[output.result] for output in outputs}
    peak += sum(graph.tensors[value].type.bytes for value in kept if not is_returned(graph, value))
    remaining = sum(graph.tensors[value].type.bytes for value in _stays_whole(graph, region, outputs, is_big))
    return Plan(
        region.seed,
        region.slots[region.seed],
        {position: region.members[position] for loop in loops for position in loop.stage.nodes},
        tuple(loops),
        frozenset(find_copies(graph, region)),
        frozenset(vanished),
        remaining,
        peak,
        sum(_seconds(graph, region, loop) for loop in loops),
        too_big,
    )


def _why_whole(graph: Graph, region: Region, outputs: list[Output]) -> Refusal:
    """The sentence for a seed that some reader needs complete."""
    for user, index in graph.tensors[region.seed].users:
        node = graph.nodes[user]
        if user == graph.terminator:
            return Refusal("it is a result of this block", user)
        if index < 0:
            return Refusal(f"the body of {node.name} uses it whole", user)
        if user not in region.members:
            return Refusal(region.blocked.get(user, node.rule.reason), user)
        if region.members[user].operands[index] is None:
            return Refusal(f"{node.name} uses it whole as well", user)
    return Refusal("what is made of it is needed complete in the middle of the split", None)
