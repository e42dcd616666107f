"""The elements of a sorted tensor that are read: a few, by slices and gathers at known or computed positions.

Ops that sum or compare all of them in any order, like the count of non-NaNs, may read them unsorted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integers
from exla_opt.ir.types import element_type
from exla_opt.ir.values import defining_op, has_discardable_attributes, splat_value
from exla_opt.ir.walk import operands_of
from exla_opt.ops.reducers import is_orderless, monoid_of
from exla_opt.ops.traits import Trait, traits_of

_SLICE, _DYNAMIC, _GATHER = "stablehlo.slice", "stablehlo.dynamic_slice", "stablehlo.gather"
_REVERSE, _REDUCE = "stablehlo.reverse", "stablehlo.reduce"


@dataclass(frozen=True, slots=True)
class Reader:
    """An op that reads `count` elements along the sorted dimension, of `size`.

    turned: whether it reads them from a reverse of the sorted tensor.
    """

    op: ir.Operation
    dim: int
    size: int
    count: int
    turned: bool

    def given(self) -> list[ir.Value]:
        """The tensors that select the elements."""
        return list(self.op.operands)[1:]


@dataclass(frozen=True, slots=True)
class Reads:
    """The readers of a sorted tensor. few: those of few elements. all: ops that read all of them in any order."""

    few: tuple[Reader, ...]
    all: tuple[ir.Operation, ...]


def reads_of(value: ir.Value, dim: int, reassociate: bool) -> Reads | None:
    """The ops that read a tensor sorted along `dim`; None if one reads all of it and needs its order.

    reassociate: whether sums of floats may be reordered.
    """
    few: list[Reader] = []
    every: dict[ir.Value, ir.Operation] = {}
    sort = defining_op(value)
    queue = [(use, False) for use in value.uses]
    while queue:
        use, turned = queue.pop()
        op = use.owner.operation
        if sort is None or op.block != sort.block or has_discardable_attributes(op):
            return None
        count = _count(op, dim) if use.operand_number == 0 else None
        if count is not None:
            few.append(Reader(op, dim, build.shape_of(value)[dim], count, turned))
        elif op.name == _REVERSE and integers(op, "dimensions", []) == [dim]:
            queue += [(inner, not turned) for inner in op.results[0].uses]
        elif not turned and _is_in_any_order(op, value, dim, reassociate):
            every[op.results[0]] = op
        else:
            return None
    return Reads(tuple(few), tuple(every.values()))


def _is_in_any_order(op: ir.Operation, value: ir.Value, dim: int, reassociate: bool) -> bool:
    """Whether the op and its readers give the same results for any order of a tensor's elements.

    They do if they are elementwise, with no other operands that depend on the position, and then reduce.
    """
    known = {value}
    queue = [op]
    while queue:
        current = queue.pop()
        if current.block != op.block or has_discardable_attributes(current):
            return False
        if current.name == _REDUCE:
            summed = is_orderless(current) or (reassociate and monoid_of(current) is not None)
            if not summed or current.operands[0] not in known or dim not in integers(current, "dimensions", []):
                return False
            continue
        if Trait.POINTWISE not in traits_of(current.name) or len(current.regions) or len(current.results) != 1:
            return False
        if current.results[0] in known:
            continue
        known.add(current.results[0])
        queue += [use.owner.operation for use in current.results[0].uses]
        if any(operand not in known and splat_value(operand) is None for operand in current.operands):
            return False
    return True


def _count(op: ir.Operation, dim: int) -> int | None:
    """The number of elements that an op reads along the dimension, if each read is a single one."""
    if op.name in (_SLICE, _DYNAMIC):
        return build.shape_of(op.results[0])[dim]
    if op.name != _GATHER:
        return None
    numbers = _numbers(op)
    if numbers.start_index_map != [dim] or numbers.operand_batching_dims or integers(op, "slice_sizes", [])[dim] != 1:
        return None
    return prod(build.shape_of(op.operands[1]))


def ranks_read(reader: Reader, kind: ir.IntegerType) -> list[ir.Value]:
    """The ranks of the elements that are read, as 0-d tensors of an unsigned type, at the current insertion point."""
    places = _places_read(reader, kind)
    if not reader.turned:
        return places
    last = build.splat(ir.RankedTensorType.get([], kind), reader.size - 1)
    return [stablehlo.subtract(last, place) for place in places]


def _places_read(reader: Reader, kind: ir.IntegerType) -> list[ir.Value]:
    op, scalar = reader.op, ir.RankedTensorType.get([], kind)
    if op.name == _SLICE:
        start = integers(op, "start_indices", [])[reader.dim]
        stride = integers(op, "strides", [])[reader.dim]
        return [build.splat(scalar, start + place * stride) for place in range(reader.count)]
    if op.name == _DYNAMIC:
        begin = _within(op.operands[1 + reader.dim], reader.size - reader.count, kind)
        return [stablehlo.add(begin, build.splat(scalar, place)) for place in range(reader.count)]
    index = build.tensor_of(op.operands[1])
    flat = stablehlo.reshape(build.with_shape(index, [reader.count]), op.operands[1])
    one = build.with_shape(index, [])
    places = [stablehlo.slice(flat, [place], [place + 1], [1]) for place in range(reader.count)]
    return [_within(stablehlo.reshape(one, place), reader.size - 1, kind) for place in places]


def _within(index: ir.Value, last: int, kind: ir.IntegerType) -> ir.Value:
    """An index as the op clamps it: the nearest one of 0 to `last`."""
    given = element_type(index)
    if not (isinstance(given, ir.IntegerType) and given.is_unsigned):
        index = stablehlo.maximum(index, build.zeros(index.type))
    index = build.convert(index, kind) if ir.IntegerType(given).width <= kind.width else index
    if _holds(ir.IntegerType(element_type(index)), last):
        index = stablehlo.minimum(index, build.splat(index.type, last))
    return build.convert(index, kind)


def _holds(kind: ir.IntegerType, number: int) -> bool:
    digits = int(kind.width) - (not kind.is_unsigned)
    return bool(number < 2**digits)


def read_from(reader: Reader, selected: ir.Value, first: int) -> ir.Value:
    """The op's result, from elements `first` on of a tensor of the selected ones."""
    op, dim = reader.op, reader.dim
    if op.name == _SLICE:
        starts, limits, strides = (integers(op, name, []) for name in ("start_indices", "limit_indices", "strides"))
        starts[dim], limits[dim], strides[dim] = first, first + reader.count, 1
        return stablehlo.slice(selected, starts, limits, strides)
    made = op.clone(ip=ir.InsertionPoint.current).operation
    made.operands[0] = selected
    if op.name == _DYNAMIC:
        made.operands[1 + dim] = build.splat(op.operands[1 + dim].type, first)
    else:
        made.operands[1] = _counted(build.tensor_of(op.operands[1]), first)
        if "indices_are_sorted" in made.attributes:
            del made.attributes["indices_are_sorted"]
    result: ir.Value = made.results[0]
    return result


def _counted(kind: ir.RankedTensorType, first: int) -> ir.Value:
    """first, first + 1, ... in the shape and type of an index."""
    shape = list(kind.shape)
    line = stablehlo.iota(build.with_shape(kind, [prod(shape)]), 0)
    moved = stablehlo.add(line, build.splat(line.type, first)) if first else line
    return stablehlo.reshape(kind, moved)


def _numbers(op: ir.Operation) -> stablehlo.GatherDimensionNumbers:
    return stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])


def depends_on(values: Sequence[ir.Value], reads: Reads, sort: ir.Operation) -> bool:
    """Whether one of the values depends, in the sort's block, on its results, except through unsorted reads."""
    queue, seen = list(values), set(values)
    unsorted = {op.results[0] for op in reads.all}
    while queue:
        value = queue.pop()
        owner = value.owner
        if isinstance(owner, ir.Block) or owner.operation.block != sort.block or value in unsorted:
            continue
        if owner.operation == sort:
            return True
        fresh = [value for value in operands_of(owner.operation) if value not in seen]
        seen.update(fresh)
        queue += fresh
    return False
