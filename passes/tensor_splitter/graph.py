"""A read-only index of one block: its ops and tensors as plain numbers, so that analysis is fast and pure.

It also gives the tiled op of an op of the block: how it is cut along one of its factors.
Operations are numbered, never hashed: the hash of an `ir.Operation` changes with its attributes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from jaxlib.mlir import ir

from exla_opt.ir.aliasing import aliased_results
from exla_opt.ir.types import TensorType, Types
from exla_opt.ir.walk import operands_of
from exla_opt.memory.block import Operation
from exla_opt.memory.tiles import Bodies, CutBodies
from exla_opt.ops.comparisons import asks_inside
from exla_opt.ops.factor import lay_factor
from exla_opt.ops.reducers import selects, selects_inside
from exla_opt.ops.rules import DimMapping, Factor, OpRule
from exla_opt.ops.traits import Trait, traits_of

OUTSIDE = -1
# Marks the loops that the splitter wrote in this run: their bodies must respect the split size.
TILE_MARK = "exla.tile"


@dataclass(slots=True)
class Tensor:
    """One SSA value: its producer (OUTSIDE for block arguments and captured values) and its users."""

    value: ir.Value
    type: TensorType
    producer: int
    result_index: int
    users: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class Node:
    """One operation: numbers of its operands, results and of the values that its scalar code captures.

    The captures of control flow follow its operands, as they may be read in slices: the op itself has `own` operands.
    rules, number: the rules of the whole module, and the index of the op's. traits: of the op.
    asked, chosen: cached results of `asks` and `selects`, None until computed.
    """

    position: int
    op: ir.Operation
    name: str
    rules: Sequence[OpRule]
    number: int
    operands: tuple[int, ...]
    results: tuple[int, ...]
    captures: tuple[int, ...]
    own: int
    traits: Trait
    asked: bool | None = None
    chosen: bool | None = None

    @property
    def rule(self) -> OpRule:
        """How the op may be cut."""
        return self.rules[self.number]

    def asks(self) -> bool:
        """Whether the op, or one in its blocks, tests for equality, as in `ops.comparisons.asks_inside`."""
        if self.asked is None:
            self.asked = asks_inside(self.op)
        return self.asked

    def selects(self) -> bool:
        """Whether its results, or those of an op in its blocks, are selected by order, as in `ops.reducers.selects`."""
        if self.chosen is None:
            self.chosen = selects_inside(self.op) if Trait.CONTROL_FLOW in self.traits else selects(self.op)
        return self.chosen

    def values(self) -> list[ir.Value]:
        """The current operands in the IR."""
        return operands_of(self.op)


@dataclass(slots=True)
class Graph:
    """One block. `nodes` are in program order; the last is the terminator.

    A user of (node, -1) in `Tensor.users` means that the scalar code of the node captures the tensor.
    arguments: the block's own arguments that are read. returned: the operands of the terminator.
    nested: whether the block belongs to control flow, not to a function. tile: whether it is the body of a loop that
    the splitter wrote. types: of all tensors of the module. overwritten: the returned tensors that overwrite an
    argument, a donated one or a carry of a loop, and that argument. operations, bodies, inside: cached results of the
    memory model, for the nodes, the blocks of control flow, and those when cut. work: the seconds of the arithmetic of
    the nodes, from `plans.body.work_of`. written: the result of `plans.body.written_tensors`, None until computed.
    """

    block: ir.Block
    nodes: list[Node]
    tensors: list[Tensor]
    arguments: frozenset[int] = frozenset()
    returned: frozenset[int] = frozenset()
    nested: bool = False
    tile: bool = False
    types: Types = field(default_factory=Types)
    overwritten: dict[int, int] = field(default_factory=dict)
    operations: dict[int, Operation | None] = field(default_factory=dict)
    bodies: dict[int, Bodies] = field(default_factory=dict)
    inside: dict[Hashable, CutBodies] = field(default_factory=dict)
    work: dict[bool, dict[int, float | None]] = field(default_factory=dict)
    written: set[int] | None = None

    @property
    def terminator(self) -> int:
        """The position of the block's terminator."""
        return len(self.nodes) - 1


def updates_carry(graph: Graph, node: Node) -> bool:
    """Whether the op updates a carry of a loop, as an accumulator: if cut, it would copy all of it."""
    if not graph.nested or graph.arguments.isdisjoint(node.operands):
        return False
    return not graph.returned.isdisjoint(node.results)


def updates_in_place(graph: Graph, node: Node) -> bool:
    """Whether an op that updates a carry of a loop is still in place when it is cut: if it is elementwise.

    All other readers of the carried tensor come before.
    """
    carried = [graph.overwritten[value] for value in node.results if value in graph.overwritten]
    if Trait.POINTWISE not in node.traits or not carried:
        return False
    return all(
        value in node.operands and all(user <= node.position for user, _ in graph.tensors[value].users)
        for value in carried
    )


def becomes_result(graph: Graph, value: int) -> bool:
    """Whether the terminator reads the tensor, or a tensor that overwrites it: its buffer exists at the end."""
    while value not in graph.returned:
        users = graph.tensors[value].users
        user, index = users[0] if len(users) == 1 else (graph.terminator, -1)
        node = graph.nodes[user]
        # A loop of the program may read its initial value before it writes, and has rules of its own.
        written_over = Trait.IN_PLACE in node.traits and 0 <= index < len(node.results)
        if not written_over or Trait.CONTROL_FLOW in node.traits:
            return False
        value = node.results[index]
    return True


class _Reader:
    """Reads the blocks of a module in the order of its rules."""

    def __init__(self, rules: Sequence[OpRule]):
        self.rules = rules
        self.types = Types()
        self.graphs: list[Graph] = []
        self.ops = 0

    def read(self, block: ir.Block) -> None:
        """Add the graph of a function's block, then those of the blocks in it, however deep they are nested."""
        stack = [self.steps(block, nested=False, tile=False)]
        while stack:
            inner = next(stack[-1], None)
            if inner is None:
                stack.pop()
            else:
                inside, tile = inner
                stack.append(self.steps(inside, nested=True, tile=tile))

    def steps(self, block: ir.Block, nested: bool, tile: bool) -> Iterator[tuple[ir.Block, bool]]:
        """Add the graph of one block; yield each block inside, and whether it is a tile's."""
        nodes: list[Node] = []
        tensors: list[Tensor] = []
        number: dict[ir.Value, int] = {}
        graph = Graph(block, nodes, tensors, nested=nested, tile=tile, types=self.types)
        self.graphs.append(graph)

        def tensor(value: ir.Value) -> int:
            known = number.get(value)
            if known is None:
                known = number[value] = len(tensors)
                tensors.append(Tensor(value, self.types.of(value), OUTSIDE, 0))
            return known

        for view in block.operations:
            op = view.operation
            name = op.name
            position = len(nodes)
            operands = tuple([tensor(value) for value in op.operands])
            own = len(operands)
            captures = tuple([tensor(value) for value in self.types.captured(op)]) if len(op.regions) else ()
            traits = traits_of(name)
            if Trait.CONTROL_FLOW in traits:
                operands, captures = operands + captures, ()
            for capture in captures:
                tensors[capture].users.append((position, -1))
            for index, operand in enumerate(operands):
                tensors[operand].users.append((position, index))
            first = len(tensors)
            for index, value in enumerate(op.results):
                number[value] = first + index
                tensors.append(Tensor(value, self.types.of(value), position, index))
            results = tuple(range(first, len(tensors)))
            nodes.append(Node(position, op, name, self.rules, self.ops, operands, results, captures, own, traits))
            self.ops += 1
            if Trait.CONTROL_FLOW in traits:
                own = TILE_MARK in op.attributes
                yield from ((inner, own) for region in op.regions for inner in region.blocks)
        graph.returned = frozenset(nodes[-1].operands)
        graph.arguments = frozenset(number[value] for value in block.arguments if value in number)
        graph.overwritten = {
            nodes[-1].operands[place]: number[block.arguments[argument]]
            for argument, place in _overwritten_places(block)
            if block.arguments[argument] in number
            and block.arguments[argument].type == nodes[-1].op.operands[place].type
        }


def _overwritten_places(block: ir.Block) -> Iterable[tuple[int, int]]:
    """The positions of a block's arguments that results overwrite, and of those results."""
    owner = block.owner.operation
    if owner.name == "func.func":
        return aliased_results(owner).items()
    if len(owner.regions) > 1 and block == owner.regions[1].blocks[0] and Trait.IN_PLACE in traits_of(owner.name):
        return [(place, place) for place in range(len(block.arguments))]
    return ()


def read_graphs(module: ir.Module, rules: Sequence[OpRule]) -> list[Graph]:
    """One graph for every block of the module's functions and of their control flow, outer blocks first.

    rules: what `ops.rules.read_rules` returned for this module, in the order of its walk.
    """
    reader = _Reader(rules)
    for view in module.body.operations:
        for region in view.operation.regions:
            for block in region.blocks:
                reader.read(block)
    return reader.graphs


@dataclass(frozen=True, slots=True)
class TiledOp:
    """One op of a region, with its factor laid on the region's index.

    Index r of the region is indices [r * scale + offset, (r + 1) * scale + offset) of the op's factor.
    operands, results: the mappings in terms of the region's index; None if the tensor does not carry it.
    """

    node: int
    factor: Factor
    scale: int
    offset: int
    operands: tuple[DimMapping | None, ...]
    results: tuple[DimMapping | None, ...]

    def reach(self, index: int) -> tuple[int, int]:
        """The region's indices before and after its own that a tile also reads of an operand."""
        if not self.factor.reaches:
            return (0, 0)
        before, after = self.factor.reaches[index]
        return (-(-before // self.scale), -(-after // self.scale))


def lay_op(node: Node, factor: Factor, own: DimMapping, wanted: DimMapping) -> TiledOp | None:
    """Lay the factor of `node`, which is at `own`, on the region so that `own` becomes `wanted`.

    None if the region's index is not an integer number of the factor's indices.
    """
    laid = lay_factor(factor, own, wanted)
    if laid is None:
        return None
    return TiledOp(node.position, factor, laid.scale, laid.offset, laid.operands, laid.results)


def tiled_from_result(node: Node, index: int, wanted: DimMapping, overlaps: bool = False) -> TiledOp | None:
    """The tiled op that computes result `index` of `node` in slices along `wanted`, if its rule allows.

    overlaps: whether its operands may be in longer tiles if it reads more of them than its part.
    """
    for overlap in node.rule.overlaps if overlaps else ():
        own = overlap.results[index]
        if own is not None and own.dim == wanted.dim:
            return lay_op(node, overlap, own, wanted)
    factor = node.rule.at_result(index, wanted.dim, wanted.inner)
    own = factor.results[index] if factor else None
    return lay_op(node, factor, own, wanted) if factor and own else None


def tiled_from_operand(node: Node, index: int, wanted: DimMapping, overlaps: bool = False) -> TiledOp | None:
    """The tiled op that reads operand `index` of `node` in slices along `wanted`, if its rule allows; as above."""
    for overlap in node.rule.overlaps if overlaps else ():
        own = overlap.operands[index]
        if own is not None and own.dim == wanted.dim:
            return lay_op(node, overlap, own, wanted)
    factor = node.rule.at_operand(index, wanted.dim, wanted.inner)
    own = factor.operands[index] if factor else None
    return lay_op(node, factor, own, wanted) if factor and own else None
