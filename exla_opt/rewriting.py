"""Rewrite a module for the library: run the passes, or search for sizes if there is a limit, and collect figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jaxlib.mlir import ir

from exla_opt.budget.fit import Fit, fit
from exla_opt.ir.diagnostics import InputError
from exla_opt.ir.rewrite import copy_of
from exla_opt.memory.timeline import Timeline, read_timeline
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.remarks import Remark
from exla_opt.report.summary import Summary, summarise
from exla_opt.sharding.joined import NotKnown, Share, as_it_came, as_written, joined
from exla_opt.sharding.partition import CannotPartition, Partition, is_partitioned, partition
from exla_opt.sharding.rewrite import NAMING, refused


@dataclass(slots=True)
class Rewriting:
    """The outcome of one rewriting.

    module: rewritten. remarks: what was done and what was not. before, after: the figures without any split and with
    the splits, per device if there are several. options: with the sizes that were chosen, if any. fitted: the outcome
    of the search for a limit; None without a limit, and if it is not known whether the module fits. unjudged: a clause
    that says so, and why, else "".
    """

    module: ir.Module
    remarks: tuple[Remark, ...]
    before: tuple[Summary, Timeline]
    after: tuple[Summary, Timeline]
    options: Options
    fitted: Fit | None = None
    unjudged: str = ""


def rewrite(
    module: ir.Module,
    options: Options,
    limit: int | None,
    target: str | None,
    names: Sequence[str] = DEFAULT_PASSES,
) -> Rewriting:
    """Rewrite a copy of a module.

    limit: bytes that the program must fit in, per device if there are several; the sizes in the options are then
    ignored. names: the passes to run. target: the machine whose compiler decides whether it fits and, for several
    devices, whether the original is kept; None is this machine's CPU. Raises InputError if the module is at fault and,
    with a limit, TargetError for an unknown target.
    """
    found: Partition | None = None
    one = copy_of(module)
    if is_partitioned(module):
        try:
            found = partition(module)
        except CannotPartition as error:
            return _left(module, one, options, str(error), limit, target)
        one = found.local_copy()
    seen: list[tuple[Summary, Timeline]] = []

    def look(name: str, module: ir.Module) -> None:
        if not seen:
            seen.append(_seen(module, options))

    fitted = None
    if limit is None:
        remarks = run_pipeline(one, names, options, after_pass=look).remarks
    else:
        from exla_opt.runtime.heap import give_back
        from exla_opt.runtime.judge import judge_of  # loads jax

        measure = judge_of(target, found).measure
        fitted = fit(one, names, replace(options, memory_limit=limit), limit, measure, after_pass=look)
        give_back()
        one, remarks, options = fitted.module, fitted.outcome.remarks, fitted.options
    after = _seen(one, options)
    if found is None:
        return Rewriting(one, tuple(remarks), seen[0], after, options, fitted)
    written = joined(found, module, one, remarks, limit, _share(target))
    if fitted is not None and limit is not None:
        fitted = as_written(fitted, written, limit)
    after = seen[0] if written.is_original else after
    return Rewriting(written.module, written.remarks, seen[0], after, options, fitted)


def _share(target: str | None) -> Share | None:
    """The compiler of `target`, which says what a device sends and needs; None where there is none."""
    try:
        from exla_opt.runtime.target import share_of

        return share_of(target)
    except (ImportError, InputError):  # no jax; no such compiler here
        return None


def _left(
    module: ir.Module, copy: ir.Module, options: Options, why: str, limit: int | None, target: str | None
) -> Rewriting:
    """A partitioned module without a local program: unchanged, with remarks on its big tensors."""
    options = options if limit is None else replace(options, size_threshold=limit)
    outcome = run_pipeline(copy, NAMING, options)
    outcome = replace(outcome, remarks=refused(outcome.remarks, why))
    seen = _seen(copy, options)
    found = Rewriting(module, outcome.remarks, seen, seen, options)
    if limit is not None:
        from exla_opt.runtime.judge import judge_of  # loads jax

        try:
            found.fitted = as_it_came(module, outcome, options, seen[1].seconds, limit, why, judge_of(target))
        except NotKnown as error:
            found.unjudged = str(error)
    return found


def _seen(module: ir.Module, options: Options) -> tuple[Summary, Timeline]:
    return summarise(module), read_timeline(module, options.machine)
