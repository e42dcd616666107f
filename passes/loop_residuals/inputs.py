"""Lets a loop compute, step by step, inputs that are computed for all steps at once and read one step at a time.

    dynamic_slice(cos(x) * y, i)     ->   cos(dynamic_slice(x, i)) * dynamic_slice(y, i)
    dynamic_slice(dot(x, w), i)      ->   dot(dynamic_slice(x, i), w)
    dynamic_slice(broadcast(x), i)   ->   broadcast(x)     one matrix for all steps, as some scans have
    dynamic_slice(reduce(x), i)      ->   reduce(dynamic_slice(x, i))     over other dimensions than that of the steps

Applies above the threshold, if nothing else reads the tensors in between, so that they disappear. Ops that compute are
read by one op only: nothing is computed twice, and no two results can differ. Products of matrices are moved only if
that hardly makes a step slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from jaxlib.mlir import ir

from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op, has_discardable_attributes, splat_value
from exla_opt.ir.walk import walk
from exla_opt.memory.machine import Machine
from exla_opt.ops.comparisons import asks, asks_about
from exla_opt.ops.traits import Trait, has_trait

from .indices import Indices
from .products import is_by_rows, is_quick_by_rows
from .readers import Reader, readers_along
from .slices import SHIFTS, can_be_moved, made_of_slices, moved_index, repeats, slice_at, step_dim

# The maximum number of ops of a block that move in one pass.
_MOST_OPS = 512
# The maximum length of a chain of ops: they are followed recursively.
_DEEPEST = 128
# Tensors that must be kept to be sliced take less than this fraction of those that disappear.
_LEFT = 0.5
# An op that only moves elements may move to up to this many readers.
_MOST_READERS = 4
_MOST_INDICES = 2**31 - 1
# A step with fewer elements is mostly overhead if it computes, while all steps at once are vectorised.
_LEAST_ELEMENTS = 64


@dataclass(frozen=True, slots=True)
class Inputs:
    """ops: those that move after the slices, by their results, last first. readers: the slices, first first.

    dims: the dimension along which the ops and their operands have steps.
    """

    ops: dict[ir.Value, ir.Operation]
    dims: dict[ir.Value, int]
    readers: tuple[Reader, ...]


# By the result of a slice, and of the ops that its index passes through: the slice.
_Readings = dict[tuple[ir.Value, tuple[ir.Value, ...]], Reader]
# By tensor and dimension: one step.
_Steps = dict[tuple[ir.Value, int], ir.Value]


class InputSearch:
    """Finds the inputs of the loops in blocks. asking: caches which bodies test for equality."""

    def __init__(self, threshold: int, light: int, types: Types, machine: Machine):
        self.machine = machine
        self.threshold = threshold
        self.light = light
        self.types = types
        self.indices = Indices()
        self.asking: dict[ir.Block, bool] = {}

    def of(self, block: ir.Block) -> Inputs | None:
        """The inputs that loops of the block can compute themselves; None if that gains nothing."""
        ops: dict[ir.Value, ir.Operation] = {}
        readings: dict[ir.Value, _Readings] = {}  # by tensor, including through moved ops
        roots: list[Reader] = []
        gone = 0
        depth: dict[ir.Value, int] = {}
        dims: dict[ir.Value, int] = {}
        mixed: set[ir.Value] = set()  # of which steps along two dimensions are read
        complete: set[ir.Value] = set()  # what every step of a product reads
        for value in self.candidates(block):
            op, readers = defining_op(value), readers_along(value, self.types)
            known = {(each.op.results[0], ()): each for each in readers} | readings.get(value, {})
            if op is None or not known or len(ops) == _MOST_OPS or value in mixed:
                continue
            dim = dims.setdefault(value, readers[0].dim if readers else 0)
            if any(each.dim != dim for each in readers) or not self.can_follow(op, list(known.values()), dim):
                continue
            if depth.get(value, 0) > _DEEPEST or value in complete:
                continue
            own = {each.op.results[0] for each in readers}
            if not all(self.is_done(use.owner.operation, own, ops, dims) for use in value.uses):
                continue
            if not all(self.reads_own_steps(each, block) for each in readers):
                continue
            ops[value] = op
            roots += readers
            moved = (value,) if op.name in SHIFTS else ()
            if is_by_rows(op, self.types):
                complete.add(op.operands[1])
            inner = step_dim(op, self.types, dim) or 0
            for operand in (op.operands[place] for place in _sliced(op, self.types, dim)):
                if dims.setdefault(operand, inner) != inner:
                    mixed.add(operand)
                depth[operand] = max(depth.get(operand, 0), depth.get(value, 0) + 1)
                through = {(result, (*moves, *moved)): reader for (result, moves), reader in known.items()}
                readings.setdefault(operand, {}).update(through)
            gone += self.types.of(value).bytes if readers else 0
        kept = {value for value in (*readings, *complete) if value not in ops and self.would_stay(value, dims)}
        left = sum(self.types.of(value).bytes for value in kept)
        if gone <= self.threshold or left > _LEFT * gone:
            return None
        return Inputs(ops, dims, _in_order(roots))

    def candidates(self, block: ir.Block) -> list[ir.Value]:
        """The results of the block's ops that are large enough, last first."""
        ops = (view.operation for view in block.operations)
        made = (op for op in ops if not len(op.regions) or op.name == "stablehlo.reduce")
        values = [value for op in made for value in op.results if self.types.of(value).bytes > self.light]
        return [value for value in reversed(values) if splat_value(value) is None]

    def can_follow(self, op: ir.Operation, readers: Sequence[Reader], dim: int) -> bool:
        """Whether an op gives the same on slices along a dimension, and may move to where its readers are."""
        if repeats(op, self.types, dim):
            return len(readers) <= _MOST_READERS
        by_rows = dim == 0 and is_by_rows(op, self.types)
        inner = 0 if by_rows else step_dim(op, self.types, dim)
        if inner is None:
            return False
        if any(defining_op(each, "stablehlo.iota") for each in op.operands):
            return False  # an iota is never in memory until slices of it are read
        sliced = [op.operands[place] for place in _sliced(op, self.types, dim)]
        if any(self.types.of(each).shape[inner] > _MOST_INDICES for each in sliced):
            return False
        if has_trait(op, Trait.MOVES):
            return len(readers) <= _MOST_READERS
        shape = self.types.of(op.results[0]).shape
        if len(readers) > 1 or prod(shape) < _LEAST_ELEMENTS * shape[dim]:
            return False
        [reader] = readers
        body = reader.op.block
        if by_rows and not is_quick_by_rows(op, body, self.types, self.machine):
            return False
        if body not in self.asking:
            self.asking[body] = any(map(asks, walk(body)))
        return not (self.asking[body] and asks_about(reader.op.results[0], body))

    def is_done(
        self, reader: ir.Operation, own: set[ir.Value], ops: dict[ir.Value, ir.Operation], dims: dict[ir.Value, int]
    ) -> bool:
        """Whether a reader of a tensor reads one step, or moves after the slices and does not broadcast all of it."""
        if len(reader.results) != 1:
            return False
        result = reader.results[0]
        return result in own or (result in ops and not repeats(reader, self.types, dims[result]))

    def reads_own_steps(self, reader: Reader, block: ir.Block) -> bool:
        """Whether each trip of a loop of the block reads its own step, by an index that is never out of range."""
        if isinstance(reader.index, int) or has_discardable_attributes(reader.op):
            return False
        index, body = self.indices.of(reader.index), reader.op.block
        if index is None or index.body is None or index.body != body or body.owner.operation.block != block:
            return False
        numbers, length = index.numbers, self.types.of(reader.op.operands[0]).shape[reader.dim]
        if not can_be_moved(reader.index) or not numbers.size:
            return False
        in_range = numbers.min() >= 0 and numbers.max() < length
        return bool(in_range) and len(np.unique(numbers)) == len(numbers)

    def would_stay(self, value: ir.Value, dims: dict[ir.Value, int]) -> bool:
        """Whether a tensor would be kept for the slices: an argument exists anyway."""
        op = defining_op(value)
        return op is not None and splat_value(value) is None and not repeats(op, self.types, dims.get(value, 0))


def _sliced(op: ir.Operation, types: Types, dim: int) -> range:
    """The positions of the operands of which one step suffices for one step of the result along a dimension."""
    if repeats(op, types, dim):
        return range(0)
    return range(1 if is_by_rows(op, types) or op.name == "stablehlo.reduce" else len(op.operands))


def _in_order(readers: Sequence[Reader]) -> tuple[Reader, ...]:
    """The readers of each block in its order."""
    blocks = {reader.op.block: None for reader in readers}
    found = {reader.op.results[0]: reader for reader in readers}
    results = (view.operation.results for block in blocks for view in block.operations)
    return tuple(found[result[0]] for result in results if len(result) == 1 and result[0] in found)


def build_inputs(inputs: Inputs, types: Types) -> None:
    """Let every reader compute its step from slices; the ops for all of the steps are dead then."""
    made: dict[tuple[ir.Block, ir.Value], _Steps] = {}

    def of(value: ir.Value, index: ir.Value, dim: int, known: _Steps) -> ir.Value:
        if (value, dim) not in known:
            op = inputs.ops.get(value)
            known[value, dim] = slice_at(value, index, types, dim) if op is None else behind(op, index, dim, known)
        return known[value, dim]

    def behind(op: ir.Operation, index: ir.Value, dim: int, known: _Steps) -> ir.Value:
        with op.location:
            if repeats(op, types, dim):
                return made_of_slices(op, list(op.operands), dim)
            moved = moved_index(op, index, dim)
            inner = known if moved == index else {}
            parts = list(op.operands)
            for place in _sliced(op, types, dim):
                parts[place] = of(op.operands[place], moved, step_dim(op, types, dim) or 0, inner)
            return made_of_slices(op, parts, dim)

    for reader in inputs.readers:
        assert isinstance(reader.index, ir.Value)
        with ir.InsertionPoint(reader.op), reader.op.location:
            known = made.setdefault((reader.op.block, reader.index), {})
            value = of(reader.op.operands[0], reader.index, reader.dim, known)
        reader.op.results[0].replace_all_uses_with(value)
        reader.op.erase()
