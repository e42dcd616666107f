"""Removes dead ops and merges equal ones, in time linear in the module."""

from __future__ import annotations

from collections.abc import Hashable

from jaxlib.mlir import ir, passmanager

from exla_opt.ir.walk import CONTROL_FLOW

_PIPELINE = "builtin.module(canonicalize,cse,symbol-dce)"
# MLIR distinguishes ops by name, operands, attributes and types before it compares their regions, each with each: loops
# and branches that start from the same values all look alike to it. This many of them take negligible time.
_FEW = 256
_MARK = "exla.alike"


def clean_up(module: ir.Module) -> None:
    """Drop dead ops and merge equal ones."""
    kinds = _mark(module)
    _run(module)
    while kinds:
        # Ops that became equal may make two loops equal.
        _unmark(module)
        now = _mark(module)
        if now == kinds:
            break
        kinds = now
        _run(module)
    if kinds:
        _unmark(module)


def _run(module: ir.Module) -> None:
    with module.context:
        passmanager.PassManager.parse(_PIPELINE).run(module.operation)


def _control_flow(module: ir.Module) -> list[ir.Operation]:
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name in CONTROL_FLOW:
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found


def _mark(module: ir.Module) -> int:
    """Give control flow that differs in the captures of its regions a different attribute.

    Returns the number of kinds; 0, without marking anything, if there is little control flow.
    """
    ops = _control_flow(module)
    if len(ops) < _FEW:
        return 0
    kinds: dict[Hashable, int] = {}
    with module.context:
        number_type = ir.IntegerType.get_signless(64)
        for op in ops:
            key = (op.name, *op.operands, *_captured_directly(op))
            op.attributes[_MARK] = ir.IntegerAttr.get(number_type, kinds.setdefault(key, len(kinds)))
    return len(kinds)


def _captured_directly(op: ir.Operation) -> list[ir.Value]:
    """The values that an op's regions capture, without those that only nested regions use."""
    inside: set[ir.Value] = set()
    found: dict[ir.Value, None] = {}
    for region in op.regions:
        for block in region.blocks:
            inside.update(block.arguments)
            for view in block.operations:
                inner = view.operation
                found.update(dict.fromkeys(operand for operand in inner.operands if operand not in inside))
                inside.update(inner.results)
    return list(found)


def _unmark(module: ir.Module) -> None:
    for op in _control_flow(module):
        if _MARK in op.attributes:
            del op.attributes[_MARK]
