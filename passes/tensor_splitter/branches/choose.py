"""What the branches of a case return for later ones: the least from which these can compute all that they read.

In each branch that is a minimum cut, as in loop-residuals: through its values, from what it captures and what ops
compute that must not run twice, to the results that are read. Only what is a result already can be stored; a captured
value costs its bytes if nothing else keeps it until then. Products of matrices and other expensive ops run again only
if their results take a quarter more bytes than what else would be stored.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from jaxlib.mlir import ir

from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import operands_of, operations_of, terminator, within
from exla_opt.ops.collectives import talks
from exla_opt.ops.comparisons import asks_inside
from exla_opt.ops.effects import has_order
from exla_opt.ops.traits import Trait, has_trait
from exla_opt.passes.loop_residuals.choose import DEAR, WORTHWHILE
from exla_opt.passes.loop_residuals.cut import UNLIMITED, cheapest
from exla_opt.passes.loop_residuals.steps import is_dear

from .legal import Reader


@dataclass(frozen=True, slots=True)
class Plan:
    """What is recomputed. stored: by branch, the values of its block that later branches read as results of the case,
    and the number of that result. dropped: the numbers of the results that are not needed any more."""

    stored: tuple[dict[ir.Value, int], ...]
    dropped: tuple[int, ...]


def choose(case: ir.Operation, residuals: Mapping[int, set[Reader]], types: Types) -> Plan | None:
    """The plan that stores the least, if it stores much less than the residuals take."""
    branches = [_Branch(case, number, residuals, types) for number in range(len(case.regions))]
    repeated, all_repeated = ([branch.cut(dear) for branch in branches] for dear in (False, True))
    least = _bytes_of(case, branches, all_repeated, types)
    cuts = repeated if _bytes_of(case, branches, repeated, types) <= DEAR * least else all_repeated
    before = sum(types.of(case.results[number]).bytes for number in residuals)
    if _bytes_of(case, branches, cuts, types) > WORTHWHILE * before:
        return None
    stored = tuple(branch.results_among(cut) for branch, cut in zip(branches, cuts, strict=True))
    staying = {number for results in stored for number in results.values()}
    return Plan(stored, tuple(number for number in residuals if number not in staying))


def _bytes_of(case: ir.Operation, branches: list[_Branch], cuts: list[set[ir.Value]], types: Types) -> int:
    """The bytes that are stored, or kept: a result, or a captured value, once for all branches."""
    pairs = list(zip(branches, cuts, strict=True))
    results = {number for branch, cut in pairs for number in branch.results_among(cut).values()}
    captured = {value: branch.cost(value) for branch, cut in pairs for value in cut if value not in branch.returned}
    residuals = branches[0].residuals
    return sum(types.of(case.results[number]).bytes for number in results & residuals) + sum(captured.values())


class _Branch:
    """The values that one branch of a case computes, and those that it captures.

    returned: by value that it computes and returns, the number of the result; one that stays, if there is one.
    targets: the values that later branches read.
    """

    def __init__(self, case: ir.Operation, branch: int, residuals: Mapping[int, set[Reader]], types: Types):
        block = case.regions[branch].blocks[0]
        self.case = case
        self.types = types
        self.residuals = frozenset(residuals)
        self.inside = {result for op in operations_of(block) for result in op.results}
        last = list(terminator(block).operands)
        self.returned: dict[ir.Value, int] = {}
        for number in sorted(range(len(last)), key=residuals.__contains__):
            if last[number] in self.inside:
                self.returned.setdefault(last[number], number)
        read = [number for number, readers in residuals.items() if any(each.branch == branch for each in readers)]
        self.targets = dict.fromkeys(last[number] for number in read)

    def results_among(self, values: Collection[ir.Value]) -> dict[ir.Value, int]:
        """Those of the values that are results of the case, with their numbers."""
        return {value: self.returned[value] for value in values if value in self.returned}

    def cut(self, repeats_dear: bool) -> set[ir.Value]:
        """The values to store, or to keep, for the least cost."""
        values = values_behind(self.targets, self.inside, ())
        number = {value: place for place, value in enumerate(values)}

        def reads(place: int) -> list[int] | None:
            op = defining_op(values[place])
            if values[place] not in self.inside or op is None or not _may_run_again(op, repeats_dear):
                return None
            return [number[value] for value in operands_of(op) if value in number]

        targets = [number[value] for value in self.targets]
        cut = cheapest(range(len(values)), targets, lambda place: self.cost(values[place]), reads)
        return {values[place] for place in cut}

    def cost(self, value: ir.Value) -> int:
        """The bytes that it takes to have a value when a later branch reads it."""
        size = self.types.of(value).bytes
        if value not in self.inside:
            return 0 if _is_alive_later(value, self.case) else size
        if value not in self.returned:
            return UNLIMITED
        return size if self.returned[value] in self.residuals else 0


def values_behind(
    values: Collection[ir.Value], inside: Collection[ir.Value], stops: Collection[ir.Value]
) -> list[ir.Value]:
    """All values that these are computed from, with them, in a branch, and what it captures for them.

    inside: what the branch computes. stops: values whose operands do not count.
    """
    found = dict.fromkeys(values)
    queue = list(found)
    while queue:
        value = queue.pop()
        op = defining_op(value)
        if op is None or value not in inside or value in stops:
            continue
        fresh = [operand for operand in operands_of(op) if operand not in found]
        found.update(dict.fromkeys(fresh))
        queue += fresh
    return list(found)


def _may_run_again(op: ir.Operation, repeats_dear: bool) -> bool:
    """Whether the op gives the same result again, and may take the time."""
    if has_order(op) or talks(op) or asks_inside(op):
        return False
    return repeats_dear or not is_dear(op)


def _is_alive_later(value: ir.Value, case: ir.Operation) -> bool:
    """Whether something keeps a captured value until after the case, or it takes no memory."""
    op = defining_op(value)
    if op is None or has_trait(op, Trait.GENERATES) or op.block != case.block:
        return True
    readers = {within(use.owner.operation, case.block) for use in value.uses}
    return any(case.is_before_in_block(reader) for reader in readers if reader is not None and reader != case)
