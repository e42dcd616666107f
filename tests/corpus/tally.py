"""What became of every tensor over the threshold: split, left alone for a reason that is stated, or left in silence."""

from __future__ import annotations

from collections import Counter

from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.locations import describe
from exla_opt.ir.read import parse_module
from exla_opt.ir.types import Types
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.remarks import Kind

SPLIT, SILENT = "split", "silent"
# How many tensors there are of (producing op, outcome, op that stands in the way). The outcome is SPLIT, SILENT or
# the code of the remark.
Tally = Counter[tuple[str, str, str]]

_SPLITTER = "tensor-splitter"
_BEFORE = DEFAULT_PASSES[: DEFAULT_PASSES.index(_SPLITTER)]


def tally(text: str, options: Options) -> Tally:
    """What the splitter, with the passes before it, makes of the module's big tensors."""
    with new_context() as context:
        module = parse_module("<module>", text.encode(), context).module
        run_pipeline(module, _BEFORE, options)
        number_ops(module)
        before = big_tensors(module, options)
        remarks = run_pipeline(module, [_SPLITTER], options).remarks
        left = big_tensors(module, options)
        reported = {(remark.location, remark.tensor): remark for remark in remarks if remark.kind is Kind.MISSED}
    found: Tally = Counter()
    for place, kind, op in before:
        if remark := reported.get((place, kind)):
            found[op, remark.code, remark.stopped_by] += 1
        elif (place, kind, op) not in left:
            found[op, SPLIT, ""] += 1
        else:
            found[op, SILENT, ""] += 1
    return found


def number_ops(module: ir.Module) -> None:
    """Give every op a location of its own, which its copies keep and remarks name."""
    number = 0

    def visit(op: ir.Operation) -> ir.WalkResult:
        nonlocal number
        number += 1
        op.location = ir.Location.name(f"op {number}", context=module.context)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)


def big_tensors(module: ir.Module, options: Options) -> set[tuple[str, str, str]]:
    """(number, type, name) of the ops with a result over the threshold that somebody reads; constants are no work."""
    types = Types()
    found = set()

    def visit(op: ir.Operation) -> ir.WalkResult:
        for result in op.results:
            kind = types.of(result)
            if kind.bytes > options.size_threshold and op.name != "stablehlo.constant" and any(result.uses):
                found.add((describe(op), str(kind), op.name))
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found
