"""exla-opt --pareto: a table of memory against time."""

from __future__ import annotations

import sys

import click

from exla_opt.cli.common import naming, read_source
from exla_opt.cli.judge import judge_of
from exla_opt.cli.request import Request
from exla_opt.cli.search import showing


def print_choices(request: Request) -> int:
    """Print the programs that a limit may choose from, and return the exit status; no module is written.

    Raises InputError if the input or a target is at fault, and whatever a pass raises.
    """
    from exla_opt.budget.pareto import pareto
    from exla_opt.ir.attributes import devices_of
    from exla_opt.ir.diagnostics import InputError
    from exla_opt.report.text import choice_lines

    source = read_source(request.source)
    devices = devices_of(source.module)
    if devices > 1:
        with naming(source):
            raise InputError(f"it is for {devices} devices, which --pareto does not support: give a --memory-limit")
    judge = judge_of(request.target, source.name)
    with naming(source), showing(sys.stderr) as tried:
        choices = pareto(
            source.module,
            request.passes,
            request.options,
            judge.measure,
            verify_each=request.verify_each,
            tried=tried,
        )
    click.echo("\n".join(choice_lines(choices, judge.name)))
    return 0
