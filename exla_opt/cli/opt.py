"""exla-opt: reads a StableHLO module, makes its huge tensors loops over slices, writes it."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from exla_opt import __version__
from exla_opt.cli import values
from exla_opt.cli.check import check
from exla_opt.cli.common import Size, blamed, is_terminal, read_source
from exla_opt.cli.reproducer import option_words, reproducer
from exla_opt.cli.search import search_sizes
from exla_opt.memory.machine import CPU, machine_of
from exla_opt.options import Options
from exla_opt.sizes import format_size

# Everything that loads MLIR is imported inside the functions: --help and usage errors answer at once.
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jaxlib.mlir import ir

    from exla_opt.fit import Fit
    from exla_opt.ir.read import Source
    from exla_opt.ir.write import Emit
    from exla_opt.memory.timeline import Timeline
    from exla_opt.remarks import Kind, Remark
    from exla_opt.report.summary import Summary

# With a memory limit, tensors of less than this part of it are not told of one by one.
_WORTH_TELLING = 20

_EPILOG = """\b
Sizes are numbers of bytes with an optional unit, in any case: KB, MB, GB
are powers of 1000, KiB, MiB, GiB powers of 1024 (1MB = 1000000 bytes,
1MiB = 1048576 bytes); 5e8 and 1.5GB work too.

\b
Examples:
  exla-opt model.mlir --split-size=500MB -o smaller.mlir
  exla-opt model.mlir --memory-limit=2GB -o smaller.mlir
  exla-opt - --size-threshold=100MB < model.mlir | exla-run -
  exla-opt model.mlirbc.gz --passes=normalise --emit=text

\b
Exit status: 0 done, 1 the module cannot be read or written, 2 wrong usage,
3 the program does not fit into --memory-limit (with --strict), 130 Ctrl-C.
A module in which nothing can be split comes out all the same, with the
reasons on standard error."""


@click.command(
    "exla-opt", cls=values.OptCommand, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.argument("source", metavar="[INPUT]", default="-")
@click.option("-o", "--output", metavar="FILE", default="-", help="Where to write; - (the default) is standard output.")
@click.option("--emit", type=click.Choice(["text", "bytecode", "portable"]), default="text", help="Form of the output.")
@click.option("--split-size", type=Size(), help="The most that one slice of a big tensor may take [the threshold].")
@click.option("--size-threshold", type=Size(), help="Tensors above this are big [1GB].")
@click.option("--memory-limit", type=Size(), help="Choose both sizes so that the program fits into this much memory.")
@click.option(
    "--target",
    metavar="DEVICE",
    help="Fit into this device (or --memory-limit) by its real compiler: cpu, cuda:h200, cuda:h100, cuda:PATH.",
)
@click.option("--strict", is_flag=True, help="Exit with 3 when the program does not fit.")
@click.option("--no-reassociate", is_flag=True, help="Never compute a floating-point sum in pieces.")
@click.option(
    "--chain-cost",
    type=click.Choice(["flops", "bytes", "both"]),
    default="both",
    help="What matrix-chain-order lowers: operations, the largest intermediate tensor, or both [both].",
)
@click.option(
    "--op-rule",
    "op_rules",
    multiple=True,
    metavar="RULE",
    callback=values.split_rule,
    help="How a custom call may be cut: 'target=([i,j],[j])->([i])'. May be repeated.",
)
@click.option("--passes", metavar="A,B", help="The passes to run, in this order.")
@click.option("--pass-pipeline", metavar="TEXT", help="The same in MLIR's form: 'builtin.module(a,b)'.")
@click.option(
    "--list-passes", is_flag=True, is_eager=True, expose_value=False, callback=values.list_passes, help="List them."
)
@click.option(
    "--remarks",
    type=click.Choice(["all", "missed", "passed"]),
    help="Which remarks to print [what stays in memory; all in the summary].",
)
@click.option(
    "--remarks-output",
    metavar="FILE",
    callback=values.remarks_file,
    help="Write all remarks to FILE.json or FILE.yaml.",
)
@click.option(
    "--explain",
    metavar="CODE",
    is_eager=True,
    expose_value=False,
    callback=values.explain_code,
    help="Tell what a remark means.",
)
@click.option("--print-ir-after-all", is_flag=True, help="Print the module after each pass, on standard error.")
@click.option("--verify-each/--no-verify-each", default=True, help="Verify the module after each pass [on].")
@click.option("--check", is_flag=True, help="Run the module before and after on random inputs, and compare.")
@click.option(
    "--check-memory", type=Size(), help="What a check may take; above it, a smaller size is run [what is free]."
)
@click.option(
    "--crash-reproducer", metavar="FILE", help="Where to write the module and the options if exla-opt or XLA crashes."
)
@click.option("--timing", is_flag=True, help="Print the time each pass took, on standard error.")
@click.option("--summary", is_flag=True, help="Print the summary even if standard error is no terminal.")
@click.option(
    "--report",
    "reports",
    multiple=True,
    metavar="FILE",
    callback=values.report_files,
    help="Write what was done to FILE.html, a page, or to FILE.json. May be repeated.",
)
@click.option("--quiet", is_flag=True, help="No summary and no remarks, only errors.")
@click.version_option(__version__, message="exla-opt %(version)s")
def main(source: str, output: str, emit: Emit, **flags: Any) -> None:
    """Make an XLA program fit: rewrite the StableHLO module INPUT so that huge intermediate tensors are computed
    in slices, inside loops. Signature and results stay the same.

    INPUT is MLIR text, MLIR bytecode or a StableHLO portable artifact, gzipped or not; - (the default) is
    standard input.
    """
    start = time.perf_counter()
    if flags["summary"] and flags["quiet"]:
        raise click.UsageError("--summary and --quiet exclude each other")
    if flags["check_memory"] is not None and not flags["check"]:
        raise click.UsageError("--check-memory is for --check")
    written = values.check_outputs(output, flags)
    if emit != "text" and output == "-" and is_terminal(sys.stdout):
        raise click.UsageError(f"--emit={emit} is binary and will not be written to a terminal; use -o FILE")
    options = options_of(flags)
    if source == "-" and is_terminal(sys.stdin):
        click.echo("exla-opt: reading a module from standard input (--help tells more)", err=True)
    from exla_opt.ir.write import check_writable

    for name in written:
        check_writable(name)
    _run(source, output, emit, options, flags, start)


def options_of(flags: dict[str, Any]) -> Options:
    """The settings that the command line asks for. Raises click.UsageError where it contradicts itself."""
    threshold, split = flags["size_threshold"], flags["split_size"]
    limited = flags["memory_limit"] is not None or flags["target"] is not None
    if limited and (threshold, split) != (None, None):
        raise click.UsageError(
            "--memory-limit and --target choose --size-threshold and --split-size themselves; leave them out"
        )
    if flags["strict"] and not limited:
        raise click.UsageError("--strict needs a --memory-limit or a --target")
    threshold = Options().size_threshold if threshold is None else threshold
    if split is not None and split > threshold:
        raise click.UsageError(
            f"--split-size ({format_size(split)}) is above --size-threshold ({format_size(threshold)}): "
            "a slice would be as large as what is to be split"
        )
    target = flags["target"] or ""
    machine = machine_of(target) if target.startswith("cuda") else CPU
    return Options(threshold, split, not flags["no_reassociate"], flags["op_rules"], flags["chain_cost"], machine)


def _run(source: str, output: str, emit: Emit, options: Options, flags: dict[str, Any], start: float) -> None:
    names = values.pass_names(flags["passes"], flags["pass_pipeline"])

    from exla_opt.ir.write import serialise, write_module
    from exla_opt.memory.timeline import read_timeline
    from exla_opt.ops.custom_calls import parse_user_rule
    from exla_opt.pipeline import run_pipeline
    from exla_opt.report.data import Run, as_data
    from exla_opt.report.file import write_report
    from exla_opt.report.summary import summarise
    from exla_opt.report.text import fit_line, remark_lines, short_remark_lines, timing_lines, with_rest, write_remarks

    for target, rule in options.op_rules:
        try:
            parse_user_rule(target, rule)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="'--op-rule'") from None
    begin = time.perf_counter()
    read = read_source(source)
    parsing = time.perf_counter() - begin
    limit, target = flags["memory_limit"], flags["target"]
    reports: tuple[str, ...] = flags["reports"]
    wants_summary = not flags["quiet"] and (flags["summary"] or is_terminal(sys.stderr))
    before: list[Summary] = []
    timelines: list[Timeline] = []

    def measure(module: ir.Module) -> None:
        if wants_summary or reports:
            before.append(summarise(module))
        if reports:
            timelines.append(read_timeline(module, options.machine))

    # Measured after inlining where that comes first: a call hides what it makes.
    if names[:1] != ("normalise",):
        measure(read.module)

    def look(name: str, module: ir.Module) -> None:
        if not before:
            measure(module)

    def look_and_print(name: str, module: ir.Module) -> None:
        look(name, module)
        if flags["print_ir_after_all"]:
            click.echo(f"// -----// IR Dump After {name} //----- //", err=True)
            click.echo(serialise(module, "text"), err=True)

    found: Fit | None = None
    checking: list[tuple[str, float]] = []
    with reproducer(flags["crash_reproducer"], read.module, option_words(names, options, flags)):
        with blamed(read):
            verify = flags["verify_each"]
            if limit is None and target is None:
                outcome = run_pipeline(read.module, names, options, verify_each=verify, after_pass=look_and_print)
            else:
                found, limit = search_sizes(read, names, options, limit, target, look, verify_each=verify)
                options = found.options
                if flags["print_ir_after_all"]:  # of all that were tried, only what is taken is of interest
                    run_pipeline(read.module, names, options, verify_each=verify, after_pass=look_and_print)
                read, outcome = replace(read, module=found.module), found.outcome
            if flags["check"]:
                begin = time.perf_counter()
                memory, quiet = flags["check_memory"], flags["quiet"]
                check(read, names, options, outcome.remarks, memory, uses_gpu=target == "cuda", quiet=quiet)
                checking = [("Check", time.perf_counter() - begin)]
        begin = time.perf_counter()
        write_module(read.module, output, emit)
        writing = time.perf_counter() - begin

    if found is not None and not (flags["quiet"] and found.fits):
        click.echo(fit_line(read.name, found, limit), err=True)
    remarks = _located(read, outcome.remarks)
    if flags["remarks_output"] is not None:
        write_remarks(remarks, flags["remarks_output"])
    if wants_summary:
        _print_summary(read.module, before[0], remarks, flags["remarks"] or "all")
    elif not flags["quiet"]:
        small = limit // _WORTH_TELLING if found is not None and limit is not None else 0
        which = flags["remarks"]
        for line in remark_lines(remarks, _kinds(which)) if which else short_remark_lines(remarks, small):
            click.echo(line, err=True)
    seconds = [("Parser", parsing), *outcome.seconds, *checking, ("Output", writing)]
    if reports:
        after = (summarise(read.module), read_timeline(read.module, options.machine))
        taken = with_rest(seconds, time.perf_counter() - start)
        run = Run(read.name, options, names, (before[0], timelines[0]), after, remarks, taken, found, limit, target)
        data = as_data(run, _place_names(read))
        for path in reports:
            write_report(data, path)
    if flags["timing"]:
        click.echo("\n".join(timing_lines(seconds, time.perf_counter() - start)), err=True)
    if found is not None and flags["strict"] and not found.fits:
        sys.exit(3)


def _kinds(which: str) -> tuple[Kind, ...]:
    from exla_opt.remarks import Kind

    return tuple(kind for kind in Kind if which in ("all", kind.value))


def _print_summary(module: ir.Module, before: Summary, remarks: Sequence[Remark], which: str) -> None:
    from rich.console import Console

    from exla_opt.report.summary import summarise
    from exla_opt.report.table import print_summary

    console = Console(stderr=True, highlight=False)
    print_summary(console, before, summarise(module), remarks, _kinds(which))


def _located(source: Source, remarks: Sequence[Remark]) -> Sequence[Remark]:
    from exla_opt.report.text import with_places

    return with_places(remarks, _place_names(source))


def _place_names(source: Source) -> Callable[[str], str]:
    """What turns a place in the module into one that the user knows."""
    from exla_opt.ir.write import has_own_locations
    from exla_opt.report.text import name_place

    # With locations of its own, a module made in an interactive Python may mean that one by <stdin>.
    return str if has_own_locations(source.module) else partial(name_place, name=source.name)
