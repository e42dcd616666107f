"""Finds integer tensors that are affine functions of the position, by following the ops that define them.

Programs write a regular index in many ways: with a choice for negative ones, clamped, reshaped, as a table. No pattern
is matched: every op is applied to offsets and strides, and the result is unknown if the type would wrap or round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from math import prod

import numpy as np
from jaxlib.mlir import ir

from exla_opt.ir import build
from exla_opt.ir.attributes import integer, integers
from exla_opt.ir.reassociation import reassociation_of
from exla_opt.ir.types import element_type
from exla_opt.ir.values import splat_value

from .affine import Affine, between, constant, counting, either, of_table, reshaped, reversed_along, sliced
from .affine_choices import of_and, of_reduce, of_select, of_sort, of_top_k
from .affine_elementwise import ELEMENTWISE
from .types import DIGITS

# An index is a few ops on an iota.
_DEEPEST = 64
# The element types of constants that NumPy can represent.
_READABLE = frozenset("i8 i16 i32 i64 ui8 ui16 ui32".split())
# One position of one dimension, if only that is needed.
Lane = tuple[int, int]


class AffineReader:
    """The affine tensors of a module, each computed once. The module must not change meanwhile."""

    def __init__(self) -> None:
        self._known: dict[tuple[ir.Value, Lane | None], Affine | None] = {}
        self._depth = 0

    def of(self, value: ir.Value, lane: Lane | None = None) -> Affine | None:
        """The integers of a tensor everywhere, or at one position of one dimension, which then has size 1.

        None if they are not known to be an affine function of the position.
        """
        found = self.bounds_of(value, lane)
        return found if found is not None and not found.slack else None

    def bounds_of(self, value: ir.Value, lane: Lane | None = None) -> Affine | None:
        """The same, with numbers known only by their bounds as slack; None for unknown floats."""
        kind = value.type
        if not isinstance(kind, ir.RankedTensorType) or not kind.has_static_shape or not prod(kind.shape):
            return None
        if lane is not None and kind.shape[lane[0]] == 1:
            lane = None
        key = (value, lane)
        if key not in self._known:
            if isinstance(value.owner, ir.Block) or self._depth == _DEEPEST:
                return _any_of(kind, lane)
            self._depth += 1
            found = self._work_out(value, value.owner.operation, lane)
            self._depth -= 1
            fits = found is not None and _fits(found, kind.element_type)
            self._known[key] = found if fits else _any_of(kind, lane)
        return self._known[key]

    def _work_out(self, value: ir.Value, op: ir.Operation, lane: Lane | None) -> Affine | None:
        if op.name in _MOVES:
            return _MOVES[op.name](self, op, lane)
        if op.name in _RESULTS:
            found = _RESULTS[op.name](op, ir.OpResult(value).result_number, self.bounds_of)
            return found if found is None or lane is None else found.at(*lane)
        if op.name in _CHOICES:
            return _CHOICES[op.name](op, lambda operand: self._in_shape(operand, op, lane))
        if op.name in ELEMENTWISE:
            return ELEMENTWISE[op.name](op, [self._in_shape(operand, op, lane) for operand in op.operands])
        return None

    def _in_shape(self, operand: ir.Value, op: ir.Operation, lane: Lane | None) -> Affine | None:
        """An operand of an elementwise op, with scalars broadcast: a bound or a predicate for all elements."""
        shape = build.shape_of(op.results[0])
        if build.shape_of(operand) == shape:
            return self.bounds_of(operand, lane)
        found = self.bounds_of(operand)
        return None if found is None else between(found.lowest, found.highest, _cut(shape, lane))


def _cut(shape: Sequence[int], lane: Lane | None) -> list[int]:
    """The shape at one position of a dimension."""
    return [1 if lane is not None and dim == lane[0] else size for dim, size in enumerate(shape)]


def _fits(value: Affine, kind: ir.Type) -> bool:
    """Whether the type holds all of the integers: none wraps, none is rounded."""
    if not isinstance(kind, ir.IntegerType):
        most: int = 2 ** DIGITS.get(str(kind), 0)
        return most > 1 and -most <= value.lowest and value.highest <= most
    low, high = _range_of(kind)
    return low <= value.lowest and value.highest <= high


def _range_of(kind: ir.IntegerType) -> tuple[int, int]:
    if kind.is_unsigned or kind.width == 1:
        return 0, 2**kind.width - 1
    return -(2 ** (kind.width - 1)), 2 ** (kind.width - 1) - 1


def _any_of(kind: ir.RankedTensorType, lane: Lane | None) -> Affine | None:
    """Any number of the type."""
    if not isinstance(kind.element_type, ir.IntegerType):
        return None
    return between(*_range_of(kind.element_type), _cut(kind.shape, lane))


def _of_constant(_: AffineReader, op: ir.Operation, lane: Lane | None) -> Affine | None:
    value, shape = op.results[0], build.shape_of(op.results[0])
    number = splat_value(value)
    if number is not None:
        is_integer = isinstance(number, int) or number.is_integer()
        return constant(int(number), _cut(shape, lane)) if is_integer else None
    if str(element_type(value)) not in _READABLE:
        return None
    attribute = op.attributes["value"]
    if not isinstance(attribute, ir.DenseElementsAttr):
        return None
    table = np.asarray(attribute).astype(np.int64)
    return of_table(table if lane is None else table.take([lane[1]], lane[0]))


def _of_iota(_: AffineReader, op: ir.Operation, lane: Lane | None) -> Affine:
    found = counting(build.shape_of(op.results[0]), integer(op, "iota_dimension"))
    return found if lane is None else found.at(*lane)


def _of_broadcast(reader: AffineReader, op: ir.Operation, lane: Lane | None) -> Affine | None:
    where = integers(op, "broadcast_dimensions", [])
    inner = (where.index(lane[0]), lane[1]) if lane is not None and lane[0] in where else None
    source = reader.bounds_of(op.operands[0], inner)
    if source is None:
        return None
    dims = list(constant(0, _cut(build.shape_of(op.results[0]), lane)).dims)
    for dim, size in enumerate(build.shape_of(op.operands[0])):
        if size != 1:
            dims[where[dim]] = source.dims[dim]
    return replace(source, dims=tuple(dims))


def _of_reshape(reader: AffineReader, op: ir.Operation, lane: Lane | None) -> Affine | None:
    """At one position of an unchanged dimension, only that position of the operand is read."""
    before, after = build.shape_of(op.operands[0]), build.shape_of(op.results[0])
    kept = None if lane is None else _same_dim(before, after, lane[0])
    inner = None if lane is None or kept is None else (kept, lane[1])
    source = reader.bounds_of(op.operands[0], inner)
    if source is None:
        return None
    found = reshaped(source, _cut(before, inner), after if inner is None else _cut(after, lane))
    return found if found is None or lane is None or inner is not None else found.at(*lane)


def _same_dim(before: Sequence[int], after: Sequence[int], dim: int) -> int | None:
    """The dimension of a reshape's operand that becomes the result's `dim`, which is longer than 1."""
    for group in reassociation_of(before, after) or ():
        longer = [one for one in group.before if before[one] != 1]
        if [one for one in group.after if after[one] != 1] == [dim] and len(longer) == 1:
            return longer[0]
    return None


def _of_transpose(reader: AffineReader, op: ir.Operation, lane: Lane | None) -> Affine | None:
    permutation = integers(op, "permutation", [])
    source = reader.bounds_of(op.operands[0], None if lane is None else (permutation[lane[0]], lane[1]))
    return None if source is None else replace(source, dims=tuple(source.dims[dim] for dim in permutation))


def _of_reverse(reader: AffineReader, op: ir.Operation, lane: Lane | None) -> Affine | None:
    dims = integers(op, "dimensions", [])
    if lane is not None and lane[0] in dims:
        lane = lane[0], build.shape_of(op.operands[0])[lane[0]] - 1 - lane[1]
    source = reader.bounds_of(op.operands[0], lane)
    return None if source is None else reversed_along(source, dims)


def _of_slice(reader: AffineReader, op: ir.Operation, lane: Lane | None) -> Affine | None:
    starts, strides = integers(op, "start_indices", []), integers(op, "strides", [])
    before, after = build.shape_of(op.operands[0]), build.shape_of(op.results[0])
    if lane is None:  # concatenated tensors that are sliced again
        lane = next(((dim, 0) for dim, size in enumerate(after) if size == 1 < before[dim]), None)
    inner = None if lane is None else (lane[0], starts[lane[0]] + lane[1] * strides[lane[0]])
    found = reader.bounds_of(op.operands[0], inner)
    for dim, length in enumerate(after):
        if found is not None and (lane is None or dim != lane[0]):
            found = sliced(found, dim, starts[dim], length, strides[dim])
    return found


def _of_concatenate(reader: AffineReader, op: ir.Operation, lane: Lane | None) -> Affine | None:
    """At one position of the concatenated dimension, one operand is read; elsewhere the result is one of them."""
    dim = integer(op, "dimension")
    if lane is None or lane[0] != dim:
        known = [reader.bounds_of(operand, lane) for operand in op.operands]
        shape = _cut(build.shape_of(op.results[0]), lane)
        bounds = [between(each.lowest, each.highest, shape) for each in known if each is not None]
        return reduce(either, bounds) if len(bounds) == len(known) else None
    place = lane[1]
    for operand in op.operands:
        size = build.shape_of(operand)[dim]
        if place < size:
            return reader.bounds_of(operand, (dim, place))
        place -= size
    return None


_CHOICES = {"stablehlo.and": of_and, "stablehlo.select": of_select}
_RESULTS = {"stablehlo.reduce": of_reduce, "stablehlo.sort": of_sort, "chlo.top_k": of_top_k}
_MOVES: dict[str, Callable[[AffineReader, ir.Operation, Lane | None], Affine | None]] = {
    "stablehlo.broadcast_in_dim": _of_broadcast,
    "stablehlo.concatenate": _of_concatenate,
    "stablehlo.constant": _of_constant,
    "stablehlo.iota": _of_iota,
    "stablehlo.reshape": _of_reshape,
    "stablehlo.reverse": _of_reverse,
    "stablehlo.slice": _of_slice,
    "stablehlo.transpose": _of_transpose,
}
