"""exla-run --budgets: the peaks of a project's modules against the budgets in its pyproject.toml.

    [tool.exla-opt.budgets]
    "models/train.mlir" = { limit = "2GB", target = "cuda:h200", peak = "1.81GB" }
    "models/infer.mlir" = "500MB"

limit is the maximum; peak is the last measurement, printed next to the new one, so that growth shows before the limit
is passed.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from exla_opt.cli.common import load_jax, naming, read_source
from exla_opt.cli.diagnose import held_lines
from exla_opt.sizes import format_size, parse_size

_SETTINGS = frozenset({"limit", "target", "peak"})


@dataclass(frozen=True, slots=True)
class Budget:
    """The budget of one module.

    file: relative to the folder of pyproject.toml. limit: bytes. target: as in `exla-run --target`. peak: the last
    measured bytes, None if not given.
    """

    file: str
    limit: int
    target: str = "cpu"
    peak: int | None = None


def read_budgets(path: Path) -> list[Budget]:
    """The budgets in a pyproject.toml, in its order. Raises click.UsageError if there are none or one is wrong."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise click.UsageError(f"{path}: cannot read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path}: not TOML: {error}") from None
    found = data.get("tool", {}).get("exla-opt", {}).get("budgets")
    if not isinstance(found, dict) or not found:
        raise click.UsageError(f"{path}: there are no [tool.exla-opt.budgets]")
    return [_budget(path, file, given) for file, given in found.items()]


def _budget(path: Path, file: str, given: Any) -> Budget:
    settings = given if isinstance(given, dict) else {"limit": given}
    where = f"{path}: budget of {file!r}"
    if unknown := sorted(settings.keys() - _SETTINGS):
        raise click.UsageError(f"{where}: unknown key {unknown[0]!r}; the keys are limit, target and peak")
    if "limit" not in settings:
        raise click.UsageError(f"{where}: it has no limit")
    try:
        peak = settings.get("peak")
        return Budget(
            file,
            parse_size(str(settings["limit"])),
            str(settings.get("target", "cpu")),
            None if peak is None else parse_size(str(peak)),
        )
    except ValueError as error:
        raise click.UsageError(f"{where}: {error}") from None


def check_budgets(path: Path) -> int:
    """Compile each module for its target and print its peak, its limit and the last peak.

    Returns the exit status: 0 if all limits are kept, 1 if not, 2 if a target cannot be compiled for. For a module over
    its limit, the largest tensors at the peak are printed, with their lines. A module that cannot be read or compiled
    gets an error line, and the others are still checked. Raises click.UsageError if the budgets are wrong.
    """
    budgets = read_budgets(path)
    load_jax(uses_gpu=any(budget.target == "cuda" for budget in budgets))
    from rich.console import Console

    from exla_opt.ir.diagnostics import InputError
    from exla_opt.ir.write import serialise
    from exla_opt.report.runs import print_table
    from exla_opt.runtime.target import TargetError, compiled_memory, parse_target

    rows, over = [], []
    status = 0
    for budget in budgets:
        name = str(path.parent / budget.file)
        try:
            source = read_source(name)
            with naming(source):
                peak = compiled_memory(serialise(source.module, "bytecode"), parse_target(budget.target)).memory.peak
        except InputError as error:  # check the other budgets all the same
            click.echo(f"{budget.file}: {error}", err=True)
            status = max(status, 2 if isinstance(error, TargetError) else 1)
            rows.append([budget.file, budget.target, "-", "-", "-", format_size(budget.limit), "not known"])
            continue
        kept = peak <= budget.limit
        rows.append([budget.file, budget.target, *_figures(budget, peak), "yes" if kept else "no"])
        if not kept:
            over.append((budget, source, peak))
    print_table(Console(highlight=False), ["module", "target", "last", "peak", "change", "limit", "kept"], rows)
    for budget, source, peak in over:
        more = format_size(peak - budget.limit)
        click.echo(
            f"{budget.file}: error: {format_size(peak)} is {more} over its budget of {format_size(budget.limit)}"
        )
        for line in held_lines(source, budget.target):
            click.echo(line)
    return 1 if over else status


def _figures(budget: Budget, peak: int) -> list[str]:
    if budget.peak is None:
        return ["-", format_size(peak), "-", format_size(budget.limit)]
    change = f"{(peak - budget.peak) / budget.peak:+.1%}"
    return [format_size(budget.peak), format_size(peak), change, format_size(budget.limit)]
