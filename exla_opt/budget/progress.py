"""Describes the attempts of a search, for `--debug-only=memory-limit`."""

from __future__ import annotations

import logging

from exla_opt.budget.attempt import Attempt
from exla_opt.budget.search import Search
from exla_opt.debug import MEMORY_LIMIT, log_of
from exla_opt.options import Options
from exla_opt.sizes import format_size

_LOG = log_of(MEMORY_LIMIT)


def log_attempts(search: Search, chosen: Attempt) -> None:
    """Log all attempts in order, and why one was chosen, if the topic is enabled."""
    if not _LOG.isEnabledFor(logging.DEBUG):
        return
    log_tried(search, chosen)
    limit = format_size(search.limit)
    if chosen.peak <= search.limit:
        _LOG.debug(f"chosen: the fastest of those within {limit} (a tenth slower counts as equal);")
        _LOG.debug("the original program is kept if it fits, unless another is clearly faster")
    else:
        _LOG.debug(f"chosen: none is within {limit}; of all, 5 % more memory being worth half of the time")


def log_tried(search: Search, chosen: Attempt | None = None) -> None:
    """Log all attempts in order, if the topic is enabled."""
    if not _LOG.isEnabledFor(logging.DEBUG):
        return
    for found in [*search.attempts, *([] if chosen is None or chosen in search.attempts else [chosen])]:
        _LOG.debug(f"{_sizes(found.options)}: {_figures(found)}{'  <- chosen' if found is chosen else ''}")


def _sizes(options: Options) -> str:
    if options.split_size is None:
        return "recomputed, without a split" if options.memory_limit is not None else "without a split"
    words = f"threshold {format_size(options.size_threshold)}, slices {format_size(options.slice_bytes)}"
    if options.slices_at:
        words += f", down to {format_size(min(size for _, size in options.slices_at))} at the peak"
    words += ", nested tiles" if options.nested_tiles else ""
    return words + (", a library's calls in loops" if options.calls_in_loops else "")


def _figures(found: Attempt) -> str:
    compiled = "not compiled" if found.measured is None else f"{format_size(found.measured)} compiled"
    return f"{format_size(found.predicted.peak)} predicted, {compiled}, {found.seconds:.3g} s predicted"
