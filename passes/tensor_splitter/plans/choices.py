"""Caches the choices in the blocks of control flow, which most rounds leave unchanged."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from jaxlib.mlir import ir

from exla_opt.ir.attributes import named
from exla_opt.ir.locations import describe
from exla_opt.ir.types import element_type
from exla_opt.ir.values import splat_value
from exla_opt.ir.walk import CONTROL_FLOW, captured_values
from exla_opt.ops.block_flow import ControlFactor
from exla_opt.ops.traits import Trait
from exla_opt.options import Options

from ..graph import TILE_MARK, Graph, Node
from .allowance import Allowance, refuse_dear
from .choose import Choice, choose


class Choices:
    """The choices of all blocks, round by round: an unchanged block is not processed again.

    A choice names the contents of a block by number, so it holds as long as the block's text would be the same. Plans
    that cut loops of the program name these by value, and are recomputed. If there was nothing to do, a change inside
    of a block's loops is ignored, unless the search is thorough.

    shifts: whether tiles may overlap for slices, pads and joins. shifted: whether those of some plan do. before: the
    choices of an earlier search in the same module, made with shifts; those that do not depend on these are kept.
    """

    def __init__(
        self, options: Options, allowance: Allowance, shifts: bool = True, before: Choices | None = None
    ) -> None:
        self.options = options
        self.allowance = allowance
        self.shifts = shifts
        self.shifted = False
        known = {} if before is None else before.known
        self.known: dict[tuple[bool, int], Choice] = {key: each for key, each in known.items() if not each.shifts}
        self.idle: dict[tuple[bool, int], Choice] = {}
        self.texts: dict[Hashable, int] = {} if before is None else before.texts

    def of(self, graphs: Sequence[Graph], thorough: bool = True) -> list[Choice]:
        """The choice for each of these blocks of a module, the outer ones first."""
        texts: dict[ir.Block, tuple[int, int]] = {}
        for graph in reversed(graphs):
            # In later rounds also a function's block, so that one with nothing to do is not processed again.
            if not thorough or graph.nested or any(map(_is_loop_of_program, graph.nodes)):
                self.text_of(graph.block, texts)
        return [self.limited(graph, self.choice(graph, texts, thorough)) for graph in graphs]

    def limited(self, graph: Graph, choice: Choice) -> Choice:
        """A choice without the plans that would add too much arithmetic to the module."""
        kept = [plan for plan in choice.plans if self.allowance.take(graph.block, plan.added)]
        self.shifted |= any(plan.shifts for plan in kept)
        if len(kept) == len(choice.plans):
            return choice
        seeds = {plan.seed for plan in choice.plans} - {plan.seed for plan in kept}
        return replace(choice, plans=kept, refusals=choice.refusals | dict.fromkeys(seeds, refuse_dear()))

    def choice(self, graph: Graph, texts: Mapping[ir.Block, tuple[int, int]], thorough: bool) -> Choice:
        if graph.block not in texts:
            return choose(graph, self.options, self.allowance, self.shifts)
        text, outline = texts[graph.block]
        if (graph.tile, text) in self.known:
            return self.known[graph.tile, text]
        if not thorough and (graph.tile, outline) in self.idle:
            return self.idle[graph.tile, outline]
        found = choose(graph, self.options, self.allowance, self.shifts)
        if not found.plans:
            self.idle[graph.tile, outline] = found
        if not any(isinstance(tiled.factor, ControlFactor) for plan in found.plans for tiled in plan.tiled.values()):
            self.known[graph.tile, text] = found
        return found

    def text_of(self, block: ir.Block, texts: dict[ir.Block, tuple[int, int]]) -> tuple[int, int]:
        """Numbers that stand for the text of a block, with known values of its captures.

        The second leaves out the contents of loops and branches. texts: caches the numbers of inner blocks.
        """
        if block in texts:
            return texts[block]
        places: dict[ir.Value, int] = {value: place for place, value in enumerate(block.arguments)}
        numbers: dict[ir.Value, int] = {}
        # Remarks on a block name locations in the program: a block that only looks the same has others.
        words: list[Hashable] = [describe(block.owner.operation), *(value.type for value in block.arguments)]
        inside: list[Hashable] = []

        def number(value: ir.Value) -> int:
            if value not in numbers:
                numbers[value] = len(numbers)
                # A graph numbers its tensors in the order of reads, including those inside loops: so does the outline.
                # As text: no NaN is equal to itself, and zero is equal to minus zero.
                words.append(places[value] if value in places else (value.type, repr(splat_value(value))))
            return numbers[value]

        for view in block.operations:
            op = view.operation
            read = tuple([number(value) for value in op.operands])
            words.append((op.name, read, _attributes(op), tuple([value.type for value in op.results])))
            if len(op.regions):
                blocks = tuple([self.text_of(inner, texts)[0] for region in op.regions for inner in region.blocks])
                captured = tuple([number(value) for value in captured_values(op)])
                (inside if op.name in CONTROL_FLOW else words).append((captured, blocks))
            for value in op.results:
                numbers[value] = len(numbers)
        outline = self.texts.setdefault(tuple(words), len(self.texts))
        texts[block] = (self.texts.setdefault((outline, *inside), len(self.texts)), outline)
        return texts[block]


def _is_loop_of_program(node: Node) -> bool:
    return Trait.CONTROL_FLOW in node.traits and TILE_MARK not in node.op.attributes


def _attributes(op: ir.Operation) -> Hashable:
    """The attributes of an op; a complex constant, which the bindings cannot read, is known by its hash."""
    if "value" in op.attributes and isinstance(element_type(op.results[0]), ir.ComplexType):
        return hash(op)
    return named(op)
