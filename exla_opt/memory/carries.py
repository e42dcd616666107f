"""The positions of a loop's carry that XLA keeps: it drops those that nothing but their own next value reads."""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.walk import captured_values


def live_places(loop: ir.Operation) -> list[int]:
    """The positions of a while's carry that XLA keeps; it drops others one by one, and never two that need each other.

    A position is dropped if its final value is unread and, of the rest, only its own next value needs it.
    """
    condition = loop.regions[0].blocks[0]
    places = range(len(loop.results))
    unread = {
        place
        for place in places
        if not any(True for _ in loop.results[place].uses) and not any(True for _ in condition.arguments[place].uses)
    }
    live = set(places)
    sources = _sources(loop.regions[1].blocks[0]) if unread else []
    while dead := {
        place for place in unread & live if not any(sources[other] >> place & 1 for other in live - {place})
    }:
        live.remove(min(dead))
    return sorted(live)


def _sources(body: ir.Block) -> list[int]:
    """For each position of a carry, the positions that its next value is computed from, as bits of a number.

    Linear in the number of ops. An op with regions reads everything that it captures.
    """
    bits: dict[ir.Value, int] = {argument: 1 << place for place, argument in enumerate(body.arguments)}
    *ops, last = (view.operation for view in body.operations)
    for op in ops:
        read = (*op.operands, *captured_values(op)) if len(op.regions) else op.operands
        found = 0
        for value in read:
            found |= bits.get(value, 0)
        bits.update(dict.fromkeys(op.results, found))
    return [bits.get(value, 0) for value in last.operands]
