"""Reads a block of the IR for the memory model, with views and equal ops merged.

Simplifications and expansions that XLA applies before it plans memory are applied here too: those of single ops by
`operation`, those into several ops by `expansions`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func

from exla_opt.ir.aliasing import aliased_results
from exla_opt.ir.loops import trip_count
from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import CONTROL_FLOW
from exla_opt.ops.effects import may_be_merged
from exla_opt.ops.reducers import monoid_of
from exla_opt.ops.traits import Trait, traits_of
from exla_opt.ops.views import is_view

from .block import Block, Operation
from .builder import Builder
from .carries import live_places
from .dots import is_folded, merged_sides
from .expansions import expand
from .gpu.captures import Orders, copied_inside, copies_before, is_view_inside, orders_inside
from .gpu.constants import Constants
from .gpu.convolutions import undoes_order
from .gpu.dots import Product, product_of, write_turned
from .gpu.expansions import expand_for_gpu
from .gpu.libraries import keeps_columns
from .gpu.loops import without_repeated
from .gpu.rewrites import rewrite_for_gpu
from .gpu.signs import known_side, reverses_nothing
from .machine import Machine
from .operation import (
    collapses,
    factor_chosen,
    identity_side,
    is_constant_everywhere,
    is_window_padding,
    merge_key,
    part_sliced,
    read_operation,
    widened_before,
)

_BROADCAST, _SELECT = traits_of("stablehlo.broadcast_in_dim"), traits_of("stablehlo.select")


def read_block(block: ir.Block, types: Types, machine: Machine) -> Block:
    """The block as the machine's compiler sees it and, inside its ops, the blocks of its control flow."""
    return read_numbered(block, types, machine)[0]


def read_numbered(
    block: ir.Block,
    types: Types,
    machine: Machine,
    sunk: Sequence[ir.Value] = (),
    orders: Orders | None = None,
    constants: Constants | None = None,
    is_deep: bool = True,
) -> tuple[Block, dict[ir.Value, int]]:
    """As `read_block`, and the number of every tensor in the block itself.

    sunk: the tensors that the block computes for itself. orders: the dimensions of its arguments in another memory
    order. constants: the known tensors around it. is_deep: False if only a CPU's fusion is needed.
    """
    reader = _Reader(types, machine, isinstance(block.owner.opview, func.FuncOp), orders or {}, constants)
    reader.is_deep = is_deep or not reader.is_cpu
    for value in sunk:
        reader.builder.add_splat(value)
    return reader.read(block), reader.builder.number


class _Reader:
    """Reads one block. Two ops of the same name, operands and attributes are one, as XLA merges them.

    behind: a number for each output of an optimization barrier, and for nothing else. The buffer is that of the input;
    but an op on the output does not equal the same op on the input. barriers: by that number, all inputs.
    repeated: the tensors with one value everywhere, with the numbers in the IR from which it is computed.
    """

    def __init__(self, types: Types, machine: Machine, is_function: bool, orders: Orders, constants: Constants | None):
        self.types = types
        self.machine = machine
        self.is_cpu = machine.kind == "cpu"
        self.is_gpu = machine.kind == "gpu"
        self.is_function = is_function
        self.orders = orders
        self.constants = Constants() if constants is None else constants
        self.builder = Builder(types)
        self.behind: dict[ir.Value, int] = {}
        self.barriers: dict[int, frozenset[int]] = {}
        self.seen: dict[Hashable, tuple[int, ...]] = {}
        self.views: set[ir.Value] = set()
        self.repeated: dict[int, tuple[int, ...]] = {}
        self.products: dict[int, Product] = {}
        self.reductions: dict[int, ir.Operation] = {}
        self.is_deep = True

    def read(self, block: ir.Block) -> Block:
        builder, number = self.builder, self.builder.number
        made = builder.block
        if self.is_cpu and not self.is_function:  # XLA broadcasts a number where a loop inside of this block reads it
            outside = self.types.captured(block.owner.operation)
            self.repeated.update((builder.of(value), ()) for value in outside if is_constant_everywhere(value))
        made.arguments = list(builder.all_of(block.arguments))
        for view in block.operations:
            op = view.operation
            is_number = self.is_gpu and self.constants.note(op)
            if op.name in ("func.return", "stablehlo.return"):
                made.returned = list(builder.all_of(op.operands))
                self.read_as_it_is(op.operands)
            elif op.name == "stablehlo.optimization_barrier":
                self.add_barrier(op)
            elif self.is_gpu and op.name == "stablehlo.transpose" and op.results[0] in number:
                self.read_as_it_is(op.operands)  # the product that it transposes writes this order
            elif is_number and op.name != "stablehlo.broadcast_in_dim":
                builder.add_splat(op.results[0])
            elif is_view(op, self.types) or is_folded(op, self.types, self.machine) or self.is_written_so(op):
                self.add_view(op.operands[0], op.results[0])
            elif is_window_padding(op) or (
                op.name == "stablehlo.convert" and builder.of(op.operands[0]) in builder.wide
            ):
                number[op.results[0]] = builder.of(op.operands[0])
            elif (side := self.equal_side(op)) is not None:
                number[op.results[0]] = builder.of(op.operands[side])
            else:
                self.add(op)
        if self.is_gpu:
            rewrite_for_gpu(builder, block, self.products, self.reductions, self.is_function)
        if self.is_function:
            places = aliased_results(block.owner.operation).items()
            made.donated = {made.returned[result]: made.arguments[place] for place, result in places}
        made.viewed = ({number[value] for value in self.views} | builder.viewed) - builder.plain
        return made

    def is_written_so(self, op: ir.Operation) -> bool:
        """Whether an op's operand is already in the memory order that the op produces on a GPU."""
        if not self.is_gpu:
            return False
        is_written = undoes_order(op, self.types) or is_view_inside(op, self.orders, self.types)
        return is_written or reverses_nothing(op, self.types)

    def equal_side(self, op: ir.Operation) -> int | None:
        """The operand that the result equals."""
        side = identity_side(op)
        if side is None and self.is_gpu:
            side = self.constants.side(op)
        return known_side(op) if side is None and self.is_gpu else side

    def read_as_it_is(self, values: Sequence[ir.Value]) -> None:
        """Record tensors that are read in their own shape; all others are read in another one only."""
        self.builder.plain.update(self.builder.number[value] for value in values if value not in self.views)

    def add_view(self, operand: ir.Value, result: ir.Value) -> None:
        """Let the result be the operand's buffer."""
        self.builder.number[result] = self.builder.of(operand)
        if operand in self.views or self.types.of(operand) != self.types.of(result):
            self.views.add(result)
        if operand in self.behind:
            self.behind[result] = self.behind[operand]

    def add_barrier(self, op: ir.Operation) -> None:
        """Let the outputs of a barrier be its inputs, once all of them are computed."""
        whole = frozenset(self.builder.all_of(op.operands))
        for result, operand in zip(op.results, op.operands, strict=True):
            self.builder.number[result] = self.builder.of(operand)
            self.behind[result] = len(self.barriers) + 1
            self.barriers[self.behind[result]] = whole

    def add(self, op: ir.Operation) -> None:
        """Add an op that is not a view."""
        builder, name = self.builder, op.name.rpartition(".")[2]
        operands = builder.all_of(op.operands)
        self.note_shapes(op, name, operands)
        barriers = tuple(self.behind.get(value, 0) for value in op.operands) if self.behind else ()
        key = None if len(op.regions) or not may_be_merged(op) else merge_key(op, name, operands, barriers)
        if key is not None and key in self.seen:
            builder.number.update(zip(op.results, self.seen[key], strict=True))
            return
        results = builder.all_of(op.results)
        if any(barriers):
            awaited = frozenset().union(*(self.barriers[number] for number in barriers if number))
            builder.block.held.update(dict.fromkeys(results, awaited))
            if self.is_gpu:
                builder.block.behind.update(dict.fromkeys(results, awaited))
        if key is not None:
            self.seen[key] = results
        if op.name in CONTROL_FLOW:
            self.add_control_flow(op, self.with_bodies(op, operands, results))
            return
        made = read_operation(op, operands, results, self.types, self.machine)
        if self.orders and made.copied and name == "dot_general":
            made = replace(made, copied=tuple(copied_inside(op, made.copied, self.orders, self.types, self.machine)))
        if name == "multiply" and self.is_cpu and (pair := factor_chosen(op)) is not None:
            made = replace(made, name="select", traits=_SELECT, operands=builder.all_of(pair))
        if name == "slice" and self.is_cpu and (part := part_sliced(op)) is not None:
            made = replace(made, operands=builder.all_of([part]))
        if name == "reduce" and len(results) == 1:
            inner = defining_op(op.operands[0], "stablehlo.negate")
            if inner is not None and monoid_of(op) == "add":  # negated after the sum
                made = replace(made, operands=(builder.of(inner.operands[0]), *operands[1:]))
        if self.is_gpu:
            if expand_for_gpu(builder, op, made):
                last = builder.block.ops[-1]
                if last.name == "dot_general":
                    last = write_turned(builder, op, last)
                    self.products[last.results[0]] = product_of(builder, op, last)
                return
        elif expand(builder, op, made, self.machine, self.is_function):
            return
        if len(op.regions):
            made = replace(made, captures=builder.all_of(self.types.captured(op)))
        if (number := self.uniform(made)) is not None:
            made = replace(made, name="broadcast_in_dim", traits=_BROADCAST, operands=number)
        one_number = made.name == "broadcast_in_dim" and not any(builder.block.shapes[each] for each in made.operands)
        if self.is_cpu and one_number:
            scalars = (self.repeated.get(value, (value,)) for value in made.operands)
            self.repeated[results[0]] = tuple(number for found in scalars for number in found)
        if made.name == "splat":
            if self.is_cpu:
                self.repeated[results[0]] = ()
            # A splat is never in memory; a loop's initial value is in the loop's own buffer.
            builder.block.sizes[results[0]] = 0
        builder.add(made)
        if name == "reduce":
            self.reductions[results[0]] = op
        if keeps_columns(builder, made):
            builder.by_columns.update(made.results)

    def add_control_flow(self, op: ir.Operation, made: Operation) -> None:
        """Add a loop or a branch; some results of a loop may be equal."""
        number = self.builder.number
        if self.is_gpu and made.name == "while":
            made, merged = without_repeated(made)
            number.update({value: merged[number[value]] for value in op.results if number[value] in merged})
        self.builder.add(made)

    def uniform(self, made: Operation) -> tuple[int, ...] | None:
        """The numbers from which the value of an elementwise result is computed, if it has one value everywhere."""
        if Trait.POINTWISE not in made.traits or not made.operands or len(made.results) != 1:
            return None
        if any(value not in self.repeated for value in made.operands):
            return None
        return tuple(dict.fromkeys(number for value in made.operands for number in self.repeated[value]))

    def note_shapes(self, op: ir.Operation, name: str, operands: tuple[int, ...]) -> None:
        """Record the operands that the op reads in their own shape, and those that it reads in another."""
        other: Sequence[int] = merged_sides(op, self.types) if name == "dot_general" else ()
        if self.is_cpu and name == "gather" and collapses(op):
            self.builder.block.merged.update(self.builder.all_of(op.results))
        if self.is_cpu and name == "scatter" and collapses(op):
            other = range((len(op.operands) + 1) // 2, len(op.operands))
        self.read_as_it_is([value for side, value in enumerate(op.operands) if side not in other])
        self.builder.viewed.update(operands[side] for side in other)
        if self.is_cpu and name == "top_k" and len(self.types.of(op.operands[0]).shape) > 2:
            self.builder.viewed.add(operands[0])  # a library call on the rows of a matrix
            self.builder.plain.discard(operands[0])

    def with_bodies(self, op: ir.Operation, operands: tuple[int, ...], results: tuple[int, ...]) -> Operation:
        """A loop, whose condition needs no memory, or a branch."""
        builder, is_loop = self.builder, op.name == "stablehlo.while"
        places = live_places(op) if is_loop and (self.is_cpu or self.is_gpu) else range(len(operands))
        blocks = [block for region in op.regions for block in region.blocks][is_loop:]
        # A loop writes a splat constant where it reads it; on a GPU each body has an op for it.
        captured = dict.fromkeys(self.types.captured(op))
        sunk = [value for value in captured if is_loop and value in self.constants.number]
        for value in sunk:
            del captured[value]
        captures = tuple(value for value in builder.all_of(captured) if self.repeated.get(value) != ())
        orders = orders_inside(builder, blocks[0], self.machine) if is_loop and self.is_gpu else {}
        deep = blocks if self.is_deep else []
        read = [read_numbered(block, self.types, self.machine, sunk, orders, self.constants) for block in deep]
        number = builder.number
        copies = copies_before(builder, op, orders)
        captures = tuple(copies.get(value, value) for value in captures)
        there = {value: copies.get(number[value], number[value]) for value in captured}
        if is_loop and len(places) < len(operands):
            operands, results = (tuple(each[place] for place in places) for each in (operands, results))
            for body, _ in read:
                body.arguments = [body.arguments[place] for place in places]
                body.returned = [body.returned[place] for place in places]
        return Operation(
            op.name.rpartition(".")[2],
            traits_of(op.name),
            operands,
            results,
            captures,
            bodies=tuple(body for body, _ in read),
            outside=tuple(
                {inner: there[value] for value, inner in numbers.items() if value in there} for _, numbers in read
            ),
            narrow=frozenset(builder.all_of(widened_before(op, self.types, self.machine))) if is_loop else frozenset(),
            trips=(trip_count(op) or 1) if is_loop else 1,
        )
