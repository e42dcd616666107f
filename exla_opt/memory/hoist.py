"""Loop-invariant code, which a compiler computes before the loop.

XLA's rule: an op with invariant operands moves out of the loop, however large its result; one that only moves or
repeats elements moves with an op that reads it, not alone. The outputs of an optimization barrier vary if any of its
inputs does. Loops that carry no invariants but constants are skipped.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from exla_opt.ir.values import defining_op
from exla_opt.ops.traits import Trait

from .block import Block, Operation

_STAYS = Trait.CONTROL_FLOW | Trait.ORDERED | Trait.RANDOM | Trait.COLLECTIVE


def with_hoisted(block: Block) -> Block:
    """The block with the invariants of its loops before them; the block itself if there are none."""
    if not any(op.name == "while" and op.bodies for op in block.ops):
        return block
    made = block.copied()
    made.ops = []
    known: dict[Hashable, tuple[int, ...]] = {}
    for op in block.ops:
        if op.name == "while" and op.bodies:
            op = _without_invariants(made, op, known)
        else:
            known.setdefault(_key(op, made), op.results)
        made.ops.append(op)
    return made


def _key(op: Operation, block: Block) -> Hashable:
    """A key for equal ops, of those that are determined by name, operands, shape and element type."""
    is_splat = op.name == "broadcast_in_dim" and [block.shapes[value] for value in op.operands] == [()]
    if not is_splat and (Trait.POINTWISE not in op.traits or op.name == "compare" or op.captures):
        return op.results
    return op.name, op.operands, block.shapes[op.results[0]], block.dtypes[op.results[0]]


def _without_invariants(around: Block, loop: Operation, known: dict[Hashable, tuple[int, ...]]) -> Operation:
    """The loop with its invariants moved to the end of `around`. known: ops there that can be reused."""
    body = with_hoisted(loop.bodies[0])
    outer = dict(loop.outside[0]) if loop.outside else {}
    kept = {
        old: start for old, new, start in zip(body.arguments, body.returned, loop.operands, strict=True) if old == new
    }
    outer.update(kept)
    captured = set(outer)
    if all(_is_constant(around, value) for value in (*loop.captures, *kept.values())):
        return replace(loop, bodies=(body,))
    waiting: dict[int, Operation] = {}
    staying: list[Operation] = []

    def move(op: Operation) -> None:
        for value in op.operands:
            if value not in outer:
                move(waiting[value])
        results = tuple(_like(around, body, value) for value in op.results)
        moved = replace(
            op,
            operands=tuple(outer[value] for value in op.operands),
            results=results,
            narrow=frozenset(outer[value] for value in op.narrow if value in outer),
        )
        equal = known.setdefault(_key(moved, around), results)
        outer.update(zip(op.results, equal, strict=True))
        if equal == results:
            around.ops.append(moved)

    for op in body.ops:
        held = {value for result in op.results for value in body.held.get(result, ())}
        stays = not all(value in outer or value in waiting for value in (*op.operands, *held))
        if stays or op.captures or op.name == "custom_call" or op.traits & _STAYS:
            staying.append(op)
        elif Trait.WITH_READER in op.traits:
            waiting.update(dict.fromkeys(op.results, op))
            staying.append(op)
        else:
            move(op)
    if len(staying) == len(body.ops):
        return replace(loop, bodies=(body,))
    inside = body.copied()
    inside.ops = staying
    produced = {value for op in staying for value in op.results}
    read = {value for op in staying for value in (*op.operands, *op.captures)} | set(body.returned)
    fresh = {value: outer[value] for value in outer if value not in captured and value in read - produced}
    return replace(
        loop,
        bodies=(inside,),
        outside=({**(loop.outside[0] if loop.outside else {}), **fresh},),
        captures=(*loop.captures, *fresh.values()),
    )


def _is_constant(block: Block, value: int) -> bool:
    """Whether a tensor is a constant, which XLA writes into the loops that keep it."""
    origin = block.values.get(value)
    return origin is not None and defining_op(origin, "stablehlo.constant") is not None


def _like(around: Block, body: Block, value: int) -> int:
    if value in body.values:
        around.values[len(around.shapes)] = body.values[value]
    if value in body.wider:
        around.wider[len(around.shapes)] = body.wider[value]
    return around.add_tensor(body.shapes[value], body.sizes[value], body.dtypes[value])
