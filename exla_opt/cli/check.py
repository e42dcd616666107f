"""exla-opt --check: runs the original and the rewritten module, at full or reduced size, and compares."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from exla_opt.cli.common import as_it_came, load_jax
from exla_opt.sizes import format_size

if TYPE_CHECKING:  # at run time these are imported inside the functions, for they load MLIR and jax
    from collections.abc import Sequence

    from jaxlib.mlir import ir

    from exla_opt.ir.read import Source
    from exla_opt.options import Options
    from exla_opt.remarks import Remark
    from exla_opt.runtime.compare import Comparison

# A check at a reduced size should be quick.
_SMALL_RUN = 64 * 10**6
_DIFFERENT = "at the size of the check, other tensors are split than at the real size"
_HELP = "the rewritten module is not written; please report this with the module, which exla-reduce makes smaller"


def check(
    read: Source,
    names: Sequence[str],
    options: Options,
    remarks: Sequence[Remark],
    limit: int | None,
    *,
    uses_gpu: bool,
    quiet: bool,
) -> tuple[float, float] | None:
    """Compare the rewritten module with the module `read`, by running both; print how it was done.

    remarks: of the passes. limit: the memory that a run may take; None for the free memory. Returns the seconds of a
    run before and after, or None if a reduced size was run. Raises InputError when a result differs, or if only the
    rewritten module cannot be run.
    """
    load_jax(uses_gpu=uses_gpu)
    from exla_opt.ir.attributes import replicas_of
    from exla_opt.ir.diagnostics import InputError
    from exla_opt.resize.shrink import CannotShrink, needed_bytes
    from exla_opt.runtime.check import CannotRun, compare_modules

    before, after, how = as_it_came(read), read.module, "at the real size"
    bound = free_memory() if limit is None else limit
    needed = replicas_of(before) * needed_bytes(before)
    try:
        if needed > bound:
            before, after, how = _at_a_smaller_size(read, names, options, remarks, min(bound, _SMALL_RUN))
        checked = compare_modules(before, after)
    except CannotShrink as error:
        sizes = f"a run needs {format_size(needed)}, {format_size(bound)} may be used"
        _warn(read.name, f"not checked: {sizes}, and {error}")
        return None
    except CannotRun as error:
        _warn(read.name, f"not checked: the module as it was cannot be run ({error})")
        return None
    except InputError as error:
        error.message = f"the rewritten module fails where the original does not (checked {how}): {error.message}"
        error.help = _HELP
        raise
    _conclude(read.name, checked.comparisons, how, quiet)
    return checked.seconds if after is read.module else None


def _at_a_smaller_size(
    read: Source, names: Sequence[str], options: Options, remarks: Sequence[Remark], limit: int
) -> tuple[ir.Module, ir.Module, str]:
    """Reduce the original until the same tensors are split, or the closest set; return it, rewritten, and its sizes.

    The largest such size is taken. Raises CannotShrink.
    """
    from exla_opt.ir.rewrite import copy_of
    from exla_opt.pipeline import run_pipeline
    from exla_opt.resize.shrink import shrink

    wanted = _splits(remarks)
    found: list[tuple[int, ir.Module, ir.Module, str]] = []
    for small in shrink(lambda: as_it_came(read), options, limit):
        rewritten = copy_of(small.module)
        splits = _splits(run_pipeline(rewritten, names, small.options).remarks)
        found.append((len(wanted ^ splits), small.module, rewritten, f"with {_dimensions(small.sizes)}"))
        if splits == wanted:
            break
    different, before, after, how = min(found, key=lambda one: one[0])
    if different:
        _warn(read.name, f"{_DIFFERENT} ({how})")
    return before, after, how


def _conclude(name: str, comparisons: Sequence[Comparison], how: str, quiet: bool) -> None:
    from exla_opt.ir.diagnostics import InputError

    wrong = [number for number, one in enumerate(comparisons) if not one.passed]
    if wrong:
        what = f"result {wrong[0]} differs from that of the original module: {comparisons[wrong[0]].problem}"
        more = f", and {len(wrong) - 1} more" if wrong[1:] else ""
        raise InputError(f"{what}{more} (checked {how})", file=name, help=_HELP)
    nan = [str(number) for number, one in enumerate(comparisons) if one.all_nan]
    if nan:
        which = f"result{'s' * (len(nan) != 1)} {', '.join(nan)}: {'it is' if len(nan) == 1 else 'they are'}"
        _warn(name, f"the check is inconclusive for {which} NaN throughout on random inputs")
    if not quiet:
        count = len(comparisons)
        click.echo(f"{name}: checked {how}: {count} result{'s' * (count != 1)} equal", err=True)


def _splits(remarks: Sequence[Remark]) -> set[str]:
    """The locations of the tensors that were split."""
    return {remark.location for remark in remarks if remark.code == "EX001"}


def _dimensions(sizes: Sequence[tuple[int, int]]) -> str:
    return "dimension " + ", ".join(f"{before} as {after}" for before, after in sizes)


def _warn(name: str, message: str) -> None:
    click.echo(f"{name}: warning: {message}", err=True)


def free_memory() -> int:
    """The bytes that a program may allocate without forcing other processes out."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
