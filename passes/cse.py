"""cse: MLIR's own: of equal ops without effects one is left, and dead ones go.

`rce` finds more: equal up to the order of operands. For pipelines that are compared with those of mlir-opt.
"""

from __future__ import annotations

from jaxlib.mlir import ir
from jaxlib.mlir.passmanager import PassManager

from exla_opt.options import Options
from exla_opt.remarks import Remark


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Run the pass in place; it makes no remarks."""
    with module.context:
        PassManager.parse("builtin.module(cse)").run(module.operation)
    return []
