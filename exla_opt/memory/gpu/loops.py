"""Duplicates in a loop's carry, which XLA:GPU carries only once."""

from __future__ import annotations

from dataclasses import replace

from ..block import Operation


def without_repeated(loop: Operation) -> tuple[Operation, dict[int, int]]:
    """The loop with equal stacks of slices merged, and the results that became another one.

    Two tensors of a carry are merged if they start from the same value and each trip writes the same slice to the same
    position of both, and reads neither.
    """
    body = loop.bodies[0]
    producer = {value: each for each in body.ops for value in each.results}
    reads: dict[int, int] = {}
    for each in body.ops:
        for value in (*each.operands, *each.captures):
            reads[value] = reads.get(value, 0) + 1
    first: dict[tuple[int, ...], int] = {}
    dropped: dict[int, int] = {}
    for place, (start, old, new) in enumerate(zip(loop.operands, body.arguments, body.returned, strict=True)):
        op = producer.get(new)
        if op is None or op.name != "dynamic_update_slice" or op.operands[0] != old or reads[old] != 1:
            continue
        if new in reads or body.returned.count(new) > 1:
            continue
        same = first.setdefault((start, *op.operands[1:]), place)
        if same != place:
            dropped[place] = same
    if not dropped:
        return loop, {}
    merged = {loop.results[place]: loop.results[same] for place, same in dropped.items()}
    kept = [place for place in range(len(loop.results)) if place not in dropped]
    gone = {body.returned[place] for place in dropped}
    inside = body.copied()
    inside.ops = [op for op in body.ops if gone.isdisjoint(op.results)]
    inside.arguments = [body.arguments[place] for place in kept]
    inside.returned = [body.returned[place] for place in kept]
    return (
        replace(
            loop,
            operands=tuple(loop.operands[place] for place in kept),
            results=tuple(loop.results[place] for place in kept),
            bodies=(inside,),
        ),
        merged,
    )
