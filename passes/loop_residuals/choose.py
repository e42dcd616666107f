"""Chooses what a loop stacks and what is recomputed: the fewest bytes from which all values read can be computed.

NOTE [The cut]

The values of a step are a network. Edges into a value have infinite capacity; storing a value costs its bytes, in every
step. The source leads to everything that a step cannot compute from its number: the carries, and results of ops that
must not run twice. The sink follows the values of the stacks that are read. The minimum cut is what to store, as Chen
et al. (2016) and functorch's partitioner choose residuals; of several, the one nearest to the sink, which recomputes
the least. A new state is the next step's carry: if one of the two is stored, so is the other.

Expensive ops (products of matrices, library calls) are first treated as not repeatable. They are only recomputed if
storing them takes a quarter more bytes than a cut that repeats them; small results are stored even then.

Equality tests (`ops.comparisons`) are only repeated if both sides are recomputed, from carries; otherwise their results
are values to store.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from exla_opt.ops.collectives import talks
from exla_opt.ops.comparisons import is_float_name
from exla_opt.remarks import Reason

from .cut import UNLIMITED, cheapest
from .readers import Obstacle
from .stacks import Stack
from .steps import Step, is_dear

# Storing must lower the bytes to this fraction, as recomputing takes time.
WORTHWHILE = 0.8
# The factor in bytes up to which a product of matrices is stored rather than recomputed.
DEAR = 1.25


@dataclass(frozen=True, slots=True)
class Source:
    """Where a value of a step can be read.

    stack: the one that holds it; None for the plan's new stack number `added`.
    shift: 0: at the step itself. 1: it is the next step's carry, and after the last step the loop's result. -1: it is
    the previous step's result, and before the first step the loop's initial value. carry: the number of that carry.
    """

    stack: Stack | None
    added: int = 0
    shift: int = 0
    carry: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """The stored and read values. replaced: stacks that are removed. added: values, by number, that get a stack.

    sources: for values that are read rather than computed, by number. before, after: bytes of the stacks.
    """

    replaced: tuple[Stack, ...]
    added: tuple[int, ...]
    sources: dict[int, Source]
    before: int
    after: int


def choose(step: Step, wanted: Sequence[Stack], kept: Sequence[Stack], light: int) -> Plan | Obstacle:
    """The best plan that removes as many of the wanted stacks as is worthwhile, or why there is none.

    kept: other stacks of the loop, which stay in any case. light: bytes of a stack that does not matter.
    """
    targets = sorted({step.number[stack.value] for stack in wanted if stack.value in step.number})
    free = _free_sources(step, kept)
    for asks_again in (True, False):
        problem = _Problem(step, targets, free, asks_again)
        cheap, dear = (problem.cut(repeats_dear, light) for repeats_dear in (False, True))
        stored = cheap if problem.bytes_of(cheap) <= DEAR * problem.bytes_of(dear) else dear
        before, after = sum(stack.bytes for stack in wanted), problem.bytes_of(stored)
        if after > WORTHWHILE * before:
            break
        plan = _plan(problem, stored, wanted, before, after)
        if not asks_again or _answers_alike(step, plan, targets):
            return plan
    return _why_not(problem)


def _answers_alike(step: Step, plan: Plan, targets: Sequence[int]) -> bool:
    """Whether all repeated tests are on numbers that are all recomputed, from carries only.

    A stored maximum need not equal any of the numbers that it was taken of, once they are recomputed.
    """
    stored: set[int] = set()
    for value in sorted(step.slice_of(targets, plan.sources)):
        if value in plan.sources:
            if step.definers[value] >= 0 and is_float_name(step.dtypes[value]):
                stored.add(value)
        elif any(other in stored for other in step.operands_of(value)):
            if step.definers[value] >= 0 and step.asks[step.definers[value]]:
                return False
            stored.add(value)
    return True


def _why_not(problem: _Problem) -> Obstacle:
    """The reason why a cut gains too little."""
    step = problem.step
    for value in problem.slice:
        position = step.definers[value]
        if position >= 0 and (step.acts[position] or (step.asks[position] and not problem.asks_again)):
            why = "would communicate again" if talks(step.ops[position]) else "must not run twice"
            return Obstacle(Reason("EX603", f"an op {why}, and its result is as big"), step.ops[position])
    text = "storing what it is computed from takes as much memory; jax.checkpoint around several steps needs less"
    return Obstacle(Reason("EX604", text))


def _free_sources(step: Step, kept: Sequence[Stack]) -> dict[int, Source]:
    """The values that can be read from stacks that stay."""
    found: dict[int, Source] = {}
    for stack in kept:
        if stack.value in step.number:
            found[step.number[stack.value]] = Source(stack)
    for carry, returned in enumerate(step.returned):
        if returned is None or returned == carry:
            continue
        if returned in found and carry not in found and found[returned].shift == 0:
            found[carry] = Source(found[returned].stack, shift=-1, carry=carry)
        elif carry in found and returned not in found and found[carry].shift == 0:
            found[returned] = Source(found[carry].stack, shift=1, carry=carry)
    return found


class _Problem:
    """The network of one loop's step.

    asks_again: whether equality tests may be repeated.
    next_of: by the number of a new state, the carry that it becomes, if that carry is needed too.
    """

    def __init__(self, step: Step, targets: Sequence[int], free: dict[int, Source], asks_again: bool):
        self.step = step
        self.asks_again = asks_again
        self.targets = targets
        self.free = free
        self.slice = sorted(step.slice_of(targets, free))
        needed = set(self.slice)
        begins = {value for value in self.slice if self._begins(value, False, 0)}
        tainted: set[int] = set()
        for value in self.slice:
            if value in begins or (value not in free and any(other in tainted for other in step.operands_of(value))):
                tainted.add(value)
        self.next_of = {
            returned: carry
            for carry, returned in reversed(list(enumerate(step.returned)))
            if carry in begins and carry in needed and returned in tainted and step.definers[returned] >= 0
        }

    def _begins(self, value: int, keeps_dear: bool, light: int) -> bool:
        """Whether a value cannot be computed from its operands' values."""
        step = self.step
        if value in self.free or value in step.same:
            return False
        if step.definers[value] < 0:
            return not step.is_counted(value)
        position = step.definers[value]
        if step.acts[position] or (step.asks[position] and not self.asks_again):
            return True
        return (keeps_dear or self.stacked(value) <= light) and is_dear(step.ops[position])

    def stacked(self, value: int) -> int:
        """The bytes of a stack of a value; infinite unless it is a tensor of known size."""
        return self.step.bytes[value] * self.step.counting.trips or UNLIMITED

    def bytes_of(self, values: set[int]) -> int:
        return sum(self.stacked(value) for value in values)

    def cut(self, repeats_dear: bool, light: int) -> set[int]:
        """The values to store."""

        def reads(value: int) -> Iterable[int] | None:
            if value in self.next_of:
                return [self.next_of[value]]
            if self._begins(value, not repeats_dear, light):
                return None
            return [] if value in self.free else self.step.operands_of(value)

        return cheapest(self.slice, self.targets, self.stacked, reads)


def _plan(problem: _Problem, stored: set[int], wanted: Sequence[Stack], before: int, after: int) -> Plan:
    step = problem.step
    existing: dict[int, Stack] = {}
    for stack in wanted:
        existing.setdefault(step.number.get(stack.value, -1), stack)
    sources = dict(problem.free)
    added: list[int] = []
    staying: set[int] = set()
    for value in sorted(stored):
        found = _existing_source(step, value, existing)
        if found is None:
            found = Source(None, added=len(added))
            added.append(value)
        elif found.stack is not None:
            staying.add(found.stack.carry)
        sources[value] = found
    for value, carry in problem.next_of.items():
        if carry in sources and value not in sources:
            found = sources[carry]
            sources[value] = Source(found.stack, found.added, found.shift + 1, carry)
    replaced = tuple(stack for stack in wanted if stack.carry not in staying)
    return Plan(replaced, tuple(added), sources, before, after)


def _existing_source(step: Step, value: int, existing: dict[int, Stack]) -> Source | None:
    """A stack that holds a value, or the state after or before it."""
    if value in existing:
        return Source(existing[value])
    if step.definers[value] < 0 and step.returned[value] in existing:
        return Source(existing[step.returned[value] or 0], shift=-1, carry=value)
    if step.definers[value] < 0:
        return None
    for carry, returned in enumerate(step.returned):
        if returned == value and carry in existing:
            return Source(existing[carry], shift=1, carry=carry)
    return None
