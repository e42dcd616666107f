"""Ops of modules before and after the passes that remove redundant movements; prints a Markdown table.

python benchmarks/ops.py MODULE...
"""

from __future__ import annotations

import sys
from collections import Counter

from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.read import read_module
from exla_opt.options import Options
from exla_opt.pipeline import run_pipeline

MOVING = ("convert", "reshape", "broadcast_in_dim", "transpose", "slice")


def count(module: ir.Module) -> tuple[Counter[str], int]:
    """How many ops of each name there are, and how many of the moving ones have the type of their operand."""
    names: Counter[str] = Counter()
    same = 0

    def visit(op: ir.Operation) -> ir.WalkResult:
        nonlocal same
        name = op.name.removeprefix("stablehlo.")
        names[name] += op.name.startswith("stablehlo.")
        same += name in MOVING and op.operands[0].type == op.results[0].type and not is_turned(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return names, same


def is_turned(op: ir.Operation) -> bool:
    """Whether a transpose or broadcast of a square tensor changes its order."""
    for name in ("permutation", "broadcast_dimensions"):
        if name in op.attributes:
            dims = list(ir.DenseI64ArrayAttr(op.attributes[name]))
            return dims != sorted(dims)
    return False


def main() -> None:
    """Print two rows a module."""
    print(f"| module | ops | {' | '.join(MOVING)} | of x's own type |")
    print("| --- |" + " --- |" * (len(MOVING) + 2))
    for path in sys.argv[1:]:
        with new_context() as context:
            module = read_module(path, context).module
            for label, passes in (("normalised", ("normalise",)), ("after", ("rce", "reshape-sinker", "rce"))):
                run_pipeline(module, passes, Options())
                names, same = count(module)
                cells = [f"{path.rpartition('/')[2]}, {label}", names.total(), *(names[name] for name in MOVING), same]
                print(f"| {' | '.join(map(str, cells))} |")


if __name__ == "__main__":
    main()
