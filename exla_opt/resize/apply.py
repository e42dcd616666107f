"""Gives a module other sizes: the types of all values, and the attributes that sizes stand in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy, stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integers, splat_text
from exla_opt.ir.walk import walk_functions
from exla_opt.ops.shardy import RULE
from exla_opt.resize.dimensions import Dimensions, Sizes

Shape = Sequence[int]
# Adapts an op whose types are the new ones already. The shapes are those of before: of its operands, then its results.
_Adapt = Callable[[ir.Operation, Sequence[Shape]], None]


def resize(module: ir.Module, dimensions: Dimensions, sizes: Sizes) -> None:
    """Give every class of dimensions its new size, in place. The result is valid, and computes something else.

    sizes: of all classes, consistent, none above the present one. Slices keep their place in proportion, constants
    their first elements.
    """
    with ir.Location.unknown(module.context):
        _resize(module, dimensions, sizes)


def _resize(module: ir.Module, dimensions: Dimensions, sizes: Sizes) -> None:
    ops = list(walk_functions(module.operation))
    before = [_shapes(op) for op in ops]
    for value, classes in dimensions.values:
        if isinstance(value.type, ir.RankedTensorType):
            value.set_type(build.with_shape(build.tensor_of(value), [sizes[number] for number in classes]))
    for op, shapes in zip(ops, before, strict=True):
        if shapes == _shapes(op):
            continue
        if RULE in op.attributes:
            _sharding_rule(op)
        if op.name in _ADAPTED:
            _ADAPTED[op.name](op, shapes)
    for view in module.body.operations:
        if view.operation.name == "func.func":
            update_function_type(view.operation)


def update_function_type(function: ir.Operation) -> None:
    """Make a function's type that of its block's arguments and of what it returns."""
    blocks = list(function.regions[0].blocks)
    if len(blocks) != 1:
        return
    *_, last = blocks[0].operations
    results = [value.type for value in last.operation.operands]
    with function.context:
        kind = ir.FunctionType.get([argument.type for argument in blocks[0].arguments], results)
        function.attributes["function_type"] = ir.TypeAttr.get(kind)


def _shapes(op: ir.Operation) -> list[Shape]:
    return [
        tuple(value.type.shape) if isinstance(value.type, ir.RankedTensorType) else ()
        for value in (*op.operands, *op.results)
    ]


def _sharding_rule(op: ir.Operation) -> None:
    """The rule that a custom call brings names the sizes of its letters; one that merges letters is dropped."""
    rule = sdy.OpShardingRuleAttr(op.attributes[RULE])
    sizes = list(rule.factor_sizes)
    mappings = [*rule.operand_mappings, *rule.result_mappings]
    for mapping, shape in zip(mappings, _shapes(op), strict=True):
        for dim, size in zip(sdy.TensorMappingAttr(mapping).dim_mappings, shape, strict=True):
            letters = list(sdy.DimMappingAttr(dim).factor_indices)
            if len(letters) != 1:
                del op.attributes[RULE]
                return
            sizes[letters[0]] = size
    op.attributes[RULE] = sdy.OpShardingRuleAttr.get(
        sizes,
        rule.operand_mappings,
        rule.result_mappings,
        rule.reduction_factors,
        rule.need_replication_factors,
        rule.permutation_factors,
        rule.blocked_propagation_factors,
        rule.is_custom,
    )


def _set_numbers(op: ir.Operation, name: str, numbers: Sequence[int]) -> None:
    op.attributes[name] = ir.DenseI64ArrayAttr.get(list(numbers), op.context)


def _elements(array: Any, kind: ir.RankedTensorType) -> ir.Attribute:
    data: Any = np.ascontiguousarray(array)  # a buffer, which its stubs do not tell before Python 3.12
    made: ir.Attribute = ir.DenseElementsAttr.get(
        data, type=kind.element_type, shape=list(kind.shape), context=kind.context
    )
    return made


def _constant(op: ir.Operation, _: Sequence[Shape]) -> None:
    kind = build.tensor_of(op.results[0])
    if isinstance(kind.element_type, ir.ComplexType):
        text = splat_text(op)
        assert text is not None
        with ir.InsertionPoint(op), op.location:
            op.results[0].replace_all_uses_with(build.splat_of_text(kind, text))
        op.erase()
        return
    value = ir.DenseElementsAttr(op.attributes["value"])
    if value.is_splat:
        op.attributes["value"] = ir.DenseElementsAttr.get_splat(kind, value.get_splat_value())
        return
    part = np.asarray(value)[tuple(map(slice, kind.shape))]
    op.attributes["value"] = _elements(part, kind)


def _slice(op: ir.Operation, before: Sequence[Shape]) -> None:
    names = ("start_indices", "limit_indices", "strides")
    starts, limits, strides = (integers(op, name, []) for name in names)
    new = _shapes(op)
    for dim, (old, size, length, stride) in enumerate(zip(before[0], *new, strides, strict=True)):
        if (old, before[1][dim]) == (size, length):
            continue
        span = (length - 1) * stride + 1
        last = size - span
        starts[dim] = last if limits[dim] == old else min(starts[dim] * size // old, last)
        limits[dim] = starts[dim] + span
    _set_numbers(op, names[0], starts)
    _set_numbers(op, names[1], limits)


def _pad(op: ir.Operation, before: Sequence[Shape]) -> None:
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    low, high, interior = (integers(op, name, []) for name in names)
    operand, _, result = _shapes(op)
    for dim, (length, size) in enumerate(zip(operand, result, strict=True)):
        if (before[0][dim], before[2][dim]) == (length, size):
            continue
        missing = size - length - max(length - 1, 0) * interior[dim]
        low[dim] = min(low[dim], missing) if high[dim] else missing
        high[dim] = missing - low[dim]
    _set_numbers(op, names[0], low)
    _set_numbers(op, names[1], high)


def _dynamic_slice(op: ir.Operation, _: Sequence[Shape]) -> None:
    _set_numbers(op, "slice_sizes", _shapes(op)[-1])


def _gather(op: ir.Operation, _: Sequence[Shape]) -> None:
    numbers = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    result = _shapes(op)[-1]
    without = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    sizes = integers(op, "slice_sizes", [])
    windows = [dim for dim in range(len(sizes)) if dim not in without]
    for dim, place in zip(windows, numbers.offset_dims, strict=True):
        sizes[dim] = result[place]
    _set_numbers(op, "slice_sizes", sizes)


def _running_window(op: ir.Operation, before: Sequence[Shape]) -> None:
    """The only windows along dimensions that change are those that grow to the whole."""
    windows = integers(op, "window_dimensions", [])
    padding = integers(op, "padding", [0] * (2 * len(windows)))
    for dim, (old, size) in enumerate(zip(before[0], _shapes(op)[0], strict=True)):
        if old != size and windows[dim] != 1:
            windows[dim], padding[2 * dim] = size, size - 1
    _set_numbers(op, "window_dimensions", windows)
    pairs = ir.RankedTensorType.get([len(windows), 2], ir.IntegerType.get_signless(64, op.context))
    op.attributes["padding"] = _elements(np.array(padding, np.int64), pairs)


def _top_k(op: ir.Operation, _: Sequence[Shape]) -> None:
    sixty_four = ir.IntegerType.get_signless(64, op.context)
    op.attributes["k"] = ir.IntegerAttr.get(sixty_four, _shapes(op)[-1][-1])


_ADAPTED: dict[str, _Adapt] = {
    "chlo.constant": _constant,
    "chlo.top_k": _top_k,
    "stablehlo.constant": _constant,
    "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.gather": _gather,
    "stablehlo.pad": _pad,
    "stablehlo.reduce_window": _running_window,
    "stablehlo.slice": _slice,
}
