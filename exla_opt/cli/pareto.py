"""exla-opt --pareto: a table of memory against time."""

from __future__ import annotations

import sys

import click

from exla_opt.cli.common import naming, read_source
from exla_opt.cli.judge import judge_of
from exla_opt.cli.partitioned import program_of_one
from exla_opt.cli.request import Request
from exla_opt.cli.search import showing


def print_choices(request: Request) -> int:
    """Print the programs that a limit may choose from, and return the exit status; no module is written.

    A module for several devices is described by the program of one of them. Raises InputError if there is no such
    program and if the input or a target is at fault, and whatever a pass raises.
    """
    from exla_opt.budget.pareto import pareto
    from exla_opt.ir.attributes import devices_of
    from exla_opt.report.text import choice_lines

    source = read_source(request.source)
    one, partition = program_of_one(source)
    judge = judge_of(request.target, source.name, partition)
    with naming(source), showing(sys.stderr) as tried:
        choices = pareto(
            one,
            request.passes,
            request.options,
            judge.measure,
            verify_each=request.verify_each,
            tried=tried,
        )
    each = f", each of {devices_of(source.module)} devices" if partition is not None else ""
    click.echo("\n".join(choice_lines(choices, f"{judge.name}{each}")))
    return 0
