"""A part of every row of a tensor, computed from the same parts of its operands.

XLA:CPU writes all of a tensor that a gather reads. A tensor that is computed element by element from smaller tensors is
never written if only those are gathered.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integer, integers
from exla_opt.ir.values import defining_op, splat_value
from exla_opt.ops.traits import Trait, traits_of

# The maximum number of ops to recompute, more than distance formulas have.
_MOST_OPS = 64
_WRITTEN = Trait.MOVES | Trait.NEW_BLOCK


def can_be_picked(value: ir.Value) -> bool:
    """Whether parts of its rows can be read: XLA may write pads, concatenations and draws only for that.

    In XLA, random bits are elementwise ops, which are fused with a single reader.
    """
    ops = _computed(value)
    read = [operand for op in ops for operand in op.operands] or [value]
    return not any(_may_be_unwritten(operand) for operand in read)


def _may_be_unwritten(value: ir.Value) -> bool:
    while (op := defining_op(value, "stablehlo.reshape")) is not None:
        value = op.operands[0]
    op = defining_op(value)
    return op is not None and (_WRITTEN in traits_of(op.name) or Trait.RANDOM in traits_of(op.name))


def picked(value: ir.Value, starts: ir.Value, width: int) -> ir.Value:
    """Some parts of every row, [..., n] to [..., j, width]: result[..., j, i] = value[..., starts[..., j] + i]."""
    made: dict[ir.Value, ir.Value] = {}
    ops = _computed(value)
    for op in ops:
        result = op.results[0]
        kind = build.with_shape(build.tensor_of(result), [*build.shape_of(starts), width])
        operands = []
        for operand in op.operands:
            if operand not in made and _shape(operand):
                made[operand] = _read(operand, starts, width)
            operands.append(made.get(operand, operand))
        attributes = {name: op.attributes[name] for name in op.attributes}
        again = ir.Operation.create(op.name, [kind], operands, attributes)
        made[result] = again.results[0]
    return made[value] if ops else _read(value, starts, width)


def _computed(value: ir.Value) -> list[ir.Operation]:
    """The ops that compute the tensor element by element, each after its operands."""
    found: dict[ir.Operation, None] = {}
    stack = [(value, False)]
    while stack:
        each, is_done = stack.pop()
        op = defining_op(each)
        if op is None or op in found or not _is_again(op, value):
            continue
        if is_done:
            found[op] = None
            continue
        stack.append((each, True))
        stack += [(operand, False) for operand in op.operands]
        if len(stack) > 4 * _MOST_OPS:
            return []
    return list(found) if len(found) <= _MOST_OPS else []


def _is_again(op: ir.Operation, value: ir.Value) -> bool:
    """Whether elements of the op's result are computed one by one from those at their positions."""
    shape = _shape(value)
    if Trait.POINTWISE not in traits_of(op.name) or len(op.regions) or len(op.results) != 1:
        return False
    return _shape(op.results[0]) == shape and all(_shape(each) in ([], shape) for each in op.operands)


def _shape(value: ir.Value) -> list[int]:
    return list(build.shape_of(value))


def _read(value: ir.Value, starts: ir.Value, width: int) -> ir.Value:
    """The parts of a tensor that is not recomputed: an iota, a broadcast, or a gather."""
    kind, last = build.tensor_of(value), len(_shape(value)) - 1
    part = build.with_shape(kind, [*build.shape_of(starts), width])
    number = splat_value(value)
    if number is not None:
        return build.splat(part, number)
    counted = defining_op(value, "stablehlo.iota")
    if counted is not None:
        dim = integer(counted, "iota_dimension", -1)
        return stablehlo.iota(part, dim) if dim < last else build.convert(places_at(starts, width), kind.element_type)
    repeated = defining_op(value, "stablehlo.broadcast_in_dim")
    if repeated is None:
        return _gathered(value, list(range(last + 1)), starts, width)
    source = repeated.operands[0]
    kept = [place for place, size in enumerate(_shape(source)) if size > 1]
    source = stablehlo.reshape(build.with_shape(kind, [_shape(source)[place] for place in kept]), source)
    all_dims = integers(repeated, "broadcast_dimensions", [])
    dims = [all_dims[place] for place in kept]
    if last in dims:
        return _gathered(source, dims, starts, width)
    return stablehlo.broadcast_in_dim(part, source, ir.DenseI64ArrayAttr.get(dims))


def places_at(starts: ir.Value, width: int) -> ir.Value:
    """result[..., j, i] = starts[..., j] + i."""
    kind = build.with_shape(build.tensor_of(starts), [*_shape(starts), width])
    rank = len(kind.shape) - 1
    spread = stablehlo.broadcast_in_dim(kind, starts, ir.DenseI64ArrayAttr.get(list(range(rank))))
    return stablehlo.add(spread, stablehlo.iota(kind, rank))


def _gathered(value: ir.Value, dims: Sequence[int], starts: ir.Value, width: int) -> ir.Value:
    """Parts of a tensor that has some dimensions of the rows, `dims`, including the last one."""
    last = len(_shape(starts)) - 1
    cut = list(dims).index(last)
    batch = [place for place in range(len(dims)) if place != cut]
    numbers = stablehlo.GatherDimensionNumbers.get(
        offset_dims=[last + 1],
        collapsed_slice_dims=[],
        operand_batching_dims=batch,
        start_indices_batching_dims=[dims[place] for place in batch],
        start_index_map=[cut],
        index_vector_dim=last + 1,
    )
    sizes = [width if place == cut else 1 for place in range(len(dims))]
    return stablehlo.gather(value, starts, numbers, ir.DenseI64ArrayAttr.get(sizes))
