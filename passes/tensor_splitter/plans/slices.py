"""The slice size of a region: the general one, or those that the search for a limit sets for its ops' locations."""

from __future__ import annotations

from collections.abc import Iterable

from exla_opt.ir.locations import describe
from exla_opt.options import Options

from ..graph import Graph


def slice_bytes_of(graph: Graph, positions: Iterable[int], options: Options) -> int:
    """The maximum bytes of one slice of a region with the ops at these positions: the least for any of them."""
    if not options.slices_at:
        return options.slice_bytes
    asked = dict(options.slices_at)
    places = (describe(graph.nodes[position].op) for position in positions)
    return min((asked[place] for place in places if place in asked), default=options.slice_bytes)
