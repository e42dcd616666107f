"""An overview of a module: its largest tensor and its loops; and remarks, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from jaxlib.mlir import ir

from exla_opt.explanations import NEVER_IN_MEMORY, OTHER_REWRITES
from exla_opt.ir.types import TensorType, Types
from exla_opt.remarks import Kind, Remark

_LOOP = "stablehlo.while"


@dataclass(frozen=True, slots=True)
class Summary:
    """What a module computes outside loops, and the number of its loops.

    largest: the largest tensor that is no function result, if any. types: of all tensors, results included.
    """

    largest: TensorType | None
    loops: int
    types: frozenset[TensorType]


def summarise(module: ir.Module) -> Summary:
    """Measure the module. Tensors inside a loop count as slices; a function's results must exist unsplit."""
    types = Types()
    largest: TensorType | None = None
    loops = 0
    seen: set[TensorType] = set()
    stack = [(module.operation, False)]
    while stack:
        op, in_loop = stack.pop()
        is_loop = op.name == _LOOP
        loops += is_loop
        returned = _returned(op) if op.name == "func.func" else frozenset()
        for region in op.regions:
            for block in region.blocks:
                for view in block.operations:
                    inner = view.operation
                    if len(inner.regions):
                        stack.append((inner, in_loop or is_loop))
                    if in_loop or is_loop:
                        continue
                    for result in inner.results:
                        made = types.of(result)
                        seen.add(made)
                        if result not in returned and (largest is None or made.bytes > largest.bytes):
                            largest = made
    return Summary(largest, loops, frozenset(seen))


def _returned(function: ir.Operation) -> frozenset[ir.Value]:
    values: list[ir.Value] = []
    for block in function.regions[0].blocks:
        *_, last = block.operations
        values += last.operation.operands
    return frozenset(values)


def staying(remarks: Sequence[Remark], after: Summary) -> list[Remark]:
    """The distinct missed remarks on tensors that the rewritten module, `after`, keeps in memory.

    The refusal of another rewrite says nothing of a tensor that was split after it.
    """
    types = {str(one) for one in after.types}
    return [
        remark
        for remark in dict.fromkeys(remarks)
        if remark.kind is Kind.MISSED
        and remark.code not in NEVER_IN_MEMORY
        and (remark.code not in OTHER_REWRITES or remark.tensor in types)
    ]


def count_remarks(remarks: Sequence[Remark], kind: Kind) -> list[tuple[Remark, int]]:
    """The distinct remarks of one kind, largest tensor first, and how often each occurred.

    Remarks on equal tensors with the same reason and location look the same to the user.
    """
    counts = Counter(remark for remark in remarks if remark.kind is kind)
    return sorted(counts.items(), key=lambda item: -item[0].bytes)
