"""A module as the memory model sees it: numbered tensors and ops, with views and repeated ops already merged.

What XLA simplifies before it plans memory is simplified here too: a square is a multiplication, a negated operand of a
sum is negated behind it, a sort with its places of which only the first few are read is a top-k.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir.attributes import integers, is_splat
from exla_opt.ir.types import Types, element_type, float_bits
from exla_opt.ir.values import defining_op, splat_value
from exla_opt.ir.walk import CONTROL_FLOW, captured_values

Shape = tuple[int, ...]

_IMPURE = frozenset({"custom_call", "rng", "rng_bit_generator"})
# A sort of which so small a part is read is a top-k to XLA.
_TOP_PART = 4


@dataclass(slots=True)
class Operation:
    """One op.

    name: without the dialect; "splat" for a constant that is one number. operands, captures, results: tensor numbers.
    lengths: the sizes of the dimensions that a reduce reduces, or of the matrix that a triangular_solve solves.
    copied: the operands that a dot wants in another order of dimensions. bodies: of control flow.
    narrow: the floats of less than 32 bits of which XLA:CPU makes wider ones for this op.
    """

    name: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    captures: tuple[int, ...] = ()
    lengths: Shape = ()
    copied: tuple[int, ...] = ()
    bodies: tuple[Block, ...] = ()
    narrow: frozenset[int] = frozenset()


@dataclass(slots=True)
class Block:
    """ops in program order. values, shapes, sizes (bytes): of every tensor. arguments, returned: in order."""

    ops: list[Operation] = field(default_factory=list)
    values: list[ir.Value] = field(default_factory=list)
    shapes: list[Shape] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    arguments: list[int] = field(default_factory=list)
    returned: list[int] = field(default_factory=list)


def read_block(block: ir.Block, types: Types) -> Block:
    """The block and, inside its ops, those of its control flow."""
    return _Reader(types).read(block)


class _Reader:
    """Reads one block. Two ops of the same name, operands and attributes are one, as XLA merges them."""

    def __init__(self, types: Types):
        self.types = types
        self.made = Block()
        self.number: dict[ir.Value, int] = {}
        self.seen: dict[Hashable, tuple[int, ...]] = {}

    def read(self, block: ir.Block) -> Block:
        self.made.arguments = [self.of(value) for value in block.arguments]
        for view in block.operations:
            op = view.operation
            if op.name in ("func.return", "stablehlo.return"):
                self.made.returned = [self.of(value) for value in op.operands]
            elif op.name == "stablehlo.optimization_barrier":
                self.number.update(zip(op.results, map(self.of, op.operands), strict=True))
            elif is_view(op, self.types):
                self.number[op.results[0]] = self.of(op.operands[0])
            else:
                self.add(op)
        return self.made

    def of(self, value: ir.Value) -> int:
        """The tensor's number; what was not met before comes from outside the block."""
        known = self.number.get(value)
        if known is None:
            known = self.number[value] = len(self.made.values)
            kind = self.types.of(value)
            self.made.values.append(value)
            self.made.shapes.append(kind.shape)
            self.made.sizes.append(kind.bytes)
        return known

    def add(self, op: ir.Operation) -> None:
        name = op.name.rpartition(".")[2]
        operands = tuple(map(self.of, op.operands))
        key = None if len(op.regions) or name in _IMPURE else _key(op, name, operands)
        if key is not None and key in self.seen:
            self.number.update(zip(op.results, self.seen[key], strict=True))
            return
        results = tuple(map(self.of, op.results))
        if key is not None:
            self.seen[key] = results
        captures = tuple(map(self.of, captured_values(op))) if len(op.regions) else ()
        made = Operation(name, operands, results, captures)
        self.simplify(op, made)
        if name == "while":
            made.narrow = frozenset(self.of(value) for value in _widened_before(op))
        if op.name in CONTROL_FLOW:
            blocks = [block for region in op.regions for block in region.blocks]
            made.bodies = tuple(read_block(block, self.types) for block in blocks[name == "while" :])
        self.made.ops.append(made)

    def simplify(self, op: ir.Operation, made: Operation) -> None:
        """Make of the op what XLA makes of it."""
        name = made.name
        if name == "constant" and is_splat(op):
            made.name = "splat"
            self.forget_bytes(made)
        elif (name == "power" and splat_value(op.operands[1]) == 2) or (name == "divide" and self.is_cheap_divisor(op)):
            made.name = "multiply"
        elif name == "square":
            made.name, made.operands = "multiply", made.operands * 2
        elif name == "triangular_solve":
            made.lengths = self.types.of(op.operands[0]).shape[-1:]
        elif name == "reduce":
            inner = defining_op(op.operands[0], "stablehlo.negate")
            if inner is not None and len(op.results) == 1:
                made.operands = (self.of(inner.operands[0]), *made.operands[1:])
            shape = self.types.of(op.operands[0]).shape
            made.lengths = tuple(shape[dim] for dim in integers(op, "dimensions", []))
            made.narrow = frozenset(self.of(value) for value in op.operands if _is_bfloat16(value))
        elif name == "dot_general":
            made.copied = self.copied(op)
            values = (*op.operands, *op.results)
            made.narrow = frozenset(self.of(value) for value in values if 0 < float_bits(element_type(value)) < 32)
        elif name == "sort" and self.is_top_k(op):
            made.name, made.operands = "top_k", made.operands[:1]
            for value, number in zip(op.results, made.results, strict=True):
                read = [self.types.of(use.owner.operation.results[0]).bytes for use in value.uses]
                self.made.sizes[number] = max(read, default=0)

    def forget_bytes(self, made: Operation) -> None:
        """A splat is never in memory; what a loop starts from is the loop's own buffer."""
        for number in made.results:
            self.made.sizes[number] = 0

    def is_cheap_divisor(self, op: ir.Operation) -> bool:
        """Whether a division is a multiplication by what is computed once: a number, or a smaller tensor repeated."""
        spread = defining_op(op.operands[1], "stablehlo.broadcast_in_dim")
        if spread is None:
            return splat_value(op.operands[1]) is not None
        repeated = prod(self.types.of(spread.operands[0]).shape) > 1
        return repeated or _is_constant(spread.operands[0])

    def is_top_k(self, op: ir.Operation) -> bool:
        """Whether a sort also sorts the places of its elements, and only a small part of both is read."""
        if len(op.operands) != 2 or not _counts(op.operands[1]):
            return False
        readers = [(use.owner.operation, result) for result in op.results for use in result.uses]
        return all(
            user.name == "stablehlo.slice"
            and _TOP_PART * self.types.of(user.results[0]).bytes <= self.types.of(result).bytes
            for user, result in readers
        )

    def copied(self, op: ir.Operation) -> tuple[int, ...]:
        """The operands whose dimensions are not batch, free and contracted, or batch, contracted and free, in order."""
        numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
        batches = numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions
        sums = numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions
        found = []
        for side in (0, 1):
            shape = self.types.of(op.operands[side]).shape
            batch, contracted = list(batches[side]), list(sums[side])
            kinds = [
                0 if dim in batch else 1 if dim in contracted else 2 for dim, size in enumerate(shape) if size != 1
            ]
            runs = [kind for place, kind in enumerate(kinds) if place == 0 or kinds[place - 1] != kind]
            mixed = batch != sorted(batch) and len(_real([shape[dim] for dim in batch])) > 1
            if mixed or len(set(runs)) != len(runs) or 0 in runs[1:]:
                found.append(side)
        return tuple(found)


def _key(op: ir.Operation, name: str, operands: tuple[int, ...]) -> Hashable:
    """What two equal ops have in common. The bindings cannot read the value of a complex constant."""
    kinds = tuple(result.type for result in op.results)
    if name == "constant" and isinstance(ir.RankedTensorType(kinds[0]).element_type, ir.ComplexType):
        return None
    attributes = tuple((op.attributes[place].name, op.attributes[place].attr) for place in range(len(op.attributes)))
    return name, operands, attributes, kinds


def _is_constant(value: ir.Value, depth: int = 8) -> bool:
    """Whether a number is computed from constants alone, so that XLA computes it beforehand."""
    op = defining_op(value)
    if op is None or not depth or len(op.regions):
        return False
    return op.name == "stablehlo.constant" or (
        len(op.operands) > 0 and all(_is_constant(operand, depth - 1) for operand in op.operands)
    )


def _counts(value: ir.Value) -> bool:
    """Whether a tensor counts along a dimension, repeated along the others or not."""
    while True:
        for name in ("broadcast_in_dim", "reshape", "convert"):
            inner = defining_op(value, f"stablehlo.{name}")
            if inner is not None:
                break
        if inner is None:
            return defining_op(value, "stablehlo.iota") is not None
        value = inner.operands[0]


def _widened_before(loop: ir.Operation) -> set[ir.Value]:
    """What a loop captures and reads slices of, in a type that XLA:CPU cannot slice: it widens all of it beforehand."""
    narrow = {value for value in captured_values(loop) if _is_bfloat16(value) or float_bits(element_type(value)) == 8}
    read: set[ir.Value] = set()
    stack = [block for region in loop.regions for block in region.blocks] if narrow else []
    while stack:
        for view in stack.pop().operations:
            inner = view.operation
            if inner.name in ("stablehlo.dynamic_slice", "stablehlo.gather"):
                read.add(inner.operands[0])
            stack.extend(block for region in inner.regions for block in region.blocks)
    return narrow & read


def _is_bfloat16(value: ir.Value) -> bool:
    return isinstance(element_type(value), ir.BF16Type)


def _real(shape: Sequence[int]) -> list[int]:
    return [size for size in shape if size != 1]


def is_view(op: ir.Operation, types: Types) -> bool:
    """Whether the result is the operand's own buffer."""
    if not len(op.operands) or len(op.results) != 1:
        return False
    name = op.name.rpartition(".")[2]
    before, after = types.of(op.operands[0]), types.of(op.results[0])
    if name in ("convert", "slice", "dynamic_slice"):
        return before == after
    if name == "transpose":
        moved = [dim for dim in integers(op, "permutation", []) if before.shape[dim] != 1]
        return moved == sorted(moved)
    if name == "broadcast_in_dim":
        return _real(before.shape) == _real(after.shape)
    if name == "reduce":
        return all(before.shape[dim] == 1 for dim in integers(op, "dimensions", []))
    return name == "reshape"
