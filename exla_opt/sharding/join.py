"""The module of all devices around a local program, in the terms of the module's own partitioner."""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir

from exla_opt.ir.rewrite import copy_of, remap
from exla_opt.ir.walk import main_function, operations_of, terminator

from .equal import merge_equal_collectives
from .gspmd import CONSTRAINT, ENTER, GSPMD, LEAVE, is_gspmd
from .mesh import Mesh, Sharding
from .shardings import text_of
from .tile_assignment import spelled

_MANUAL = "{manual}"


def join(
    original: ir.Module, local: ir.Module, mesh: Mesh, arguments: Sequence[Sharding], results: Sequence[Sharding]
) -> ir.Module:
    """A module with the signature of `original`, each device of which runs `local`; both are unchanged.

    arguments, results: their shardings.
    """
    made = copy_of(original)
    function = main_function(made)
    block = function.regions[0].blocks[0]
    kinds = [each.type for each in terminator(block).operands]
    body = main_function(local).regions[0].blocks[0]
    write = _in_gspmd if is_gspmd(original) else _in_shardy
    for op in reversed(operations_of(block)):
        op.erase()
    with made.context, function.location, ir.InsertionPoint(block):
        ir.Operation.create("func.return", operands=write(block, body, kinds, mesh, arguments, results))
    merge_equal_collectives(made)
    made.operation.verify()
    return made


def _in_shardy(
    block: ir.Block,
    body: ir.Block,
    kinds: Sequence[ir.Type],
    mesh: Mesh,
    arguments: Sequence[Sharding],
    results: Sequence[Sharding],
) -> list[ir.Value]:
    """Build one manual computation over all axes."""
    axes = ", ".join(f'"{name}"' for name, _ in mesh.axes)
    attributes = {
        "in_shardings": _per_value(mesh, arguments),
        "out_shardings": _per_value(mesh, results),
        "manual_axes": ir.Attribute.parse(f"#sdy<manual_axes{{{axes}}}>"),
    }
    computation = ir.Operation.create("sdy.manual_computation", kinds, list(block.arguments), attributes, regions=1)
    inner = computation.regions[0].blocks.append(
        *[each.type for each in body.arguments], arg_locs=[each.location for each in body.arguments]
    )
    with ir.InsertionPoint(inner):
        ir.Operation.create("sdy.return", operands=_copied(body, inner.arguments))
    return list(computation.results)


def _in_gspmd(
    block: ir.Block,
    body: ir.Block,
    kinds: Sequence[ir.Type],
    mesh: Mesh,
    arguments: Sequence[Sharding],
    results: Sequence[Sharding],
) -> list[ir.Value]:
    """Build the calls that begin and end the local computation."""
    own = []
    for argument, inner, sharding in zip(block.arguments, body.arguments, arguments, strict=True):
        spread = _call(CONSTRAINT, argument, argument.type, spelled(sharding, mesh))
        own.append(_call(ENTER, spread, inner.type, _MANUAL))
    returned = _copied(body, own)
    found = []
    for value, kind, sharding in zip(returned, kinds, results, strict=True):
        marked = _call(CONSTRAINT, value, value.type, _MANUAL)
        found.append(_call(LEAVE, marked, kind, spelled(sharding, mesh)))
    return found


def _call(target: str, value: ir.Value, kind: ir.Type, sharding: str) -> ir.Value:
    attributes: dict[str, ir.Attribute] = {
        "call_target_name": ir.StringAttr.get(target),
        GSPMD: ir.StringAttr.get(sharding),
    }
    made: ir.Value = ir.Operation.create("stablehlo.custom_call", [kind], [value], attributes).results[0]
    return made


def _copied(body: ir.Block, arguments: Sequence[ir.Value]) -> list[ir.Value]:
    """Clone a block's ops at the current insertion point, and return the operands of its terminator."""
    values: dict[ir.Value, ir.Value] = dict(zip(body.arguments, arguments, strict=True))
    for op in operations_of(body)[:-1]:
        copy = op.clone(ip=ir.InsertionPoint.current).operation
        remap(copy, values)
        values.update(zip(op.results, copy.results, strict=True))
    return [values[each] for each in terminator(body).operands]


def _per_value(mesh: Mesh, shardings: Sequence[Sharding]) -> ir.Attribute:
    return ir.Attribute.parse(f"#sdy.sharding_per_value<[{', '.join(text_of(each, mesh) for each in shardings)}]>")
