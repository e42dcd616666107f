"""The order in which a block's kernels run: breadth first on XLA:CPU; elsewhere the one of three that needs least memory.

The three are those of XLA's memory scheduler: a greedy list that frees most first, depth first with the largest
operands first, and post-order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush

from .fusion import Fusion


def order_kernels(fusion: Fusion, inside: Mapping[int, int]) -> list[int]:
    """The kernels in the order in which they run, as places in the block's ops.

    inside: the bytes that the bodies of an op need, by its place.
    """
    kernels = [position for position, written in enumerate(fusion.written) if written]
    if fusion.machine.breadth_first:
        return _breadth_first(fusion, kernels)
    graph = _Graph(fusion, kernels, inside)
    orders = (graph.greedy(), graph.depth_first(), graph.post_order())
    return min(orders, key=graph.peak)


def _breadth_first(fusion: Fusion, kernels: list[int]) -> list[int]:
    """In the order in which they become ready, first in, first out."""
    waiting: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    ready: deque[int] = deque()
    for kernel in kernels:
        read = [fusion.producer[value] for value in sorted(fusion.inputs[kernel]) if value in fusion.producer]
        waiting[kernel] = len(read)
        for producer in read:
            readers.setdefault(producer, []).append(kernel)
        if not read:
            ready.append(kernel)
    order: list[int] = []
    while ready:
        kernel = ready.popleft()
        order.append(kernel)
        for reader in readers.get(kernel, ()):
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.append(reader)
    return order


class _Graph:
    """The kernels of a block and what each reads of the others.

    read: for each kernel the tensors made by others that it reads. readers: the kernels that read a tensor.
    """

    def __init__(self, fusion: Fusion, kernels: list[int], inside: Mapping[int, int]):
        self.fusion, self.inside = fusion, inside
        self.kernels = kernels
        self.ops, self.sizes = fusion.block.ops, fusion.block.sizes
        self.read = {
            kernel: [value for value in fusion.inputs[kernel] if self.is_made_by_kernel(value)] for kernel in kernels
        }
        self.readers: dict[int, list[int]] = {}
        for kernel in kernels:
            for value in self.read[kernel]:
                self.readers.setdefault(value, []).append(kernel)

    def is_made_by_kernel(self, value: int) -> bool:
        """Whether one of the block's kernels makes a tensor."""
        return self.fusion.written[self.fusion.producer[value]] if value in self.fusion.producer else False

    def written(self, kernel: int) -> int:
        """The bytes of what a kernel makes."""
        return sum(self.sizes[value] for value in self.ops[kernel].results)

    def producers(self, kernel: int) -> list[int]:
        """The kernels whose results a kernel reads, each once."""
        return list(dict.fromkeys(self.fusion.producer[value] for value in self.read[kernel]))

    def ends(self) -> Iterable[int]:
        """The kernels that make what the block returns, and those that nobody reads."""
        producer, returned = self.fusion.producer, self.fusion.block.returned
        last = (producer[value] for value in returned if self.is_made_by_kernel(value))
        unread = (
            kernel
            for kernel in self.kernels
            if not any(value in self.readers for value in self.ops[kernel].results)
        )
        return dict.fromkeys((*last, *unread))

    def greedy(self) -> list[int]:
        """Of what is ready the kernel that frees most, less what it makes; of equal ones that with most readers."""
        unread = {value: len(readers) for value, readers in self.readers.items()}
        for value in self.fusion.block.returned:
            unread[value] = unread.get(value, 0) + 1
        waiting = {kernel: len(self.read[kernel]) for kernel in self.kernels}
        queue: list[tuple[int, int, int, int]] = []
        count = 0

        def gain(kernel: int) -> int:
            return sum(self.sizes[value] for value in self.read[kernel] if unread[value] == 1) - made[kernel]

        def push(kernel: int) -> None:
            nonlocal count
            count += 1
            users = sum(len(self.readers.get(value, ())) for value in self.ops[kernel].results)
            best[kernel] = gain(kernel)
            heappush(queue, (-best[kernel], -users, -count, kernel))

        made = {kernel: self.written(kernel) + self.inside.get(kernel, 0) for kernel in self.kernels}
        best: dict[int, int] = {}
        order: list[int] = []
        done: set[int] = set()
        for kernel in self.kernels:
            if not waiting[kernel]:
                push(kernel)
        while queue:
            known, _, _, kernel = heappop(queue)
            if kernel in done or -known != best[kernel]:
                continue
            done.add(kernel)
            order.append(kernel)
            for value in self.read[kernel]:
                unread[value] -= 1
                if unread[value] == 1:
                    for reader in self.readers[value]:
                        if reader not in done and not waiting[reader]:
                            push(reader)
            for value in self.ops[kernel].results:
                for reader in self.readers.get(value, ()):
                    waiting[reader] -= 1
                    if not waiting[reader]:
                        push(reader)
        return order

    def depth_first(self) -> list[int]:
        """From the ends to what they read, first what has most other readers and what takes most memory behind it."""
        others: dict[int, int] = {}
        total: dict[int, int] = {}
        for kernel in self.post_order():
            before = self.producers(kernel)
            users = sum(len(self.readers.get(value, ())) for value in self.ops[kernel].results)
            others[kernel] = max(users - 1, 0) + sum(others[each] for each in before)
            total[kernel] = self.written(kernel) + sum(total[each] for each in before)
            limit = 2**62
            others[kernel], total[kernel] = min(others[kernel], limit), min(total[kernel], limit)
        return self.visit(lambda before: sorted(before, key=lambda each: (-others[each], -total[each])))

    def post_order(self) -> list[int]:
        """From the ends to what they read, in the order in which they read it."""
        return self.visit(lambda before: before)

    def visit(self, arranged: Callable[[list[int]], list[int]]) -> list[int]:
        """Kernels behind all that they read, in the order of a depth-first search."""
        order: list[int] = []
        seen: set[int] = set()
        for end in self.ends():
            stack = [(end, False)]
            while stack:
                kernel, is_complete = stack.pop()
                if is_complete:
                    order.append(kernel)
                    continue
                if kernel in seen:
                    continue
                seen.add(kernel)
                stack.append((kernel, True))
                stack.extend((each, False) for each in reversed(arranged(self.producers(kernel))) if each not in seen)
        return order

    def peak(self, order: list[int]) -> int:
        """The most bytes alive at once in an order."""
        unread = {value: len(readers) for value, readers in self.readers.items()}
        for value in self.fusion.block.returned:
            unread[value] = unread.get(value, 0) + 1
        live = peak = 0
        for kernel in order:
            op, freed, taken = self.ops[kernel], 0, 0
            for value in self.read[kernel]:
                unread[value] -= 1
                if unread[value]:
                    continue
                freed += self.sizes[value]
                if op.name == "while":
                    taken += self.sizes[value] if value in op.operands else 0
                elif self.fusion.inputs[kernel][value] and self.sizes[value] == self.sizes[op.results[0]]:
                    taken = self.sizes[value]
            live += self.written(kernel)
            peak = max(peak, live - taken + self.inside.get(kernel, 0))
            live -= freed + sum(self.sizes[value] for value in op.results if not unread.get(value))
        return peak
