"""Rewrites of XLA:GPU that need the entire block: of reductions, products, scatters, and their addends."""

from __future__ import annotations

from jaxlib.mlir import ir

from ..builder import Builder
from .dots import Product, merge_dots
from .expansions import add_epilogues
from .layouts import turn_results
from .reductions import split_reductions
from .scatters import merge_scatters
from .starts import give_own_starts
from .transposed_layouts import TransposedLayouts
from .transposes import Sinking


def rewrite_for_gpu(
    builder: Builder,
    block: ir.Block,
    products: dict[int, Product],
    reductions: dict[int, ir.Operation],
    is_function: bool,
) -> None:
    """Rewrite the block that was built from one of the IR.

    products, reductions: their data, by the number of the result. is_function: whether the block is a function's, not a
    body of control flow.
    """
    split_reductions(builder, block, reductions)
    merge_dots(builder, products)
    merge_scatters(builder)
    move_transposes(builder)
    add_epilogues(builder.block)
    give_own_starts(builder)
    if is_function:
        turn_results(builder.block, builder.by_columns)


def move_transposes(builder: Builder) -> None:
    """Move the transposes of a block as XLA does."""
    if not any(op.name == "transpose" for op in builder.block.ops):
        return
    sinking = Sinking(builder)
    if sinking.run():
        TransposedLayouts(sinking).assign()
