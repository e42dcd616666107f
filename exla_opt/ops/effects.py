"""Ops with effects beyond their results, so that the number and order of their runs are part of the program."""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.attributes import boolean

from .traits import Trait, has_trait

CUSTOM_CALL = "stablehlo.custom_call"


def has_side_effect(op: ir.Operation) -> bool:
    """Whether the op itself, its regions aside, draws a number, communicates or declares a side effect."""
    if op.name == CUSTOM_CALL:
        return boolean(op, "has_side_effect")
    return has_trait(op, Trait.ORDERED)


def has_order(op: ir.Operation) -> bool:
    """Whether the op, or one in its regions, must keep its order among such ops."""
    if not len(op.regions):
        return has_side_effect(op)
    found = False

    def visit(inner: ir.Operation) -> ir.WalkResult:
        nonlocal found
        found = found or has_side_effect(inner)
        return ir.WalkResult.INTERRUPT if found else ir.WalkResult.ADVANCE

    op.walk(visit)
    return found


def may_be_merged(op: ir.Operation) -> bool:
    """Whether XLA merges two such ops of equal operands and attributes: neither random, nor foreign, nor ordered."""
    return op.name != CUSTOM_CALL and not has_trait(op, Trait.ORDERED)
