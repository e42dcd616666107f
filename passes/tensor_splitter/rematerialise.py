"""Rematerialises big tensors in the loop body that reads them, so that the body's own tiles can compute them.

    %c = cost(%x, %y)               while ... {
    while ... { use(%c) }      ->       %c = cost(%x, %y); use(%c)     then split like any other

A Sinkhorn iteration, a scan or a conjugate gradient reads a huge matrix that was computed once outside: as a capture it
can never be split. It is recomputed in every trip, from small values, if that is no more than a few times the trip's
own work, and only if the split then removes it, or it is fused into its readers; otherwise the move is undone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from jaxlib.mlir import ir

from exla_opt.memory.called_functions import seconds_of_calls
from exla_opt.ops.comparisons import asks, asks_about, asks_across
from exla_opt.ops.rules import read_rules
from exla_opt.ops.slice_first import slice_first
from exla_opt.ops.traits import Trait
from exla_opt.options import Options

from .graph import OUTSIDE, Graph, read_graphs
from .plans.allowance import MOST_ARITHMETIC, runs_of
from .plans.body import MOST_SLICES_ALIVE, work_of
from .plans.choices import Choices
from .plans.early import IS_FUSED

# A body may recompute captures if that takes at most this many times its own arithmetic. On a CPU the ratio of the
# times is that of the arithmetic within a factor of four: of 24 loops over Gaussian kernels of 1,000 to
# 4,000 points, on a machine with other work, those below this took at most 5.5 times as long in slices, and those above
# it, from 6.4 on, 5.8 to 7.8 times. It was chosen on these.
_MOST_AGAIN = 4.0
# In a body, a collective would send in every trip.
_RUNS_ONCE = Trait.CONTROL_FLOW | Trait.COLLECTIVE


@dataclass(frozen=True, slots=True)
class _Move:
    """One tensor rematerialised in one block: the copies there, and which of them replaced it.

    originals: of the copies, in the same order, with their results.
    """

    original: ir.Value
    copy: ir.Value
    block: ir.Block
    clones: tuple[ir.Operation, ...]
    originals: tuple[tuple[ir.Operation, tuple[ir.Value, ...]], ...]


def _chain(graph: Graph, value: int, threshold: int, keeps_answers: bool = False) -> list[int] | None:
    """The ops that compute a big tensor from small ones, in program order; None if one must not be repeated.

    keeps_answers: whether equality tests stay outside, and their results are read.
    """
    chain: set[int] = set()
    queue = [value]
    while queue:
        current = queue.pop()
        tensor = graph.tensors[current]
        if tensor.producer == OUTSIDE or tensor.type.bytes <= threshold or tensor.producer in chain:
            continue
        if keeps_answers and asks(graph.nodes[tensor.producer].op):
            continue
        node = graph.nodes[tensor.producer]
        if node.traits & _RUNS_ONCE or not node.rule.factors:
            return None
        chain.add(node.position)
        queue += node.operands
    return sorted(chain)


def _clone_into(graph: Graph, chain: list[int], value: ir.Value, block: ir.Block) -> _Move:
    """Clone the chain to the start of the block and let the block read the clone."""
    copies: dict[ir.Value, ir.Value] = {}
    clones: list[ir.Operation] = []
    uses = [(use.owner, use.operand_number) for use in value.uses if use.owner.operation.block == block]
    for position in chain:
        op = graph.nodes[position].op
        clone = op.clone(ip=ir.InsertionPoint.at_block_begin(block)).operation
        if clones:
            clone.move_after(clones[-1])
        clones.append(clone)
        for index, operand in enumerate(op.operands):
            if operand in copies:
                clone.operands[index] = copies[operand]
        copies.update(zip(op.results, clone.results, strict=True))
    for owner, index in uses:
        owner.operation.operands[index] = copies[value]
    ops = [graph.nodes[position].op for position in chain]
    originals = tuple((op, tuple(op.results)) for op in ops)
    return _Move(value, copies[value], block, tuple(clones), originals)


def _undo(move: _Move) -> None:
    move.copy.replace_all_uses_with(move.original)
    for clone in reversed(move.clones):
        clone.erase()


def _drop_unread(moves: list[_Move]) -> None:
    """Erase the originals that nothing reads any more, so that there are no remarks on them."""
    gone: set[ir.Value] = set()
    for move in moves:
        for op, results in reversed(move.originals):
            if gone.isdisjoint(results) and not any(True for value in results for _ in value.uses):
                gone.update(results)
                op.erase()


def _reading_blocks(value: ir.Value, home: ir.Block) -> list[ir.Block]:
    """The blocks other than its own in which a value is read, each once."""
    blocks: list[ir.Block] = []
    for use in value.uses:
        block = use.owner.operation.block
        if block != home and block not in blocks:
            blocks.append(block)
    return blocks


def rematerialise_captures(
    module: ir.Module, graphs: Sequence[Graph], choices: Choices, of_program: bool = False
) -> bool:
    """Move tensors that can be split into the bodies that capture them; undo the moves that lead to no split.

    graphs: of all blocks of the module. of_program: whether all loops are the program's own. For loops of tiles, any
    test for equality prevents a move: they would compute anew what is complete, to save little. Returns whether the
    module has changed, and the graphs with it.
    """
    choices.allowance.start(graphs)
    chains = [found for graph in graphs for found in _chains(graph, choices.options, of_program)]
    prices = _Prices(graphs, choices)
    moves = [
        _clone_into(graph, chain, value, block)
        for graph, value, chain in chains
        for block in _reading_blocks(value, graph.block)
        if prices.allow(graph, chain, block)
    ]
    if not moves:
        return False
    unsplit = _not_split(module, moves, choices)
    for move in unsplit:
        _undo(move)
    slice_first([clone for move in moves if move not in unsplit for clone in move.clones])
    _drop_unread(moves)
    return True


class _Prices:
    """The seconds of the arithmetic of blocks and of their ops, computed on demand."""

    def __init__(self, graphs: Sequence[Graph], choices: Choices):
        self.machine = choices.options.machine
        self.allowance = choices.allowance
        self.graphs = {graph.block: graph for graph in graphs}
        self.found: dict[ir.Block, dict[int, float]] = {}

    def of(self, graph: Graph) -> dict[int, float]:
        if graph.block not in self.found:
            self.found[graph.block] = work_of(graph, self.machine)
        return self.found[graph.block]

    def allow(self, graph: Graph, chain: Sequence[int], block: ir.Block) -> bool:
        """Whether each run of the block may recompute the chain."""
        work = self.of(graph)
        again = sum(work.get(position, 0.0) for position in chain)
        if again > _MOST_AGAIN * sum(self.of(self.graphs[block]).values()):
            return False
        called = self._calls(graph, chain)
        if called and called * runs_of(block) > MOST_ARITHMETIC * self.in_all:
            return False
        return self.allowance.allows(block, sum(work_of(graph, self.machine, chain, any_shape=True).values()))

    @cached_property
    def in_all(self) -> float:
        """The seconds of the arithmetic of the module as it came, and of the functions that a CPU calls in it now."""
        graphs = self.graphs.values()
        calls = (self._calls(graph, range(len(graph.nodes))) * runs_of(graph.block) for graph in graphs)
        return self.allowance.most / MOST_ARITHMETIC + sum(calls)

    def _calls(self, graph: Graph, positions: Iterable[int]) -> float:
        """The seconds in which a CPU calls functions for each element of some ops' results."""
        found = 0.0
        for position in positions:
            node = graph.nodes[position]
            if Trait.POINTWISE in node.traits:
                kind = graph.tensors[node.results[0]].type
                name = node.name.rpartition(".")[2]
                found += seconds_of_calls(name, prod(kind.shape), kind.dtype, self.machine)
        return found


def _chains(graph: Graph, options: Options, of_program: bool) -> Iterator[tuple[Graph, ir.Value, list[int]]]:
    """The big captured tensors that may be recomputed, and the ops that compute each."""
    threshold, few_slices = options.size_threshold, MOST_SLICES_ALIVE * options.slice_bytes
    captured = {value for node in graph.nodes for value in node.operands[node.own :]}
    big = [value for value in sorted(captured) if _is_big(graph, value, threshold)]
    chains = {value: chain for value in big if (chain := _chain(graph, value, threshold))}
    cut = [value for value, chain in chains.items() if all(Trait.CUTS in graph.nodes[each].traits for each in chain)]
    # Tensors that are cut here, once, would be cut in each trip: not for a few slices in all.
    left_out = set(cut) if sum(graph.tensors[value].type.bytes for value in cut) <= few_slices else set()
    for value, chain in chains.items():
        if value in left_out:
            continue
        tensor = graph.tensors[value]
        if not _is_read_once(graph, chain, value):
            # Two loops that recompute it may get different results of an equality test; so may its own block, which
            # compares it with a result that a loop has found in its copy. In one block, both numbers are of one copy.
            may_differ = asks_across if of_program else asks_about
            if may_differ(tensor.value, graph.block):
                continue
            if any(asks(graph.nodes[position].op) for position in chain):
                chain = _chain(graph, value, threshold, keeps_answers=True) or []
        if chain:
            yield graph, tensor.value, chain


def _is_big(graph: Graph, value: int, threshold: int) -> bool:
    """Whether the block computes a tensor over the threshold."""
    tensor = graph.tensors[value]
    return tensor.producer != OUTSIDE and tensor.type.bytes > threshold


def _is_read_once(graph: Graph, chain: list[int], value: int) -> bool:
    """Whether only one block reads the results of a chain."""
    made = [result for position in chain for result in graph.nodes[position].results]
    readers = {user for result in made for user, _ in graph.tensors[result].users} - set(chain)
    return len(readers) == 1 and len(_reading_blocks(graph.tensors[value].value, graph.block)) == 1


def _not_split(module: ir.Module, moves: list[_Move], choices: Choices) -> list[_Move]:
    """The moves whose copy would stay in memory, unsplit, in its new block."""
    blocks = {move.block for move in moves}
    graphs = read_graphs(module, read_rules(module, choices.options.op_rules))
    reading = [graph for graph in graphs if graph.block in blocks]  # the others are processed once all is decided
    gone: set[ir.Value] = set()
    for graph, choice in zip(reading, choices.of(reading), strict=True):
        fused = (value for value, refusal in choice.refusals.items() if refusal.reason.code == IS_FUSED)
        for value in (*fused, *(value for plan in choice.plans for value in plan.vanished)):
            gone.add(graph.tensors[value].value)
    return [move for move in moves if move.copy not in gone]
