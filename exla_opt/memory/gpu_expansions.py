"""The ops of which XLA:GPU makes several, or one together with its reader: what each becomes, as ops of a `Block`.

Found in what it compiles: cuDNN's convolutions want even padding and no gaps between the elements that they read,
libraries add a bias, and a sort stands for a large top_k.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir.attributes import integer
from exla_opt.ir.values import defining_op, splat_value
from exla_opt.ir.walk import captured_values
from exla_opt.ops.traits import Trait
from exla_opt.ops.window_geometry import windows_of

from .block import Block, Operation
from .builder import Builder
from .expansions import SCANNED_AT_ONCE, is_long_scan, make_dot, scatter_of_windows
from .gpu_dots import is_vector_product, make_vector_product

# The most elements of a row that are found without sorting the row.
_TOP_AT_ONCE = 16
# A convolution in so many dimensions, or in fewer, runs with its channels last.
_CHANNELS_LAST = 2


def expand_for_gpu(builder: Builder, op: ir.Operation, made: Operation) -> bool:
    """Append what XLA:GPU makes of an op; False, and nothing is appended, if that is the op itself."""
    if made.name == "top_k" and integer(op, "k") > _TOP_AT_ONCE:
        _sort_with_places(builder, op, made)
    elif made.name == "select_and_scatter":
        scatter_of_windows(builder, op, made)
    elif made.name == "convolution":
        _convolution(builder, op, made)
    elif made.name == "reduce_window" and is_long_scan(op, builder.types):
        _scan(builder, op, made)
    elif made.name == "dot_general" and is_vector_product(builder, op):
        make_vector_product(builder, op, made)
    elif made.name == "dot_general":
        make_dot(builder, op, made)
    elif made.name == "triangular_solve":
        _solve(builder, op, made)
    elif made.name == "sort" and _needs_places(op):
        _stable_sort(builder, op, made)
    else:
        return False
    return True


def _solve(builder: Builder, op: ir.Operation, made: Operation) -> None:
    """cuBLAS wants columns: a function's arguments and results are turned, the rest is made so."""
    operands = []
    [result] = made.results
    is_returned = any(use.owner.operation.name == "func.return" for use in op.results[0].uses)
    for number, value in zip(made.operands, op.operands, strict=True):
        rank = ir.RankedTensorType(value.type).rank
        if isinstance(value.owner, ir.Block) and rank > 1:
            number = builder.transposed(op.results[0], value, [*range(rank - 2), rank - 1, rank - 2])  # noqa: PLW2901
        operands.append(number)
    if not is_returned:
        builder.add(replace(made, operands=tuple(operands)))
        return
    own = builder.fresh(op.results[0], builder.block.shapes[operands[1]], result)
    builder.add(replace(made, operands=tuple(operands), results=(own,)))
    builder.add_plain("transpose", (own,), (result,))


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
    """Whether elements that compare as equal keep their order only if their places are sorted too."""
    is_stable = "is_stable" in op.attributes and ir.BoolAttr(op.attributes["is_stable"]).value
    return is_stable and not any(_counts_alone(value) for value in op.operands)


def _counts_alone(value: ir.Value) -> bool:
    """Whether a tensor is an iota to XLA: of one dimension; with more it is one that is repeated."""
    iota = defining_op(value, "stablehlo.iota")
    return iota is not None and ir.RankedTensorType(value.type).rank == 1


def _stable_sort(builder: Builder, op: ir.Operation, made: Operation) -> None:
    shape = builder.types.of(op.operands[0]).shape
    places, unread = (builder.fresh(op.results[0], shape) for _ in range(2))
    builder.add_plain("iota", (), (places,))
    captures = builder.all_of(captured_values(op))
    builder.add(replace(made, operands=(*made.operands, places), results=(*made.results, unread), captures=captures))


def _scan(builder: Builder, op: ir.Operation, made: Operation) -> None:
    """A cumulative sum is one of blocks, and of the last elements of the blocks, which are added to the blocks."""
    [operand, *_], [result] = made.operands, made.results
    origin, shape = op.results[0], builder.block.shapes[result]
    blocks = builder.fresh(origin, shape, result)
    builder.add_plain("reduce_window", (operand,), (blocks,), (SCANNED_AT_ONCE,))
    ends, summed = (builder.fresh(origin, (prod(shape) // SCANNED_AT_ONCE,), result) for _ in range(2))
    builder.add_plain("slice", (blocks,), (ends,))
    builder.add_plain("reduce_window", (ends,), (summed,), (SCANNED_AT_ONCE,))
    spread = builder.fresh(origin, shape, result)
    builder.add_plain("broadcast_in_dim", (summed,), (spread,))
    builder.add_plain("multiply", (blocks, spread), (result,))


def _convolution(builder: Builder, op: ir.Operation, made: Operation) -> None:
    """cuDNN has convolutions and both their gradients; what it cannot read as it is is written in another form."""
    numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    image, weights, found = (builder.types.of(value).shape for value in (*op.operands, op.results[0]))
    spatial = list(numbers.input_spatial_dimensions)
    kernel = [weights[dim] for dim in numbers.kernel_spatial_dimensions]
    windows = windows_of(op, kernel)
    has_gaps = any(window.base > 1 for window in windows)
    is_uneven = any(window.low != max(window.high, 0) for window in windows)
    is_reversed = defining_op(op.operands[1], "stablehlo.reverse") is not None
    padded = list(image)
    for dim, window in zip(spatial, windows, strict=True):
        padded[dim] = (image[dim] - 1) * window.base + 1 + window.low + window.high
    lhs, rhs = made.operands
    if prod(kernel) > prod(found[dim] for dim in numbers.output_spatial_dimensions):  # the gradient of a kernel
        if has_gaps:
            lhs, rhs = _copied(builder, op, lhs, padded if is_uneven else image), _copied(builder, op, rhs, weights)
        elif any(max(window.high, 0) > window.low for window in windows):
            lhs = _copied(builder, op, lhs, padded)
    elif (has_gaps and not is_reversed) or (is_uneven and not has_gaps):
        lhs = _copied(builder, op, lhs, padded)
    is_turned = len(spatial) <= _CHANNELS_LAST and len(image) - 1 in spatial
    if is_turned:
        if isinstance(op.operands[0].owner, ir.Block):
            lhs = _copied(builder, op, lhs, image)
        if isinstance(op.operands[1].owner, ir.Block):
            rhs = _copied(builder, op, rhs, weights)
    made = replace(made, operands=(lhs, rhs), is_turned=is_turned)
    if has_gaps and is_reversed:
        whole = list(found)
        for dim, window, size in zip(spatial, windows, (image[dim] for dim in spatial), strict=True):
            low = window.reach - 1 - window.low
            high = (size - 1) * window.base + window.reach - found[dim] - low
            if max(high, 0) != low:
                whole[dim] += low + max(high, 0)
        if whole != list(found):  # the gradient of an image that was padded, of which the padding is left out
            own = builder.fresh(op.results[0], tuple(whole), made.results[0])
            builder.add(replace(made, results=(own,)))
            builder.add_plain("slice", (own,), made.results)
            return
    builder.add(made)


def _copied(builder: Builder, op: ir.Operation, value: int, shape: Sequence[int]) -> int:
    """The number of a copy of a tensor, in another order or with padding; shape: that of the copy."""
    copied = builder.fresh(op.results[0], tuple(shape), value)
    builder.add_plain("pad", (value,), (copied,))
    return copied


def add_epilogues(block: Block) -> None:
    """Let libraries add what is added to their results alone: a bias, or a tensor of the same shape."""
    producer = {value: op for op in block.ops for value in op.results}
    readers: dict[int, list[int]] = {}
    for position, op in enumerate(block.ops):
        for value in (*op.operands, *op.captures):
            readers.setdefault(value, []).append(position)
    returned = set(block.returned)
    gone: set[int] = set()
    ops = list(block.ops)
    for position, op in enumerate(ops):
        if Trait.CONTRACTS not in op.traits:
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
            if user.name == "multiply" and (op.name != "dot_general" or not _is_number(block, other)):
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
    """Whether a library adds a tensor to what it computes: along the last dimension, or one at each place."""
    made = producer.get(other)
    if made is not None and made.name == "broadcast_in_dim":
        return prod(block.shapes[made.operands[0]]) in (1, *block.shapes[other][-1:])
    return op.name == "dot_general"


def _is_number(block: Block, value: int) -> bool:
    return value in block.values and splat_value(block.values[value]) is not None
