"""Memory against time: the programs that no other beats in both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

from jaxlib.mlir import ir

from exla_opt.budget.attempt import Attempt
from exla_opt.budget.choose import front
from exla_opt.budget.fit import unsplit_options
from exla_opt.budget.measured import Measure
from exla_opt.budget.nested import try_all_nested
from exla_opt.budget.order import try_ways
from exla_opt.budget.progress import log_tried
from exla_opt.budget.search import Search
from exla_opt.budget.ways import ways
from exla_opt.options import Options

# More would be neither read nor worth the compiles.
_MOST = 10


@dataclass(frozen=True, slots=True)
class Choice:
    """One program. peak: bytes, as planned by a compiler if `compiled`, else predicted with a margin.

    time: predicted, as a multiple of the original's. slice_bytes: of its slices; None for the original.
    nested_tiles: whether tiles are cut again.
    """

    peak: int
    compiled: bool
    time: float
    slice_bytes: int | None
    nested_tiles: bool = False


def pareto(
    module: ir.Module,
    names: Sequence[str],
    options: Options,
    measure: Measure | None = None,
    *,
    verify_each: bool = True,
    tried: Callable[[Options, int], None] | None = None,
) -> list[Choice]:
    """Return up to ten programs, the original among them: each needs less memory and more time than the last.

    module: as it was read; the passes before all sizes change it. measure: a compiler, which decides on memory. tried:
    called with the sizes and the bytes of each attempt. Raises what `run_pipeline` raises.
    """
    search = Search(module, names, options, 1, measure, verify_each, None, compiles=_MOST)
    unsplit = search.attempt(unsplit_options(options))
    plain = try_ways(search, ways(unsplit.predicted, unsplit.largest, options))
    for found in search.within_effort(chain(plain, try_all_nested(search))):
        if tried is not None:
            tried(found.options, found.peak)
    shown = _thinned([found for found in front(search.attempts[1:]) if found.peak < unsplit.peak])
    for found in [unsplit, *shown]:
        search.compile(found)
    log_tried(search)
    written = [found for found in shown if found.peak < unsplit.peak]  # what XLA or the module's devices refuse is not
    return [_choice(found, unsplit) for found in front([unsplit, *written])]


def _thinned(attempts: Sequence[Attempt]) -> list[Attempt]:
    """At most as many as are shown, the last among them."""
    step = -(-len(attempts) // (_MOST - 1)) or 1
    return list(attempts[::-1][::step][::-1])


def _choice(found: Attempt, unsplit: Attempt) -> Choice:
    size = None if found is unsplit else found.options.slice_bytes
    time = found.seconds / unsplit.seconds if unsplit.seconds else 1.0
    return Choice(found.peak, found.measured is not None, time, size, found.options.nested_tiles)
