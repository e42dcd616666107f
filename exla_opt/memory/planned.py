"""What the splitter plans with: the memory of one block, before any of its IR exists.

XLA:CPU fuses elementwise chains, broadcasts and short reduces into their readers, so most SSA values never
exist. The ops that fuse are those of `fusion`; `peak` predicts the memory of a whole module, with views merged,
in the order in which XLA runs it. This model is simpler, for it is asked once for each tile of each candidate.
Pure functions over plain records.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from .fusion import ELEMENTWISE, EXPENSIVE, LONGEST_FUSED_REDUCTION, MOVES

_MOVES = MOVES | {"reshape"}
_ELEMENTWISE = ELEMENTWISE | {"constant"}
# Their results take the buffers of their first operands, one for one, where nobody reads those later.
_IN_PLACE = frozenset(("dynamic_update_slice", "scatter", "while"))
_EMPTY = frozenset[int]()


@dataclass(frozen=True, slots=True)
class Operation:
    """One op as the model sees it.

    name: without the dialect. operands, results: tensor numbers. reduced: the sizes of the reduced dims.
    scratch: bytes that the op needs while it runs, for instance the peak of a loop's body.
    same_type: whether the result has the very type of the first operand.
    """

    name: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    reduced: tuple[int, ...] = ()
    scratch: int = 0
    same_type: bool = False


def _absorbs(op: Operation, operand: int) -> bool:
    """Whether XLA:CPU fuses the producer of this operand into `op`."""
    if op.name == "reduce":
        return len(op.results) > 1 or all(size <= LONGEST_FUSED_REDUCTION for size in op.reduced)
    if op.name == "dynamic_update_slice":
        return operand == 1
    return op.name in _MOVES or op.name in _ELEMENTWISE


def _fusible(op: Operation) -> bool:
    """Whether XLA:CPU can fuse `op` into its readers."""
    if op.name == "reduce":
        return len(op.results) == 1 and all(size <= LONGEST_FUSED_REDUCTION for size in op.reduced)
    return op.name in _MOVES or op.name in _ELEMENTWISE


def _unit_free(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


def _is_view(op: Operation, shapes: Mapping[int, Sequence[int]]) -> bool:
    """Whether the result is the operand's own buffer."""
    if op.name in ("reshape", "optimization_barrier"):
        return True
    if op.name in ("slice", "convert"):  # one that changes nothing, as TensorFlow writes them
        return op.same_type
    if op.name not in ("broadcast_in_dim", "transpose") or len(op.operands) != 1:
        return False
    before, after = _unit_free(shapes[op.operands[0]]), _unit_free(shapes[op.results[0]])
    return before == after and (op.name == "broadcast_in_dim" or len(before) < 2)


@dataclass(frozen=True, slots=True)
class Buffers:
    """Which tensors exist, and the position of the op after which each may be freed."""

    last_read: dict[int, int]


class _Fusion:
    """Decides, readers first, which op is fused into all its readers and which writes its results."""

    def __init__(self, ops: Sequence[Operation], shapes: Mapping[int, Sequence[int]], returned: Collection[int]):
        self.ops = ops
        self.shapes = shapes
        self.returned = frozenset(returned)
        self.readers: dict[int, list[tuple[int, int]]] = {}
        for position, op in enumerate(ops):
            for index, value in enumerate(op.operands):
                self.readers.setdefault(value, []).append((position, index))
        self.fusible = list(map(_fusible, ops))
        self.views = [_is_view(op, shapes) for op in ops]
        self.written: set[int] = set()
        self.roots: list[frozenset[int]] = [frozenset()] * len(ops)
        self.runs_at: list[int] = list(range(len(ops)))
        self.last_read: dict[int, int] = {}

    def run(self) -> None:
        for position in range(len(self.ops) - 1, -1, -1):
            self.decide(position)

    def decide(self, position: int) -> None:
        op = self.ops[position]
        uses = [use for value in op.results for use in self.readers.get(value, ())]
        last = max([self.runs_at[user] for user, _ in uses], default=position)
        is_returned = not self.returned.isdisjoint(op.results)
        if is_returned:
            last = len(self.ops)
        for value in op.results:
            self.last_read[value] = last
        roots = _EMPTY.union(*[self.roots[user] for user, index in uses if _absorbs(self.ops[user], index)])
        written = is_returned or self.is_written(position, uses, roots)
        if written and self.views[position]:
            # The buffer is the operand's: it must exist, and lives as long as the view.
            self.roots[position] = frozenset({position})
            self.runs_at[position] = last
            return
        if written:
            self.written.update(op.results)
            self.roots[position] = roots | {position} if len(roots) < 8 else frozenset({position})
            return
        self.roots[position] = roots
        self.runs_at[position] = last

    def is_written(self, position: int, uses: list[tuple[int, int]], roots: frozenset[int]) -> bool:
        op = self.ops[position]
        if not uses or not self.fusible[position]:
            return True
        if not all(self.absorbed(op, user, index) for user, index in uses):
            return True
        if op.name not in EXPENSIVE:
            return False
        return len(roots) > 1 or any(self.spreads(user) for user, _ in uses)

    def absorbed(self, op: Operation, user: int, index: int) -> bool:
        """Through a view that itself must exist, the tensor under it must exist too."""
        reader = self.ops[user]
        if self.views[user]:
            return user not in self.roots[user]
        if op.name == "transpose" and reader.name in ("dot", "dot_general"):
            return True  # it becomes a part of the dot's dimension numbers
        return _absorbs(reader, index)

    def spreads(self, user: int) -> bool:
        op = self.ops[user]
        if op.name != "broadcast_in_dim":
            return False
        return prod(self.shapes[op.results[0]]) > prod(self.shapes[op.operands[0]])


def materialised(ops: Sequence[Operation], shapes: Mapping[int, Sequence[int]], returned: Collection[int]) -> Buffers:
    """The tensors that XLA:CPU is expected to write to memory, with the position of their last read.

    ops: in program order. shapes: of every tensor number. returned: the tensors that leave the block, and live
    to its end.
    """
    fusion = _Fusion(ops, shapes, returned)
    fusion.run()
    return Buffers({value: last for value, last in fusion.last_read.items() if value in fusion.written})


def _with_updated(ops: Sequence[Operation], free: Collection[int], last_read: Mapping[int, int]) -> set[int]:
    """The free tensors, and those that became one of them by updates in place."""
    found = set(free)
    for position in range(len(ops) - 1, -1, -1):
        if ops[position].name not in _IN_PLACE:
            continue
        pairs = zip(ops[position].results, ops[position].operands, strict=False)
        found.update(old for new, old in pairs if new in found and last_read.get(old) == position)
    return found


def peak_bytes(
    ops: Sequence[Operation],
    shapes: Mapping[int, Sequence[int]],
    sizes: Mapping[int, int],
    returned: Collection[int],
    free: Collection[int] = (),
) -> int:
    """The predicted peak of temporary bytes when `ops` run in order.

    sizes: bytes of every tensor number. returned: the tensors that live to the end. free: those of them that
    somebody else's memory holds, as the results of a function or what a loop carries.
    """
    buffers = materialised(ops, shapes, returned).last_read
    free = _with_updated(ops, free, buffers)
    dying: dict[int, list[int]] = {}
    for value, last in buffers.items():
        dying.setdefault(last, []).append(value)
    live = peak = 0
    for position, op in enumerate(ops):
        freed = [value for value in dying.get(position, ()) if value not in free]
        born = sum(sizes[value] for value in op.results if value in buffers and value not in free)
        reusable = op.name in _ELEMENTWISE or op.name in _IN_PLACE or op.name == "sort"
        if reusable and any(sizes[value] == born for value in freed):
            peak = max(peak, live + op.scratch)
        else:
            peak = max(peak, live + born + op.scratch)
        live += born - sum(sizes[value] for value in freed)
    return peak
