"""Runs the splitter over all blocks until nothing changes, and collects the remarks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from jaxlib.mlir import ir

from exla_opt.ir.attributes import devices_of
from exla_opt.ir.loops import keep_separate_kernels
from exla_opt.ir.order import CannotOrder, restore_order
from exla_opt.ir.rewrite import copy_of, restore
from exla_opt.ir.types import Types
from exla_opt.ir.walk import walk_functions
from exla_opt.memory.loop_kernels import needs_separate_kernels
from exla_opt.memory.peak import predict
from exla_opt.ops.effects import has_order
from exla_opt.ops.rules import read_rules
from exla_opt.ops.sent import MORE, bytes_sent
from exla_opt.ops.shifts import may_shift
from exla_opt.ops.traits import Trait, has_trait
from exla_opt.options import Options
from exla_opt.passes import normalise
from exla_opt.passes.algebra.merged_sums import merge_sums
from exla_opt.remarks import Reason, Remark

from .ask_anew import ask_anew
from .batches import merge_in_order, merges_batches
from .branches import recompute_in_branches, stores_for_branches
from .distribute import distribute_sums
from .draws import expand_draws
from .emit import build_plans
from .gain import lowers_peak
from .graph import TILE_MARK, Graph, read_graphs
from .mirror import meets_itself, mirror
from .plans.allowance import Allowance, around
from .plans.choices import Choices
from .plans.choose import Choice
from .rematerialise import rematerialise_captures
from .rounded_once import compute_rounded_once
from .rows import compute_rows, reads_rows
from .said import all_missed, remark_on_missed, remark_on_plan
from .sends import remove_marks, send_slices, sends_big_tensors
from .separate_parts import parts_meet, reads_parts, separate_and_overwrite, separate_parts

# Each round splits something big into tiles that are not, so a few suffice; the bound on all of them is a safety net.
_MOST_ROUNDS = 64
# The code for a comparison for equality that prevents a split.
_EQUALITY = "EX309"
# Computing something twice must save this factor.
_LEAST_GAIN = 1.1


# The remarks on changes, and on missed tensors.
Remarks = tuple[list[Remark], list[Remark]]
# Changes a module so that more of it can be split; returns whether it did.
_Change = Callable[[ir.Module, Options], bool]


def split_module(module: ir.Module, options: Options) -> list[Remark]:
    """Split all that can be split, in rounds: every round plans on a fresh index of all blocks."""
    if devices_of(module) > 1:
        reason = Reason("EX311", f"the module is partitioned over {devices_of(module)} devices")
        return all_missed(module, options, reason)
    if not _read(module, options, options.size_threshold):
        return []
    original = copy_of(module)
    try:
        done, missed = _split_with_draws(module, original, options)
        if any(each.code == _EQUALITY for each in missed):
            done, missed = _split_changed(module, original, options, (done, missed), [ask_anew, distribute_sums])
        if meets_itself(original, options) and _is_above_limit(module, options):
            done, missed = _split_changed(module, original, options, (done, missed), [mirror])
        if reads_rows(original, options) and _is_above_limit(module, options):
            done, missed = _split_changed(module, original, options, (done, missed), [compute_rows])
        if stores_for_branches(original, options) and _is_above_limit(module, options):
            done, missed = _split_changed(module, original, options, (done, missed), [recompute_in_branches])
        if merges_batches(original, options) and _is_above_limit(module, options):
            done, missed = _split_changed(module, original, options, (done, missed), [merge_in_order])
        if sends_big_tensors(original, options) and _is_above_limit(module, options):
            done, missed = _split_changed(module, original, options, (done, missed), [send_slices])
            remove_marks(module)
        if reads_parts(original, options) and _is_above_limit(module, options) and parts_meet(original, options):
            done, missed = _split_in_parts(module, original, options, (done, missed))
    except CannotOrder:  # separately planned loops depend on each other
        restore(module, original)
        reason = Reason("EX306", "a value computed from it is needed complete between two loops")
        return all_missed(module, options, reason)
    if not done or lowers_peak(original, module, options):
        return done + missed
    restore(module, original)
    return _nothing_gained(module, options, done, missed)


def _split_with_draws(module: ir.Module, original: ir.Module, options: Options) -> Remarks:
    """Split, including random draws; draws are restored if that leads to nothing.

    Expanded draws may be fused into their readers, so that nothing is left to split.
    """
    expanded = expand_draws(module, options)
    done, missed = _split(module, options)
    if expanded and not done and predict(module, options.machine).peak >= predict(original, options.machine).peak:
        restore(module, copy_of(original))
        done, missed = _split(module, options)
    return done, missed


def _is_above_limit(module: ir.Module, options: Options) -> bool:
    limit = options.memory_limit
    return limit is None or predict(module, options.machine).peak > limit


def _split_changed(
    module: ir.Module, original: ir.Module, options: Options, found: Remarks, changes: Sequence[_Change]
) -> Remarks:
    """Split after changes that compute something twice or send it in parts, if that takes clearly less.

    It must not send more. found: the remarks on the module as already split.
    """
    other = copy_of(original)
    changed = [change(other, options) for change in changes]
    if not any(changed):
        return found
    try:
        made = _split_with_draws(other, copy_of(other), options)
    except CannotOrder:
        return found
    if not made[0] or predict(other, options.machine).peak * _LEAST_GAIN >= predict(module, options.machine).peak:
        return found
    if bytes_sent(other) > MORE * bytes_sent(module):
        return found
    restore(module, other)
    return made


def _split_in_parts(module: ir.Module, original: ir.Module, options: Options, found: Remarks) -> Remarks:
    """Split once more with parts of tensors computed separately; without that option, only say that it is possible."""
    if not options.separates_parts:
        done, missed = ([replace(remark, may_separate=True) for remark in remarks] for remarks in found)
        return done, missed
    found = _split_changed(module, original, options, found, [separate_and_overwrite])
    if _is_above_limit(module, options):
        found = _split_changed(module, original, options, found, [separate_parts])
    return found


def _split(module: ir.Module, options: Options) -> Remarks:
    """Split until nothing changes, with overlapping tiles for slices and pads if that takes clearly less."""
    if not any(may_shift(op.name) for op in walk_functions(module.operation)):
        return _split_until_done(module, options, shifts=False)[0]
    plain = copy_of(module)
    choices = None
    try:
        made, choices = _split_until_done(module, options, shifts=True)
        if not choices.shifted:
            return made
        peak = predict(module, options.machine).peak
    except CannotOrder:
        made, peak = ([], []), None
    found, _ = _split_until_done(plain, options, shifts=False, before=choices)
    if peak is not None and peak * _LEAST_GAIN < predict(plain, options.machine).peak:
        return made
    restore(module, plain)
    return found


def _split_until_done(
    module: ir.Module, options: Options, shifts: bool, before: Choices | None = None
) -> tuple[Remarks, Choices]:
    """Split until nothing changes; return the remarks and the choices. shifts, before: as in `Choices`.

    Once split, what another attempt finds must lower the predicted peak: each plans all loops of the ones before again.
    """
    done: list[Remark] = []
    missed: list[Remark] = []
    rounds = iter(range(_MOST_ROUNDS))
    graphs = _read(module, options, options.size_threshold)
    choices = Choices(options, Allowance(graphs, options.machine), shifts, before)
    original: ir.Module | None = None
    for attempt in range(_MOST_ROUNDS):
        if rematerialise_captures(module, graphs, choices, of_program=attempt == 0):
            graphs = _read(module, options, options.size_threshold)
        made, found = _run_rounds(module, graphs, choices, rounds)
        if made or attempt == 0:
            _finish_loops(module, options)
        if made:
            normalise.run(module, options)  # ops that became equal or dead may allow a plan that a second run finds
        if original is not None and made and not lowers_peak(original, module, options):
            restore(module, original)
            break
        if made or attempt == 0:
            missed = found  # collected while our own loops were still marked
        if not made:
            break
        done += made
        original = copy_of(module)
        graphs = _read(module, options, options.size_threshold)
    return (done, missed), choices


def _nothing_gained(module: ir.Module, options: Options, done: list[Remark], missed: list[Remark]) -> list[Remark]:
    """The remarks on a module that is left unchanged, on the tensors that the splits were requested for."""
    reason = Reason("EX305", "all splits together would not save memory")
    known = {(each.tensor, each.location): each for each in all_missed(module, options, reason)}
    pairs = [(each, known[key]) for each in done if (key := (each.tensor, each.location)) in known]
    tried = [replace(now, may_separate=each.may_separate) for each, now in pairs]
    kept = [each for each in missed if (each.tensor, each.location) in known and each.code != "EX104"]
    return list(dict.fromkeys(tried)) + kept


def _run_rounds(
    module: ir.Module, graphs: list[Graph], known: Choices, rounds: Iterator[int]
) -> tuple[list[Remark], list[Remark]]:
    """Split until no plan, or none of the rounds, is left; return the changes, and the last round's missed tensors."""
    options = known.options
    done: list[Remark] = []
    missed: list[Remark] = []
    first = True
    least = min(options.size_threshold, options.slice_bytes, options.least_slice_bytes)
    for _ in rounds:
        known.allowance.start(graphs)
        choices = known.of(graphs, thorough=first)
        missed = [
            remark_on_missed(graph, value, why)
            for graph, choice in zip(graphs, choices, strict=True)
            for value, why in choice.refusals.items()
        ]
        choices = _leave_inside(graphs, choices)
        for graph, choice in zip(graphs, choices, strict=True):
            done += _build(graph, choice)
        _merge_sums([graph for graph, choice in zip(graphs, choices, strict=True) if choice.plans], least)
        if not any(choice.plans for choice in choices):
            break
        graphs = _read(module, options, least)
        # Tensors that a new loop reads unsplit, such as masks, may be computed in its body and be split with the rest
        # there. Only once: the loop's results may be captured by the next loop, and so on without end.
        if first and rematerialise_captures(module, graphs, known):
            graphs = _read(module, options, least)
        first = False
    return done, missed


def _leave_inside(graphs: Sequence[Graph], choices: Sequence[Choice]) -> list[Choice]:
    """The choices without the plans inside of loops that are cut from outside: those are for the next round."""
    cut = [
        graph.nodes[position].op
        for graph, choice in zip(graphs, choices, strict=True)
        for plan in choice.plans
        for position in plan.tiled
        if Trait.CONTROL_FLOW in graph.nodes[position].traits
    ]
    return [
        replace(choice, plans=[]) if choice.plans and cut and any(op in cut for op in around(graph.block)) else choice
        for graph, choice in zip(graphs, choices, strict=True)
    ]


def _read(module: ir.Module, options: Options, least: int) -> list[Graph]:
    """The graphs of all blocks; empty, at low cost, if no op computes a tensor of more than `least` bytes."""
    types = Types()
    ops = walk_functions(module.operation)
    if not options.op_rules and not any(types.of(value).bytes > least for op in ops for value in op.results):
        return []
    return read_graphs(module, read_rules(module, options.op_rules))


def _build(graph: Graph, choice: Choice) -> list[Remark]:
    remarks = [remark_on_plan(graph, plan) for plan in choice.plans]
    if choice.plans:
        build_plans(graph, choice.plans)
        restore_order(graph.block, has_order)
    return remarks


def _merge_sums(graphs: Sequence[Graph], least: int) -> None:
    """Merge the sums of all loops of a round, after all are built: this erases ops in the graphs of their bodies.

    Bodies first, which come after the blocks around them.
    """
    types = Types()
    for graph in reversed(graphs):
        merge_sums(graph.block, TILE_MARK, types, least)


def _finish_loops(module: ir.Module, options: Options) -> None:
    """Remove the marks of our own loops, innermost first.

    For a CPU, keep their kernels separate (`memory.loop_kernels`), and what they round consistent (`rounded_once`).
    """
    types = Types()

    def finish(op: ir.Operation) -> ir.WalkResult:
        if TILE_MARK in op.attributes:
            del op.attributes[TILE_MARK]
            if options.machine.kind != "cpu":
                return ir.WalkResult.ADVANCE
            compute_rounded_once(op)
            if needs_separate_kernels(op, types):
                keep_separate_kernels(op, partial(has_trait, trait=Trait.POINTWISE))
        return ir.WalkResult.ADVANCE

    module.operation.walk(finish)
