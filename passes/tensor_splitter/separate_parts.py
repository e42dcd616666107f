"""Computes the parts of a big tensor separately, where a loop needs them at other positions than in the tensor.

    t = f(x); a, b = t[:n], t[n:]; dot(a', b)   ->   a = f(x[:n]); b = f(x[n:])

A loop over the rows of the product needs rows i and n + i of t in one step. Cut along its rows, t has only one of them
in each step, so its region ends there, and t is complete. The same holds where the gradients of both halves are joined,
as rows i and n + i of the result: both may depend on rows i of a. `positions.py` finds what is needed where.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import walk_functions
from exla_opt.ops.ranges import SLICE, parts_among
from exla_opt.ops.rules import DimMapping, read_rules
from exla_opt.ops.tile import Range, replaced
from exla_opt.ops.tiling import build_tile
from exla_opt.options import Options

from .graph import Node, TiledOp, read_graphs
from .overwrite_joined import overwrite_joined
from .positions import Positions


def reads_parts(module: ir.Module, options: Options) -> bool:
    """Whether several parts of a tensor over the threshold are read, none of them a small one."""
    types = Types()
    slices: dict[ir.Value, list[ir.Operation]] = {}
    for op in walk_functions(module.operation):
        if op.name == SLICE and types.of(op.operands[0]).bytes > options.size_threshold:
            slices.setdefault(op.operands[0], []).append(op)
    return any(parts_among(found) for found in slices.values())


def _search(module: ir.Module, options: Options) -> list[Positions]:
    """What to compute separately, by block."""
    graphs = read_graphs(module, read_rules(module, options.op_rules))
    blocks = [Positions(graph, options.size_threshold) for graph in graphs]
    return [each for each in blocks if each.find()]


def parts_meet(module: ir.Module, options: Options) -> bool:
    """Whether some of the parts that `reads_parts` sees may and should be computed separately."""
    return bool(_search(module, options))


def separate_parts(module: ir.Module, options: Options) -> bool:
    """Compute such parts separately; return whether there were any."""
    found = _search(module, options)
    for each in found:
        _Writer(each).run()
    return bool(found)


def separate_and_overwrite(module: ir.Module, options: Options) -> bool:
    """Compute such parts separately, and write results over what joins them; return whether there was both."""
    return separate_parts(module, options) and overwrite_joined(module, options)


class _Writer:
    """Writes what a search found.

    made: by tensor and position, the tensor, and the range of indices that it has. built: the copies.
    """

    def __init__(self, found: Positions):
        self.found = found
        self.graph = found.graph
        self.made: dict[tuple[int, int], tuple[ir.Value, Range]] = {}
        self.built: list[ir.Operation] = []

    def run(self) -> None:
        for place, laid in sorted(self.found.placed.items()):
            node = self.graph.nodes[place]
            with ir.InsertionPoint(node.op), node.op.location:
                for position, tiled in laid.items():
                    self.write(node, position, tiled)
        originals = [self.graph.nodes[place].op for place in sorted(self.found.placed)]
        for op in (*reversed(self.built), *reversed(originals)):
            if not any(True for result in op.results for _ in result.uses):
                op.erase()

    def write(self, node: Node, position: int, tiled: TiledOp) -> None:
        """Compute an op's result at a position, or let the op itself read what others computed."""
        wanted = self.found.wanted.get(node.results[0], {}) if len(node.results) == 1 else {}
        part = wanted.get(position)
        is_part = self.found.takes_part(node, tiled)
        if part is None or (self.found.is_original(node, position, part) and not is_part):
            for index, (value, mapping) in enumerate(zip(node.operands, tiled.operands, strict=True)):
                if mapping is not None:
                    node.op.operands[index] = self.read(value, mapping, (0, mapping.length))
            made = node.op.results[0]
        else:
            needed = {value: (mapping, own) for value, mapping, own in self.found.reads(node, tiled, part)}
            if is_part or self.found.joined(node, tiled, part) is not None:
                [(value, where)] = needed.items()
                made = self.read(value, *where)
            else:
                part = self.found.complete(node) if self.found.is_join(node) else part
                made = self.copied(node, tiled, part, needed)
        if part is not None:
            self.made[node.results[0], position] = made, part

    def copied(
        self, node: Node, tiled: TiledOp, part: Range, needed: Mapping[int, tuple[DimMapping, Range]]
    ) -> ir.Value:
        """The op's result for a range of indices, from those ranges of its operands that it needs."""
        operands, ranges = list(node.op.operands), list[Range | None]()
        assert tiled.results[0] is not None
        for index, (value, mapping) in enumerate(zip(node.operands, tiled.operands, strict=True)):
            if mapping is None:
                ranges.append(None)
                continue
            own = needed[value][1]
            operands[index] = self.read(value, mapping, own)
            moved = mapping.low - tiled.results[0].low - part[0]
            ranges.append((own[0] + moved, own[1] + moved))
        start = build.scalar_i32(part[0])
        [made] = build_tile(node.op, tiled.factor, operands, start, ranges, [(0, part[1] - part[0])])
        self.built += [op for value in (start, made) if (op := defining_op(value)) is not None]
        return made

    def read(self, value: int, mapping: DimMapping, part: Range) -> ir.Value:
        """A range of the indices of a tensor at the position of the mapping."""
        original = self.graph.tensors[value].value, (0, mapping.length)
        is_own = self.found.along.get(value) == replace(mapping, low=0)
        made, own = self.made.get((value, mapping.low), original) if is_own else original
        if own == part:
            return made
        shape = build.shape_of(made)
        first, last = ((index - own[0]) * mapping.inner for index in part)
        starts, limits = replaced([0] * len(shape), mapping.dim, first), replaced(shape, mapping.dim, last)
        sliced: ir.Value = stablehlo.slice(made, starts, limits, [1] * len(shape))
        self.built += [op for op in (defining_op(sliced),) if op is not None]
        return sliced
