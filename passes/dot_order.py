"""dot-order: on a CPU, products of two transposed matrices as the transpose of one of plain matrices.

before:  %y = dot_general %a, %b, contracting_dims = [0] x [1] : (KxM, NxK) -> MxN
after:   %t = optimization_barrier (dot_general %b, %a, contracting_dims = [1] x [0] : (NxK, KxM) -> NxM)
         %y = transpose %t

before:  %y = dot_general %a, %b, batching_dims = [1] x [1], contracting_dims = [2] x [2] : (Mx1xK, Nx1xK) -> 1xMxN
after:   %y = reshape (dot_general %a', %b', contracting_dims = [1] x [1] : (MxK, NxK) -> MxN)

XLA:CPU multiplies transposed matrices up to 20 times slower than plain ones. In that order einsum multiplies weights
with values in attention on [batch, tokens, heads, width]. XLA itself turns the transpose of a product into that order:
hence the barrier. Applies where the result is smaller than the operands, for it is written once more. Nothing is done
for other machines, for other types than floats of 32 and 64 bits, for batches of several products (on jaxlib 0.12 they
are no faster), where an operand has no dimension of its own, and with --no-reassociate: the same products are added up,
in an order that may differ.

A dimension of 1 between others, one head of attention on [tokens, heads, width], makes XLA:CPU write the second matrix
transposed before each product, in every trip of a loop. Without it, the matrix is multiplied as it lies. Applies where
the dimension that is summed is the last of both.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.types import element_type
from exla_opt.ir.values import has_discardable_attributes
from exla_opt.ir.walk import inside_out
from exla_opt.options import Options
from exla_opt.remarks import Remark

_TYPES = ("f32", "f64")
_PRECISION, _ALGORITHM, _DIMENSIONS = "precision_config", "algorithm", "dot_dimension_numbers"
# The elements of the result over those of both operands. Chosen on 25 sizes of 8 to 4,096 in the tiles of a loop: below
# a half the plain product takes 0.05 to 0.8 of the time, above 0.5 to 2.3. On 16 others, in loops and outside, f32 and
# f64, it takes 0.41 to 0.94 of it below a half, and 0.38 to 0.97 on jaxlib 0.12.
_MOST_OF_OPERANDS = 0.5


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Rewrite the products of transposed matrices of `module`, in place, when it is for a CPU."""
    if options.machine.kind != "cpu" or not options.reassociate:
        return []
    for op in inside_out(module, "stablehlo.dot_general"):
        if not _is_legal(op):
            continue
        if _gains(op):
            _rewrite(op)
        elif _gains_without_ones(op):
            _drop_ones(op)
    return []


def _is_legal(op: ir.Operation) -> bool:
    """Operands may change places, but a sharding, or an algorithm with other types for each, speaks of them."""
    return (
        not has_discardable_attributes(op)
        and _ALGORITHM not in op.attributes
        and all(str(element_type(value)) in _TYPES for value in (*op.operands, op.results[0]))
    )


def _gains(op: ir.Operation) -> bool:
    """Whether both operands are transposed, as XLA:CPU sees it, and the result is small."""
    left, right = _sides(op)
    if not left.own or not right.own or not left.summed or left.is_batch:
        return False
    is_small = prod(build.shape_of(op.results[0])) < _MOST_OF_OPERANDS * (prod(left.shape) + prod(right.shape))
    return is_small and max(left.summed) < min(left.own) and max(right.own) < min(right.summed)


def _gains_without_ones(op: ir.Operation) -> bool:
    """Whether a dimension of 1 stands behind another one, and the one that is summed behind all, on both sides."""
    sides = _sides(op)
    if not all(side.own and side.summed for side in sides) or sides[0].is_batch:
        return False
    between = any(1 in side.shape[min(side.own) :] for side in sides)
    return between and all(max(side.own) < min(side.summed) for side in sides)


@dataclass(frozen=True, slots=True)
class _Side:
    """An operand of a product, and its dimensions; those of 1 are left out of `own` and `summed`."""

    shape: list[int]
    batch: list[int]
    contracted: list[int]

    @property
    def is_batch(self) -> bool:
        """Whether there are several products."""
        return any(self.shape[dim] != 1 for dim in self.batch)

    @property
    def summed(self) -> list[int]:
        return [dim for dim in self.contracted if self.shape[dim] != 1]

    @property
    def own(self) -> list[int]:
        """The dimensions that the other operand does not have."""
        shared = {*self.batch, *self.contracted}
        return [dim for dim, size in enumerate(self.shape) if size != 1 and dim not in shared]


def _sides(op: ir.Operation) -> tuple[_Side, _Side]:
    numbers = stablehlo.DotDimensionNumbers(op.attributes[_DIMENSIONS])
    left, right = (build.shape_of(value) for value in op.operands)
    return (
        _Side(left, list(numbers.lhs_batching_dimensions), list(numbers.lhs_contracting_dimensions)),
        _Side(right, list(numbers.rhs_batching_dimensions), list(numbers.rhs_contracting_dimensions)),
    )


def _rewrite(op: ir.Operation) -> None:
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


def _drop_ones(op: ir.Operation) -> None:
    sides = _sides(op)
    kind = build.tensor_of(op.results[0])
    with op.location, ir.InsertionPoint(op):
        operands: list[ir.Value] = []
        summed: list[list[int]] = []
        for value, side in zip(op.operands, sides, strict=True):
            kept = [dim for dim, size in enumerate(side.shape) if size != 1]
            smaller = build.with_shape(build.tensor_of(value), [side.shape[dim] for dim in kept])
            operands.append(stablehlo.reshape(smaller, value))
            summed.append([kept.index(dim) for dim in side.summed])
        numbers = stablehlo.DotDimensionNumbers.get([], [], summed[0], summed[1])
        attributes: dict[str, ir.Attribute] = {_DIMENSIONS: numbers}
        if _PRECISION in op.attributes:
            attributes[_PRECISION] = op.attributes[_PRECISION]
        shape = [size for size in kind.shape if size != 1]
        made = ir.Operation.create(op.name, [build.with_shape(kind, shape)], operands, attributes)
        op.results[0].replace_all_uses_with(stablehlo.reshape(kind, made.results[0]))
    op.erase()
