"""exla-run --target=all, or a list: finds the devices on which a module fits."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from exla_opt.cli.common import is_terminal, read_source, write_json

if TYPE_CHECKING:  # at run time this is imported inside the function, for it loads MLIR and jax
    from collections.abc import Sequence

ALL = "all"
# The time limit for a table of all devices, in seconds.
_MINUTE = 50.0
_AS_LONG_AS_IT_TAKES = 3600.0


def is_survey(target: str) -> bool:
    """Whether a target on the command line names several."""
    return target == ALL or "," in target


def print_where(names: Sequence[str], targets: str, json_file: str | None) -> int:
    """Compile the modules for all targets, print where they fit, and return the exit status.

    It is 0 if the first module fits one of them, 1 if none, 2 if no target could be compiled for. Raises InputError
    when a module cannot be read or a name is unknown, click.UsageError for an empty name in a list.
    """
    from rich.console import Console

    from exla_opt.ir.write import serialise
    from exla_opt.report.survey import print_survey, survey_as_json
    from exla_opt.runtime.survey import all_targets, survey

    sources = [read_source(name) for name in names]
    modules = [serialise(source.module, "bytecode") for source in sources]
    wanted = all_targets() if targets == ALL else list(dict.fromkeys(each.strip() for each in targets.split(",")))
    if "" in wanted:
        raise click.UsageError(f"--target={targets}: a name is missing")
    seconds = _MINUTE if targets == ALL else _AS_LONG_AS_IT_TAKES
    shown = [source.name for source in sources]
    if is_terminal(sys.stderr):
        with Console(stderr=True).status("compiling") as status:
            rows = survey(modules, wanted, seconds, lambda name: status.update(f"compiling for {name}"))
    else:
        rows = survey(modules, wanted, seconds)
    print_survey(Console(highlight=False), shown, rows)
    if json_file is not None:
        write_json(json_file, survey_as_json(shown, rows))
    if all(row.is_target for row in rows):
        return 2
    return 0 if any(row.peaks is not None and row.peaks[0] <= row.memory for row in rows) else 1
