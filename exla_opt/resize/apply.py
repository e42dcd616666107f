"""Gives a module other sizes: in the types of all values, and in attributes that contain sizes."""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir import build
from exla_opt.ir.walk import terminator, walk_functions
from exla_opt.ops.definition import NONE
from exla_opt.ops.rules import OPS
from exla_opt.ops.shardy import RULE, resize_rule
from exla_opt.ops.sizes import shapes_of
from exla_opt.resize.dimensions import Dimensions, Sizes


def resize(module: ir.Module, dimensions: Dimensions, sizes: Sizes) -> None:
    """Give every class of dimensions its new size, in place. The result is valid, but computes something else.

    sizes: of all classes, consistent, none above the current one. Slices keep their position in proportion, constants
    their first elements.
    """
    with ir.Location.unknown(module.context):
        _resize(module, dimensions, sizes)


def _resize(module: ir.Module, dimensions: Dimensions, sizes: Sizes) -> None:
    ops = list(walk_functions(module.operation))
    before = [shapes_of(op) for op in ops]
    for value, classes in dimensions.values:
        if isinstance(value.type, ir.RankedTensorType):
            value.set_type(build.with_shape(build.tensor_of(value), [sizes[number] for number in classes]))
    for op, shapes in zip(ops, before, strict=True):
        if shapes == shapes_of(op):
            continue
        if RULE in op.attributes:
            resize_rule(op)
        definition = OPS.get(op.name)
        if definition is not None and definition.resize is not NONE:
            definition.resize(op, shapes)
    for view in module.body.operations:
        if view.operation.name == "func.func":
            update_function_type(view.operation)


def update_function_type(function: ir.Operation) -> None:
    """Derive a function's type from its block's arguments and returned values."""
    blocks = list(function.regions[0].blocks)
    if len(blocks) != 1:
        return
    results = [value.type for value in terminator(blocks[0]).operands]
    with function.context:
        kind = ir.FunctionType.get([argument.type for argument in blocks[0].arguments], results)
        function.attributes["function_type"] = ir.TypeAttr.get(kind)
