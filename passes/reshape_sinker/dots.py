"""Dots of reshaped and transposed tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integers
from exla_opt.ir.reassociation import Group, reassociation_of
from exla_opt.ir.rewrite import Pattern
from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op, plain_defining_op

from .moved import RESHAPE, TRANSPOSE, only_for

# An operand of this part of the threshold may be split together with larger tensors, in a loop that adds products up.
_TILED_PART = 16


def _is_whole(group: Group, before: Sequence[int], after: Sequence[int]) -> bool:
    """Whether the group is one dimension, the same before and after."""
    return [n for d in group.before if (n := before[d]) != 1] == [n for d in group.after if (n := after[d]) != 1]


@dataclass(frozen=True, slots=True)
class Side:
    """One operand of a dot: the value, and which of its dimensions are batch, contracted and free."""

    value: ir.Value
    batch: list[int]
    contracted: list[int]

    @property
    def free(self) -> list[int]:
        return [d for d in range(len(build.shape_of(self.value))) if d not in self.batch and d not in self.contracted]

    @property
    def free_shape(self) -> list[int]:
        shape = build.shape_of(self.value)
        return [shape[dim] for dim in self.free]


def sides_of(op: ir.Operation) -> list[Side]:
    numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    return [
        Side(op.operands[0], list(numbers.lhs_batching_dimensions), list(numbers.lhs_contracting_dimensions)),
        Side(op.operands[1], list(numbers.rhs_batching_dimensions), list(numbers.rhs_contracting_dimensions)),
    ]


def dot_of(op: ir.Operation, sides: Sequence[Side], is_turned: bool = False) -> ir.Value:
    """The dot of other operands, otherwise unchanged. is_turned: whether the operands are swapped."""
    left, right = sides
    batch = [build.shape_of(left.value)[dim] for dim in left.batch]
    numbers = stablehlo.DotDimensionNumbers.get(left.batch, right.batch, left.contracted, right.contracted)
    made = op.clone(ip=ir.InsertionPoint.current).operation
    made.attributes["dot_dimension_numbers"] = numbers
    if is_turned and "precision_config" in op.attributes:
        precision = list(ir.ArrayAttr(op.attributes["precision_config"]))
        made.attributes["precision_config"] = ir.ArrayAttr.get(precision[::-1])
    for index, side in enumerate(sides):
        made.operands[index] = side.value
    shape = [*batch, *left.free_shape, *right.free_shape]
    made.results[0].set_type(build.with_shape(build.tensor_of(op.results[0]), shape))
    result: ir.Value = made.results[0]
    return result


def dot_of_transpose(op: ir.Operation) -> ir.Value | None:
    """dot(transpose(x), y) = dot(x, y) by other numbers, where the free dimensions keep their order"""
    sides = sides_of(op)
    for index, side in enumerate(sides):
        inner = plain_defining_op(side.value, TRANSPOSE)
        if inner is None:
            continue
        permutation = integers(inner, "permutation", [])
        free = [permutation[dim] for dim in side.free]
        if free != sorted(free):
            continue
        batch, contracted = ([permutation[dim] for dim in dims] for dims in (side.batch, side.contracted))
        sides[index] = Side(inner.operands[0], batch, contracted)
        return dot_of(op, sides)
    return None


def transpose_of_dot(threshold: int) -> Pattern:
    """The pattern for transposes of more bytes than this, and for gradients of weights.

    For smaller ones XLA's order of the ops matters more. But XLA cannot turn what a loop over tiles adds up: the sum
    would be transposed behind the loop, into the memory of a result, and need its own. Such a product has an operand
    that may be split, and not two plain ones, MxK and KxN: turned, both would be transposed, which is slow on a CPU.
    """
    types = Types()

    def is_summed_in_tiles(dot: ir.Operation) -> bool:
        largest = max(types.of(value).bytes for value in dot.operands)
        return largest * _TILED_PART > threshold and not is_plain(dot)

    def pattern(op: ir.Operation) -> ir.Value | None:
        """transpose(dot(x, y)) = dot(y, x), if it is big, where the free dimensions of x and y change places"""
        dot = only_for(op.operands[0], "stablehlo.dot_general", op)
        if dot is None or not may_be_turned(dot):
            return None
        if types.of(op.results[0]).bytes <= threshold and not is_summed_in_tiles(dot):
            return None
        if not swaps_sides(dot, integers(op, "permutation", [])):
            return None
        with ir.InsertionPoint(dot):  # the transpose may be in a loop
            return turned(dot)

    return pattern


def swaps_sides(dot: ir.Operation, permutation: Sequence[int]) -> bool:
    """Whether a transpose of a dot swaps the free dimensions of its operands, and does nothing else."""
    left, rank = sides_of(dot)[0], len(build.shape_of(dot.results[0]))
    batch = len(left.batch)
    middle = batch + len(left.free)
    return list(permutation) == [*range(batch), *range(middle, rank), *range(batch, middle)]


def turned(dot: ir.Operation) -> ir.Value:
    """The dot of swapped operands."""
    return dot_of(dot, sides_of(dot)[::-1], is_turned=True)


def is_plain(dot: ir.Operation) -> bool:
    """Whether the contracted dimensions are the last ones of the left operand, and first ones of the right."""
    left, right = sides_of(dot)
    return _is_before(left, left.free, left.contracted) and _is_before(right, right.contracted, right.free)


def _is_before(side: Side, first: Sequence[int], second: Sequence[int]) -> bool:
    """Whether an operand has dimensions of both kinds, longer than 1, and all of the first before all of the second."""
    shape = build.shape_of(side.value)
    one, other = ([dim for dim in dims if shape[dim] != 1] for dims in (first, second))
    return bool(one and other) and max(one) < min(other)


def may_be_turned(dot: ir.Operation) -> bool:
    """Whether the dot treats both operands alike: an algorithm may split them into different parts."""
    if "algorithm" not in dot.attributes:
        return True
    algorithm = stablehlo.DotAlgorithm(dot.attributes["algorithm"])
    sides = (
        (algorithm.lhs_precision_type, algorithm.lhs_component_count),
        (algorithm.rhs_precision_type, algorithm.rhs_component_count),
    )
    return sides[0] == sides[1]


def dot_of_reshape(op: ir.Operation) -> ir.Value | None:
    """dot(reshape(x), y) = reshape(dot(x, y)), where the reshape only merges or splits free dimensions of x"""
    sides = sides_of(op)
    for index, side in enumerate(sides):
        inner = plain_defining_op(side.value, RESHAPE)
        below = None if inner is None or _is_weight(inner, side) else _before_reshape(inner, side)
        if below is None:
            continue
        sides[index] = below
        return stablehlo.reshape(op.results[0].type, dot_of(op, sides))
    return None


def _is_weight(inner: ir.Operation, side: Side) -> bool:
    """Whether a reshape only adds or drops sizes of 1, of an argument that is not multiplied batch by batch.

    It obstructs nothing and has no other reshape to meet, and the result would have these sizes of 1 as well.
    """
    value = inner.operands[0]
    before, after = ([size for size in build.shape_of(each) if size != 1] for each in (value, inner.results[0]))
    return before == after and not side.batch and defining_op(value) is None


def _before_reshape(inner: ir.Operation, side: Side) -> Side | None:
    before, after = build.shape_of(inner.operands[0]), build.shape_of(inner.results[0])
    bound = {*side.batch, *side.contracted}
    place: dict[int, int] = {}
    for group in reassociation_of(before, after) or ():
        held = [dim for dim in group.after if dim in bound]
        if not held:
            continue
        if not _is_whole(group, before, after):
            return None
        source = [dim for dim in group.before if before[dim] != 1]
        if any(after[dim] == 1 for dim in held) or len(source) != len(held):
            return None
        place.update(zip(held, source, strict=True))
    if len(place) != len(bound):
        return None
    batch, contracted = ([place[dim] for dim in dims] for dims in (side.batch, side.contracted))
    below = Side(inner.operands[0], batch, contracted)
    # Sizes of 1 that were bound in a group of their own would become free.
    return below if prod(below.free_shape) == prod(side.free_shape) else None


def dot_of_reshapes(op: ir.Operation) -> ir.Value | None:
    """dot(reshape(x), reshape(y)) = reshape(dot(x, y)), where both merge the same batch or contracted dimensions"""
    left, right = map(_merged, sides_of(op))
    if left is None or right is None:
        return None
    one, other = build.shape_of(left.value), build.shape_of(right.value)
    for pair in ((left.batch, right.batch), (left.contracted, right.contracted)):
        if [one[dim] for dim in pair[0]] != [other[dim] for dim in pair[1]]:
            return None
    return stablehlo.reshape(op.results[0].type, dot_of(op, [left, right]))


def _merged(side: Side) -> Side | None:
    """The side before a reshape that merges each bound dimension from some of its own, or keeps it."""
    inner = plain_defining_op(side.value, RESHAPE)
    if inner is None:
        return None
    before, after = build.shape_of(inner.operands[0]), build.shape_of(inner.results[0])
    sources: dict[int, list[int]] = {}
    for group in reassociation_of(before, after) or ():
        made = [dim for dim in group.after if after[dim] != 1]
        for dim in group.after:
            sources[dim] = [dim for dim in group.before if before[dim] != 1] if made == [dim] else []
    batch, contracted = ([sources.get(dim, []) for dim in dims] for dims in (side.batch, side.contracted))
    if not all(batch) or not all(contracted):
        return None
    return Side(inner.operands[0], sum(batch, []), sum(contracted, []))
