"""The transpose of an op's result, computed from the transposes of its operands.

    transpose(exp(x)) = exp(transpose(x))      transpose(dot(x, y)) = dot(y', x')

An order is the permutation of stablehlo.transpose: dimension i of the transpose is dimension order[i] of the value. A
rule says in which orders it needs the operands, and writes the op. Operands beyond those it names stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integer, integers
from exla_opt.ir.values import splat_value

from .traits import Trait, has_trait

_TRANSPOSE = "stablehlo.transpose"
Order = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Rule:
    """orders: of the first operands, None if the op has no such transpose. changed: the attributes that differ.

    swaps: whether the first two operands change places.
    """

    orders: Callable[[ir.Operation, Order], list[Order] | None]
    changed: Callable[[ir.Operation, Order], dict[str, ir.Attribute]] = lambda *_: {}
    swaps: bool = False


def order_of(op: ir.Operation) -> Order | None:
    """The order of a transpose; None for another op."""
    return tuple(integers(op, "permutation", [])) if op.name == _TRANSPOSE else None


def is_identity(order: Order) -> bool:
    """Whether a transpose in this order changes nothing."""
    return list(order) == sorted(order)


def operand_orders(op: ir.Operation, order: Order) -> list[Order] | None:
    """The orders in which the op's first operands are needed for the transpose of its result; None if impossible."""
    rule = _rule_of(op)
    return None if rule is None or len(op.results) != 1 else rule.orders(op, order)


def write_transpose(value: ir.Value, order: Order) -> ir.Value:
    """A transpose, at the current insertion point."""
    return stablehlo.transpose(value, ir.DenseI64ArrayAttr.get(list(order)))


def write_transposed(op: ir.Operation, order: Order, operands: Sequence[ir.Value]) -> ir.Value:
    """What computes the transpose of the op's result, at the current insertion point.

    operands: the first ones, in the orders of `operand_orders`. Raises ValueError for an op without a rule.
    """
    rule = _rule_of(op)
    if rule is None:
        raise ValueError(f"{op.name} has no transpose")
    if op.name == _TRANSPOSE:
        return operands[0]
    made = op.clone().operation
    for index, value in enumerate(reversed(operands) if rule.swaps else operands):
        made.operands[index] = value
    for name, attribute in rule.changed(op, order).items():
        made.attributes[name] = attribute
    kind = build.tensor_of(op.results[0])
    result: ir.Value = made.results[0]
    result.set_type(build.with_shape(kind, _permuted(kind.shape, order)))
    return result


def _rule_of(op: ir.Operation) -> _Rule | None:
    is_plain = has_trait(op, Trait.POINTWISE) and not len(op.regions)
    return _RULES.get(op.name, _POINTWISE if is_plain else None)


def _permuted(numbers: Sequence[int], order: Order) -> Order:
    return tuple(numbers[dim] for dim in order)


def _moved(dims: Sequence[int], order: Order) -> list[int]:
    """The dimensions of the transpose that those of the value become."""
    return [order.index(dim) for dim in dims]


def _of_pointwise(op: ir.Operation, order: Order) -> list[Order] | None:
    """Scalars, as the predicate of a select may be, stay as they are. Ops that broadcast or join bits have others."""
    shapes = [build.shape_of(value) for value in op.operands]
    if any(shape not in ([], build.shape_of(op.results[0])) for shape in shapes):
        return None
    return [order if shape else () for shape in shapes]


def _of_constant(op: ir.Operation, _: Order) -> list[Order] | None:
    return None if splat_value(op.results[0]) is None else []


def _filled(op: ir.Operation, order: Order) -> dict[str, ir.Attribute]:
    kind = build.tensor_of(op.results[0])
    element = ir.DenseElementsAttr(op.attributes["value"]).get_splat_value()
    return {"value": ir.DenseElementsAttr.get_splat(build.with_shape(kind, _permuted(kind.shape, order)), element)}


def _of_dot(op: ir.Operation, order: Order) -> list[Order] | None:
    """(a b)' = b' a', for each element of the batch. An algorithm may name the types of left and right."""
    numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    left, right = (len(build.shape_of(value)) for value in op.operands)
    first = len(numbers.lhs_batching_dimensions)
    second, rank = left - len(numbers.lhs_contracting_dimensions), len(build.shape_of(op.results[0]))
    if "algorithm" in op.attributes or order != (*range(first), *range(second, rank), *range(first, second)):
        return None
    return [tuple(range(left)), tuple(range(right))]


def _swapped(op: ir.Operation, _: Order) -> dict[str, ir.Attribute]:
    numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    batch = list(numbers.rhs_batching_dimensions), list(numbers.lhs_batching_dimensions)
    contracted = list(numbers.rhs_contracting_dimensions), list(numbers.lhs_contracting_dimensions)
    changed: dict[str, ir.Attribute] = {"dot_dimension_numbers": stablehlo.DotDimensionNumbers.get(*batch, *contracted)}
    if (precision := op.attributes.get("precision_config")) is not None:
        changed["precision_config"] = ir.ArrayAttr.get(list(ir.ArrayAttr(precision))[::-1])
    return changed


def _of_reduce(op: ir.Operation, order: Order) -> list[Order]:
    """The dimensions that are reduced stay where they are."""
    reduced = integers(op, "dimensions", [])
    rank = len(build.shape_of(op.operands[0]))
    kept = iter(_permuted([dim for dim in range(rank) if dim not in reduced], order))
    return [tuple(dim if dim in reduced else next(kept) for dim in range(rank))]


def _of_scatter(op: ir.Operation, order: Order) -> list[Order] | None:
    """Single elements: their indices name other dimensions."""
    numbers = stablehlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    return None if numbers.update_window_dims else [order]


def _scattered(op: ir.Operation, order: Order) -> dict[str, ir.Attribute]:
    """Batching dimensions must be sorted. Indices that were sorted by rows are not by columns."""
    numbers = stablehlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    batching = sorted(
        zip(_moved(numbers.input_batching_dims, order), numbers.scatter_indices_batching_dims, strict=True)
    )
    after = stablehlo.ScatterDimensionNumbers.get(
        [],
        sorted(_moved(numbers.inserted_window_dims, order)),
        [dim for dim, _ in batching],
        [dim for _, dim in batching],
        _moved(numbers.scattered_dims_to_operand_dims, order),
        numbers.index_vector_dim,
    )
    return {"scatter_dimension_numbers": after, "indices_are_sorted": ir.BoolAttr.get(False)}


def _broadcast(op: ir.Operation, order: Order) -> dict[str, ir.Attribute]:
    dims = _moved(integers(op, "broadcast_dimensions", []), order)
    return {"broadcast_dimensions": ir.DenseI64ArrayAttr.get(dims)}


def _counted(op: ir.Operation, order: Order) -> dict[str, ir.Attribute]:
    [dim] = _moved([integer(op, "iota_dimension")], order)
    return {"iota_dimension": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), dim)}


_POINTWISE = _Rule(_of_pointwise)
_RULES = MappingProxyType(
    {
        _TRANSPOSE: _Rule(lambda op, order: [_permuted(integers(op, "permutation", []), order)]),
        "stablehlo.broadcast_in_dim": _Rule(lambda op, order: [], _broadcast),
        "stablehlo.iota": _Rule(lambda op, order: [], _counted),
        "stablehlo.constant": _Rule(_of_constant, _filled),
        "stablehlo.dot_general": _Rule(_of_dot, _swapped, swaps=True),
        "stablehlo.reduce": _Rule(_of_reduce),
        "stablehlo.scatter": _Rule(_of_scatter, _scattered),
    }
)
