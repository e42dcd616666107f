"""The ops that XLA:CPU expands to several: the expansion of each, as ops of a `Block`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir.attributes import integer, integers
from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import captured_values
from exla_opt.ops.traits import Trait, traits_of

from .block import Operation
from .builder import Builder
from .convolutions import convolve, convolve_as_it_is, convolve_exchanged, is_exchanged, with_all_pairs
from .dots import copied_order, merged_sides
from .machine import Machine
from .products import add_wide, in_rows, is_inner, is_outer, multiply_and_reduce, spread_and_multiply
from .scatters import is_one_window, is_transposed, scatter_of_windows, scatter_transposed, update_window
from .widening import Append, add_widened, is_widened

# XLA turns a sort of which at most this fraction is read into a top-k.
_TOP_PART = 4
# Longer cumulative sums are computed in blocks of this many elements.
SCANNED_AT_ONCE = 16


def expand(builder: Builder, op: ir.Operation, made: Operation, machine: Machine, is_function: bool) -> bool:
    """Append XLA's expansion of an op; return False, and append nothing, if there is none.

    made: the op without expansion. is_function: whether it is in a function, not in a body of control flow.
    """
    found = _expansion(op, made, builder.types, machine, is_function)
    if is_widened(builder, made, machine) and found is not update_window:
        add_widened(builder, op, made, machine, found or _add)
        return True
    if found is not None:
        found(builder, op, made)
    return found is not None


def _product(builder: Builder, op: ir.Operation, made: Operation) -> None:
    """A dot as XLA:CPU computes it."""
    if not made.narrow and is_outer(op, builder):
        spread_and_multiply(builder, op, made)
    elif not made.narrow and is_inner(op, builder):
        multiply_and_reduce(builder, op, made)
    else:
        make_dot(builder, op, replace(made, operands=in_rows(builder, op, made.operands)))
        add_wide(builder, builder.block.ops.pop(), op.results[0])


def _add(builder: Builder, op: ir.Operation, made: Operation) -> None:
    """Append the op unchanged."""
    builder.add(made)


def _expansion(op: ir.Operation, made: Operation, types: Types, machine: Machine, is_function: bool) -> Append | None:
    """The function that appends XLA's expansion of an op."""
    is_cpu = machine.kind == "cpu"
    if made.name == "top_k" and (not any(True for _ in op.results[1].uses) or (is_cpu and not _has_top_k(op, types))):
        return _sort_all
    if made.name == "sort" and is_top_k(op, types):
        return _take_top
    if made.name == "select_and_scatter" and is_cpu:
        return partial(_scatter_windows, machine)
    if made.name == "scatter" and is_cpu and len(op.results) == 1 and is_one_window(op, types):
        return update_window
    if made.name == "scatter" and is_cpu and len(op.results) == 1 and is_transposed(op, types):
        return scatter_transposed
    if made.name == "convolution" and is_cpu and machine.is_written and is_exchanged(op, types):
        return partial(convolve_exchanged, machine, is_function)
    # In bodies of control flow, XLA:CPU convolves in any dimension order, though slowly.
    if made.name == "convolution":
        found = convolve if is_function or not is_cpu else partial(convolve_as_it_is, machine)
        has_pairs = is_cpu and machine.is_written and integer(op, "batch_group_count", 1) > 1
        return partial(with_all_pairs, found) if has_pairs else found
    if made.name == "reduce_window" and is_long_scan(op, types):
        return scan_in_blocks
    if made.name == "reduce" and is_cpu and _is_sum_of_parts(op):
        return _sum_parts
    if made.is_library and is_cpu and _overwritten(op) is not None:
        return _copy_overwritten
    if made.name == "dot_general" and is_cpu:
        return _product
    return None


def _has_top_k(op: ir.Operation, types: Types) -> bool:
    """Whether XLA:CPU has a library for the largest elements: for float32."""
    return types.of(op.operands[0]).dtype == "f32"


def _scatter_windows(machine: Machine, builder: Builder, op: ir.Operation, made: Operation) -> None:
    """The scatter to the positions selected by windows, in wider floats if XLA:CPU needs them."""
    scatter_of_windows(builder, op, made)
    scatter = builder.block.ops.pop()
    if is_widened(builder, scatter, machine):
        add_widened(builder, op, scatter, machine, _add)
    else:
        builder.add(scatter)


def is_top_k(op: ir.Operation, types: Types) -> bool:
    """Whether a sort also sorts the indices of its elements, and only a small part of both is read."""
    if len(op.operands) != 2 or not _counts(op.operands[1]):
        return False
    readers = [(use.owner.operation, result) for result in op.results for use in result.uses]
    return all(
        user.name == "stablehlo.slice" and _TOP_PART * types.of(user.results[0]).bytes <= types.of(result).bytes
        for user, result in readers
    )


def is_long_scan(op: ir.Operation, types: Types) -> bool:
    """Whether windows that all begin at the first element, or end at the last, form a cumulative sum."""
    if len(op.results) != 1:
        return False
    shape, windows = types.of(op.operands[0]).shape, integers(op, "window_dimensions", [])
    long = [(size, window) for size, window in zip(shape, windows, strict=True) if window != 1]
    return shape == types.of(op.results[0]).shape and all(size == window > SCANNED_AT_ONCE for size, window in long)


def _sort_all(builder: Builder, op: ir.Operation, made: Operation) -> None:
    """XLA sorts for a top_k of which only values are read, or values and indices in a type without a library."""
    [operand] = made.operands
    shape = builder.block.shapes[operand]
    found = builder.fresh(op.results[0], shape, operand)
    if not any(True for _ in op.results[1].uses):
        builder.add_plain("sort", (operand,), (found,))
    else:
        places, sorted_places = builder.fresh(op.results[1], shape), builder.fresh(op.results[1], shape)
        builder.add_plain("iota", (), (places,))
        builder.add_plain("sort", (operand, places), (found, sorted_places))
        builder.add_plain("slice", (sorted_places,), made.results[1:])
    builder.add_plain("slice", (found,), made.results[:1])


def _take_top(builder: Builder, op: ir.Operation, made: Operation) -> None:
    """XLA turns a sort with indices, of which only the first few are read, into a top_k."""
    for value, number in zip(op.results, made.results, strict=True):
        read = [builder.types.of(use.owner.operation.results[0]).bytes for use in value.uses]
        wider = builder.block.sizes[number] // max(builder.types.of(value).bytes, 1)
        builder.block.sizes[number] = max(read, default=0) * wider
    captures = builder.all_of(captured_values(op))
    builder.add(replace(made, name="top_k", operands=made.operands[:1], captures=captures))


def _is_sum_of_parts(op: ir.Operation) -> bool:
    """Whether a tensor is reduced along the dimension in which it was concatenated."""
    joined = defining_op(op.operands[0], "stablehlo.concatenate")
    if len(op.results) != 1 or joined is None:
        return False
    return integer(joined, "dimension") in integers(op, "dimensions", [])


def _sum_parts(builder: Builder, op: ir.Operation, made: Operation) -> None:
    """XLA reduces the operands of a concatenation, and combines the results."""
    joined = defining_op(op.operands[0])
    assert joined is not None
    origin, [result] = op.results[0], made.results
    dims, shape = integers(op, "dimensions", []), builder.block.shapes[result]
    total = -1
    for number, value in zip(builder.all_of(joined.operands), joined.operands, strict=True):
        sizes = builder.types.of(value).shape
        part = builder.fresh(origin, shape, result)
        lengths = tuple(sizes[dim] for dim in dims)
        if prod(lengths) == 1:
            builder.add_plain("negate", (number,), (part,))
        else:
            builder.add(replace(made, operands=(number, *made.operands[1:]), results=(part,), lengths=lengths))
        if total >= 0:
            added = builder.fresh(origin, shape, result)
            builder.add_plain("add", (total, part), (added,))
            part = added
        total = part
    last = builder.block.ops.pop()
    builder.add(replace(last, results=(result,)))


def scan_in_blocks(builder: Builder, op: ir.Operation, made: Operation) -> None:
    """XLA scans blocks, then the last elements of the blocks, and adds those to the blocks."""
    [operand, *_], [result] = made.operands, made.results
    origin, shape = op.results[0], builder.block.shapes[result]
    windows = integers(op, "window_dimensions", [])
    padded = tuple(
        size if window == 1 else -(-size // SCANNED_AT_ONCE) * SCANNED_AT_ONCE
        for size, window in zip(builder.types.of(origin).shape, windows, strict=True)
    )
    if padded != builder.types.of(origin).shape:
        filled = builder.fresh(origin, padded, result)
        builder.add_plain("pad", (operand,), (filled,))
        operand = filled
    blocks = builder.fresh(origin, padded, result)
    builder.add_plain("reduce_window", (operand,), (blocks,), (SCANNED_AT_ONCE,))
    builder.block.merged.add(blocks)  # a row for each block
    ends = builder.fresh(origin, (prod(shape) // SCANNED_AT_ONCE,), result)
    builder.add_plain("reduce_window", (blocks,), (ends,), (SCANNED_AT_ONCE,))
    spread = builder.fresh(origin, shape, result)
    builder.add_plain("broadcast_in_dim", (ends,), (spread,))
    builder.add_plain("multiply", (blocks, spread), (result,))


def _overwritten(op: ir.Operation) -> int | None:
    """The operand that a library overwrites with its first result although others read it too."""
    if "output_operand_aliases" not in op.attributes:
        return None
    for alias in map(stablehlo.OutputOperandAlias, ir.ArrayAttr(op.attributes["output_operand_aliases"])):
        value = op.operands[alias.operand_index]
        source = defining_op(value)
        if list(alias.output_tuple_indices) in ([], [0]) and len(list(value.uses)) > 1 and source is not None:
            return int(alias.operand_index) if Trait.POINTWISE in traits_of(source.name) else None
    return None


def _copy_overwritten(builder: Builder, op: ir.Operation, made: Operation) -> None:
    """A library gets a copy of an operand that others still read."""
    side = _overwritten(op)
    assert side is not None
    operands = list(made.operands)
    copied = builder.fresh(op.operands[side], builder.block.shapes[operands[side]], operands[side])
    builder.add(Operation("copy", Trait(0), (operands[side],), (copied,)))
    operands[side] = copied
    builder.add(replace(made, operands=tuple(operands)))


def make_dot(builder: Builder, op: ir.Operation, made: Operation) -> None:
    """A dot reads copies of the operands whose dimension order it cannot read."""
    if merged_sides(op, builder.types, summed=False):
        builder.block.merged.add(made.results[0])
    operands, narrow = list(made.operands), set(made.narrow)
    for side in made.copied:
        operands[side] = builder.transposed(op.results[0], op.operands[side], copied_order(op, side))
        if made.operands[side] in narrow:
            narrow.add(operands[side])
    kept = frozenset(narrow & {*operands, *made.results})
    builder.add(replace(made, operands=tuple(operands), copied=(), narrow=kept))


def _counts(value: ir.Value) -> bool:
    """Whether a tensor is an iota along a dimension, broadcast along others or not."""
    while True:
        for name in ("broadcast_in_dim", "reshape", "convert"):
            inner = defining_op(value, f"stablehlo.{name}")
            if inner is not None:
                break
        if inner is None:
            return defining_op(value, "stablehlo.iota") is not None
        value = inner.operands[0]
