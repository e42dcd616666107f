"""Reads a block of IR for the memory model, with views and repeated ops merged.

What XLA simplifies before it plans memory is simplified here too: a square is a multiplication, a negated operand of a
sum is negated behind it, a sort with its places of which only the first few are read is a top-k.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func, stablehlo

from exla_opt.ir.attributes import integer, integers, is_splat
from exla_opt.ir.loops import trip_count
from exla_opt.ir.types import Types, element_type, float_bits
from exla_opt.ir.values import defining_op, splat_value
from exla_opt.ir.walk import CONTROL_FLOW, captured_values
from exla_opt.ops.traits import traits_of

from .block import Block, Operation, Shape
from .machine import Machine

_IMPURE = frozenset({"custom_call", "rng", "rng_bit_generator"})
# A sort of which so small a part is read is a top-k to XLA.
_TOP_PART = 4
# What these ops leave the other operand as it is with; XLA drops them.
_NEUTRAL = {"stablehlo.and": 1, "stablehlo.or": 0, "stablehlo.multiply": 1, "stablehlo.add": 0}
# Cumulative sums along more elements than so many are made in blocks of as many.
_SCANNED_AT_ONCE = 16
_MULTIPLY = traits_of("stablehlo.multiply")


def read_block(block: ir.Block, types: Types, machine: Machine) -> Block:
    """The block as the machine's compiler sees it and, inside its ops, the blocks of its control flow."""
    return read_numbered(block, types, machine)[0]


def read_numbered(block: ir.Block, types: Types, machine: Machine) -> tuple[Block, dict[ir.Value, int]]:
    """As `read_block`, and the number of every tensor in the block itself."""
    reader = _Reader(types, machine, isinstance(block.owner.opview, func.FuncOp))
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
    if name == "concatenate":
        shapes = [types.of(value).shape for value in op.operands]
        if integer(op, "dimension") != len(shapes[0]) - 1:
            return made
        return replace(made, lengths=tuple(shape[-1] for shape in shapes))
    if name == "custom_call" and "operand_layouts" in op.attributes:
        layouts = enumerate(ir.ArrayAttr(op.attributes["operand_layouts"]))
        copied = tuple(side for side, layout in layouts if not _is_row_major(layout))
        return replace(
            made, copied=copied, is_library=ir.StringAttr(op.attributes["call_target_name"]).value.startswith("lapack_")
        )
    if name == "triangular_solve":
        return replace(made, lengths=types.of(op.operands[0]).shape[-1:])
    if name == "reduce":
        shape = types.of(op.operands[0]).shape
        narrow = (number for value, number in zip(op.operands, operands, strict=True) if _is_bfloat16(value))
        lengths = tuple(shape[dim] for dim in integers(op, "dimensions", []))
        return replace(made, lengths=lengths, narrow=frozenset(narrow))
    if name == "dot_general":
        values = zip((*op.operands, *op.results), (*operands, *results), strict=True)
        narrow = (number for value, number in values if 0 < _bits(element_type(value)) < 32)
        batches = tuple(range(len(_dot_dims(op, 0)[0])))
        return replace(made, copied=_copied(op, types), narrow=frozenset(narrow), shared=batches)
    if name == "convolution":
        numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
        return replace(made, shared=(numbers.output_feature_dimension,))
    return made


class _Reader:
    """Reads one block. Two ops of the same name, operands and attributes are one, as XLA merges them.

    behind: a number for each tensor that comes out of an optimization barrier, and for nothing else. The buffer is the
    one that went in; yet an op on it is not the op on what went in.
    """

    def __init__(self, types: Types, machine: Machine, is_function: bool):
        self.types = types
        self.machine = machine
        self.is_cpu = machine.kind == "cpu"
        self.made = Block()
        self.number: dict[ir.Value, int] = {}
        self.behind: dict[ir.Value, int] = {}
        self.seen: dict[Hashable, tuple[int, ...]] = {}
        self.views: set[ir.Value] = set()
        self.plain: set[int] = set()
        self.in_other_shape: set[int] = set()
        self.ordered: dict[tuple[int, tuple[int, ...]], int] = {}
        self.is_function = is_function

    def read(self, block: ir.Block) -> Block:
        self.made.arguments = [self.of(value) for value in block.arguments]
        for view in block.operations:
            op = view.operation
            if op.name in ("func.return", "stablehlo.return"):
                self.made.returned = [self.of(value) for value in op.operands]
                self.read_as_it_is(op.operands)
            elif op.name == "stablehlo.optimization_barrier":
                for result, operand in zip(op.results, op.operands, strict=True):
                    self.number[result] = self.of(operand)
                    self.behind[result] = len(self.behind) + 1
            elif is_view(op, self.types) or is_folded(op, self.types):
                self.number[op.results[0]] = self.of(op.operands[0])
                if op.operands[0] in self.views or self.types.of(op.operands[0]) != self.types.of(op.results[0]):
                    self.views.add(op.results[0])
                if op.operands[0] in self.behind:
                    self.behind[op.results[0]] = self.behind[op.operands[0]]
            elif (side := _identity_side(op)) is not None:
                self.number[op.results[0]] = self.of(op.operands[side])
            else:
                self.add(op)
        self.made.viewed = ({self.number[value] for value in self.views} | self.in_other_shape) - self.plain
        return self.made

    def of(self, value: ir.Value) -> int:
        """The tensor's number; what was not met before comes from outside the block."""
        known = self.number.get(value)
        if known is None:
            kind = self.types.of(value)
            known = self.number[value] = self.made.add_tensor(kind.shape, kind.bytes, kind.dtype)
            self.made.values[known] = value
        return known

    def fresh(self, origin: ir.Value, shape: Shape, like: int = -1) -> int:
        """The number of a tensor that XLA makes for `origin`: of i32, or of another's elements and bytes."""
        made = self.made
        size, dtype = (4 * prod(shape), "i32") if like < 0 else (made.sizes[like], made.dtypes[like])
        made.values[len(made.shapes)] = origin
        return made.add_tensor(shape, size, dtype)

    def read_as_it_is(self, values: Sequence[ir.Value]) -> None:
        """Note what is read in its own shape; the rest of what is read is read in another one only."""
        self.plain.update(self.number[value] for value in values if value not in self.views)

    def add(self, op: ir.Operation) -> None:
        name = op.name.rpartition(".")[2]
        operands = tuple(map(self.of, op.operands))
        merged = merged_sides(op, self.types) if name == "dot_general" else ()
        self.read_as_it_is([value for side, value in enumerate(op.operands) if side not in merged])
        self.in_other_shape.update(operands[side] for side in merged)
        if self.is_cpu and name == "top_k" and len(self.types.of(op.operands[0]).shape) > 2:
            self.in_other_shape.add(operands[0])  # a library call on the rows of a matrix
            self.plain.discard(operands[0])
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
        if self.is_cpu and name == "dot_general":
            made = self.with_ordered_operands(op, made)
        if name == "top_k" and not any(True for _ in op.results[1].uses):
            self.add_sort_of_all(op.results[0], made)
            return
        if self.is_cpu and name == "select_and_scatter":
            self.add_scatter_of_windows(op.results[0], operands, results)
            return
        if name == "convolution" and (self.is_function or not self.is_cpu):
            self.add_convolution(op, made)
            return
        if name == "reduce_window" and len(results) == 1 and self.is_long_scan(op):
            self.add_scan(op, made)
            return
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

    def add_plain(self, name: str, operands: tuple[int, ...], results: tuple[int, ...]) -> None:
        self.made.ops.append(Operation(name, traits_of(f"stablehlo.{name}"), operands, results))

    def add_scatter_of_windows(self, origin: ir.Value, operands: tuple[int, ...], results: tuple[int, ...]) -> None:
        """XLA:CPU finds where each window's element is, with a counter for each dimension, and scatters there."""
        shape, source = self.made.shapes[operands[0]], self.made.shapes[operands[1]]
        counters = tuple(self.fresh(origin, shape) for _ in shape)
        for counter in counters:
            self.add_plain("iota", (), (counter,))
        found = (self.fresh(origin, source, operands[1]), *(self.fresh(origin, source) for _ in shape))
        self.add_plain("reduce_window", (operands[0], *counters), found)
        places = self.fresh(origin, (prod(source), len(shape)))
        self.add_plain("concatenate", found[1:], (places,))
        start = self.fresh(origin, shape, results[0])
        self.add_plain("broadcast_in_dim", operands[2:], (start,))
        self.add_plain("scatter", (start, places, operands[1]), results)

    def is_long_scan(self, op: ir.Operation) -> bool:
        """Whether windows that each begin at the first element, or end at the last, make a cumulative sum."""
        shape, windows = self.types.of(op.operands[0]).shape, integers(op, "window_dimensions", [])
        long = [(size, window) for size, window in zip(shape, windows, strict=True) if window != 1]
        return shape == self.types.of(op.results[0]).shape and all(
            size == window > _SCANNED_AT_ONCE for size, window in long
        )

    def add_scan(self, op: ir.Operation, made: Operation) -> None:
        """XLA scans blocks, then the last elements of the blocks, and adds those to the blocks."""
        [operand, *_], [result] = made.operands, made.results
        blocks = self.fresh(op.results[0], self.made.shapes[result], result)
        self.add_plain("reduce_window", (operand,), (blocks,))
        small = self.fresh(op.results[0], (self.made.sizes[result] // 4 // _SCANNED_AT_ONCE,))
        self.add_plain("reduce_window", (blocks,), (small,))
        spread = self.fresh(op.results[0], self.made.shapes[result], result)
        self.add_plain("broadcast_in_dim", (small,), (spread,))
        self.add_plain("multiply", (blocks, spread), (result,))

    def add_convolution(self, op: ir.Operation, made: Operation) -> None:
        """XLA:CPU convolves in one order of dimensions only, and copies what is in another."""
        numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
        lhs = [numbers.input_batch_dimension, *numbers.input_spatial_dimensions, numbers.input_feature_dimension]
        rhs = [
            *numbers.kernel_spatial_dimensions,
            numbers.kernel_input_feature_dimension,
            numbers.kernel_output_feature_dimension,
        ]
        out = [numbers.output_batch_dimension, *numbers.output_spatial_dimensions, numbers.output_feature_dimension]
        operands = tuple(
            number if order == sorted(order) else self.transposed(op.results[0], value, order)
            for number, value, order in zip(made.operands, op.operands, (lhs, rhs), strict=True)
        )
        if out == sorted(out):
            self.made.ops.append(replace(made, operands=operands))
            return
        [result] = made.results
        shape = tuple(self.made.shapes[result][dim] for dim in out)
        own = self.fresh(op.results[0], shape, result)
        self.made.ops.append(replace(made, operands=operands, results=(own,), shared=(len(out) - 1,)))
        self.add_plain("transpose", (own,), (result,))

    def with_ordered_operands(self, op: ir.Operation, made: Operation) -> Operation:
        """A dot reads copies of the operands whose dimensions it cannot read in their order."""
        if merged_sides(op, self.types, summed=False):
            self.made.merged.add(made.results[0])
        operands, narrow = list(made.operands), set(made.narrow)
        for side in made.copied:
            batch, contracted = _dot_dims(op, side)
            rest = [
                dim for dim in range(len(self.types.of(op.operands[side]).shape)) if dim not in {*batch, *contracted}
            ]
            order = [*batch, *rest, *contracted] if side == 0 else [*batch, *contracted, *rest]
            operands[side] = self.transposed(op.results[0], op.operands[side], order)
            if made.operands[side] in narrow:
                narrow.add(operands[side])
        return replace(made, operands=tuple(operands), copied=(), narrow=frozenset(narrow & {*operands, *made.results}))

    def add_sort_of_all(self, origin: ir.Value, made: Operation) -> None:
        """Of a top_k only whose values are read XLA:CPU makes a sort of all of them."""
        [operand] = made.operands
        found = self.fresh(origin, self.made.shapes[operand], operand)
        self.add_plain("sort", (operand,), (found,))
        self.add_plain("slice", (found,), made.results[:1])

    def transposed(self, origin: ir.Value, value: ir.Value, order: Sequence[int]) -> int:
        number, shape = self.of(value), self.types.of(value).shape
        key = (number, tuple(order))
        if key not in self.ordered:
            self.ordered[key] = self.fresh(origin, tuple(shape[dim] for dim in order), number)
            self.add_plain("transpose", (number,), (self.ordered[key],))
        return self.ordered[key]

    def with_bodies(self, op: ir.Operation, operands: tuple[int, ...], results: tuple[int, ...]) -> Operation:
        """A loop, whose condition needs nothing, or a branch."""
        is_loop = op.name == "stablehlo.while"
        blocks = [block for region in op.regions for block in region.blocks][is_loop:]
        captures = tuple(map(self.of, captured_values(op)))
        read = [read_numbered(block, self.types, self.machine) for block in blocks]
        return Operation(
            op.name.rpartition(".")[2],
            traits_of(op.name),
            operands,
            results,
            captures,
            bodies=tuple(body for body, _ in read),
            outside=tuple(
                {inner: self.number[value] for value, inner in numbers.items() if value in self.number}
                for _, numbers in read
            ),
            narrow=frozenset(self.of(value) for value in _widened_before(op)) if is_loop else frozenset(),
            trips=(trip_count(op) or 1) if is_loop else 1,
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
    repeated = prod(types.of(spread.operands[0]).shape) > 1 and len(list(spread.results[0].uses)) == 1
    return repeated or _is_constant(spread.operands[0])


def _identity_side(op: ir.Operation) -> int | None:
    """The operand that the result equals, where the other is the op's neutral element everywhere."""
    neutral = _NEUTRAL.get(op.name)
    if neutral is None or (op.name == "stablehlo.and" and str(element_type(op.results[0])) != "i1"):
        return None
    return next((1 - side for side in (1, 0) if splat_value(op.operands[side]) == neutral), None)


def _is_row_major(layout: ir.Attribute) -> bool:
    order = ir.DenseIntElementsAttr(layout)
    dims = [int(order[place]) for place in range(len(order))]
    return dims == sorted(dims, reverse=True)


def has_own_buffer(op: ir.Operation, types: Types) -> bool:
    """Whether the op makes tensors of its own, for all that this block knows."""
    return not (op.name == "stablehlo.optimization_barrier" or is_view(op, types) or is_folded(op, types))


def is_folded(op: ir.Operation, types: Types) -> bool:
    """Whether an op is a transpose that its readers, dots and sums, read past, with their dimensions renumbered."""
    if op.name != "stablehlo.transpose":
        return False
    uses = list(op.results[0].uses)
    return bool(uses) and all(_reads_past(use.owner.operation, use.operand_number, op, types) for use in uses)


def _reads_past(reader: ir.Operation, operand: int, transpose: ir.Operation, types: Types) -> bool:
    if reader.name == "stablehlo.reduce":
        return len(reader.results) == 1 and operand == 0
    if reader.name != "stablehlo.dot_general" or reader.operands[0] == reader.operands[1]:
        return False
    return not _is_copied(reader, operand, types, integers(transpose, "permutation", []))


def _copied(op: ir.Operation, types: Types) -> tuple[int, ...]:
    """The operands that a dot reads in another order of dimensions than they have."""
    found = []
    for side in (0, 1):
        inner = defining_op(op.operands[side])
        past = inner is not None and is_folded(inner, types)
        if not past and _is_copied(op, side, types):
            found.append(side)
    return tuple(found)


def _is_copied(op: ir.Operation, side: int, types: Types, order: Sequence[int] = ()) -> bool:
    """Whether an operand's dimensions are not batch, free and contracted, or batch, contracted and free, in order.

    order: the operand's dimensions as those of what is read in its place.
    """
    batches, sums = _dot_dims(op, side)
    shape = types.of(op.operands[side]).shape
    order = order or range(len(shape))
    sizes = {order[dim]: size for dim, size in enumerate(shape)}
    batch, contracted = [order[dim] for dim in batches], {order[dim] for dim in sums}
    kinds = [0 if dim in batch else 1 if dim in contracted else 2 for dim in sorted(sizes) if sizes[dim] != 1]
    runs = [kind for place, kind in enumerate(kinds) if place == 0 or kinds[place - 1] != kind]
    mixed = batch != sorted(batch) and len(_real([sizes[dim] for dim in batch])) > 1
    if mixed or len(set(runs)) != len(runs) or 0 in runs[1:]:
        return True
    # Where several dimensions become one, they must stand as the dot wants them.
    several = any(kinds.count(kind) > 1 for kind in (1, 2))
    return several and [kind for kind in runs if kind] == ([1, 2] if side == 0 else [2, 1])


def _dot_dims(op: ir.Operation, side: int) -> tuple[list[int], list[int]]:
    """The batch and the contracted dimensions of a dot's operand."""
    numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    batches = (numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions)[side]
    sums = (numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions)[side]
    return list(batches), list(sums)


def merged_sides(op: ir.Operation, types: Types, summed: bool = True) -> tuple[int, ...]:
    """The operands of a dot of which XLA makes matrices: several dimensions of one kind become one.

    summed: whether the dimensions that are contracted count as well.
    """
    found = []
    for side in (0, 1):
        batch, contracted = _dot_dims(op, side)
        shape = types.of(op.operands[side]).shape
        free = [dim for dim in range(len(shape)) if dim not in {*batch, *contracted}]
        if len(free) > 1 or (summed and len(contracted) > 1):
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


def _bits(kind: ir.Type) -> int:
    """The width of a real number, float or integer; 0 for others and for booleans."""
    if isinstance(kind, ir.IntegerType):
        return kind.width if kind.width > 1 else 0
    return float_bits(kind)


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
    if name == "pad":
        low = integers(op, "edge_padding_low", [])
        return before == after and not any(low)
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
