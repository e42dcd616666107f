"""Builds a `Block`: numbers the tensors of the IR and those that only XLA creates, and appends ops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from jaxlib.mlir import ir

from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op
from exla_opt.ops.traits import Trait, traits_of

from .block import Block, Operation, Shape

_INDEX_BYTES = 4


class Builder:
    """A block under construction. number: of every IR tensor met so far.

    plain: the tensors that some op reads in their own shape. viewed: those that some op reads in another shape.
    wide: those kept as float32 although they are narrower in the IR. by_columns: the column-major matrices.
    """

    def __init__(self, types: Types) -> None:
        self.types = types
        self.block = Block()
        self.number: dict[ir.Value, int] = {}
        self.plain: set[int] = set()
        self.viewed: set[int] = set()
        self.wide: set[int] = set()
        self.by_columns: set[int] = set()
        self._transposed: dict[tuple[int, tuple[int, ...]], int] = {}
        self._padded: dict[tuple[int, Shape], int] = {}
        self._in_rows: dict[int, int] = {}
        self._reversed: dict[int, int] = {}

    def of(self, value: ir.Value) -> int:
        """The tensor's number; a tensor not met before comes from outside the block."""
        known = self.number.get(value)
        if known is None:
            kind = self.types.of(value)
            known = self.number[value] = self.block.add_tensor(kind.shape, kind.bytes, kind.dtype)
            self.block.values[known] = value
        return known

    def all_of(self, values: Iterable[ir.Value]) -> tuple[int, ...]:
        """Their numbers."""
        return tuple(map(self.of, values))

    def fresh(self, origin: ir.Value, shape: Shape, like: int = -1) -> int:
        """The number of a new tensor that XLA creates for `origin`: of i32, or of the element type of `like`.

        With as many elements as `like`, it has the same bytes.
        """
        block = self.block
        size, dtype = _INDEX_BYTES * prod(shape), "i32"
        if like >= 0:
            size, dtype = block.sizes[like], block.dtypes[like]
            if prod(block.shapes[like]) != prod(shape):
                size = size // max(prod(block.shapes[like]), 1) * prod(shape)
        block.values[len(block.shapes)] = origin
        return block.add_tensor(shape, size, dtype)

    def add(self, op: Operation) -> None:
        """Append an op."""
        self.block.ops.append(op)

    def add_plain(self, name: str, operands: tuple[int, ...], results: tuple[int, ...], lengths: Shape = ()) -> None:
        """Append a StableHLO op with operands and results only, and windows of these lengths."""
        self.add(Operation(name, traits_of(f"stablehlo.{name}"), operands, results, lengths=lengths))

    def add_splat(self, value: ir.Value) -> None:
        """Append the ops for a tensor with one value everywhere: a constant, or a broadcast."""
        number = self.of(value)
        if defining_op(value, "stablehlo.constant") is not None or not self.block.shapes[number]:
            self.block.sizes[number] = 0
            self.add(Operation("splat", traits_of("stablehlo.constant"), (), (number,)))
            return
        scalar = self.fresh(value, (), number)
        self.add(Operation("splat", traits_of("stablehlo.constant"), (), (scalar,)))
        self.add_plain("broadcast_in_dim", (scalar,), (number,))

    def fresh_wide(self, like: int, origin: ir.Value, dtype: str = "") -> int:
        """The number of a new tensor of 32-bit floats or integers, or of `dtype`, with the shape of a narrower one."""
        block = self.block
        made = self.fresh(origin, block.shapes[like])
        block.wider[made] = block.dtypes[like]
        block.dtypes[made] = dtype or ("f32" if "f" in block.dtypes[like] else "i32")
        if dtype == "f16":
            block.sizes[made] //= 2
        return made

    def make_wide(self, number: int) -> None:
        """Keep a tensor of narrow floats as float32, which all its readers need."""
        self.wide.add(number)
        self.block.wider[number] = self.block.dtypes[number]
        self.block.dtypes[number] = "f32"
        self.block.sizes[number] = 4 * prod(self.block.shapes[number])

    def widened(self, value: int, origin: ir.Value, dtype: str = "") -> int:
        """The number of a tensor converted to 32-bit floats or integers, or to `dtype`; all readers share one copy."""
        known = self.block.widened
        if value not in known or (dtype and self.block.dtypes[known[value]] != dtype):
            known[value] = self.fresh_wide(value, origin, dtype)
            self.add_plain("convert", (value,), (known[value],))
        return known[value]

    def in_rows(self, value: int, origin: ir.Value) -> int:
        """The number of a row-major copy of a tensor; all readers share one copy."""
        if value not in self._in_rows:
            self._in_rows[value] = self.fresh(origin, self.block.shapes[value], value)
            self.add(Operation("copy", Trait(0), (value,), (self._in_rows[value],)))
        return self._in_rows[value]

    def transposed(self, origin: ir.Value, value: ir.Value, order: Sequence[int]) -> int:
        """The number of a copy of a tensor with its dimensions in this order; all readers share one copy."""
        number, shape = self.of(value), self.types.of(value).shape
        key = (number, tuple(order))
        if key not in self._transposed:
            self._transposed[key] = self.fresh(origin, tuple(shape[dim] for dim in order), number)
            self.add_plain("transpose", (number,), (self._transposed[key],))
        return self._transposed[key]

    def reversed(self, origin: ir.Value, value: int) -> int:
        """A copy of a tensor, reversed in the dimensions of a window; one for all that read it so."""
        if value not in self._reversed:
            self._reversed[value] = self.fresh(origin, self.block.shapes[value], value)
            self.add_plain("reverse", (value,), (self._reversed[value],))
        return self._reversed[value]

    def padded(self, value: int, origin: ir.Value, shape: Shape) -> int:
        """The number of a copy of a tensor padded to this shape; all readers share one copy."""
        key = (value, shape)
        if key not in self._padded:
            self._padded[key] = self.fresh(origin, shape, value)
            self.add_plain("pad", (value,), (self._padded[key],))
        return self._padded[key]
