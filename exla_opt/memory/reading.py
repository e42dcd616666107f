"""Reads a block of IR for the memory model, with views and repeated ops merged.

What XLA simplifies before it plans memory is simplified here too: a square is a multiplication, a negated operand of a
sum is negated behind it, a sort with its places of which only the first few are read is a top-k.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir.attributes import integers, is_splat
from exla_opt.ir.types import Types, element_type, float_bits
from exla_opt.ir.values import defining_op, splat_value
from exla_opt.ir.walk import CONTROL_FLOW, captured_values
from exla_opt.ops.traits import traits_of

from .block import Block, Operation

_IMPURE = frozenset({"custom_call", "rng", "rng_bit_generator"})
# A sort of which so small a part is read is a top-k to XLA.
_TOP_PART = 4
_MULTIPLY = traits_of("stablehlo.multiply")


def read_block(block: ir.Block, types: Types) -> Block:
    """The block and, inside its ops, those of its control flow."""
    return _Reader(types).read(block)


def read_numbered(block: ir.Block, types: Types) -> tuple[Block, dict[ir.Value, int]]:
    """As `read_block`, and the number of every tensor in the block itself."""
    reader = _Reader(types)
    return reader.read(block), reader.number


def read_operation(op: ir.Operation, operands: tuple[int, ...], results: tuple[int, ...], types: Types) -> Operation:
    """One op without control flow, as XLA simplifies it. operands, results: the numbers of its tensors, in order."""
    name, traits = op.name.rpartition(".")[2], traits_of(op.name)
    made = Operation(name, traits, operands, results)
    if name == "constant" and is_splat(op):
        return replace(made, name="splat")
    if (name == "power" and splat_value(op.operands[1]) == 2) or (name == "divide" and _is_cheap_divisor(op, types)):
        return replace(made, name="multiply", traits=_MULTIPLY)
    if name == "square":
        return replace(made, name="multiply", traits=_MULTIPLY, operands=operands * 2)
    if name == "triangular_solve":
        return replace(made, lengths=types.of(op.operands[0]).shape[-1:])
    if name == "reduce":
        shape = types.of(op.operands[0]).shape
        narrow = (number for value, number in zip(op.operands, operands, strict=True) if _is_bfloat16(value))
        lengths = tuple(shape[dim] for dim in integers(op, "dimensions", []))
        return replace(made, lengths=lengths, narrow=frozenset(narrow))
    if name == "dot_general":
        values = zip((*op.operands, *op.results), (*operands, *results), strict=True)
        narrow = (number for value, number in values if 0 < float_bits(element_type(value)) < 32)
        return replace(made, copied=_copied(op, types), narrow=frozenset(narrow))
    return made


class _Reader:
    """Reads one block. Two ops of the same name, operands and attributes are one, as XLA merges them.

    behind: a number for each tensor that comes out of an optimization barrier, and for nothing else. The buffer is the
    one that went in; yet an op on it is not the op on what went in.
    """

    def __init__(self, types: Types):
        self.types = types
        self.made = Block()
        self.number: dict[ir.Value, int] = {}
        self.behind: dict[ir.Value, int] = {}
        self.seen: dict[Hashable, tuple[int, ...]] = {}

    def read(self, block: ir.Block) -> Block:
        self.made.arguments = [self.of(value) for value in block.arguments]
        for view in block.operations:
            op = view.operation
            if op.name in ("func.return", "stablehlo.return"):
                self.made.returned = [self.of(value) for value in op.operands]
            elif op.name == "stablehlo.optimization_barrier":
                for result, operand in zip(op.results, op.operands, strict=True):
                    self.number[result] = self.of(operand)
                    self.behind[result] = len(self.behind) + 1
            elif is_view(op, self.types):
                self.number[op.results[0]] = self.of(op.operands[0])
                if op.operands[0] in self.behind:
                    self.behind[op.results[0]] = self.behind[op.operands[0]]
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
        barriers = tuple(self.behind.get(value, 0) for value in op.operands) if self.behind else ()
        key = None if len(op.regions) or name in _IMPURE else _key(op, name, operands, barriers)
        if key is not None and key in self.seen:
            self.number.update(zip(op.results, self.seen[key], strict=True))
            return
        results = tuple(map(self.of, op.results))
        if key is not None:
            self.seen[key] = results
        if op.name in CONTROL_FLOW:
            self.made.ops.append(self.with_bodies(op, operands, results))
            return
        made = read_operation(op, operands, results, self.types)
        if len(op.regions):
            made = replace(made, captures=tuple(map(self.of, captured_values(op))))
        if name == "reduce" and len(results) == 1:
            inner = defining_op(op.operands[0], "stablehlo.negate")
            if inner is not None:
                made = replace(made, operands=(self.of(inner.operands[0]), *operands[1:]))
        elif name == "sort" and self.is_top_k(op):
            made = replace(made, name="top_k", operands=operands[:1])
            for value, number in zip(op.results, results, strict=True):
                read = [self.types.of(use.owner.operation.results[0]).bytes for use in value.uses]
                self.made.sizes[number] = max(read, default=0)
        elif made.name == "splat":
            # A splat is never in memory; what a loop starts from is the loop's own buffer.
            self.made.sizes[results[0]] = 0
        self.made.ops.append(made)

    def with_bodies(self, op: ir.Operation, operands: tuple[int, ...], results: tuple[int, ...]) -> Operation:
        """A loop, whose condition needs nothing, or a branch."""
        is_loop = op.name == "stablehlo.while"
        blocks = [block for region in op.regions for block in region.blocks][is_loop:]
        return Operation(
            op.name.rpartition(".")[2],
            traits_of(op.name),
            operands,
            results,
            tuple(map(self.of, captured_values(op))),
            bodies=tuple(read_block(block, self.types) for block in blocks),
            narrow=frozenset(self.of(value) for value in _widened_before(op)) if is_loop else frozenset(),
        )

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


def _is_cheap_divisor(op: ir.Operation, types: Types) -> bool:
    """Whether a division is a multiplication by what is computed once: a number, or a smaller tensor repeated."""
    spread = defining_op(op.operands[1], "stablehlo.broadcast_in_dim")
    if spread is None:
        return splat_value(op.operands[1]) is not None
    repeated = prod(types.of(spread.operands[0]).shape) > 1
    return repeated or _is_constant(spread.operands[0])


def _copied(op: ir.Operation, types: Types) -> tuple[int, ...]:
    """The operands whose dimensions are not batch, free and contracted, or batch, contracted and free, in order."""
    numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    batches = numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions
    sums = numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions
    found = []
    for side in (0, 1):
        shape = types.of(op.operands[side]).shape
        batch, contracted = list(batches[side]), list(sums[side])
        kinds = [0 if dim in batch else 1 if dim in contracted else 2 for dim, size in enumerate(shape) if size != 1]
        runs = [kind for place, kind in enumerate(kinds) if place == 0 or kinds[place - 1] != kind]
        mixed = batch != sorted(batch) and len(_real([shape[dim] for dim in batch])) > 1
        if mixed or len(set(runs)) != len(runs) or 0 in runs[1:]:
            found.append(side)
    return tuple(found)


def _key(op: ir.Operation, name: str, operands: tuple[int, ...], barriers: tuple[int, ...]) -> Hashable:
    """What two equal ops have in common. The bindings cannot read the value of a complex constant."""
    kinds = tuple(result.type for result in op.results)
    if name == "constant" and isinstance(ir.RankedTensorType(kinds[0]).element_type, ir.ComplexType):
        return None
    attributes = tuple((op.attributes[place].name, op.attributes[place].attr) for place in range(len(op.attributes)))
    return name, operands, barriers, attributes, kinds


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
