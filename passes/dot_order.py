"""dot-order: on a CPU, products of two transposed matrices as the transpose of one of plain matrices.

before:  %y = dot_general %a, %b, contracting_dims = [0] x [1] : (KxM, NxK) -> MxN
after:   %t = optimization_barrier (dot_general %b, %a, contracting_dims = [1] x [0] : (NxK, KxM) -> NxM)
         %y = transpose %t

XLA:CPU multiplies transposed matrices up to 20 times slower than plain ones. In that order einsum multiplies weights
with values in attention on [batch, tokens, heads, width]. XLA itself turns the transpose of a product into that order:
hence the barrier. Applies if the result is smaller than the operands, as it is written once more. Nothing is done for
other machines, for types other than floats of 32 and 64 bits, if an operand has no dimension of its own, and with
--no-reassociate: the same products are added, in an order that may differ.

Products of bf16 into f32 swap their operands too where XLA:CPU (jaxlib 0.10 and 0.12) compiles them but does not run
them ("Unsupported element type for DotThunk"): those of a matrix KxM and a tensor of more dimensions. The loops that
tensor-splitter writes add up such products, as sums of bf16 are kept in f32. A barrier follows any other product of
bf16 into f32 whose result XLA:CPU may transpose: it would swap the operands, and not run that product either. Another
precedes it if the left operand is computed from something transposed: XLA transposes after that, and then in the
product. Of the same products of ui8 and i8 into i32 it refuses the module when it compiles it.

XLA:CPU also refuses products of matrices of i4, and of other types narrower than a byte, into a wider type. It compiles
those of tensors of more dimensions, which unit-dims and the loops' tiles turn into matrices: their operands become i8.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integers
from exla_opt.ir.types import element_type
from exla_opt.ir.values import has_discardable_attributes
from exla_opt.ir.walk import inside_out
from exla_opt.ops.pointwise import STABLEHLO_POINTWISE
from exla_opt.options import Options
from exla_opt.remarks import Remark

_TYPES = ("f32", "f64")
# Types of the operands and the result of products that XLA:CPU takes for its library YNN's before it transposes them.
_LEFT_TO_YNN = (["bf16", "bf16", "f32"], ["ui8", "i8", "i32"])
# What XLA computes from a product without transposing it. It transposes for products, scatters, windows and others.
_READ_AS_IT_IS = STABLEHLO_POINTWISE | {
    *(f"stablehlo.{name}" for name in ("dynamic_slice", "dynamic_update_slice", "slice", "pad", "concatenate")),
    *("stablehlo.reduce", "stablehlo.optimization_barrier", "stablehlo.return", "func.return"),
}
# What XLA does not move transposes across, and what it moves them across.
_HAS_ORDER = {
    *(f"stablehlo.{name}" for name in ("constant", "dot_general", "dynamic_slice", "iota", "slice", "while")),
    "stablehlo.optimization_barrier",
}
_KEEPS_ORDER = STABLEHLO_POINTWISE | {"stablehlo.reduce", "stablehlo.reshape"}
# Types narrower than a byte, and those that hold all their numbers.
_NARROW = {"i2": "i8", "i4": "i8", "ui2": "ui8", "ui4": "ui8", "f4E2M1FN": "f16"}
_PRECISION, _ALGORITHM, _DIMENSIONS = "precision_config", "algorithm", "dot_dimension_numbers"
# The elements of the result over those of both operands. Chosen on 25 sizes of 8 to 4,096 in the tiles of a loop: below
# a half the plain product takes 0.05 to 0.8 of the time, above 0.5 to 2.3. On 16 others, in loops and outside, f32 and
# f64, it takes 0.41 to 0.94 of it below a half, and 0.38 to 0.97 on jaxlib 0.12.
_MOST_OF_OPERANDS = 0.5


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Rewrite the products of transposed matrices of `module`, in place, if it is for a CPU."""
    if options.machine.kind != "cpu":
        return []
    for op in inside_out(module, "stablehlo.dot_general"):
        if _is_of_matrices(op):
            _widen(op)
        if _is_legal(op) and (_is_refused(op) or (options.reassociate and _gains(op))):
            op = _rewrite(op)
        elif _is_left_to_ynn(op) and _may_be_transposed(op.results[0]):
            _hold_result(op)
        if _is_left_to_ynn(op) and _may_stem_from_a_transpose(op.operands[0], op.block):
            _hold_left(op)
    return []


def _is_legal(op: ir.Operation) -> bool:
    """Whether operands may be swapped: not if a sharding, or an algorithm with separate types, refers to them."""
    return not has_discardable_attributes(op) and _ALGORITHM not in op.attributes


def _is_left_to_ynn(op: ir.Operation) -> bool:
    """Whether XLA:CPU keeps the types of the product, if it is of a shape that its library multiplies."""
    return [str(element_type(value)) for value in (*op.operands, op.results[0])] in _LEFT_TO_YNN


def _may_be_transposed(value: ir.Value) -> bool:
    """Whether XLA may transpose the value, or the same in another shape, to compute what uses it."""
    users = [use.owner.operation for use in value.uses]
    return any(
        _may_be_transposed(user.results[0]) if user.name == "stablehlo.reshape" else user.name not in _READ_AS_IT_IS
        for user in users
    )


def _may_stem_from_a_transpose(value: ir.Value, block: ir.Block) -> bool:
    """Whether XLA may compute the value as the transpose of something, from what the block computes."""
    waiting, seen = [value], set[ir.Value]()
    while waiting:
        value = waiting.pop()
        if value in seen or isinstance(value.owner, ir.Block):
            continue
        seen.add(value)
        op = value.owner.operation
        dims = integers(op, "broadcast_dimensions", [])
        if op.name in _KEEPS_ORDER or (op.name == "stablehlo.broadcast_in_dim" and list(dims) == sorted(dims)):
            waiting += op.operands
        elif op.name not in _HAS_ORDER and op.block == block:
            return True
    return False


def _hold_left(op: ir.Operation) -> None:
    """Put a barrier between a product and its left operand."""
    with op.location, ir.InsertionPoint(op):
        [held] = stablehlo.OptimizationBarrierOp([op.operands[0]]).results
    op.operands[0] = held


def _hold_result(op: ir.Operation) -> None:
    """Put a barrier between a product and what uses it."""
    [result] = op.results
    uses = list(result.uses)
    with op.location, ir.InsertionPoint.after(op):
        [held] = stablehlo.OptimizationBarrierOp([result]).results
    for use in uses:
        use.owner.operation.operands[use.operand_number] = held


def _is_refused(op: ir.Operation) -> bool:
    """Whether XLA:CPU cannot run the product: of bf16, into f32, of [batch] x K x M and what is no matrix to it."""
    if not _is_left_to_ynn(op):
        return False
    numbers = stablehlo.DotDimensionNumbers(op.attributes[_DIMENSIONS])
    left, right = (build.shape_of(value) for value in op.operands)
    batch = list(numbers.lhs_batching_dimensions)
    first = list(range(len(batch)))
    if batch != first or len(left) != len(batch) + 2 or list(numbers.lhs_contracting_dimensions) != [len(batch)]:
        return False
    own = _own(right, numbers.rhs_batching_dimensions, numbers.rhs_contracting_dimensions)
    return bool(own) and (len(right) > len(batch) + 2 or list(numbers.rhs_batching_dimensions) != first)


def _is_of_matrices(op: ir.Operation) -> bool:
    """Whether XLA leaves both operands as they are: [batch] x matrix or vector, with one contracted dimension."""
    numbers = stablehlo.DotDimensionNumbers(op.attributes[_DIMENSIONS])
    sides = (numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions)
    first = list(range(len(sides[0])))
    return (
        all(list(batch) == first for batch in sides)
        and len(numbers.lhs_contracting_dimensions) == 1
        and all(len(build.shape_of(value)) <= len(first) + 2 for value in op.operands)
    )


def _widen(op: ir.Operation) -> None:
    """Convert operands narrower than a byte, if the result is of another type: the numbers stay, and all attributes."""
    for number, value in enumerate(op.operands):
        narrow = element_type(value)
        if str(narrow) in _NARROW and narrow != element_type(op.results[0]):
            with op.location, ir.InsertionPoint(op):
                op.operands[number] = build.convert(value, ir.Type.parse(_NARROW[str(narrow)]))


def _gains(op: ir.Operation) -> bool:
    """Whether both operands are floats and transposed, from XLA:CPU's view, and the result is small."""
    if not all(str(element_type(value)) in _TYPES for value in (*op.operands, op.results[0])):
        return False
    numbers = stablehlo.DotDimensionNumbers(op.attributes[_DIMENSIONS])
    left, right = (build.shape_of(value) for value in op.operands)
    of_left = _own(left, numbers.lhs_batching_dimensions, numbers.lhs_contracting_dimensions)
    of_right = _own(right, numbers.rhs_batching_dimensions, numbers.rhs_contracting_dimensions)
    summed_left = [dim for dim in numbers.lhs_contracting_dimensions if left[dim] != 1]
    summed_right = [dim for dim in numbers.rhs_contracting_dimensions if right[dim] != 1]
    if not of_left or not of_right or not summed_left:
        return False
    is_small = prod(build.shape_of(op.results[0])) < _MOST_OF_OPERANDS * (prod(left) + prod(right))
    return is_small and max(summed_left) < min(of_left) and max(of_right) < min(summed_right)


def _own(shape: Sequence[int], batch: Sequence[int], summed: Sequence[int]) -> list[int]:
    """The dimensions of a single operand, except those of size 1."""
    return [dim for dim, size in enumerate(shape) if size != 1 and dim not in batch and dim not in summed]


def _rewrite(op: ir.Operation) -> ir.Operation:
    """Swap the operands of a product; return the one that takes its place."""
    numbers = stablehlo.DotDimensionNumbers(op.attributes[_DIMENSIONS])
    left, right = op.operands
    batch = len(numbers.lhs_batching_dimensions)
    shape = build.shape_of(op.results[0])
    of_left = len(build.shape_of(left)) - batch - len(numbers.lhs_contracting_dimensions)
    middle = batch + of_left
    order = [*range(batch), *range(middle, len(shape)), *range(batch, middle)]
    with op.location, ir.InsertionPoint(op):
        attributes: dict[str, ir.Attribute] = {
            _DIMENSIONS: stablehlo.DotDimensionNumbers.get(
                lhs_batching_dimensions=list(numbers.rhs_batching_dimensions),
                rhs_batching_dimensions=list(numbers.lhs_batching_dimensions),
                lhs_contracting_dimensions=list(numbers.rhs_contracting_dimensions),
                rhs_contracting_dimensions=list(numbers.lhs_contracting_dimensions),
            )
        }
        if _PRECISION in op.attributes:
            attributes[_PRECISION] = ir.ArrayAttr.get(list(ir.ArrayAttr(op.attributes[_PRECISION]))[::-1])
        kind = build.with_shape(build.tensor_of(op.results[0]), [shape[dim] for dim in order])
        swapped = ir.Operation.create("stablehlo.dot_general", [kind], [right, left], attributes)
        [held] = stablehlo.OptimizationBarrierOp(list(swapped.results)).results
        back = [order.index(dim) for dim in range(len(shape))]
        op.results[0].replace_all_uses_with(stablehlo.transpose(held, ir.DenseI64ArrayAttr.get(back)))
    op.erase()
    return swapped
