"""The copies that XLA makes of loop-carried tensors: of initial values, and in each trip.

A body's result is written to the buffer of the argument that it replaces. A kernel that writes there must run after all
readers of the argument; if the order of the ops does not ensure that, the argument is copied first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from exla_opt.ops.traits import Trait, traits_of

from .block import Block, Operation
from .buffers import FACTORS
from .fusion import Fusion

_BROADCAST = traits_of("stablehlo.broadcast_in_dim")


def changed_places(loop: Operation) -> list[int]:
    """The positions of a loop's carry whose value its body changes."""
    if not loop.bodies:
        return list(range(len(loop.results)))
    body = loop.bodies[0]
    pairs = zip(body.returned, body.arguments, strict=True)
    return [place for place, (new, old) in enumerate(pairs) if new != old]


def with_copies(block: Block, owned: frozenset[int]) -> Block:
    """The block with an op for each copy, at the first loop; the block itself if there is none.

    owned: arguments that may be overwritten. A constant with one value everywhere is filled in once, and copied if
    several loops start from it.
    """
    loops = [place for place, op in enumerate(block.ops) if op.name == "while" and op.bodies]
    if not loops:
        return block
    producers = {value: place for place, op in enumerate(block.ops) for value in op.results}
    readers: dict[int, list[int]] = {}
    for place, op in enumerate(block.ops):
        for value in (*op.operands, *op.captures):
            readers.setdefault(value, []).append(place)
    for value in block.returned:
        readers.setdefault(value, []).append(len(block.ops))
    starts = {place: _carried_anew(block.ops[place]) for place in loops}
    made = block.copied()
    made.ops = []
    filled: dict[int, int] = {}

    def fresh(like: int, loop: Operation, place: int) -> int:
        result = loop.results[place]
        made.values[len(made.shapes)] = block.values.get(result, block.values.get(like))  # type: ignore[assignment]
        return made.add_tensor(block.shapes[result], block.sizes[result], block.dtypes[result])

    def takes_over(position: int, value: int) -> bool:
        """Whether an op reads a copy element by element, and writes a result as large into its buffer."""
        op = block.ops[position]
        return Trait.POINTWISE in op.traits and block.sizes[op.results[0]] == block.sizes[value]

    def start(position: int, loop: Operation, place: int, value: int) -> int:
        origin = block.ops[producers[value]] if value in producers else None
        source = value
        if origin is not None and origin.name == "splat":
            if value not in filled:
                filled[value] = fresh(value, loop, place)
                made.ops.append(Operation("broadcast_in_dim", _BROADCAST, (), (filled[value],)))
            source = filled[value]
        others = [other for other in readers[value] if other != position]
        # The last of several positions gets the tensor itself.
        again = value in loop.operands[place + 1 :]
        shared = (
            again
            or value in loop.captures
            or any(other > position or value in starts.get(other, ()) for other in others)
            or not (
                any(takes_over(other, value) for other in others) or _run_before(block, producers, others, position)
            )
        )
        if not shared and (origin is not None or value in owned):
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


def _run_before(block: Block, producers: Mapping[int, int], others: Sequence[int], last: int) -> bool:
    """Whether an op depends on all of these others: XLA looks for copies before it orders the ops."""
    first = min(others, default=last)

    def behind(position: int) -> Iterator[int]:
        op = block.ops[position]
        found = (producers.get(value, -1) for value in (*op.operands, *op.captures))
        return (place for place in found if place >= first)

    return _depends_on_all(last, others, behind)


def _carried_anew(loop: Operation) -> set[int]:
    return {loop.operands[place] for place in changed_places(loop)}


def place_carry(fusion: Fusion) -> set[int]:
    """The tensors of a body in the loop's own buffers; adds the copies that this needs as kernels."""
    block = fusion.block
    readers: dict[int, list[int]] = {value: [] for value in block.arguments}
    for kernel, written in enumerate(fusion.written):
        if written:
            for value in fusion.inputs[kernel]:
                if value in readers:
                    readers[value].append(kernel)
    resident: set[int] = set()
    for old, new in zip(block.arguments, block.returned, strict=False):
        if old == new:
            continue
        if new in readers:
            _copy(fusion, new, ())  # one argument in the position of another
            continue
        if new not in fusion.producer or new in resident:
            continue
        resident.add(new)
        kernel = fusion.producer[new]
        others = [reader for reader in readers[old] if reader != kernel]
        may_write = _writes_over(fusion, kernel, old, new)
        if may_write and (not others or _all_before(fusion, others, kernel)):
            continue
        if fusion.machine.breadth_first:
            _copy(fusion, old, readers[old])
        elif may_write and not _needs(fusion, others, kernel):
            fusion.waits.setdefault(kernel, []).extend(others)  # XLA:GPU lets it run after them
        else:
            resident.discard(new)  # copied to the loop's buffer at the end of the trip
    return resident


def _writes_over(fusion: Fusion, kernel: int, old: int, new: int) -> bool:
    """Whether a kernel may write its result over a tensor that it reads, or does not read it."""
    op = fusion.block.ops[kernel]
    if _begins_beside(fusion, kernel, old, new):
        return False
    if Trait.IN_PLACE in op.traits or op.name in ("while", "sort"):
        return True
    if op.name == "dot_general" and old in op.operands[FACTORS:]:  # a library adds to an existing tensor
        return old not in op.operands[:FACTORS]
    return fusion.inputs[kernel].get(old, True)


def _begins_beside(fusion: Fusion, kernel: int, old: int, new: int) -> bool:
    """Whether a result is in the buffer of a loop that still reads the old tensor when it starts writing."""
    value, op = new, fusion.block.ops[kernel]
    while op.name == "while" or Trait.IN_PLACE in op.traits:
        if op.name == "while" and old in op.captures:
            return True
        value = op.operands[op.results.index(value)]
        if value == old or value not in fusion.producer:
            break
        op = fusion.block.ops[fusion.producer[value]]
    return False


def _all_before(fusion: Fusion, kernels: Sequence[int], last: int) -> bool:
    """Whether all of these kernels must run before `last` because of their data flow."""

    def behind(kernel: int) -> Iterator[int]:
        return (fusion.producer[value] for value in fusion.inputs[kernel] if value in fusion.producer)

    return _depends_on_all(last, kernels, behind)


def _depends_on_all(last: int, others: Sequence[int], behind: Callable[[int], Iterable[int]]) -> bool:
    """Whether one op or kernel depends on all of these others. behind: what each reads from."""
    missing = set(others)
    seen = {last}
    stack = [last]
    while stack and missing:
        for place in behind(stack.pop()):
            if place not in seen:
                seen.add(place)
                missing.discard(place)
                stack.append(place)
    return not missing


def _needs(fusion: Fusion, kernels: Sequence[int], first: int) -> bool:
    """Whether one of these kernels must run after `first`, because of its operands or other dependences."""
    together = {kernel: group for group in fusion.joined for kernel in group}
    goal = {first, *together.get(first, ())}
    stack = [kernel for kernel in kernels if kernel not in goal]
    seen = set(stack)
    while stack:
        kernel = stack.pop()
        read = (fusion.producer[value] for value in fusion.inputs[kernel] if value in fusion.producer)
        before = {*read, *fusion.waits.get(kernel, ()), *together.get(kernel, ())} - seen
        if not goal.isdisjoint(before):
            return True
        seen |= before
        stack += before
    return False


def _copy(fusion: Fusion, value: int, readers: Sequence[int]) -> None:
    """Add a copy of an argument, which these kernels read instead."""
    block = fusion.block
    origin = block.values.get(value)
    copied = block.add_tensor(block.shapes[value], block.sizes[value], block.dtypes[value])
    if origin is not None:
        block.values[copied] = origin
    fusion.producer[copied] = len(block.ops)
    block.ops.append(Operation("copy", Trait(0), (value,), (copied,)))
    fusion.written.append(True)
    fusion.inputs.append({value: False})
    for reader in readers:
        fusion.inputs[reader][copied] = fusion.inputs[reader].pop(value)
