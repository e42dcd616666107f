"""Plans: one way to split one region, with everything the loop builder needs and a predicted cost.

A plan is a frozen value: it refers to nodes and tensors by number and touches no IR. A refusal is a value too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import log2, prod

from exla_opt.memory.machine import Machine
from exla_opt.ops.rules import DimMapping, Factor, Kind
from exla_opt.remarks import Reason

from .body import MOST_SLICES_ALIVE, body_of, body_peak, bytes_per_index, longest_tile, short_name
from .equality import compares_equal, find_repeated, find_unequal
from .graph import OUTSIDE, Graph, Node
from .region import Region, TiledOp
from .stages import Makers, Output, Stage, find_copies, find_makers, find_outline, find_stages
from .tile_runs import Piece, cut_pieces, find_borders

# Rough speeds of one core, only to compare plans with each other.
_FLOPS_PER_SECOND = 4e10
_BYTES_PER_SECOND = 8e9
_SECONDS_PER_TRIP = 3e-5
_SECONDS_PER_OP = 2e-6
_FULL_SPEED_ROWS = 128
_MOST_BORDERS = 6
# Every stage makes big tensors again: attention cut over its keys has five, its gradient a few more.
_MOST_STAGES = 10
TOO_MANY_LOOPS = "EX308"
# Loops count in i32, as XLA does best.
_MOST_INDICES = 2**31 - 1
_SLOW = frozenset("exponential log tanh power logistic sine cosine erf erfc atan2 divide sqrt rsqrt".split())


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

    seed, mapping: the tensor that it was asked for, and how that is cut.
    copies: the members that the loops only repeat: the originals stay for whoever else reads them.
    vanished: the big tensors that exist only in tiles afterwards. remaining: bytes of big tensors of the region
    that stay whole although they are neither arguments nor results. peak: predicted bytes alive in the worst
    loop, outputs included. seconds: predicted time, for comparison only. too_big: how
    many times the split size one index takes.
    """

    seed: int
    mapping: DimMapping
    members: dict[int, TiledOp]
    loops: tuple[LoopPlan, ...]
    copies: frozenset[int]
    vanished: frozenset[int]
    remaining: int
    peak: int
    seconds: float
    too_big: int

    def rank(self, slice_bytes: int) -> tuple[int, int, float]:
        """The order among plans, best first: what stays whole, then memory by powers of two, then time."""
        room = max(self.peak / (MOST_SLICES_ALIVE * slice_bytes), 1.0)
        return (self.remaining, round(log2(room)), self.seconds)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a tensor cannot be split along one dim, and the op that stops it."""

    reason: Reason
    node: int | None = None


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


def _is_matrix_side(node: Node, factor: Factor) -> bool:
    """Whether a tile is the number of rows, columns or terms of a matrix product, which is slow where there are few."""
    name = short_name(node)
    if name == "convolution":
        return factor.operands[1] is not None
    if name not in ("dot_general", "dot", "triangular_solve"):
        return False
    return sum(mapping is not None for mapping in factor.operands) == 1 or factor.kind is not Kind.INDEPENDENT


def _seconds(graph: Graph, region: Region, loop: LoopPlan, too_big: int) -> float:
    """Rough seconds of one loop; when an index is too big, each trip is a loop of that many trips again."""
    trips = loop.trips * too_big
    seconds = trips * (_SECONDS_PER_TRIP + _SECONDS_PER_OP * len(loop.stage.nodes))
    for position in loop.stage.nodes:
        node, factor = graph.nodes[position], region.members[position].factor
        flops = flops_of(graph, node)
        if _is_matrix_side(node, factor):
            flops /= min(1.0, loop.tile / _FULL_SPEED_ROWS) ** 0.5
        seconds += flops / _FLOPS_PER_SECOND
    for output in loop.stage.outputs:
        size = graph.tensors[graph.nodes[output.node].results[output.result]].type.bytes
        seconds += (3 * trips if output.mapping is None else 1) * size / _BYTES_PER_SECOND
    return seconds


def refuse_returned(graph: Graph) -> Refusal:
    """Why a tensor that the terminator reads cannot vanish."""
    return Refusal(Reason("EX103", "it is a result of this block"), graph.terminator)


def _stays_whole(graph: Graph, region: Region, outputs: list[Output], is_big: Callable[[int], bool]) -> set[int]:
    """Big tensors of the region that exist whole after the split, function arguments and results apart."""
    stays = {
        value
        for output in outputs
        if is_big(value := graph.nodes[output.node].results[output.result]) and value not in graph.returned
    }
    for value in region.mappings:
        producer = graph.tensors[value].producer
        if is_big(value) and producer != OUTSIDE and producer not in region.members:
            stays.add(value)
    return stays


def _vanished(
    graph: Graph, region: Region, copies: set[int], outputs: list[Output], is_big: Callable[[int], bool]
) -> set[int]:
    """Big tensors of the region that nobody needs whole any more."""
    written = {graph.nodes[output.node].results[output.result] for output in outputs}
    gone = set()
    for position in region.members:
        for value in graph.nodes[position].results:
            read_outside = any(user not in region.members or index < 0 for user, index in graph.tensors[value].users)
            if is_big(value) and value not in written and not (position in copies and read_outside):
                gone.add(value)
    return gone


@dataclass(frozen=True, slots=True)
class Loops:
    """The loops that a region becomes, before anything is known of tiles and costs.

    makers, copies: what `find_makers` and `find_copies` found. vanished: the big tensors that no loop brings out.
    """

    makers: Makers
    copies: frozenset[int]
    stages: tuple[Stage, ...]
    vanished: frozenset[int]

    @property
    def outputs(self) -> list[Output]:
        """What the loops bring out, first to last."""
        return [output for stage in self.stages for output in stage.outputs]


def find_loops(graph: Graph, region: Region, is_big: Callable[[int], bool]) -> Loops | Refusal:
    """The loops of a region, or why it has none, whichever of its tensors is asked for.

    is_big: whether a tensor is over the threshold.
    """
    if not region.members:
        producer = graph.nodes[graph.tensors[region.seed].producer]
        return Refusal(region.blocked.get(producer.position, producer.rule.reason), producer.position)
    if any(graph.tensors[value].type.shape[mapping.dim] > _MOST_INDICES for value, mapping in region.mappings.items()):
        return Refusal(Reason("EX312", "it has more indices along that dimension than 32 bits can count"))
    makers = find_makers(graph, region)
    copies = find_copies(graph, makers)
    outline = find_outline(graph, region, makers, copies)
    if not outline.outputs:
        return Refusal(Reason("EX107", "nobody reads what is made of it"))
    if len(outline.outputs) > _MOST_STAGES:
        return Refusal(Reason(TOO_MANY_LOOPS, f"it would take {len(outline.outputs)} loops, one after the other"))
    for big, keeps in _ways_to_store(graph, is_big):
        stages = find_stages(graph, region, makers, copies, outline, big, keeps)
        unequal = _unequal(graph, makers, stages)
        if unequal is None:
            break
    if unequal is not None:
        return Refusal(
            Reason("EX309", "a comparison for equality would need the very bits that another loop has made"), unequal
        )
    outputs = [output for stage in stages for output in stage.outputs]
    vanished = _vanished(graph, region, copies, outputs, is_big)
    return Loops(makers, frozenset(copies), tuple(stages), frozenset(vanished))


def make_plan(
    graph: Graph,
    region: Region,
    loops: Loops,
    slice_bytes: int,
    is_big: Callable[[int], bool],
    machine: Machine,
) -> Plan | Refusal:
    """The plan for a region of which something vanishes, or why there is none.

    slice_bytes: the most that one tile may take. is_big: whether a tensor is over the threshold. machine: the one that
    the program is for.
    """
    stages, outputs = loops.stages, loops.outputs
    bodies = [body_of(graph, region, loops.makers, stage, machine) for stage in stages]
    per_index = [max(bytes_per_index(body), 1) for body in bodies]
    too_big = max(1, *(-(-most // slice_bytes) for most in per_index))
    borders = [find_borders(region, stage.nodes) for stage in stages]
    longest = [
        longest_tile(body, slice_bytes, slice_bytes // most) for body, most in zip(bodies, per_index, strict=True)
    ]
    if any(len(each) > _MOST_BORDERS for each in borders):
        return Refusal(Reason("EX307", "its slices are shifted against each other in too many ways"))
    planned = [
        LoopPlan(stage, cut_pieces(own, most)) for stage, own, most in zip(stages, borders, longest, strict=True)
    ]
    if short := next((node for loop in planned if (node := _too_short(region, loop))), None):
        return Refusal(Reason("EX204", f"{graph.nodes[short].name} needs longer tiles"), short)
    peak = max(body_peak(body, loop.tile) // too_big for body, loop in zip(bodies, planned, strict=True))
    if all(loop.trips < 2 for loop in planned):
        return Refusal(
            Reason("EX102", "XLA fuses it into its readers: all of it that is ever in memory fits one slice")
        )
    kept = {graph.nodes[output.node].results[output.result] for output in outputs}
    peak += sum(graph.tensors[value].type.bytes for value in kept if value not in graph.returned)
    remaining = sum(graph.tensors[value].type.bytes for value in _stays_whole(graph, region, outputs, is_big))
    return Plan(
        region.seed,
        region.mappings[region.seed],
        {position: region.members[position] for loop in planned for position in loop.stage.nodes},
        tuple(planned),
        loops.copies,
        loops.vanished,
        remaining,
        peak,
        sum(_seconds(graph, region, loop, too_big) for loop in planned),
        too_big,
    )


def _ways_to_store(graph: Graph, is_big: Callable[[int], bool]) -> Iterator[tuple[Callable[[int], bool], bool]]:
    """What counts as too big to be kept between loops, and whether anything is kept: the first sound way is taken."""
    yield is_big, True
    yield is_big, False

    # The answers to a question take a quarter of what it is about, or less, so big ones may be kept as well.
    def is_big_and_no_answer(value: int) -> bool:
        return is_big(value) and not compares_equal(graph.nodes[graph.tensors[value].producer].op)

    yield is_big_and_no_answer, True


def _unequal(graph: Graph, makers: Makers, stages: list[Stage]) -> int | None:
    unequal = next((node for stage in stages if (node := find_unequal(graph, makers, stage)) is not None), None)
    return find_repeated(graph, stages) if unequal is None else unequal


def _too_short(region: Region, loop: LoopPlan) -> int | None:
    """The first op, if any, whose own first tile would be shorter than its factor allows."""
    for position in loop.stage.nodes:
        member = region.members[position]
        least = member.factor.least
        if least < 2:
            continue
        [mapping, *_] = [mapping for mapping in member.operands if mapping is not None]
        own = [piece for piece in loop.pieces if mapping.low <= piece.start < mapping.low + mapping.length]
        if own[0].tile * member.scale < least or len(own) > 2:
            return position
    return None


def refuse_unsplit(graph: Graph, region: Region, value: int) -> Refusal:
    """Why a tensor of a region that has loops exists unsplit all the same: some reader needs it complete."""
    for user, index in graph.tensors[value].users:
        node = graph.nodes[user]
        if user == graph.terminator:
            return refuse_returned(graph)
        if index < 0:
            return Refusal(Reason("EX303", f"the body of {node.name} uses it whole"), user)
        if user not in region.members:
            return Refusal(region.blocked.get(user, node.rule.reason), user)
        if region.members[user].operands[index] is None:
            return Refusal(Reason("EX304", f"{node.name} uses it whole as well"), user)
    return Refusal(Reason("EX306", "what is made of it is needed complete in the middle of the split"))
