"""exla-opt: reads a StableHLO module, turns its huge tensors into loops over slices, and writes it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from exla_opt.cli import values
from exla_opt.cli.common import Size, is_terminal
from exla_opt.cli.diagnose import print_diagnosis
from exla_opt.cli.job import run_job
from exla_opt.cli.pareto import print_choices
from exla_opt.cli.pass_list import pass_names
from exla_opt.cli.request import read_request
from exla_opt.cli.split_input import run_each
from exla_opt.debug import TOPICS, printing

# Everything that loads MLIR is imported inside the functions: --help and usage errors answer at once.
if TYPE_CHECKING:
    from exla_opt.cli.request import Form

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
If nothing can be split, the module is written unchanged, with the reasons
on standard error."""


@click.command(
    "exla-opt", cls=values.OptCommand, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.argument("source", metavar="[INPUT]", default="-")
@click.option("-o", "--output", metavar="FILE", default="-", help="Where to write; - (the default) is standard output.")
@click.option(
    "--emit",
    type=click.Choice(["text", "bytecode", "portable", "hlo", "jax"]),
    help="Form of the output; hlo is a proto, jax what jax.export.deserialize reads [jax of such a file, else text].",
)
@click.option(
    "--split-input-file",
    is_flag=True,
    help="INPUT holds several modules, separated by lines // -----; so does the output.",
)
@click.option(
    "--stablehlo-version",
    metavar="VERSION",
    callback=values.stablehlo_version,
    help="The StableHLO that must be able to read --emit=portable [jaxlib's].",
)
@click.option("--split-size", type=Size(), help="Maximum size of one slice of a big tensor [the threshold].")
@click.option("--size-threshold", type=Size(), help="Tensors larger than this are big, and split [1GB].")
@click.option(
    "--nested-tiles",
    is_flag=True,
    help="Cut tiles along a second dimension, in inner loops, where a slice would hold few rows.",
)
@click.option("--memory-limit", type=Size(), help="Choose both sizes so that the program fits into this much memory.")
@click.option(
    "--target",
    metavar="DEVICE",
    help="Fit into this device (or --memory-limit), checked by its compiler if installed: "
    "cpu, gpu, cuda:h200 or another GPU, cuda:PATH, tpu:v5e or another TPU.",
)
@click.option(
    "--pareto",
    is_flag=True,
    help="Print how time grows as memory shrinks, a line for each limit worth giving; write nothing.",
)
@click.option(
    "--diagnose",
    is_flag=True,
    help="Print which tensors hold the memory, what exla-opt would do, and what else helps; write nothing.",
)
@click.option("--strict", is_flag=True, help="Exit with 3 when the program does not fit.")
@click.option("--no-reassociate", is_flag=True, help="Never compute a floating-point sum tile by tile.")
@click.option(
    "--chain-cost",
    type=click.Choice(["flops", "bytes", "both"]),
    default="both",
    help="What matrix-chain-order minimises: operations, the largest intermediate tensor, or both [both].",
)
@click.option(
    "--op-rule",
    "op_rules",
    multiple=True,
    metavar="RULE",
    callback=values.split_rule,
    help="How a custom call may be split: 'target=([i,j],[j])->([i])'. May be repeated.",
)
@click.option("--passes", metavar="A,B", help="The passes to run, in this order.")
@click.option(
    "--pass-pipeline",
    metavar="TEXT",
    help="The same in MLIR's form, with sizes of single passes: 'builtin.module(a,tensor-splitter{split-size=8MB})'.",
)
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
    multiple=True,
    metavar="FILE",
    callback=values.remarks_files,
    help="Write all remarks to FILE.json, FILE.yaml or FILE.sarif. May be repeated.",
)
@click.option(
    "--explain",
    metavar="CODE",
    is_eager=True,
    expose_value=False,
    callback=values.explain_code,
    help="Print what a remark means.",
)
@click.option("--print-ir-after-all", is_flag=True, help="Print the module after each pass, on standard error.")
@click.option(
    "--print-ir-before",
    multiple=True,
    metavar="PASS",
    callback=pass_names,
    help="The same before PASS. May be repeated.",
)
@click.option("--print-ir-after", multiple=True, metavar="PASS", callback=pass_names, help="The same after PASS alone.")
@click.option(
    "--debug-only",
    metavar="TOPIC",
    multiple=True,
    callback=values.debug_topics,
    help=f"Print how a choice was made, on standard error: {' or '.join(TOPICS)}. May be repeated.",
)
@click.option("--verify-each/--no-verify-each", default=True, help="Verify the module after each pass [on].")
@click.option("--check", is_flag=True, help="Run the original and the rewritten module on random inputs, and compare.")
@click.option(
    "--check-memory",
    type=Size(),
    help="Memory that --check may use; a program that needs more is checked at a smaller size [free memory].",
)
@click.option(
    "--crash-reproducer", metavar="FILE", help="Where to write the module and the options if exla-opt or XLA crashes."
)
@click.option("--timing", is_flag=True, help="Print the time each pass took, on standard error.")
@click.option("--summary", is_flag=True, help="Print the summary even if standard error is not a terminal.")
@click.option(
    "--report",
    "reports",
    multiple=True,
    metavar="FILE",
    callback=values.report_files,
    help="Write a report to FILE.html, a page, or to FILE.json. May be repeated.",
)
@click.option("--quiet", is_flag=True, help="No summary and no remarks, only errors.")
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=values.print_version,
    help="Print the versions of exla-opt, jaxlib and StableHLO.",
)
def main(source: str, output: str, emit: Form | None, **flags: Any) -> None:
    """Make an XLA program fit: rewrite the StableHLO module INPUT so that huge intermediate tensors are computed
    in slices, inside loops. Signature and results stay the same.

    INPUT is MLIR text, MLIR bytecode, a StableHLO portable artifact, HLO before XLA's optimisation (text or proto, as
    XLA dumps it) or a file of jax.export, gzipped or not; - (the default) is standard input.
    """
    click.get_current_context().with_resource(printing(flags.pop("debug_only"), sys.stderr))
    request = read_request(source, output, emit, flags)
    if request.pareto:
        sys.exit(print_choices(request))
    if request.diagnose:
        sys.exit(print_diagnosis(request))
    written = request.outputs()
    if emit not in (None, "text") and output == "-" and is_terminal(sys.stdout):
        raise click.UsageError(f"--emit={emit} is binary and will not be written to a terminal; use -o FILE")
    if source == "-" and is_terminal(sys.stdin):
        click.echo("exla-opt: reading a module from standard input (see --help)", err=True)
    from exla_opt.ir.write import check_writable

    for name in written:
        check_writable(name)
    sys.exit(run_each(request) if request.split_input_file else run_job(request))
