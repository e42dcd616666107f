"""The order in memory of what a loop on a GPU reads of tensors from outside: that in which its kernels want it.

Inside a loop no tensor has an order of its own. XLA's LayoutAssignment goes back from what convolutions and products
want over slices to what the loop is given, and an argument of the function is copied once, in front of the loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from jaxlib.mlir import ir

from exla_opt.ir.attributes import integers
from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op
from exla_opt.ops.traits import Trait, traits_of

from ..builder import Builder
from ..dots import copied_order, dot_dims, is_read_in
from ..expansions import is_in_order
from ..machine import Machine
from .convolutions import convolution_orders
from .dots import is_vector_product

# What is in the order of what it is a part of.
_PARTS = frozenset({"dynamic_slice", "slice", "pad", "reduce_window"})
# What is reduced, or has another shape, may be read in any order.
_ENDS = frozenset({"reduce", "broadcast_in_dim", "reshape", "dynamic_update_slice"})
# A reduction of which a vector is left reads what it reduces in any order.
_FEWEST_KEPT = 2
Orders = dict[ir.Value, list[int]]


def orders_inside(builder: Builder, body: ir.Block, machine: Machine) -> Orders:
    """The dimensions, from the outermost on, of what a loop's body is given, where its kernels want another order."""
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
    """What an op reads in an order of its own, and that order."""
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
    """Whether a loop carries a part of what an op makes, or what is computed element by element from it."""
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
    """Whether all that is made of what a reduction reads parts of, up to what is reduced, keeps its dimensions."""
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
    """Whether a dot wants an operand in another order than that of what it reads past transposes.

    XLA's DotDecomposer puts both operands in the dot's own order where not all batch dimensions come first, or several
    others become one. A library reads past that again if those of each kind lie side by side, those of one element too.
    """
    shape = types.of(op.operands[side]).shape
    _, dims = read_through(op.operands[side], range(len(shape)), op.block)
    if not _is_decomposed(op, types) or _is_matrix(op, side, dims):
        return not is_read_in(op, side, types, machine, dims)
    wanted = [dims[dim] for dim in copied_order(op, side) if shape[dim] != 1]
    return wanted != sorted(wanted)


def _is_matrix(op: ir.Operation, side: int, dims: Sequence[int]) -> bool:
    """Whether the batch, the rows and the columns of an operand lie side by side. dims: as `read_through` has them."""
    batch, contracted = dot_dims(op, side)
    free = [dim for dim in range(len(dims)) if dim not in {*batch, *contracted}]
    for kind in (batch, contracted, free):
        places = [dims[dim] for dim in kind]
        if places and places != list(range(places[0], places[0] + len(places))):
            return False
    return True


def _is_decomposed(op: ir.Operation, types: Types) -> bool:
    """Whether a dot has more dimensions of one kind than a product of matrices, or its batch not in front."""
    for side in (0, 1):
        batch, contracted = dot_dims(op, side)
        free = len(types.of(op.operands[side]).shape) - len(batch) - len(contracted)
        if len(contracted) != 1 or free > 1 or batch != list(range(len(batch))):
            return True
    return False


def copies_before(builder: Builder, loop: ir.Operation, orders: Mapping[ir.Value, list[int]]) -> dict[int, int]:
    """Copies in these orders, made in front of a loop, of arguments that it reads; by the number of what is copied."""
    made: dict[int, int] = {}
    for value, order in orders.items():
        if isinstance(value.owner, ir.Block) and value.owner == loop.block:
            made[builder.of(value)] = builder.transposed(loop.results[0], value, order)
    return made


def copied_inside(op: ir.Operation, sides: Sequence[int], orders: Orders, types: Types, machine: Machine) -> list[int]:
    """The operands of which a dot reads a copy, of these sides, if what comes from outside is in these orders."""
    found = []
    for side in sides:
        value = op.operands[side]
        source, dims = read_through(value, range(len(types.of(value).shape)), op.block)
        order = orders.get(source)
        if order is None or not is_read_in(op, side, types, machine, [order.index(dim) for dim in dims]):
            found.append(side)
    return found


def is_view_inside(op: ir.Operation, orders: Orders, types: Types) -> bool:
    """Whether a transpose brings about the order in which what it reads is in memory."""
    if op.name != "stablehlo.transpose" or not orders:
        return False
    shape = types.of(op.results[0]).shape
    source, dims = read_through(op.results[0], range(len(shape)), op.block)
    order = orders.get(source)
    return order is not None and is_in_order(sorted(range(len(dims)), key=lambda dim: order.index(dims[dim])), shape)


def read_through(value: ir.Value, order: Sequence[int], body: ir.Block) -> tuple[ir.Value, list[int]]:
    """The tensor of which a tensor is a part, or an elementwise result, in a block, and the order of dimensions there.

    order: that in which the part is wanted.
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
