"""cse: MLIR's own pass: merges equal ops without effects, and removes dead ones.

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
