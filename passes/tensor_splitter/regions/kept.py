"""Which tensors of a region are kept between two of its loops, and which each loop computes again."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator

from exla_opt.ops.comparisons import asks

from ..graph import Graph


def ways_to_store(
    graph: Graph, is_big: Callable[[int], bool], sent: Container[int]
) -> Iterator[tuple[Callable[[int], bool], bool]]:
    """Size limits for tensors kept between loops, and whether any are kept: the first sound way is taken.

    sent: those that are kept whatever their size.
    """

    def is_dropped(value: int) -> bool:
        return is_big(value) and value not in sent

    yield is_dropped, True
    yield is_dropped, False

    # The results of a test take a quarter of its operand, or less, so big ones may be kept as well.
    def is_big_and_no_answer(value: int) -> bool:
        return is_dropped(value) and not asks(graph.nodes[graph.tensors[value].producer].op)

    yield is_big_and_no_answer, True
