"""exla-run: compiles a module through PJRT, runs it, measures it, and compares it with another."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from exla_opt import __version__
from exla_opt.cli.budgets import check_budgets
from exla_opt.cli.common import Command, Size, load_jax, naming, read_source, write_json
from exla_opt.cli.fit import print_fit
from exla_opt.cli.survey import is_survey, print_where

# Everything that loads MLIR or jax is imported inside the functions: --help and usage errors answer at once.
if TYPE_CHECKING:
    from collections.abc import Sequence

    from exla_opt.ir.read import Source
    from exla_opt.report.runs import Measured
    from exla_opt.runtime.compare import Comparison, Tolerance
    from exla_opt.runtime.compile import Device, Program
    from exla_opt.runtime.inputs import Array, Signature

_EPILOG = """\b
Examples:
  exla-run smaller.mlir --compare model.mlir
  exla-opt model.mlir | exla-run - --compare model.mlir
  exla-run model.mlir --no-run
  exla-run smaller.mlir --compare model.mlir --target cuda:h200
  exla-run smaller.mlir --compare model.mlir --target all

\b
Two results are equal when integers and booleans agree bit by bit, NaN and
infinity stand at the same places, and floats differ by at most
  max(rtol x the largest finite magnitude of the result, atol)
with rtol 1e-9 for f64, 1e-4 for f32, 2e-3 for f16, 2e-2 for bf16 and 0.1
for f8, atol 1e-11 for f64, 1e-6 for f32 and rtol for the others; on a GPU,
f32 counts as f16 where products of f32 are rounded to TF32. Where they do not,
OTHER is also run on inputs that are off by one ulp; an error of up to four
times the change that causes counts as equal, and the table says so.

\b
Memory is what XLA plans: peak = arguments + results - aliased + temp. On a
CPU it is read from a compile without the fusions that hide their scratch
memory; times are those of the default compile, the median after a warm-up.

\b
A target is cpu (this machine's), cuda (the GPU that is here), cuda:h200 (or
gpu), cuda:a100-80, cuda:l4 or another GPU that is known, cuda:PATH, a file
with a GpuTargetConfigProto as text, or tpu:v4, v5e, v5p, v6e or v7x. Except
for cuda, which lets XLA try out kernels on the GPU, none of the devices is
needed, only: pip install 'exla-opt[cuda]' or 'exla-opt[tpu]'. For a GPU that
is not here, a module is compiled with Triton's and with cuBLAS's matrix
products (gemm), and the larger peak counts. --target=all, or names with commas between
them, prints one table of where the modules fit, in less than a minute for all.

\b
For an H200 and an H100 the time of a run is estimated from what XLA compiled
(with cuBLAS's products), with the bytes that cross the GPU's memory (traffic),
the kernels that are launched, and the part of the time that launches and
trips of loops cost (overhead). Nothing is run: of programs measured on an
H200, half took 0.8 to 1.2 times as long; ratios of two modules are closer.

\b
Exit status: 0 done and, with --compare, equal or, with --target, FILE fits
(one of the targets); 1 otherwise, or a module or its inputs cannot be read,
compiled or run; 2 wrong usage, or no target can be compiled for."""

# Options of a run, which --target excludes.
_OF_A_RUN = ("inputs", "seed", "device", "repeat", "rtol", "atol", "no_run")


def _finite(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is not a tolerance", ctx, param)
    return value


@click.command("exla-run", cls=Command, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file", metavar="FILE", required=False)
@click.option("--compare", "other", metavar="OTHER", help="Run OTHER on the same inputs; FILE's results must equal it.")
@click.option("--inputs", metavar="FILE.npz", help="Arrays arg0, arg1, ... to run on.")
@click.option("--seed", type=click.IntRange(min=0), help="Seed of the random inputs, used without --inputs [0].")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", help="Where to run [cpu].")
@click.option("--repeat", type=click.IntRange(min=1), default=5, help="Timed runs after the warm-up [5].")
@click.option(
    "--rtol", type=click.FloatRange(min=0), callback=_finite, help="Relative tolerance for all float results."
)
@click.option(
    "--atol", type=click.FloatRange(min=0), callback=_finite, help="Absolute tolerance for all float results."
)
@click.option("--no-run", is_flag=True, help="Only compile, and print the memory.")
@click.option(
    "--target", metavar="TARGET", help="Only compile, for TARGET, and print whether FILE would fit: see below."
)
@click.option("--limit", type=Size(), metavar="SIZE", help="Memory to check against instead of TARGET's.")
@click.option("--json", "json_file", metavar="FILE", help="Write the figures as JSON too.")
@click.option(
    "--budgets",
    metavar="PYPROJECT",
    help="Check the budgets in PYPROJECT, as in --budgets=pyproject.toml, instead of FILE.",
)
@click.version_option(__version__, message="exla-run %(version)s")
def main(
    file: str | None,
    other: str | None,
    inputs: str | None,
    seed: int | None,
    device: Device,
    repeat: int,
    rtol: float | None,
    atol: float | None,
    no_run: bool,
    target: str | None,
    limit: int | None,
    json_file: str | None,
    budgets: str | None,
) -> None:
    """Compile the module FILE, run it, and print its memory and time; with --compare also OTHER's, and compare
    their results. The last line is then PASSED or FAILED, unless --no-run leaves nothing to compare.

    FILE and OTHER are MLIR text, MLIR bytecode, StableHLO portable artifacts, HLO before XLA's optimisation or files of
    jax.export, gzipped or not; one of them may be - for standard input.
    """
    context = click.get_current_context()
    if budgets is not None:
        given = [name for name in context.params if name != "budgets" and _is_given(context, name)]
        if given:
            raise click.UsageError(f"--budgets excludes {'FILE' if given[0] == 'file' else 'all other options'}")
        context.exit(check_budgets(Path(budgets)))
    if file is None:
        raise click.UsageError("Missing argument 'FILE'.")
    if file == "-" and other == "-":
        raise click.UsageError("FILE and OTHER cannot both be standard input")
    if inputs is not None and seed is not None:
        raise click.UsageError("--inputs and --seed exclude each other")
    if no_run and (inputs is not None or seed is not None):
        raise click.UsageError("--no-run needs no --inputs and no --seed")
    if other is None and (rtol is not None or atol is not None):
        raise click.UsageError("--rtol and --atol are for --compare")
    if target is None and limit is not None:
        raise click.UsageError("--limit is for --target")
    names = [file] if other is None else [file, other]
    if target is not None:
        given = [name for name in _OF_A_RUN if _is_given(context, name)]
        if given:
            raise click.UsageError(f"--target runs nothing and excludes --{given[0].replace('_', '-')}")
        if is_survey(target) and limit is not None:
            raise click.UsageError("--limit is for one target")
        load_jax(uses_gpu=target == "cuda")
        if is_survey(target):
            context.exit(print_where(names, target, json_file))
        context.exit(print_fit(names, target, limit, json_file))
    load_jax(uses_gpu=device == "cuda")
    passed = _run(names, inputs, seed or 0, device, 0 if no_run else repeat, (rtol, atol), json_file)
    context.exit(0 if passed else 1)


def _is_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _run(
    names: Sequence[str],
    inputs: str | None,
    seed: int,
    device: Device,
    repeats: int,
    tolerances: tuple[float | None, float | None],
    json_file: str | None,
) -> bool:
    """Run the command; return whether the results agree, True if nothing was compared."""
    from rich.console import Console

    from exla_opt.ir.attributes import all_devices_of
    from exla_opt.ir.write import serialise
    from exla_opt.report.runs import Measured, print_measured
    from exla_opt.runtime.compile import check_device
    from exla_opt.runtime.inputs import difference, load_inputs, read_signature
    from exla_opt.runtime.memory import measure_memory
    from exla_opt.runtime.target import compiled_memory, parse_target

    sources = [read_source(name) for name in names]
    check_device(device, max(all_devices_of(source.module) for source in sources))
    signatures: list[Signature] = []
    for source in sources:
        with naming(source):
            signatures.append(read_signature(source.module))
    if len(sources) == 2 and (found := difference(signatures, [source.name for source in sources])):
        click.echo(f"the signatures differ: {found}")
        click.echo("FAILED")
        return False
    arrays = load_inputs(inputs, signatures[0]) if repeats and inputs is not None else None

    programs = [serialise(source.module, "bytecode") for source in sources]
    sides: list[Measured] = []
    for source, program in zip(sources, programs, strict=True):
        with naming(source):
            count = all_devices_of(source.module)
            if device == "cpu":
                compiled = compiled_memory(program, parse_target("cpu"))
                sides.append(Measured(source.name, compiled.memory, devices=count, traffic=compiled.traffic))
            else:
                sides.append(Measured(source.name, measure_memory(program, device), devices=count))
    comparisons: list[Comparison] | None = None
    try:
        if repeats:
            seconds, comparisons = _execute(sources, programs, arrays or seed, device, repeats, tolerances)
            sides = [replace(side, seconds=median) for side, median in zip(sides, seconds, strict=True)]
    finally:
        print_measured(Console(highlight=False), sides)  # printed for a failed run too, as it may show why
    return _conclude(sides, comparisons, json_file)


def _execute(
    sources: Sequence[Source],
    programs: Sequence[bytes],
    inputs: Sequence[Array] | int,
    device: Device,
    repeats: int,
    tolerances: tuple[float | None, float | None],
) -> tuple[list[float], list[Comparison] | None]:
    """The seconds of each program, and the comparisons of the first one's results with the second one's.

    inputs: the arrays to run on, or the seed of random ones that suit the last program, which is the original.
    """
    from exla_opt.runtime.check import compare_results
    from exla_opt.runtime.compare import compare
    from exla_opt.runtime.compile import compile_program, run_program, time_programs
    from exla_opt.runtime.draws import choose_inputs
    from exla_opt.runtime.tf32 import has_tf32, rounds_to_tf32

    compiled: list[Program] = []
    for source, module in zip(sources, programs, strict=True):
        with naming(source):
            compiled.append(compile_program(module, device))

    def run_original(arrays: Sequence[Array]) -> list[Array]:
        with naming(sources[-1]):
            return run_program(compiled[-1], arrays)

    if isinstance(inputs, int):
        arrays, expected = choose_inputs(sources[-1].module, inputs, run_original)
    else:
        arrays, expected = list(inputs), run_original(inputs)
    comparisons = None
    if len(sources) == 2:
        with naming(sources[0]):
            actual = run_program(compiled[0], arrays)
        tf32 = device == "cuda" and has_tf32() and any(rounds_to_tf32(source.module) for source in sources)
        if tf32 and None in tolerances:
            click.echo("this GPU rounds products of f32 to TF32: f32 results are compared as f16 ones are")
        if tolerances == (None, None):
            comparisons = compare_results(expected, actual, run_original, arrays, tf32=tf32)
        else:
            pairs = zip(expected, actual, strict=True)
            comparisons = [compare(one, other, _tolerance(one, *tolerances, tf32)) for one, other in pairs]
        del actual
    del expected  # free memory for the timed runs
    return time_programs(compiled, arrays, repeats), comparisons


def _conclude(sides: Sequence[Measured], comparisons: Sequence[Comparison] | None, json_file: str | None) -> bool:
    from rich.console import Console

    from exla_opt.report.runs import as_json, print_comparisons

    passed = None if comparisons is None else all(one.passed for one in comparisons)
    if json_file is not None:
        write_json(json_file, as_json(sides, comparisons, passed))
    if comparisons is None:
        return True
    print_comparisons(Console(highlight=False), comparisons)
    click.echo("PASSED" if passed else "FAILED")
    return bool(passed)


def _tolerance(expected: Array, rtol: float | None, atol: float | None, tf32: bool) -> Tolerance:
    from exla_opt.runtime.compare import Tolerance, default_tolerance

    default = default_tolerance(expected.dtype, tf32=tf32)
    return Tolerance(default.relative if rtol is None else rtol, default.absolute if atol is None else atol)
