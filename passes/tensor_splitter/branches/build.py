"""Recomputes results of a case in the later branches that read them, and drops those that nothing reads any more."""

from __future__ import annotations

from collections.abc import Mapping

from jaxlib.mlir import ir

from exla_opt.ir.rewrite import remap
from exla_opt.ir.walk import operations_of, terminator, within

from .choose import Plan, values_behind
from .legal import Reader


def build_plan(case: ir.Operation, residuals: Mapping[int, set[Reader]], plan: Plan) -> None:
    """Rewrite the readers of the results that the plan drops; the case itself is replaced by a smaller one."""
    readers: dict[Reader, list[int]] = {}
    for number in plan.dropped:
        for reader in sorted(residuals[number], key=lambda each: each.branch):
            readers.setdefault(reader, []).append(number)
    for reader, numbers in readers.items():
        _recompute(case, reader, numbers, plan.stored[reader.branch])
    _drop_unused(case)


def _recompute(case: ir.Operation, reader: Reader, numbers: list[int], stored: Mapping[ir.Value, int]) -> None:
    """Compute these results of the case at the start of a block that reads them."""
    branch = case.regions[reader.branch].blocks[0]
    *ops, last = operations_of(branch)
    inside = {result for op in ops for result in op.results}
    targets = [last.operands[number] for number in numbers]
    needed = set(values_behind(targets, inside, stored)) - stored.keys()
    made = {value: case.results[number] for value, number in stored.items()}
    with ir.InsertionPoint.at_block_begin(reader.block):
        for op in ops:
            if needed.isdisjoint(op.results):
                continue
            copy = op.clone().operation
            remap(copy, made)
            # Another result of the op may be stored, which readers then keep reading.
            for old, new in zip(op.results, copy.results, strict=True):
                made.setdefault(old, new)
    for number, target in zip(numbers, targets, strict=True):
        for use in list(case.results[number].uses):
            if within(use.owner.operation, reader.block) is not None:
                use.owner.operation.operands[use.operand_number] = made.get(target, target)


def _drop_unused(case: ir.Operation) -> None:
    """Replace the case by one without the results that nothing reads."""
    kept = [number for number, result in enumerate(case.results) if next(iter(result.uses), None) is not None]
    for region in case.regions:
        last = terminator(region.blocks[0])
        with ir.InsertionPoint(last):
            ir.Operation.create(last.name, operands=[last.operands[number] for number in kept], loc=last.location)
        last.erase()
    smaller = ir.Operation.create(
        case.name,
        results=[case.results[number].type for number in kept],
        operands=list(case.operands),
        regions=len(case.regions),
        loc=case.location,
        ip=ir.InsertionPoint(case),
    )
    for old, new in zip(case.regions, smaller.regions, strict=True):
        old.blocks[0].append_to(new)
    for number, result in zip(kept, smaller.results, strict=True):
        case.results[number].replace_all_uses_with(result)
    case.erase()
