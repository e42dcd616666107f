"""exla-opt --memory-limit and --target: the search for sizes with which a module fits."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from exla_opt.cli.common import is_terminal
from exla_opt.sizes import format_size

if TYPE_CHECKING:  # at run time these are imported inside the functions, for they load MLIR and jax
    from exla_opt.budget.fit import Fit
    from exla_opt.budget.judge import Judge
    from exla_opt.cli.request import Request
    from exla_opt.ir.read import Source
    from exla_opt.options import Options
    from exla_opt.pipeline import AfterPass


def search_sizes(request: Request, source: Source, judge: Judge, limit: int, after_pass: AfterPass) -> Fit:
    """Run the pipeline with sizes for a limit in bytes; on a terminal, show the current attempt.

    Raises what `fit` and the judge's compiler raise.
    """
    from exla_opt.budget.fit import fit

    with showing(sys.stderr) as tried:
        return fit(
            source.module,
            request.passes,
            request.options,
            limit,
            judge.measure,
            verify_each=request.verify_each,
            after_pass=after_pass,
            tried=tried,
        )


@contextmanager
def showing(stream: TextIO) -> Iterator[Callable[[Options, int], None]]:
    """Yield a callback for the sizes and bytes of each attempt, which shows them on a terminal."""
    if not is_terminal(stream):
        yield lambda sizes, peak: None
        return
    from rich.console import Console

    with Console(file=stream).status("trying without any split") as status:

        def tried(sizes: Options, peak: int) -> None:
            what = (
                f"slices of {format_size(sizes.slice_bytes)} need" if sizes.split_size else "without a split it needs"
            )
            status.update(f"{what} {format_size(peak)}")

        yield tried
