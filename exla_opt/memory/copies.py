"""The copies that XLA makes of what a loop starts from, where the loop must not write over it."""

from __future__ import annotations

from dataclasses import replace

from exla_opt.ops.traits import Trait, traits_of

from .block import Block, Operation

_BROADCAST = traits_of("stablehlo.broadcast_in_dim")


def changed_places(loop: Operation) -> list[int]:
    """What of a loop's carry its body returns otherwise than it got it, as places in the carry."""
    if not loop.bodies:
        return list(range(len(loop.results)))
    body = loop.bodies[0]
    pairs = zip(body.returned, body.arguments, strict=True)
    return [place for place, (new, old) in enumerate(pairs) if new != old]


def with_copies(block: Block, owned: frozenset[int]) -> Block:
    """The block with an op for each copy, where the first loop stands; the block itself where there is none.

    owned: arguments that may be written over. A constant that is one number everywhere is filled in once, and copied
    where several loops start from it.
    """
    loops = [place for place, op in enumerate(block.ops) if op.name == "while" and op.bodies]
    if not loops:
        return block
    producer = {value: op for op in block.ops for value in op.results}
    readers: dict[int, list[int]] = {}
    for place, op in enumerate(block.ops):
        for value in (*op.operands, *op.captures):
            readers.setdefault(value, []).append(place)
    for value in block.returned:
        readers.setdefault(value, []).append(len(block.ops))
    starts = {place: _carried_anew(block.ops[place]) for place in loops}
    made = Block(
        [], list(block.shapes), list(block.sizes), block.arguments, block.returned, list(block.dtypes),
        dict(block.values), set(block.viewed),
    )  # fmt: skip
    filled: dict[int, int] = {}

    def fresh(like: int, loop: Operation, place: int) -> int:
        result = loop.results[place]
        made.values[len(made.shapes)] = block.values.get(result, block.values.get(like))  # type: ignore[assignment]
        return made.add_tensor(block.shapes[result], block.sizes[result], block.dtypes[result])

    def start(position: int, loop: Operation, place: int, value: int) -> int:
        maker = producer.get(value)
        source = value
        if maker is not None and maker.name == "splat":
            if value not in filled:
                filled[value] = fresh(value, loop, place)
                made.ops.append(Operation("broadcast_in_dim", _BROADCAST, (), (filled[value],)))
            source = filled[value]
        others = [other for other in readers[value] if other != position]
        twice = loop.operands.count(value) > 1 or value in loop.captures
        shared = twice or any(other > position or value in starts.get(other, ()) for other in others)
        if not shared and (maker is not None or value in owned):
            return source
        copied = fresh(value, loop, place)
        made.ops.append(Operation("copy", Trait(0), (source,), (copied,)))
        return copied

    for position, op in enumerate(block.ops):
        if position not in starts:
            made.ops.append(op)
            continue
        operands = list(op.operands)
        for place in changed_places(op):
            operands[place] = start(position, op, place, operands[place])
        made.ops.append(replace(op, operands=tuple(operands)))
    return made


def _carried_anew(loop: Operation) -> set[int]:
    return {loop.operands[place] for place in changed_places(loop)}
