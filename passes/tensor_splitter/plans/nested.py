"""Tiles that are cut again: outer tiles longer than a slice allows, in whose bodies loops cut another dimension.

Where a row is long, a slice holds few rows: all that a product reads besides, such as the keys and values of attention,
is read again for every few rows, and products of few rows are slow. With two loops a tile is about square instead:

    over 16 rows of 65,536 (4 MB):        4,096 trips, each reads all keys and values
    over 1,024 rows, over 1,024 columns:  64 trips read all keys and values, in 64 slices each

The rows of FlashAttention's tiles are chosen so (Dao et al., "FlashAttention", NeurIPS 2022, Algorithm 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt, prod
from typing import Literal

from exla_opt.ops.traits import Trait

from ..graph import Graph
from ..regions.region import Region, Stage
from .body import Body

# Whether tiles may be cut again; "asked" only marks a plan that could have such tiles.
Nested = Literal["never", "asked", "allowed"]
# Of a number, as f32.
_BYTES = 4
# Tiles must get this many times longer: a loop in each trip has a cost of its own.
_LONGER = 2


def nested_sizes(
    graph: Graph,
    region: Region,
    stages: Sequence[Stage],
    bodies: Sequence[Body],
    per_index: Sequence[int],
    slice_bytes: int,
) -> list[int] | None:
    """By stage, the bytes of tiles whose parts are square slices; None if no tile would be clearly longer.

    per_index: by stage, the bytes of one index.
    """
    side = _side(graph, region, slice_bytes)
    if _LONGER * side > region.high - region.low:
        return None
    sizes = [
        max(side * most, slice_bytes) if _gains(graph, stage, body) else slice_bytes
        for stage, body, most in zip(stages, bodies, per_index, strict=True)
    ]
    return sizes if max(sizes) >= _LONGER * slice_bytes else None


def _side(graph: Graph, region: Region, slice_bytes: int) -> int:
    """The length of a square slice of the seed, along the dimension that is cut and the longest other one."""
    shape = list(graph.tensors[region.seed].type.shape)
    shape.pop(region.mappings[region.seed].dim)
    together = prod(shape) // max(shape, default=1)
    return isqrt(slice_bytes // (_BYTES * together))


def _gains(graph: Graph, stage: Stage, body: Body) -> bool:
    """Whether products read other tensors again in every trip; loops of the program stay in one."""
    return not body.planned.inside and any(Trait.CONTRACTS in graph.nodes[each].traits for each in stage.nodes)
