"""Visits the blocks of a module, outer loops first, and collects the remarks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from jaxlib.mlir import ir

from exla_opt.ir.attributes import devices_of
from exla_opt.ir.clean_up import clean_up
from exla_opt.ir.locations import describe
from exla_opt.ir.loops import dead_carries, drop_carries
from exla_opt.ir.rewrite import apply_patterns, copy_of, restore
from exla_opt.ir.types import Types
from exla_opt.ir.walk import CONTROL_FLOW, inside_out, walk
from exla_opt.memory.peak import predict
from exla_opt.ops.comparisons import asks, asks_about
from exla_opt.ops.effects import has_order
from exla_opt.options import Options
from exla_opt.passes import rce
from exla_opt.remarks import Kind, Reason, Remark

from .build import build_plan
from .choose import Plan, choose
from .indices import Indices
from .nest import build_segments
from .origin import remark
from .prepare import prepare
from .readers import Obstacle, obstacle, step_readers
from .segments import WORTHWHILE, Segments, choose_segments
from .shifts import are_shifted
from .sink import sink_slices
from .stacks import Stack, read_stack, updates
from .steps import Step

# Stacks below this fraction of the threshold are left alone: a loop has many, and they are stored and read together.
_LIGHT = 16
# Recomputing a loop's steps exposes stacks between inner loops: one round for each loop level.
_MOST_ROUNDS = 8


@dataclass(slots=True)
class _Found:
    """The stacks of a loop: those that can be removed, those that stay, and why some that are read by steps stay."""

    wanted: list[Stack]
    kept: list[Stack]
    refused: list[tuple[int, Obstacle]]


def recompute_residuals(module: ir.Module, options: Options) -> list[Remark]:
    """Recompute stacks of loops in the loops that read them; the module is unchanged if that needs more memory."""
    if devices_of(module) > 1 or not _has_big_steps(module, options.size_threshold):
        return []
    prepared = _prepare(module, options)
    original = copy_of(module)
    done: list[Remark] = []
    for _ in range(_MOST_ROUNDS):
        before = copy_of(module)
        rewriter = _Rewriter(module, options)
        remarks = rewriter.run()
        passed = [remark for remark in remarks if remark.kind is Kind.PASSED]
        missed = [remark for remark in remarks if remark.kind is not Kind.PASSED]
        if not passed:
            if rewriter.moved:
                restore(module, before)
            break
        done += passed
        _tidy(module)
    remarks = list(dict.fromkeys(prepared + done + missed))
    if not done or predict(module, options.machine).peak <= predict(original, options.machine).peak:
        return remarks
    restore(module, original)
    reason = Reason("EX604", "all recomputations together would not save memory")
    return [_as_missed(remark, reason) if remark in done else remark for remark in remarks]


def _prepare(module: ir.Module, options: Options) -> list[Remark]:
    """Let loops compute their inputs and sums step by step; the module is unchanged if that needs more memory."""
    original = copy_of(module)
    done: list[Remark] = []
    for _ in range(_MOST_ROUNDS):
        found = prepare(_blocks(module), options, options.size_threshold // _LIGHT)
        if not found:
            break
        done += found
        _tidy(module)
    if not done or predict(module, options.machine).peak <= predict(original, options.machine).peak:
        return list(dict.fromkeys(done))
    restore(module, original)
    return []


def _tidy(module: ir.Module) -> None:
    """Remove dead code, and reshapes: a slice has the shape that its stack had."""
    clean_up(module)
    drop_dead(module)
    while apply_patterns(module, rce.PATTERNS):
        clean_up(module)


def drop_dead(module: ir.Module) -> None:
    """Drop all carries on which nothing depends, and ops that become dead with them."""
    dropped = True
    while dropped:
        dropped = False
        for loop in inside_out(module, "stablehlo.while"):
            # Attributes, such as a sharding, have an entry for each carry.
            dead = [] if len(loop.attributes) else dead_carries(loop, has_order)
            if dead and len(dead) < len(loop.operands):
                drop_carries(loop, dead)
                dropped = True
        if dropped:
            clean_up(module)


def _has_big_steps(module: ir.Module, threshold: int) -> bool:
    """A cheap test for a loop that carries or may read more than the threshold."""
    types = Types()
    loops = big = False

    def visit(op: ir.Operation) -> ir.WalkResult:
        nonlocal loops, big
        loops = loops or op.name == "stablehlo.while"
        big = big or sum(types.of(value).bytes for value in op.results) > threshold
        return ir.WalkResult.INTERRUPT if loops and big else ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return loops and big


def _blocks(module: ir.Module) -> Iterator[ir.Block]:
    """The blocks of functions and of control flow, the outer ones first; each may change before the next is found."""
    functions = [view.operation for view in module.body.operations if len(view.operation.regions)]
    stack = [block for op in reversed(functions) for region in op.regions for block in region.blocks]
    while stack:
        block = stack.pop()
        yield block
        inner = [view.operation for view in block.operations if view.operation.name in CONTROL_FLOW]
        stack += [block for op in reversed(inner) for region in op.regions for block in region.blocks]


def _loops_of(block: ir.Block) -> list[ir.Operation]:
    return [view.operation for view in block.operations if view.operation.name == "stablehlo.while"]


class _Rewriter:
    def __init__(self, module: ir.Module, options: Options):
        self.module = module
        self.threshold = options.size_threshold
        self.light = options.size_threshold // _LIGHT
        self.on_cpu = options.machine.kind == "cpu"
        self.types = Types()
        self.indices = Indices()
        self.asking: dict[ir.Block, bool] = {}
        self.remarks: list[Remark] = []
        self.moved = False

    def run(self) -> list[Remark]:
        for block in _blocks(self.module):
            self.recompute(block)
        return list(dict.fromkeys(self.remarks))

    def recompute(self, block: ir.Block) -> None:
        """Recompute stacks of the block's loops."""
        if sink_slices(block, self.light, self.indices, self.types):
            self.moved = True
            self.forget()
        loops, place = _loops_of(block), 0
        while place < len(loops):
            replaced = self.rewrite(loops[place])
            place += 1
            if replaced is not None:
                replaced.erase()
                loops = _loops_of(block)  # the new loops come after the current one

    def rewrite(self, loop: ir.Operation) -> ir.Operation | None:
        """Recompute one loop's stacks, if that is legal and worthwhile.

        Returns a loop whose results are replaced, for the caller to erase, if there is one.
        """
        found = self.find(loop)
        if found is None:
            return None
        self.remarks += [self.missed(loop, carry, why) for carry, why in found.refused]
        counting = self.indices.counting(loop)
        total = sum(stack.bytes for stack in found.wanted)
        if counting is None or total <= self.threshold:
            return None
        step = Step(loop, counting, self.types)
        plan = choose(step, found.wanted, found.kept, self.light)
        after = plan.after if isinstance(plan, Plan) else total
        shifted = self.on_cpu and isinstance(plan, Plan) and are_shifted(step, plan, self.types)
        segments = None
        if after > self.threshold or shifted:
            most = after if shifted else WORTHWHILE * after  # shifted steps are faster in segments
            segments = choose_segments(step, found.wanted, after, most, self.threshold, self.indices, self.types)
        if segments is not None:
            self.remarks += [self.in_segments(loop, stack, segments) for stack in segments.stacks]
            build_segments(step, segments, self.indices)
            self.forget()
            return segments.reader
        if not isinstance(plan, Plan):
            self.remarks += [self.missed(loop, stack.carry, plan) for stack in found.wanted]
            return None
        self.remarks += [self.passed(loop, stack) for stack in plan.replaced]
        build_plan(step, plan, self.types)
        self.forget()
        return None

    def forget(self) -> None:
        """Clear caches of values: the memory of an erased one may be reused for the next."""
        self.indices = Indices()
        self.asking = {}

    def find(self, loop: ir.Operation) -> _Found | None:
        """The stacks of a loop; None if it has no heavy one that is read step by step."""
        found = _Found([], [], [])
        heavy: set[int] = set()
        update_of = {carry: op for carry, op in updates(loop).items() if next(iter(loop.results[carry].uses), None)}
        for carry in update_of:
            size = self.types.of(loop.results[carry]).bytes
            if size > self.light and step_readers(loop.results[carry], self.types):
                heavy.add(carry)
        if sum(self.types.of(loop.results[carry]).bytes for carry in heavy) <= self.threshold or len(loop.attributes):
            return None
        counting = self.indices.counting(loop)
        if counting is None or counting.step != 1:
            reason = Reason("EX602", "the steps of the loop that writes it are not known")
            found.refused += [(carry, Obstacle(reason)) for carry in sorted(heavy)]
            return found
        if not counting.trips:
            return None
        counters = counting.start + np.arange(counting.trips, dtype=np.int64)
        for carry, update in update_of.items():
            stack = read_stack(loop, carry, update, counters, self.indices, self.types)
            if isinstance(stack, Reason):
                if carry in heavy:
                    found.refused.append((carry, Obstacle(stack)))
                continue
            why = self.obstacle(loop, stack) if carry in heavy else None
            if carry in heavy and why is None:
                found.wanted.append(stack)
            else:
                found.kept.append(stack)
            if why is not None:
                found.refused.append((carry, why))
        return found

    def obstacle(self, loop: ir.Operation, stack: Stack) -> Obstacle | None:
        """Why a stack must stay."""
        value = loop.results[stack.carry]
        found = obstacle(value, stack, self.indices, self.types)
        if found is not None:
            return found
        for reader in step_readers(value, self.types):
            block = reader.op.block
            if block not in self.asking:
                self.asking[block] = any(map(asks, walk(block)))
            if self.asking[block] and asks_about(reader.op.results[0], block):
                text = "a comparison for equality would need its exact bits, which jax.checkpoint does not keep either"
                return Obstacle(Reason("EX605", text), reader.op)
        return None

    def passed(self, loop: ir.Operation, stack: Stack) -> Remark:
        message = f"recomputed by each step that reads it: {stack.last - stack.first + 1} steps are not stored"
        return remark(self.types, loop, stack.carry, Kind.PASSED, Reason("EX005", message))

    def in_segments(self, loop: ir.Operation, stack: Stack, plan: Segments) -> Remark:
        steps = stack.last - stack.first + 1
        message = f"recomputed in segments: {plan.length} of {steps} steps are stored at once"
        return remark(self.types, loop, stack.carry, Kind.PASSED, Reason("EX005", message))

    def missed(self, loop: ir.Operation, carry: int, why: Obstacle) -> Remark:
        reason = Reason(why.reason.code, f"not recomputed: {why.reason.text}")
        found = remark(self.types, loop, carry, Kind.MISSED, reason)
        return found if why.op is None else replace(found, stopped_by=why.op.name, stopped_at=describe(why.op))


def _as_missed(remark: Remark, reason: Reason) -> Remark:
    return replace(remark, kind=Kind.MISSED, code=reason.code, message=f"not recomputed: {reason.text}")
