"""The ops that XLA:GPU expands to several, or merges with their reader: the result, as ops of a `Block`.

Found in compiled programs: libraries add a bias, and a sort replaces a large top_k.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from jaxlib.mlir import ir

from exla_opt.ir.attributes import integer
from exla_opt.ir.values import defining_op, splat_value
from exla_opt.ir.walk import captured_values
from exla_opt.ops.traits import Trait

from ..block import Block, Operation
from ..builder import Builder
from ..dots import copied_order
from ..expansions import SCANNED_AT_ONCE, is_long_scan, make_dot
from ..scatters import is_one_window, scatter_of_windows, update_window
from .convolutions import is_written_in, make_convolution
from .dots import is_vector_product, make_vector_product
from .libraries import call_library

# The maximum number of elements per row that are found without sorting the row.
_TOP_AT_ONCE = 16


def expand_for_gpu(builder: Builder, op: ir.Operation, made: Operation) -> bool:
    """Append XLA:GPU's expansion of an op; return False, and append nothing, if there is none."""
    if made.name == "top_k" and integer(op, "k") > _TOP_AT_ONCE:
        _sort_with_places(builder, op, made)
    elif made.name == "select_and_scatter":
        scatter_of_windows(builder, op, made)
    elif made.name == "scatter" and len(op.results) == 1 and is_one_window(op, builder.types):
        update_window(builder, op, made)
    elif made.name == "convolution":
        make_convolution(builder, op, made)
    elif made.name == "reduce_window" and is_long_scan(op, builder.types):
        _scan(builder, op, made)
    elif made.name == "dot_general" and is_vector_product(builder, op):
        make_vector_product(builder, op, made)
    elif made.name == "dot_general":
        make_dot(builder, op, replace(made, copied=_copied_sides(builder, op, made)))
    elif made.name in ("custom_call", "triangular_solve", "cholesky"):
        call_library(builder, op, made)
    elif made.name == "sort" and _needs_places(op):
        _stable_sort(builder, op, made)
    else:
        return False
    return True


def _copied_sides(builder: Builder, op: ir.Operation, made: Operation) -> tuple[int, ...]:
    """The operands of which a dot reads a copy, except those that a convolution leaves in the dot's order."""
    types = builder.types
    return tuple(side for side in made.copied if not is_written_in(op.operands[side], copied_order(op, side), types))


def _sort_with_places(builder: Builder, op: ir.Operation, made: Operation) -> None:
    [operand] = made.operands
    origin, shape = op.results[0], builder.block.shapes[operand]
    places = builder.fresh(origin, shape)
    builder.add_plain("iota", (), (places,))
    found = (builder.fresh(origin, shape, operand), builder.fresh(origin, shape))
    if len(shape) > 2:
        builder.viewed.update(found)  # a sort of the rows of a matrix
    builder.add_plain("sort", (operand, places), found)
    for value, result in zip(found, made.results, strict=True):
        builder.add_plain("slice", (value,), (result,))


def _needs_places(op: ir.Operation) -> bool:
    """Whether elements that compare as equal keep their order only if their indices are sorted too."""
    is_stable = "is_stable" in op.attributes and ir.BoolAttr(op.attributes["is_stable"]).value
    return is_stable and not any(_counts_alone(value) for value in op.operands)


def _counts_alone(value: ir.Value) -> bool:
    """Whether XLA sees a tensor as an iota: of one dimension; one with more is a broadcast."""
    iota = defining_op(value, "stablehlo.iota")
    return iota is not None and ir.RankedTensorType(value.type).rank == 1


def _stable_sort(builder: Builder, op: ir.Operation, made: Operation) -> None:
    shape = builder.types.of(op.operands[0]).shape
    places, unread = (builder.fresh(op.results[0], shape) for _ in range(2))
    builder.add_plain("iota", (), (places,))
    captures = builder.all_of(captured_values(op))
    builder.add(replace(made, operands=(*made.operands, places), results=(*made.results, unread), captures=captures))


def _scan(builder: Builder, op: ir.Operation, made: Operation) -> None:
    """Expand a cumulative sum to sums of blocks, and of the last elements of the blocks, added to the blocks.

    All readers read the sum through reshapes of their own: in XLA's cost model, two elementwise ops of one kernel that
    read through reshapes compute the ops behind them twice.
    """
    [operand, *_], [result] = made.operands, made.results
    origin, shape = op.results[0], builder.block.shapes[result]
    blocks = builder.fresh(origin, shape, result)
    builder.add_plain("reduce_window", (operand,), (blocks,), (SCANNED_AT_ONCE,))
    ends, summed = (builder.fresh(origin, (prod(shape) // SCANNED_AT_ONCE,), result) for _ in range(2))
    builder.add_plain("slice", (blocks,), (ends,))
    builder.add_plain("reduce_window", (ends,), (summed,), (SCANNED_AT_ONCE,))
    spread = builder.fresh(origin, shape, result)
    builder.add_plain("broadcast_in_dim", (summed,), (spread,))
    total = builder.fresh(origin, shape, result)
    builder.add_plain("multiply", (blocks, spread), (total,))
    builder.add_plain("reshape", (total,), (result,))


def add_epilogues(block: Block) -> None:
    """Let libraries add tensors to their results: a bias, or a tensor of the same shape."""
    producer = {value: op for op in block.ops for value in op.results}
    readers: dict[int, list[int]] = {}
    for position, op in enumerate(block.ops):
        for value in (*op.operands, *op.captures):
            readers.setdefault(value, []).append(position)
    returned = set(block.returned)
    gone: set[int] = set()
    ops = list(block.ops)
    for position, op in enumerate(ops):
        if Trait.CONTRACTS not in op.traits or op.is_bare:
            continue
        at = position
        while True:
            [value] = ops[at].results
            users = readers.get(value, [])
            if len(users) != 1 or value in returned:
                break
            user = ops[users[0]]
            if user.name not in ("add", "maximum", "multiply") or len(user.operands) != 2 or users[0] in gone:
                break
            [other] = [each for each in user.operands if each != value] or [value]
            if user.name == "multiply" and not (
                _is_number(block, other) and (op.name == "dot_general" or at == position)
            ):
                break
            if user.name == "add" and not _may_be_added(block, producer, ops[at], other):
                break
            if user.name == "maximum" and not _is_number(block, other):
                break
            gone.add(at)
            spread = producer.get(other)
            added: tuple[int, ...] = (other,)
            if spread is not None and spread.name == "broadcast_in_dim":
                added = spread.operands
            if user.name != "add":
                added = ()
            ops[users[0]] = replace(ops[at], operands=(*ops[at].operands, *added), results=user.results)
            at = users[0]
    block.ops = [op for position, op in enumerate(ops) if position not in gone]


def _may_be_added(block: Block, producer: dict[int, Operation], op: Operation, other: int) -> bool:
    """Whether a library can add a tensor to its result: one of the same shape, or one along the features."""
    made = producer.get(other)
    if made is None or made.name != "broadcast_in_dim":
        return True
    last = len(block.shapes[other]) - 1
    feature = op.shared[0] if op.name == "convolution" and op.shared else last
    return prod(block.shapes[made.operands[0]]) in (1, block.shapes[other][feature] if last >= 0 else 1)


def _is_number(block: Block, value: int) -> bool:
    return value in block.values and splat_value(block.values[value]) is not None
