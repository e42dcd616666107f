"""Applies small patterns until none fits: each turns one op's result into an equal value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from jaxlib.mlir import ir

from exla_opt.ir.blocks import all_blocks

# A pattern makes ops at the current insertion point and location and returns the equal value, or None and makes none.
Pattern = Callable[[ir.Operation], ir.Value | None]


def apply_patterns(module: ir.Module, patterns: Mapping[str, Sequence[Pattern]]) -> bool:
    """Rewrite every op for whose name a pattern fits, in program order; whether anything was changed.

    Ops that carry attributes which StableHLO does not know, a sharding say, are left alone. What was replaced stays,
    unused, for the caller to clean up.
    """
    changed = False
    for block in list(all_blocks(module)):
        for view in list(block.operations):
            op = view.operation
            found = patterns.get(op.name)
            if not found or not len(list(op.results[0].uses)) or _has_notes(op):
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


def _has_notes(op: ir.Operation) -> bool:
    """Whether the op carries an attribute of another dialect."""
    return any("." in op.attributes[place].name for place in range(len(op.attributes)))


def maker(value: ir.Value, name: str) -> ir.Operation | None:
    """The op of this name that makes the value; None when another does, or when it carries notes."""
    owner = value.owner
    op = None if isinstance(owner, ir.Block) else owner.operation
    return op if op is not None and op.name == name and not _has_notes(op) else None
