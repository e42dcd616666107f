"""Rewriting: small patterns, each of which replaces one op's result by an equal value; copies of ops and modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from jaxlib.mlir import ir

from exla_opt.ir import build
from exla_opt.ir.values import has_discardable_attributes
from exla_opt.ir.walk import all_blocks

# A pattern builds ops at the current insertion point and location and returns the equal value, or None and builds none.
Pattern = Callable[[ir.Operation], ir.Value | None]


def apply_patterns(module: ir.Module, patterns: Mapping[str, Sequence[Pattern]]) -> bool:
    """Rewrite every op for whose name a pattern matches, in program order; return whether anything changed.

    Ops with attributes that StableHLO does not know, such as a sharding, are skipped. Replaced ops stay, unused, for
    the caller to clean up.
    """
    changed = False
    for block in list(all_blocks(module)):
        for view in list(block.operations):
            op = view.operation
            found = patterns.get(op.name)
            if not found or next(iter(op.results[0].uses), None) is None or has_discardable_attributes(op):
                continue
            with ir.InsertionPoint(op), op.location:
                value = next((made for pattern in found if (made := pattern(op)) is not None), None)
            if value is None:
                continue
            if value.type != op.results[0].type:
                raise RuntimeError(f"a pattern made {value.type} of {op.name} of type {op.results[0].type}")
            op.results[0].replace_all_uses_with(value)
            changed = True
    return changed


def clone_on(
    op: ir.Operation, operands: Sequence[ir.Value], shape: Sequence[int], numbers: dict[str, list[int]]
) -> ir.Value:
    """Clone the op on other operands, with another result shape, and other integer lists as attributes."""
    made = op.clone(ip=ir.InsertionPoint.current).operation
    for index, value in enumerate(operands):
        made.operands[index] = value
    for name, values in numbers.items():
        made.attributes[name] = ir.DenseI64ArrayAttr.get(values)
    made.results[0].set_type(build.with_shape(build.tensor_of(op.results[0]), shape))
    result: ir.Value = made.results[0]
    return result


def remap(op: ir.Operation, values: Mapping[ir.Value, ir.Value]) -> None:
    """Replace an op's operands, also in its regions, by the given values."""

    def visit(inner: ir.Operation) -> ir.WalkResult:
        for index, value in enumerate(inner.operands):
            if value in values:
                inner.operands[index] = values[value]
        return ir.WalkResult.ADVANCE

    op.walk(visit)


def copy_of(module: ir.Module) -> ir.Module:
    """A copy of a module: the same attributes, functions and locations."""
    made = ir.Module.create(module.operation.location)
    attributes = module.operation.attributes
    for place in range(len(attributes)):
        made.operation.attributes[attributes[place].name] = attributes[place].attr
    with ir.InsertionPoint(made.body):
        for view in module.body.operations:
            view.operation.clone()
    return made


def restore(module: ir.Module, original: ir.Module) -> None:
    """Restore the module. original: a copy made before, which is empty afterwards."""
    for view in list(module.body.operations):
        view.operation.erase()
    for view in list(original.body.operations):
        module.body.append(view.operation.detach_from_parent())
