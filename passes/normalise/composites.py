"""Turns composites that stand for a chlo op back into that op.

A portable artifact writes `chlo.top_k` as a `stablehlo.composite` with a decomposition, for readers that lack the op.
XLA lowers the op better than its decomposition, and the definitions of ops do not cover composites.
"""

from __future__ import annotations

from jaxlib.mlir import ir

_PREFIX = "chlo."


def restore_chlo_ops(module: ir.Module) -> None:
    """Replace every composite named after a registered chlo op by the op, keeping the location.

    A composite whose attributes do not make a valid op is left unchanged.
    """
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "stablehlo.composite" and _name(op).startswith(_PREFIX):
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for op in found:
        _restore(op)


def _name(op: ir.Operation) -> str:
    return ir.StringAttr(op.attributes["name"]).value


def _restore(op: ir.Operation) -> None:
    if not op.context.is_registered_operation(_name(op)):
        return
    attributes: dict[str, ir.Attribute] = {}
    if "composite_attributes" in op.attributes:
        given = ir.DictAttr(op.attributes["composite_attributes"])
        attributes = {given[index].name: given[index].attr for index in range(len(given))}
    made = ir.Operation.create(
        _name(op),
        results=[result.type for result in op.results],
        operands=list(op.operands),
        attributes=attributes,
        loc=op.location,
        ip=ir.InsertionPoint(op),
    )
    try:
        made.verify()
    except ir.MLIRError:
        made.erase()
        return
    for old, new in zip(op.results, made.results, strict=True):
        old.replace_all_uses_with(new)
    op.erase()
