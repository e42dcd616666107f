"""The memory layouts that a GPU loop's kernels need for tensors captured from outside.

Inside a loop, layouts are not fixed. XLA's LayoutAssignment propagates those that convolutions and products need for
slices back to the loop's inputs; an argument of the function is copied once, before the loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from jaxlib.mlir import ir

from exla_opt.ir.attributes import integers
from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op
from exla_opt.ops.traits import Trait, traits_of

from ..builder import Builder
from ..convolutions import is_in_order
from ..dots import copied_order, dot_dims, is_read_in
from ..machine import Machine
from .convolutions import convolution_orders
from .dots import is_vector_product

# Ops whose result has the layout of the tensor that it is a part of.
_PARTS = frozenset({"dynamic_slice", "slice", "pad", "reduce_window"})
# Ops that reduce or reshape their operand, and may read any layout.
_ENDS = frozenset({"reduce", "broadcast_in_dim", "reshape", "dynamic_update_slice"})
# A reduction to a vector reads its operand in any layout.
_FEWEST_KEPT = 2
Orders = dict[ir.Value, list[int]]


def orders_inside(builder: Builder, body: ir.Block, machine: Machine) -> Orders:
    """The dimension orders, outermost first, of inputs of a loop's body whose kernels need a different one."""
    found: Orders = {}
    for view in body.operations:
        op = view.operation
        for value, order in _wanted(builder, op, machine):
            source, wanted = read_through(value, order, body)
            made = defining_op(source)
            if (made is not None and made.block == body) or source in found:
                continue
            shape = builder.types.of(source).shape
            if len(shape) == len(wanted) and not is_in_order(wanted, shape):
                found[source] = wanted
    return found


def _wanted(builder: Builder, op: ir.Operation, machine: Machine) -> Iterator[tuple[ir.Value, list[int]]]:
    """The operands that an op needs in a certain order, with that order."""
    if op.name == "stablehlo.convolution":
        yield from zip(op.operands, convolution_orders(op, builder.types)[:2], strict=True)
    elif op.name == "stablehlo.dot_general" and not is_vector_product(builder, op):
        for side in (0, 1):
            if _is_turned(op, side, builder.types, machine):
                yield op.operands[side], copied_order(op, side)
    elif op.name == "stablehlo.reduce" and len(op.results) == 1:
        shape, dims = builder.types.of(op.operands[0]).shape, integers(op, "dimensions", [])
        if len(shape) - len(dims) >= _FEWEST_KEPT and _is_carried(op) and _is_only_reduced(op):
            yield op.operands[0], [*(dim for dim in range(len(shape)) if dim not in dims), *dims]
    elif op.name == "stablehlo.while":
        yield from orders_inside(builder, op.regions[1].blocks[0], machine).items()


def _is_carried(op: ir.Operation) -> bool:
    """Whether a loop carries a part of an op's result, or an elementwise function of it."""
    stack, seen = list(op.results), set(op.results)
    while stack:
        for use in stack.pop().uses:
            reader = use.owner.operation
            if reader.name in ("stablehlo.dynamic_update_slice", "stablehlo.return"):
                return True
            if Trait.POINTWISE in traits_of(reader.name):
                stack.extend(result for result in reader.results if result not in seen)
                seen.update(reader.results)
    return False


def _is_only_reduced(op: ir.Operation) -> bool:
    """Whether everything computed from a reduction's source, up to other reductions, keeps its dimensions."""
    source, _ = read_through(op.operands[0], (), op.block)
    stack, seen = [source], {source}
    while stack:
        for use in stack.pop().uses:
            reader = use.owner.operation
            name = reader.name.rpartition(".")[2]
            if reader.block != op.block or name in _ENDS:
                continue
            if name not in _PARTS and Trait.POINTWISE not in traits_of(reader.name):
                return False
            for result in reader.results:
                if result not in seen:
                    seen.add(result)
                    stack.append(result)
    return True


def _is_turned(op: ir.Operation, side: int, types: Types, machine: Machine) -> bool:
    """Whether a dot needs another order than that of its operand's source behind transposes.

    XLA's DotDecomposer puts both operands into the dot's own order if not all batch dimensions come first, or several
    others are merged. A library can undo that if dimensions of each kind are adjacent, including those of one element.
    """
    shape = types.of(op.operands[side]).shape
    _, dims = read_through(op.operands[side], range(len(shape)), op.block)
    if not _is_decomposed(op, types) or _is_matrix(op, side, dims):
        return not is_read_in(op, side, types, machine, dims)
    wanted = [dims[dim] for dim in copied_order(op, side) if shape[dim] != 1]
    return wanted != sorted(wanted)


def _is_matrix(op: ir.Operation, side: int, dims: Sequence[int]) -> bool:
    """Whether the batch, the rows and the columns of an operand are each adjacent. dims: as from `read_through`."""
    batch, contracted = dot_dims(op, side)
    free = [dim for dim in range(len(dims)) if dim not in {*batch, *contracted}]
    for kind in (batch, contracted, free):
        places = [dims[dim] for dim in kind]
        if places and places != list(range(places[0], places[0] + len(places))):
            return False
    return True


def _is_decomposed(op: ir.Operation, types: Types) -> bool:
    """Whether a dot has several dimensions of one kind, or its batch not in front."""
    for side in (0, 1):
        batch, contracted = dot_dims(op, side)
        free = len(types.of(op.operands[side]).shape) - len(batch) - len(contracted)
        if len(contracted) != 1 or free > 1 or batch != list(range(len(batch))):
            return True
    return False


def copies_before(builder: Builder, loop: ir.Operation, orders: Mapping[ir.Value, list[int]]) -> dict[int, int]:
    """Copies of arguments that a loop reads, in these orders, before the loop; by the number of the argument."""
    made: dict[int, int] = {}
    for value, order in orders.items():
        if isinstance(value.owner, ir.Block) and value.owner == loop.block:
            made[builder.of(value)] = builder.transposed(loop.results[0], value, order)
    return made


def copied_inside(op: ir.Operation, sides: Sequence[int], orders: Orders, types: Types, machine: Machine) -> list[int]:
    """Of these operands, those of which a dot reads a copy if tensors from outside are in these orders."""
    found = []
    for side in sides:
        value = op.operands[side]
        source, dims = read_through(value, range(len(types.of(value).shape)), op.block)
        order = orders.get(source)
        if order is None or not is_read_in(op, side, types, machine, [order.index(dim) for dim in dims]):
            found.append(side)
    return found


def is_view_inside(op: ir.Operation, orders: Orders, types: Types) -> bool:
    """Whether a transpose's result has the order that its operand has in memory."""
    if op.name != "stablehlo.transpose" or not orders:
        return False
    shape = types.of(op.results[0]).shape
    source, dims = read_through(op.results[0], range(len(shape)), op.block)
    order = orders.get(source)
    return order is not None and is_in_order(sorted(range(len(dims)), key=lambda dim: order.index(dims[dim])), shape)


def read_through(value: ir.Value, order: Sequence[int], body: ir.Block) -> tuple[ir.Value, list[int]]:
    """The tensor that a value is a part or an elementwise function of, within a block, and its dimension order.

    order: the order in which the part is needed.
    """
    order = list(order)
    while (made := defining_op(value)) is not None and made.block == body and len(made.operands):
        name = made.name.rpartition(".")[2]
        if name == "transpose":
            permutation = integers(made, "permutation", [])
            order = [permutation[dim] for dim in order]
        elif name not in _PARTS and Trait.POINTWISE not in traits_of(made.name):
            break
        value = made.operands[0]
    return value, order
