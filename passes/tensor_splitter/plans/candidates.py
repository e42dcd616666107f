"""Describes the candidates for one tensor, for `--debug-only=tensor-splitter`."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from exla_opt.debug import TENSOR_SPLITTER, log_of
from exla_opt.ir.locations import describe
from exla_opt.ops.rules import DimMapping
from exla_opt.sizes import format_size

from ..graph import Graph
from ..regions.loops import Refusal
from .body import MOST_SLICES_ALIVE
from .plan import Plan

_LOG = log_of(TENSOR_SPLITTER)


def log_anchors(graph: Graph, anchors: Collection[int]) -> None:
    """Log that the candidates which follow end at some tensors, if the topic is enabled."""
    if _LOG.isEnabledFor(logging.DEBUG):
        kinds = ", ".join(dict.fromkeys(str(graph.tensors[value].type) for value in sorted(anchors)))
        _LOG.debug(f"again, with regions that end at {len(anchors)} tensors that are needed complete: {kinds}")


def log_choice(is_second: bool) -> None:
    """Log which of the two searches is used."""
    _LOG.debug(f"the {'second' if is_second else 'first'} search is used")


def log_candidates(
    graph: Graph,
    value: int,
    refused: Sequence[tuple[DimMapping, Refusal]],
    plans: Sequence[Plan],
    chosen: Plan | Refusal,
    slice_bytes: int,
) -> None:
    """Log the candidates for a tensor, the best first, if the topic is enabled.

    plans: ordered by unsplit bytes, then memory by powers of two, then time (`Plan.rank`); the power of two is printed
    as the peak that counts as equal. refused: along other dimensions.
    """
    if not _LOG.isEnabledFor(logging.DEBUG):
        return
    tensor = graph.tensors[value]
    op = graph.nodes[tensor.producer].op
    _LOG.debug(f"{op.name} {tensor.type} ({format_size(tensor.type.bytes)}) at {describe(op)}")
    for plan in plans:
        remaining, room, seconds = plan.rank(slice_bytes)
        loops = " then ".join(f"{loop.trips} tiles of {loop.tile * plan.mapping.inner}" for loop in plan.loops)
        step = format_size(2**room * MOST_SLICES_ALIVE * slice_bytes)
        prices = f"{format_size(remaining)} stay unsplit, peak {format_size(plan.peak)} of {step}, {seconds:.3g} s"
        _LOG.debug(f"  dimension {plan.mapping.dim}: {loops}: {prices}{'  <- chosen' if plan is chosen else ''}")
    for mapping, why in refused:
        _LOG.debug(f"  dimension {mapping.dim}: none: {why.reason.text}")
    if isinstance(chosen, Refusal):
        _LOG.debug(f"  left unsplit: {chosen.reason.text}")
