"""Writes contractions: tensors with named dimensions, and the steps that multiply and sum them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build

from .contraction import Dims, Step


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value and the number of each of its dimensions."""

    value: ir.Value
    dims: tuple[int, ...]


def squeezed(value: ir.Value, place: Sequence[int | None]) -> Tensor:
    """The tensor without its dimensions of size 1, whose place is None."""
    placed = tuple(dim for dim in place if dim is not None)
    if len(placed) != len(place):
        kind = build.tensor_of(value)
        sizes = [size for size, dim in zip(kind.shape, place, strict=True) if dim is not None]
        value = stablehlo.reshape(build.with_shape(kind, sizes), value)
    return Tensor(value, placed)


def repeated(tensor: Tensor, dims: Sequence[int], sizes: Mapping[int, int]) -> ir.Value:
    """The tensor on the dimensions `dims`, in that order, broadcast along those that it lacks."""
    if tensor.dims == tuple(dims):
        return tensor.value
    if set(tensor.dims) == set(dims):
        return stablehlo.transpose(tensor.value, ir.DenseI64ArrayAttr.get([tensor.dims.index(dim) for dim in dims]))
    own = sorted(tensor.dims, key=list(dims).index)
    value = repeated(tensor, own, sizes)
    kind = build.with_shape(build.tensor_of(value), [sizes[dim] for dim in dims])
    return stablehlo.broadcast_in_dim(kind, value, ir.DenseI64ArrayAttr.get([list(dims).index(dim) for dim in own]))


def summed(tensor: Tensor, dims: Dims) -> Tensor:
    """The tensor summed over every dimension that is not in `dims`."""
    kept = tuple(dim for dim in tensor.dims if dim in dims)
    away = [place for place, dim in enumerate(tensor.dims) if dim not in dims]
    if not away:
        return tensor
    return Tensor(build.sum_along(tensor.value, away), kept)


def take_step(step: Step, operands: Sequence[Tensor], sizes: Mapping[int, int], precision: ir.Attribute) -> Tensor:
    """Apply one step. precision: the precision_config of a dot."""
    if step.kind == "reduce":
        return summed(operands[0], step.dims)
    if step.kind == "dot":
        return _dot(operands[0], operands[1], step.dims, sizes, precision)
    wider, other = sorted(operands, key=lambda operand: -len(operand.dims))
    dims = wider.dims if set(wider.dims) == step.dims else tuple(sorted(step.dims))
    return Tensor(stablehlo.multiply(repeated(wider, dims, sizes), repeated(other, dims, sizes)), dims)


def _dot(left: Tensor, right: Tensor, dims: Dims, sizes: Mapping[int, int], precision: ir.Attribute) -> Tensor:
    """Contract all shared dimensions that are not in `dims`; the lower of the free dimensions comes first."""
    free = [[dim for dim in one.dims if dim not in other.dims] for one, other in ((left, right), (right, left))]
    if free[0] and free[1] and free[0][0] > free[1][0]:
        return _dot(right, left, dims, sizes, precision)
    batch = sorted(set(left.dims) & set(right.dims) & dims)
    contracted = sorted((set(left.dims) & set(right.dims)) - dims)
    order = (*batch, *free[0], *free[1])
    value = build.dot(
        left.value,
        right.value,
        ([left.dims.index(dim) for dim in batch], [right.dims.index(dim) for dim in batch]),
        ([left.dims.index(dim) for dim in contracted], [right.dims.index(dim) for dim in contracted]),
        [sizes[dim] for dim in order],
        precision,
    )
    return Tensor(value, order)
