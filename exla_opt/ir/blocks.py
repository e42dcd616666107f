"""The blocks that hold the ops of a module."""

from __future__ import annotations

from collections.abc import Iterator

from jaxlib.mlir import ir

from exla_opt.analysis.graph import CONTROL_FLOW


def all_blocks(module: ir.Module) -> Iterator[ir.Block]:
    """The blocks of all functions and of the control flow in them; not the bodies of reduce, sort and the like."""
    stack = [module.operation]
    while stack:
        op = stack.pop()
        for region in op.regions:
            for block in region.blocks:
                if op.name != "builtin.module":
                    yield block
                stack += [
                    view.operation
                    for view in block.operations
                    if view.operation.name in CONTROL_FLOW or view.operation.name == "func.func"
                ]
