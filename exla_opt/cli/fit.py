"""exla-run --target: whether a module would fit on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from exla_opt.cli.common import naming, read_source, write_json
from exla_opt.cli.diagnose import held_lines

if TYPE_CHECKING:  # at run time these are imported inside the function, for they load MLIR and jax
    from collections.abc import Sequence


def print_fit(names: Sequence[str], target_name: str, limit: int | None, json_file: str | None) -> int:
    """Compile the modules for the target, print their memory, and return the exit status: 0 if the first one fits in
    `limit` bytes (None: the target's memory), 1 if not, 2 if the target cannot be compiled for.

    Raises InputError when a module cannot be read or compiled.
    """
    from rich.console import Console

    from exla_opt.ir.attributes import all_devices_of
    from exla_opt.ir.write import serialise
    from exla_opt.report.runs import Measured, fits, fits_as_json, print_fits
    from exla_opt.runtime.target import AUTOTUNED, TargetError, compiled_memory, parse_target
    from exla_opt.runtime.tpus import SLOW
    from exla_opt.runtime.workspace import tight, workspace_of

    sides: list[Measured] = []
    try:
        target = parse_target(target_name)
        sources = [read_source(name) for name in names]
        if target.tpu is not None:
            click.echo(f"{sources[0].name}: note: {SLOW}", err=True)
        for source in sources:
            with naming(source):
                module, count = serialise(source.module, "bytecode"), all_devices_of(source.module)
                found = compiled_memory(module, target)
            side = Measured(source.name, found.memory, estimated=found.time, devices=count, traffic=found.traffic)
            sides.append(side)
            if found.note:
                click.echo(f"{source.name}: note: {found.note}", err=True)
    except TargetError as error:
        click.echo(str(error), err=True)
        return 2
    bound, bound_name = (target.memory, target.name) if limit is None else (limit, "limit")
    print_fits(Console(highlight=False), sides, bound_name, bound)
    workspace = 0 if sides[0].memory.gemm == AUTOTUNED else workspace_of(target.description)
    if note := tight(sources[0].module, sides[0].memory.peak, bound, workspace):
        click.echo(f"{sides[0].name}: note: {note}", err=True)
    if json_file is not None:
        write_json(json_file, fits_as_json(sides, target.name, bound))
    if fits(sides[0], bound):
        return 0
    if sides[0].devices == 1:
        for line in held_lines(sources[0], target_name):
            click.echo(line)
    return 1
