"""Small integer tensors that are computed from constants alone, such as TensorFlow's arithmetic on shapes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from jaxlib.mlir import ir

from exla_opt.ir import build
from exla_opt.ir.attributes import integer, integers
from exla_opt.ir.types import element_type
from exla_opt.ir.values import defining_op, splat_value

from .integers import Numbers, fits, run_integers

# More elements are no shape, and more ops are not looked at.
_MOST_ELEMENTS, _MOST_OPS = 64, 200
# The bindings cannot read the elements of others.
_WIDTHS = (1, 8, 16, 32, 64)
_LARGEST = 2**63 - 1


def known_number(value: ir.Value) -> int | None:
    """The value of an integer or boolean scalar, 0 or 1 for the latter; None if it is not known."""
    known = _Known()
    numbers = known.of(value)
    return int(numbers) if numbers is not None and not numbers.shape else None


class _Known:
    """The numbers of values, each computed once."""

    def __init__(self) -> None:
        self.made: dict[ir.Value, Numbers | None] = {}

    def of(self, value: ir.Value) -> Numbers | None:
        if value in self.made:
            return self.made[value]
        op = defining_op(value)
        if op is None or len(op.results) != 1 or len(self.made) == _MOST_OPS or not _is_small(value):
            return None
        self.made[value] = None
        operands = [self.of(each) for each in op.operands]
        known = [each for each in operands if each is not None]
        found = _run(op, known) if len(known) == len(operands) else None
        kind = element_type(value)
        if found is not None and isinstance(kind, ir.IntegerType) and fits(found, kind):
            self.made[value] = found
        return self.made[value]


def _is_small(value: ir.Value) -> bool:
    kind = value.type
    if not isinstance(kind, ir.RankedTensorType) or not isinstance(kind.element_type, ir.IntegerType):
        return False
    if kind.element_type.width not in _WIDTHS or not kind.has_static_shape:
        return False
    return 0 < prod(kind.shape) <= _MOST_ELEMENTS


def _run(op: ir.Operation, operands: list[Numbers]) -> Numbers | None:
    shape = build.shape_of(op.results[0])
    if op.name == "stablehlo.constant":
        return _constant(op, shape)
    if op.name == "stablehlo.reshape":
        return operands[0].reshape(shape)
    if op.name == "stablehlo.concatenate":
        return np.concatenate(operands, integer(op, "dimension"))
    if op.name == "stablehlo.slice":
        names = ("start_indices", "limit_indices", "strides")
        first, limit, step = (integers(op, name, []) for name in names)
        return operands[0][tuple(map(slice, first, limit, step))]
    if op.name == "stablehlo.broadcast_in_dim":
        return _spread(operands[0], integers(op, "broadcast_dimensions", []), shape)
    if op.name == "stablehlo.reduce":
        return _fold(op, operands)
    return run_integers(op, operands) if not len(op.regions) else None


def _spread(numbers: Numbers, dims: Sequence[int], shape: list[int]) -> Numbers:
    order = sorted(range(len(dims)), key=lambda place: dims[place])
    ones = [1] * len(shape)
    for place, dim in enumerate(dims):
        ones[dim] = numbers.shape[place]
    return np.broadcast_to(numbers.transpose(order).reshape(ones), shape)


def _constant(op: ir.Operation, shape: list[int]) -> Numbers | None:
    splat = splat_value(op.results[0])
    if splat is not None:
        return np.full(shape, int(splat), np.int64) if splat <= _LARGEST else None
    if not isinstance(attribute := op.attributes["value"], ir.DenseElementsAttr):
        return None
    elements = ir.DenseIntElementsAttr(attribute)
    numbers = [int(elements[place]) for place in range(prod(shape))]
    return np.array(numbers, np.int64).reshape(shape) if max(numbers) <= _LARGEST else None


def _fold(op: ir.Operation, operands: list[Numbers]) -> Numbers | None:
    block = op.regions[0].blocks[0]
    inner = block.operations[0].operation
    if len(block.operations) != 2 or list(inner.operands) != list(block.arguments):
        return None
    dims = integers(op, "dimensions", [])
    rows = np.moveaxis(operands[0], dims, range(len(dims)))
    rows = rows.reshape(-1, *rows.shape[len(dims) :])
    total: Numbers | None = np.broadcast_to(operands[1], rows.shape[1:])
    for row in rows:
        total = None if total is None else run_integers(inner, [total, row])
    return total
