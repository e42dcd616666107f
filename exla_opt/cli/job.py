"""One run of exla-opt: read, rewrite or fit, check, write, report."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import click

from exla_opt.budget.judge import Judge
from exla_opt.cli.check import check
from exla_opt.cli.common import as_it_came, is_terminal, naming, read_source
from exla_opt.cli.exported import written_exported
from exla_opt.cli.judge import judge_of
from exla_opt.cli.partitioned import joined
from exla_opt.cli.places import place_names
from exla_opt.cli.print_ir import print_after, print_before, prints_ir
from exla_opt.cli.reproducer import reproducer
from exla_opt.cli.search import search_sizes
from exla_opt.cli.supervise import doing

# Everything that loads MLIR is imported inside the functions: --help and usage errors answer at once.
if TYPE_CHECKING:
    from jaxlib.mlir import ir

    from exla_opt.budget.fit import Fit
    from exla_opt.cli.request import Request
    from exla_opt.ir.read import Source
    from exla_opt.memory.timeline import Timeline
    from exla_opt.options import Options
    from exla_opt.pipeline import Outcome
    from exla_opt.remarks import Kind, Remark
    from exla_opt.report.summary import Summary
    from exla_opt.sharding.partition import Partition

_DOES_NOT_FIT = 3
# Without it no tensor is split, however large.
_SPLITTER = "tensor-splitter"
# With a memory limit, tensors smaller than this fraction of it get no line of their own.
_WORTH_A_LINE = 20


def run_job(request: Request, data: bytes | None = None, take: Callable[[ir.Module], None] | None = None) -> int:
    """Run the request, and return the exit status.

    data: the module, instead of the file's contents. take: receives the module, which is then not written.

    Raises InputError if the input or a target is at fault, and whatever a pass raises.
    """
    job = Job(request)
    job.read(data)
    with reproducer(request.crash_reproducer, job.source.module, request.words()):
        with naming(job.source):
            job.localise()
            if request.is_limited and not job.refusal:
                job.fit()
            else:
                job.rewrite()
            job.join()
            if request.check:
                job.check()
        if take is None:
            job.write()
        else:
            take(job.written)
    job.report()
    missed = request.is_limited if job.fitted is None else not job.fitted.fits
    return _DOES_NOT_FIT if request.strict and missed else 0


@dataclass(slots=True)
class Job:
    """The state of one run.

    source: the module, later rewritten. options: with the chosen sizes, if any. outcome: the remarks of the passes.
    judge, limit, fitted: the judge of the limit, its bytes, and the outcome of the search. before: the figures before
    any split, with calls inlined. rewritten: the figures after. seconds: each step and its wall time. partition,
    refusal: for a module for several devices, `source` is the local program of `partition`, or `refusal` says why there
    is none; then `unjudged` is a clause if it is not known whether it fits. written: the module to write; is_kept if
    that is for several devices and goes out as it came.
    """

    request: Request
    started: float = field(default_factory=time.perf_counter)
    seconds: list[tuple[str, float]] = field(default_factory=list)
    before: tuple[Summary, Timeline] | None = None
    rewritten: tuple[Summary, Timeline] | None = None
    measured: tuple[float, float] | None = None
    judge: Judge | None = None
    limit: int | None = None
    fitted: Fit | None = None
    partition: Partition | None = None
    refusal: str = ""
    unjudged: str = ""
    is_kept: bool = False
    source: Source = field(init=False)
    written: ir.Module = field(init=False)
    options: Options = field(init=False)
    outcome: Outcome = field(init=False)

    def read(self, data: bytes | None = None) -> None:
        """Read the module, from `data` if that is given.

        Raises InputError, and click.BadParameter for an --op-rule that Shardy cannot read.
        """
        _check_rules(self.request.options)
        with self._timed("Parser"):
            self.source = read_source(self.request.source, data)

    def localise(self) -> None:
        """For a module for several devices, continue with the local program of one."""
        from exla_opt.sharding.partition import CannotPartition, is_partitioned, partition

        if is_partitioned(self.source.module):
            doing("asking Shardy", self.source.name)
            try:
                with self._timed("Partitioning"):
                    self.partition = partition(self.source.module)
                self.source = replace(self.source, module=self.partition.local_copy())
            except CannotPartition as error:
                self.refusal = str(error)
        if self.request.passes[:1] != ("normalise",):
            self._look("", self.source.module)

    def join(self) -> None:
        """Put the local program back into the module for all devices, if that is worth it."""
        from exla_opt.sharding.joined import as_written

        self.written = self.source.module
        if self.partition is None and not self.refusal:
            return
        if self.partition is None:
            self._leave()
            return
        with self._timed("Joining, compiles"):
            limit = self.limit if self.fitted is not None else None
            found = joined(self.partition, self.source, self.outcome.remarks, self.request.target, limit)
        self.is_kept = found.is_original
        self.written, self.outcome = found.module, replace(self.outcome, remarks=found.remarks)
        if self.fitted is not None and self.limit is not None:
            self.fitted = as_written(self.fitted, found, self.limit)

    def _leave(self) -> None:
        """Continue with the module of all devices as it came; under a limit, compile it."""
        from exla_opt.sharding.joined import NotKnown
        from exla_opt.sharding.joined import as_it_came as unsplit
        from exla_opt.sharding.rewrite import refused

        self.written = as_it_came(self.source)
        self.outcome = replace(self.outcome, remarks=refused(self.outcome.remarks, self.refusal))
        if self.judge is None or self.limit is None:
            return
        seconds = self.after[1].seconds
        try:
            with self._timed("Compile"):
                self.fitted = unsplit(
                    self.written, self.outcome, self.options, seconds, self.limit, self.refusal, self.judge
                )
        except NotKnown as error:
            self.unjudged = str(error)

    def rewrite(self) -> None:
        """Run the passes with the given sizes; under a limit, what cannot be split is named instead."""
        self.options = self.request.options
        if self.request.is_limited:
            self.judge = judge_of(self.request.target, self.source.name, None)
            self.limit = self.judge.memory if self.request.limit is None else self.request.limit
            self.options = replace(self.options, size_threshold=self.limit)
        self.outcome = self._run_passes(self.source.module)
        self.seconds += self.outcome.seconds

    def fit(self) -> None:
        """Choose sizes for the limit, or for the target's memory."""
        request, source = self.request, self.source
        self.judge = judge_of(request.target, source.name, self.partition)
        self.limit = self.judge.memory if request.limit is None else request.limit
        begin = time.perf_counter()
        self.fitted = search_sizes(request, source, self.judge, self.limit, self._look)
        chosen = sum(seconds for _, seconds in self.fitted.outcome.seconds)
        self.seconds.append(("Other attempts, compiles", time.perf_counter() - begin - chosen))
        self.options, self.outcome = self.fitted.options, self.fitted.outcome
        self.seconds += self.outcome.seconds
        if prints_ir(request):  # print only the chosen attempt, not all that were tried
            from exla_opt.ir.read import parse_module

            self._run_passes(parse_module(source.name, source.data, source.module.context).module)
        self.source = replace(source, module=self.fitted.module)

    def check(self) -> None:
        """Run the original and the rewritten module, and compare. Raises InputError when they differ."""
        request = self.request
        with self._timed("Check"):
            self.measured = check(
                replace(self.source, module=self.written),
                request.passes,
                self.options,
                self.outcome.remarks,
                request.check_memory,
                uses_gpu=request.target == "cuda",
                quiet=request.quiet,
            )

    def write(self) -> None:
        """Write the module. Raises InputError when that cannot be done."""
        from exla_opt.ir.write import serialise, write_data

        output, emit = self.request.output, self.request.emit
        if emit is None:
            seen = output == "-" and is_terminal(sys.stdout)
            emit = "jax" if self.source.exported and not seen else "text"
        with self._timed("Output"):
            if emit == "jax":
                write_data(written_exported(self.source, self.written, self.request), output)
            else:
                with naming(self.source):
                    data = serialise(self.written, emit, self.request.stablehlo_version)
                write_data(data, output)

    def report(self) -> None:
        """Print and write the remarks and the reports."""
        from exla_opt.report.text import timing_lines, with_places, write_remarks

        request, quiet = self.request, self.request.quiet
        self._print_fit()
        remarks = with_places(self.outcome.remarks, place_names(self.source))
        for path in request.remarks_output:
            write_remarks(remarks, path)
        if self._wants_summary:
            self._print_summary(remarks)
        elif not quiet:
            self._print_remarks(remarks)
        if request.reports:
            self._write_reports(remarks)
        if request.timing:
            click.echo("\n".join(timing_lines(self.seconds, time.perf_counter() - self.started)), err=True)

    def _run_passes(self, module: ir.Module) -> Outcome:
        from exla_opt.pipeline import run_pipeline
        from exla_opt.sharding.rewrite import NAMING

        request = self.request
        return run_pipeline(
            module,
            NAMING if self.refusal else request.passes,
            self.options,
            verify_each=request.verify_each,
            after_pass=self._look_and_print,
            before_pass=partial(print_before, request),
            overrides=request.overrides,
        )

    def _look(self, name: str, module: ir.Module) -> None:
        """Record the figures before any split, after the first pass, which inlines calls."""
        if self.before is None and (self._wants_summary or self._says_why or self.request.reports):
            self.before = self._seen(module)

    def _seen(self, module: ir.Module) -> tuple[Summary, Timeline]:
        from exla_opt.memory.machine import as_written
        from exla_opt.memory.timeline import read_timeline
        from exla_opt.report.summary import summarise

        return summarise(module), read_timeline(module, as_written(self.request.options.machine))

    @property
    def after(self) -> tuple[Summary, Timeline]:
        """The figures of the rewritten module."""
        if self.rewritten is None:
            self.rewritten = self._seen(self.source.module)
        return self.rewritten

    def _look_and_print(self, name: str, module: ir.Module) -> None:
        self._look(name, module)
        print_after(self.request, name, module)

    @property
    def _says_why(self) -> bool:
        """Whether to explain why nothing was gained; searches for a limit and refusals explain it themselves."""
        request = self.request
        return not (request.quiet or request.is_limited or self.refusal) and _SPLITTER in request.passes

    @property
    def _wants_summary(self) -> bool:
        return not self.request.quiet and (self.request.summary or is_terminal(sys.stderr))

    def _print_fit(self) -> None:
        from exla_opt.report.text import fit_lines
        from exla_opt.runtime.workspace import tight

        found, quiet = self.fitted, self.request.quiet
        if self.unjudged:
            click.echo(f"{self.source.name}: warning: {self.unjudged}", err=True)
        if found is None or (quiet and found.fits):
            return
        assert self.judge is not None and self.limit is not None
        no_compiler = found.why_predicted or self.judge.no_compiler
        lines = fit_lines(self.source.name, found, self.limit, self.judge.name, no_compiler)
        lines += [f"{self.source.name}: note: {note}" for note in (self.judge.note, found.note) if note]
        if found.compiled and (note := tight(found.module, found.peak, self.limit, self.judge.workspace)):
            lines.append(f"{self.source.name}: note: {note}")
        if self.request.target is None and found.options.split_size is not None:
            lines.append(f"{self.source.name}: note: sizes chosen for {self.judge.name}; for a GPU give --target=gpu")
        for line in lines[:1] if quiet else lines:
            click.echo(line, err=True)

    def _print_remarks(self, remarks: Sequence[Remark]) -> None:
        from exla_opt.report.text import remark_lines

        which = self.request.remarks
        for line in remark_lines(remarks, _kinds(which)) if which else self._short(remarks):
            click.echo(line, err=True)
        if self._says_why and (why := self._nothing_gained(remarks)):
            click.echo(f"{self.source.name}: note: {why}", err=True)
        if held := self._held(remarks):
            click.echo(f"{self.source.name}: note: {held}", err=True)

    def _short(self, remarks: Sequence[Remark]) -> list[str]:
        from exla_opt.report.text import short_remark_lines

        small = 0 if self.limit is None else self.limit // _WORTH_A_LINE
        return short_remark_lines(remarks, self.after[0], small) if remarks else []

    def _held(self, remarks: Sequence[Remark]) -> str:
        """A clause on the tensors that cause the final peak; "" if nothing was big, or others name them."""
        from exla_opt.report.figures import held_at_peak, is_held_worth_a_line

        # Without a program of one device, the prediction would be of all devices together.
        is_worth = is_held_worth_a_line(remarks, self.fitted) and not (self.is_kept or self.refusal)
        return held_at_peak(self.after[1], place_names(self.source), self.fitted) if is_worth else ""

    def _nothing_gained(self, remarks: Sequence[Remark]) -> str:
        from exla_opt.report.figures import nothing_gained

        assert self.before is not None
        return nothing_gained(self.before, self.after, self.options, remarks)

    def _print_summary(self, remarks: Sequence[Remark]) -> None:
        from rich.console import Console

        from exla_opt.report.figures import nothing_gained, sides
        from exla_opt.report.table import print_summary

        assert self.before is not None
        console = Console(stderr=True, highlight=False)
        why = "" if self.fitted is not None else nothing_gained(self.before, self.after, self.options, remarks)
        columns = sides(self.before, self.after, self.fitted, self.measured)
        print_summary(console, columns, remarks, _kinds(self.request.remarks or "all"), (why, self._held(remarks)))

    def _write_reports(self, remarks: Sequence[Remark]) -> None:
        from exla_opt.report.data import Run, as_data
        from exla_opt.report.file import write_report
        from exla_opt.report.text import with_rest

        request = self.request
        assert self.before is not None
        run = Run(
            source=self.source.name,
            options=self.options,
            passes=request.passes,
            before=self.before,
            after=self.after,
            remarks=remarks,
            seconds=with_rest(self.seconds, time.perf_counter() - self.started),
            fit=self.fitted,
            limit=self.limit,
            target=request.target,
        )
        data = as_data(run, place_names(self.source))
        for path in request.reports:
            write_report(data, path)

    @contextmanager
    def _timed(self, step: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.seconds.append((step, time.perf_counter() - begin))


def _check_rules(options: Options) -> None:
    from exla_opt.ops.custom_calls import parse_user_rule

    for target, rule in options.op_rules:
        try:
            parse_user_rule(target, rule)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="'--op-rule'") from None


def _kinds(which: str) -> tuple[Kind, ...]:
    from exla_opt.remarks import Kind

    return tuple(kind for kind in Kind if which in ("all", kind.value))
