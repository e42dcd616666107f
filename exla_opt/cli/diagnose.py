"""exla-opt --diagnose: which tensors cause the peak, what a rewrite would do, and advice confirmed by the compiler.

No module is written. Everything advised was compiled, with the peak that is printed.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from exla_opt.cli.common import naming, read_source
from exla_opt.cli.judge import judge_of
from exla_opt.cli.partitioned import joined, program_of_one
from exla_opt.cli.places import place_names
from exla_opt.cli.search import showing
from exla_opt.sizes import format_size, round_up

if TYPE_CHECKING:  # at run time these are imported inside the functions, for they load MLIR and jax
    from collections.abc import Callable

    from jaxlib.mlir import ir

    from exla_opt.budget.judge import Judge
    from exla_opt.budget.measured import Measure, Measured
    from exla_opt.cli.request import Request
    from exla_opt.ir.read import Source
    from exla_opt.memory.timeline import Timeline
    from exla_opt.sharding.partition import Partition

# The number of tensors listed.
_SHOWN = 8
# Advice must save at least this part of the peak.
_WORTH = 0.01


def print_diagnosis(request: Request) -> int:
    """Print the diagnosis of a module on standard output, and return the exit status.

    Of a module for several devices, the program of one of them is diagnosed. Raises InputError if there is no such
    program and if the input or a target is at fault, and whatever a pass raises.
    """
    from exla_opt.ir.attributes import devices_of
    from exla_opt.ir.rewrite import copy_of
    from exla_opt.memory.timeline import read_timeline
    from exla_opt.pipeline import run_pipeline

    source = read_source(request.source)
    one, partition = program_of_one(source)
    named = place_names(source)
    judge = judge_of(request.target, source.name, partition)
    each = "" if partition is None else f" on each of {devices_of(source.module)} devices"
    with naming(source):
        measured, who = _measured(one, judge)
        instead = None if measured is None else measured.instead
        inlined = copy_of(one)
        run_pipeline(inlined, ("normalise",), request.options)
        timeline = read_timeline(inlined, request.options.machine)
        memory = timeline.memory
        peak = memory.peak if measured is None else measured.peak
        click.echo(
            f"{source.name}: peak {format_size(peak)}{each}, {who}; "
            f"arguments {format_size(memory.arguments)}, results {format_size(memory.results)}"
        )
        if instead is not None and (instead.of_changed or not instead.of_unchanged):
            worse = ", by which each would need or send more" if instead.of_changed else ""
            click.echo(
                f"{source.name}: this is the program of one device{worse}; "
                f"spread by XLA, the original needs {format_size(instead.peak)}{each}"
            )
        for line in alive_lines(timeline, named):
            click.echo(line)
        written = instead.peak if instead is not None and instead.of_changed else peak
        # The memory to fit, if there is any such.
        given = request.limit or (judge.memory if request.target is not None else None)
        limit = round_up(written // 2) if given is None else given
        _print_rewrite(request, replace(source, module=one), partition, judge, limit, named)
        if measured is not None and judge.measure is not None:
            # The signature of one device's program is not the user's to change.
            fit_into = given if partition is None else None
            for advice in _advice(request, one, judge.measure, peak, fit_into, named):
                click.echo(f"{source.name}: advice: {advice}")
    return 0


def alive_lines(timeline: Timeline, named: Callable[[str], str]) -> list[str]:
    """The largest tensors alive at the predicted peak; equal tensors from one location share a line.

    named: maps locations to the user's own.
    """
    if timeline.peak is None:
        return ["no temporary memory is needed"]
    point = timeline.points[timeline.peak]
    alive = timeline.alive_at(timeline.peak)
    lines = [
        f"alive at the peak of temporary memory ({format_size(point.bytes)}, predicted), at {named(point.location)}:"
    ]
    found = Counter((f"{one.name}  {one.op} at {named(one.location)}", one.bytes) for one in alive)
    groups = sorted(found.items(), key=lambda group: -group[0][1] * group[1])
    for (what, bytes), count in groups[:_SHOWN]:
        lines.append(f"  {format_size(bytes * count):>7}  {f'{count} x ' if count > 1 else ''}{what}")
    rest, others = groups[_SHOWN:], sum(count for _, count in groups[_SHOWN:])
    if rest:
        lines.append(f"  {format_size(sum(bytes * count for (_, bytes), count in rest)):>7}  {others} more")
    return lines


def held_lines(source: Source, target: str) -> list[str]:
    """The same for a module of one device on the machine `target`; normalises the module."""
    from exla_opt.memory.machine import machine_of
    from exla_opt.memory.timeline import read_timeline
    from exla_opt.options import Options
    from exla_opt.pipeline import run_pipeline

    named = place_names(source)
    run_pipeline(source.module, ("normalise",), Options())
    return alive_lines(read_timeline(source.module, machine_of(target)), named)


def _measured(module: ir.Module, judge: Judge) -> tuple[Measured | None, str]:
    """The compiler's findings, None if there are none, and its name."""
    from exla_opt.budget.search import CannotCompile
    from exla_opt.ir.write import serialise

    if judge.measure is None:
        return None, f"predicted for {judge.name}: {judge.no_compiler}"
    try:
        return judge.measure(serialise(module, "bytecode")), f"as XLA compiles it for {judge.name}"
    except CannotCompile as error:
        return None, f"predicted for {judge.name}: {error}"


def _print_rewrite(
    request: Request,
    source: Source,
    partition: Partition | None,
    judge: Judge,
    limit: int,
    named: Callable[[str], str],
) -> None:
    """Print what exla-opt would do for the limit, and the cost.

    source: holds the module to split, of one device if there are several.
    """
    from exla_opt.budget.fit import fit
    from exla_opt.ir.rewrite import copy_of
    from exla_opt.remarks import Kind
    from exla_opt.report.text import fit_lines, remark_lines, with_places
    from exla_opt.sharding.joined import as_written

    with showing(sys.stderr) as tried:
        options = replace(request.options, memory_limit=limit)
        found = fit(copy_of(source.module), request.passes, options, limit, judge.measure, tried=tried)
    remarks = found.outcome.remarks
    if partition is not None:
        written = joined(partition, replace(source, module=found.module), remarks, request.target, limit)
        found, remarks = as_written(found, written, limit), written.remarks
    click.echo(f"with --memory-limit={format_size(limit)} exla-opt would do this:")
    for line in fit_lines(source.name, found, limit, judge.name, found.why_predicted or judge.no_compiler):
        click.echo(f"  {line}")
    if found.before.seconds and found.seconds != found.before.seconds:
        click.echo(f"  time: {found.seconds / found.before.seconds:.2g} x (predicted)")
    done = with_places(remarks, named)
    for line in remark_lines(done, (Kind.PASSED,))[:_SHOWN]:
        click.echo(f"  {line}")


def _advice(
    request: Request, module: ir.Module, measure: Measure, peak: int, limit: int | None, named: Callable[[str], str]
) -> list[str]:
    """All advice that the compiler confirms. limit: the memory that the module should fit into; None if not given."""
    from exla_opt.advice.batch import batch_advice
    from exla_opt.advice.bf16 import bf16_advice
    from exla_opt.advice.checkpoint import checkpoint_advice
    from exla_opt.advice.donation import donation_advice

    worth = max(round(_WORTH * peak), 1)
    found = [
        donation_advice(module, measure, peak, worth),
        checkpoint_advice(module, request.options, measure, peak, worth, named),
        bf16_advice(module, request.options.machine, measure, peak, worth, named),
        "" if limit is None else batch_advice(module, request.options, measure, peak, limit),
    ]
    return [each for each in found if each]
