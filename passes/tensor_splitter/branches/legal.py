"""The results of a case that only later cases on the same index read, and in which of their branches."""

from __future__ import annotations

from dataclasses import dataclass

from jaxlib.mlir import ir

from exla_opt.ir.types import Types
from exla_opt.ir.walk import within
from exla_opt.ops.comparisons import asks_about

# Results below this fraction of the threshold stay: statistics, for example, from which much is computed in tiles.
_LIGHT = 16


@dataclass(frozen=True, slots=True)
class Reader:
    """A block of a later case that reads a result: the branch that runs after the same branch of the first case."""

    branch: int
    block: ir.Block


def find_residuals(case: ir.Operation, threshold: int, types: Types) -> dict[int, set[Reader]]:
    """The results that may be recomputed where they are read, by number, and their readers; none if all take less than
    the threshold, in bytes.

    A test for equality, in a reader or of what readers return, needs the exact bits of a result, which recomputing
    might not give.
    """
    # Attributes may have an entry for each result.
    if len(case.attributes) or sum(types.of(result).bytes for result in case.results) <= threshold:
        return {}
    found: dict[int, set[Reader]] = {}
    for number, result in enumerate(case.results):
        if types.of(result).bytes <= threshold // _LIGHT:
            continue
        readers = [_reader(case, use.owner.operation) for use in result.uses]
        known = {reader for reader in readers if reader is not None}
        if None in readers or not known or asks_about(result, case.block):
            continue
        found[number] = known
    return found if sum(types.of(case.results[number]).bytes for number in found) > threshold else {}


def _reader(case: ir.Operation, op: ir.Operation) -> Reader | None:
    """The branch of a later case in the same block that an op is in; None if the op is anywhere else."""
    later = within(op, case.block)
    if later is None or later == case or later.name != case.name or later.operands[0] != case.operands[0]:
        return None
    if len(later.regions) != len(case.regions):
        return None  # an index out of range selects the last branch
    blocks = [region.blocks[0] for region in later.regions]
    return next((Reader(number, block) for number, block in enumerate(blocks) if within(op, block) is not None), None)
