"""exla-opt --memory-limit and --target: the search for sizes with which a module fits."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from exla_opt.cli.common import is_terminal, quieten
from exla_opt.sizes import format_size

if TYPE_CHECKING:  # at run time these are imported inside the functions, for they load MLIR and jax
    from collections.abc import Callable, Sequence

    from jaxlib.mlir import ir

    from exla_opt.fit import Fit
    from exla_opt.ir.read import Source
    from exla_opt.options import Options
    from exla_opt.pipeline import AfterPass


def search_sizes(
    source: Source,
    names: Sequence[str],
    options: Options,
    limit: int | None,
    target: str | None,
    after_pass: AfterPass,
    *,
    verify_each: bool,
) -> tuple[Fit, int]:
    """The pipeline with sizes for a memory limit, and the limit; on a terminal with a line on what is being tried.

    limit: in bytes; None for the memory of the target. target: a device by its name on the command line, whose
    compiler is the judge; None for the prediction. Raises what `fit` raises, TargetError for an unknown target.
    """
    from exla_opt.fit import fit
    from exla_opt.ir.read import parse_module

    context = source.module.context
    measure, memory, gpu = (None, 0, False) if target is None else _measure_on(target)
    bound = memory if limit is None else limit

    def read() -> ir.Module:
        return parse_module(source.name, source.data, context).module

    def search(tried: Callable[[Options, int], None] | None = None) -> Fit:
        return fit(
            read,
            names,
            options,
            bound,
            measure,
            gpu=gpu,
            verify_each=verify_each,
            after_pass=after_pass,
            tried=tried,
        )

    if not is_terminal(sys.stderr):
        return search(), bound
    from rich.console import Console

    with Console(stderr=True).status("trying without any split") as status:

        def tried(sizes: Options, peak: int) -> None:
            what = (
                f"slices of {format_size(sizes.slice_bytes)} need" if sizes.split_size else "without a split it needs"
            )
            status.update(f"{what} {format_size(peak)}")

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
