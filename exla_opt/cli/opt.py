"""exla-opt: reads a StableHLO module, makes its huge tensors loops over slices, writes it."""

from __future__ import annotations

import difflib
import re
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from exla_opt import __version__
from exla_opt.cli.common import Command, Size, is_terminal, quieten
from exla_opt.options import Options
from exla_opt.sizes import format_size

# Everything that loads MLIR is imported inside the functions: --help and usage errors answer at once.
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jaxlib.mlir import ir

    from exla_opt.fit import Fit
    from exla_opt.ir.read import Source
    from exla_opt.ir.write import Emit
    from exla_opt.pipeline import AfterPass
    from exla_opt.remarks import Kind, Remark
    from exla_opt.report.summary import Summary

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
3 the program does not fit into --memory-limit (with --strict).
A module in which nothing can be split comes out all the same, with the
reasons on standard error."""


def _split_rule(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    rules = []
    for value in values:
        target, _, rule = value.partition("=")
        if not target.strip() or not re.fullmatch(r"\s*\(.*\)\s*->\s*\(.*\)\s*.*", rule):
            raise click.BadParameter(f"{value!r} is not of the form 'target=([i,j],[j])->([i])'", ctx, param)
        rules.append((target.strip(), rule.strip()))
    return tuple(rules)


def _list_passes(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from exla_opt.pipeline import PASSES, description

    width = max(map(len, PASSES))
    for name in PASSES:
        click.echo(f"{name:{width}}  {description(name)}")
    ctx.exit()


def _explain(ctx: click.Context, param: click.Parameter, code: str | None) -> None:
    if code is None or ctx.resilient_parsing:
        return
    from exla_opt.explanations import EXPLANATIONS, explain

    text = explain(code)
    if text is None:
        close = difflib.get_close_matches(code.upper(), EXPLANATIONS, n=3, cutoff=0.5)
        hint = f"Did you mean {' or '.join(close)}?" if close else f"The first is {next(iter(EXPLANATIONS))}."
        raise click.BadParameter(f"there is no remark {code!r}. {hint}", ctx=ctx, param=param)
    click.echo(text)
    ctx.exit()


def _remarks_file(ctx: click.Context, param: click.Parameter, name: str | None) -> str | None:
    if name is not None and not name.endswith((".json", ".yaml", ".yml")):
        raise click.BadParameter(f"{name!r} must end in .json or .yaml", ctx=ctx, param=param)
    return name


@click.command(cls=Command, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
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
    callback=_split_rule,
    help="How a custom call may be cut: 'target=([i,j],[j])->([i])'. May be repeated.",
)
@click.option("--passes", metavar="A,B", help="The passes to run, in this order.")
@click.option("--pass-pipeline", metavar="TEXT", help="The same in MLIR's form: 'builtin.module(a,b)'.")
@click.option(
    "--list-passes", is_flag=True, is_eager=True, expose_value=False, callback=_list_passes, help="List them."
)
@click.option(
    "--remarks",
    type=click.Choice(["all", "missed", "passed"]),
    help="Which remarks to print [all in the table, missed as lines].",
)
@click.option(
    "--remarks-output",
    metavar="FILE",
    callback=_remarks_file,
    help="Write all remarks to FILE.json or FILE.yaml.",
)
@click.option(
    "--explain", metavar="CODE", is_eager=True, expose_value=False, callback=_explain, help="Tell what a remark means."
)
@click.option("--print-ir-after-all", is_flag=True, help="Print the module after each pass, on standard error.")
@click.option("--verify-each/--no-verify-each", default=True, help="Verify the module after each pass [on].")
@click.option("--timing", is_flag=True, help="Print the time each pass took, on standard error.")
@click.option("--report", is_flag=True, help="Print the report even if standard error is no terminal.")
@click.option("--quiet", is_flag=True, help="No report and no remarks, only errors.")
@click.version_option(__version__, message="exla-opt %(version)s")
def main(source: str, output: str, emit: Emit, **flags: Any) -> None:
    """Make an XLA program fit: rewrite the StableHLO module INPUT so that huge intermediate tensors are computed
    in slices, inside loops. Signature and results stay the same.

    INPUT is MLIR text, MLIR bytecode or a StableHLO portable artifact, gzipped or not; - (the default) is
    standard input.
    """
    start = time.perf_counter()
    if flags["report"] and flags["quiet"]:
        raise click.UsageError("--report and --quiet exclude each other")
    if emit != "text" and output == "-" and is_terminal(sys.stdout):
        raise click.UsageError(f"--emit={emit} is binary and will not be written to a terminal; use -o FILE")
    options = _options(flags)
    if source == "-" and is_terminal(sys.stdin):
        click.echo("exla-opt: reading a module from standard input (--help tells more)", err=True)
    _run(source, output, emit, options, flags, start)


def _options(flags: dict[str, Any]) -> Options:
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
    return Options(threshold, split, not flags["no_reassociate"], flags["op_rules"], flags["chain_cost"])


def pass_names(passes: str | None, pipeline: str | None) -> tuple[str, ...]:
    """The passes chosen by `--passes` or `--pass-pipeline`; the default ones without either.

    Raises click.UsageError for both at once and for unknown names.
    """
    from exla_opt.pipeline import DEFAULT_PASSES, PASSES

    if passes is not None and pipeline is not None:
        raise click.UsageError("--passes and --pass-pipeline exclude each other")
    text = passes if pipeline is None else pipeline
    if text is None:
        return DEFAULT_PASSES
    nested = re.fullmatch(r"\s*builtin\.module\s*\((.*)\)\s*", text)
    inner = nested[1] if nested and pipeline is not None else text
    names = tuple(part.strip() for part in inner.split(",")) if inner.strip() else ()
    for name in names:
        if name not in PASSES:
            close = difflib.get_close_matches(name, PASSES, n=1, cutoff=0.5)
            hint = f"Did you mean '{close[0]}'?" if close else f"The passes are {', '.join(PASSES)}."
            raise click.UsageError(f"unknown pass '{name}'. {hint}")
    return names


def _run(source: str, output: str, emit: Emit, options: Options, flags: dict[str, Any], start: float) -> None:
    names = pass_names(flags["passes"], flags["pass_pipeline"])

    from exla_opt.analysis.op_rules.custom_calls import parse_user_rule
    from exla_opt.ir.context import new_context
    from exla_opt.ir.diagnostics import InputError
    from exla_opt.ir.read import read_module
    from exla_opt.ir.write import serialise, write_module
    from exla_opt.pipeline import run_pipeline
    from exla_opt.report.summary import summarise
    from exla_opt.report.text import fit_line, remark_lines, write_remarks

    for target, rule in options.op_rules:
        try:
            parse_user_rule(target, rule)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="'--op-rule'") from None
    begin = time.perf_counter()
    read = read_module(source, new_context())
    parsing = time.perf_counter() - begin
    wants_report = not flags["quiet"] and (flags["report"] or is_terminal(sys.stderr))
    # Measured after inlining where that comes first: a call hides what it makes.
    before = [summarise(read.module)] if wants_report and names[:1] != ("normalise",) else []

    def after_pass(name: str, module: ir.Module) -> None:
        if wants_report and not before:
            before.append(summarise(module))
        if flags["print_ir_after_all"]:
            click.echo(f"// -----// IR Dump After {name} //----- //", err=True)
            click.echo(serialise(module, "text"), err=True)

    limit, target = flags["memory_limit"], flags["target"]
    try:
        if limit is None and target is None:
            outcome = run_pipeline(read.module, names, options, verify_each=flags["verify_each"], after_pass=after_pass)
        else:
            found, limit = _fit(read, names, options, limit, target, after_pass)
            read, outcome = replace(read, module=found.module), found.outcome
    except InputError as error:
        error.locate(read.name, read.data)
        raise
    begin = time.perf_counter()
    write_module(read.module, output, emit)
    writing = time.perf_counter() - begin

    if limit is not None and not (flags["quiet"] and found.fits):
        click.echo(fit_line(read.name, found, limit), err=True)
    remarks = _located(read, outcome.remarks)
    if flags["remarks_output"] is not None:
        write_remarks(remarks, flags["remarks_output"])
    if wants_report:
        _print_report(read.module, before[0], remarks, flags["remarks"] or "all")
    elif not flags["quiet"]:
        for line in remark_lines(remarks, _kinds(flags["remarks"] or "missed")):
            click.echo(line, err=True)
    if flags["timing"]:
        from exla_opt.report.text import timing_lines

        seconds = [("Parser", parsing), *outcome.seconds, ("Output", writing)]
        click.echo("\n".join(timing_lines(seconds, time.perf_counter() - start)), err=True)
    if limit is not None and flags["strict"] and not found.fits:
        sys.exit(3)


def _fit(
    source: Source, names: Sequence[str], options: Options, limit: int | None, target: str | None, after_pass: AfterPass
) -> tuple[Fit, int]:
    """The pipeline with sizes for a memory limit, and the limit; on a terminal with a line on what is being tried."""
    from exla_opt.fit import fit
    from exla_opt.ir.read import parse_module

    context = source.module.context
    measure, memory, gpu = (None, 0, False) if target is None else _measure_on(target)
    bound = memory if limit is None else limit

    def read() -> ir.Module:
        return parse_module(source.name, source.data, context).module

    def search(tried: Callable[[Options, int], None] | None = None) -> Fit:
        return fit(read, names, options, bound, measure, gpu=gpu, after_pass=after_pass, tried=tried)

    if not is_terminal(sys.stderr):
        return search(), bound
    from rich.console import Console

    with Console(stderr=True).status("trying without any split") as status:

        def tried(sizes: Options, peak: int) -> None:
            status.update(f"slices of {format_size(sizes.slice_bytes)} need {format_size(peak)}")

        return search(tried), bound


def _measure_on(name: str) -> tuple[Callable[[ir.Module], int], int, bool]:
    """What compiles for a device and tells the peak bytes, the device's own bytes, and whether it is a GPU."""
    quieten(uses_gpu=name == "cuda")
    from exla_opt.ir.write import serialise
    from exla_opt.runtime.target import compiled_memory, parse_target

    target = parse_target(name)

    def measure(module: ir.Module) -> int:
        return compiled_memory(serialise(module, "bytecode"), target).peak

    return measure, target.memory, bool(target.description)


def _kinds(which: str) -> tuple[Kind, ...]:
    from exla_opt.remarks import Kind

    return tuple(kind for kind in Kind if which in ("all", kind.value))


def _print_report(module: ir.Module, before: Summary, remarks: Sequence[Remark], which: str) -> None:
    from rich.console import Console

    from exla_opt.report.summary import summarise
    from exla_opt.report.table import print_report

    console = Console(stderr=True, highlight=False)
    print_report(console, before, summarise(module), remarks, _kinds(which))


def _located(source: Source, remarks: Sequence[Remark]) -> Sequence[Remark]:
    from exla_opt.ir.write import has_own_locations
    from exla_opt.report.text import name_input

    # With locations of its own, a module made in an interactive Python may mean that one by <stdin>.
    return remarks if has_own_locations(source.module) else name_input(remarks, source.name)
