"""Initial values of loops and scatters on a GPU: one kernel writes all equal ones, each into its own buffer.

An op that works in place overwrites its initial value. XLA's CopyInsertion gives each of several that start from one
tensor a copy, and its CopyFusion lets the kernel that writes the tensor write the copies too: all of them exist from
the start.
"""

from __future__ import annotations

from dataclasses import replace

from exla_opt.ops.traits import traits_of

from ..block import Operation
from ..builder import Builder

_SPLAT, _REPEATED = traits_of("stablehlo.constant"), traits_of("stablehlo.broadcast_in_dim")


def give_own_starts(builder: Builder) -> None:
    """Give each loop and scatter that starts from a broadcast number its own tensor, if there are several."""
    block = builder.block
    producer = {value: op for op in block.ops for value in op.results}
    place = {value: position for position, op in enumerate(block.ops) for value in op.results}
    starts: dict[int, list[tuple[int, int]]] = {}
    last: dict[int, int] = {}
    for position, op in enumerate(block.ops):
        written = written_over(op)
        for index, value in enumerate(op.operands):
            if index in written and is_repeated(producer.get(value), producer) and block.shapes[value]:
                starts.setdefault(value, []).append((position, index))
            else:
                last[value] = position
    ops = list(block.ops)
    before: dict[int, list[Operation]] = {}
    for value, uses in starts.items():
        made = producer[value]
        # The last one overwrites the tensor itself if nothing reads it later; a constant has no other buffer.
        own = uses if made.name == "splat" or last.get(value, -1) > uses[-1][0] else uses[:-1]
        if not own or (made.name == "splat" and len(own) == 1):
            continue
        if made.name != "splat" and len(own) == len(uses):
            block.kept.add(value)
        scalar = made.operands[0] if made.operands else builder.fresh(block.values[value], (), value)
        added = [] if made.operands else [Operation("splat", _SPLAT, (), (scalar,))]
        for position, index in own:
            start = builder.fresh(block.values[value], block.shapes[value], value)
            if made.name == "splat":
                block.sizes[start] = builder.types.of(block.values[value]).bytes
            added.append(Operation("broadcast_in_dim", _REPEATED, (scalar,), (start,)))
            operands = list(ops[position].operands)
            operands[index] = start
            ops[position] = replace(ops[position], operands=tuple(operands))
        before.setdefault(place[value] + 1, []).extend(added)
    block.ops = [each for position, op in enumerate(ops) for each in (*before.get(position, ()), op)]


def written_over(op: Operation) -> tuple[int, ...]:
    """The operands that an op overwrites."""
    if op.name == "scatter":
        return tuple(range(len(op.results)))
    if op.name != "while" or not op.bodies:
        return ()
    body = op.bodies[0]
    pairs = zip(body.arguments, body.returned, strict=False)
    return tuple(index for index, (before, after) in enumerate(pairs) if before != after)


def is_repeated(op: Operation | None, producer: dict[int, Operation]) -> bool:
    """Whether an op computes a tensor with one value everywhere."""
    if op is None or op.name == "splat":
        return op is not None
    if op.name != "broadcast_in_dim" or len(op.operands) != 1:
        return False
    source = producer.get(op.operands[0])
    return source is not None and source.name == "splat"
