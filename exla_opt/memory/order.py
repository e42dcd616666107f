"""The order in which a block's kernels run: breadth first on XLA:CPU, elsewhere the best of three.

The best is the one that needs least memory. The three are those of XLA's memory scheduler: a greedy list that frees
most first, depth first with the largest operands first, and post-order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush

from exla_opt.ops.traits import Trait

from .fusion import Fusion

# Sums over many ways grow without end.
_MOST = 2**62


def order_kernels(fusion: Fusion, inside: Mapping[int, int]) -> list[int]:
    """The kernels in the order in which they run, as places in the block's ops.

    inside: the bytes that the bodies of an op need, by its place.
    """
    kernels = [position for position, written in enumerate(fusion.written) if written]
    if fusion.machine.breadth_first:
        return _breadth_first(fusion, kernels)
    graph = _Graph(fusion, kernels, inside, fusion.joined)
    greedy = graph.greedy()
    if len(greedy) < len(graph.nodes):  # two of the kernels joined need one another through a third
        fusion.joined, fusion.tuples = [], set()
        graph = _Graph(fusion, kernels, inside, [])
        greedy = graph.greedy()
    if len(greedy) < len(graph.nodes):  # products merged over a barrier
        graph.after = {}
        greedy = graph.greedy()
    orders = (greedy, graph.depth_first(), graph.post_order())
    return [kernel for node in min(orders, key=graph.peak) for kernel in graph.members[node]]


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

    nodes: the kernels; one stands for all that are joined to it. members: those, with what may be written in place of
    what it reads last. node_of: the node of each kernel.
    read: for each node the tensors made by others that it reads. readers: the nodes that read a tensor.
    after: for each node the others that only a barrier lets it wait for.
    """

    def __init__(self, fusion: Fusion, kernels: list[int], inside: Mapping[int, int], joined: list[list[int]]):
        self.fusion, self.inside = fusion, inside
        self.ops, self.sizes = fusion.block.ops, fusion.block.sizes
        self.node_of = {kernel: kernel for kernel in kernels}
        self.members = {kernel: [kernel] for kernel in kernels}
        for group in joined:
            self.members[group[0]] = sorted(group, key=lambda kernel: Trait.POINTWISE in self.ops[kernel].traits)
            for kernel in group[1:]:
                self.node_of[kernel] = group[0]
                del self.members[kernel]
        self.nodes = list(self.members)
        self.read = {node: self.read_by(node) for node in self.nodes}
        self.readers: dict[int, list[int]] = {}
        for node in self.nodes:
            for value in self.read[node]:
                self.readers.setdefault(value, []).append(node)
        self.after = self.find_after()

    def read_by(self, node: int) -> list[int]:
        """The tensors that a node reads, each once, in the order in which it reads them."""
        found = dict.fromkeys(value for kernel in self.members[node] for value in self.fusion.inputs[kernel])
        return [value for value in found if self.defining_node(value) not in (None, node)]

    def find_after(self) -> dict[int, list[int]]:
        """For each node those that it waits for and reads nothing of, because of barriers."""
        awaited = dict(self.fusion.block.behind)
        found: dict[int, list[int]] = {}
        if not awaited:
            return found
        for position, op in enumerate(self.ops):
            inherited = [
                awaited[value] for value in op.operands if value in awaited and self.defining_node(value) is None
            ]
            waits = frozenset().union(*inherited, *(awaited.get(value, ()) for value in op.results))
            if position not in self.node_of:  # a part of the kernels that read it
                awaited.update(dict.fromkeys(op.results, waits))
                continue
            node = self.node_of[position]
            sources = {self.defining_node(value) for value in waits - set(self.read[node])} - {None, node}
            found.setdefault(node, []).extend(each for each in sources if each is not None)
        return found

    def defining_node(self, value: int) -> int | None:
        """The node that makes a tensor."""
        return self.node_of.get(self.fusion.producer.get(value, -1))

    def results(self, node: int) -> list[int]:
        """What a node makes."""
        return [value for kernel in self.members[node] for value in self.ops[kernel].results]

    def written(self, node: int) -> int:
        """The bytes of what a node makes."""
        return sum(self.sizes[value] for value in self.results(node))

    def producers(self, node: int) -> list[int]:
        """The nodes whose results a node reads, each once."""
        sources = (source for value in self.read[node] if (source := self.defining_node(value)) is not None)
        return list(dict.fromkeys((*sources, *self.after.get(node, ()))))

    def ends(self) -> Iterable[int]:
        """The nodes that make what the block returns, and those that nobody reads."""
        last = (source for value in self.fusion.block.returned if (source := self.defining_node(value)) is not None)
        unread = (node for node in self.nodes if not any(value in self.readers for value in self.results(node)))
        return dict.fromkeys((*last, *unread))

    def unread(self) -> dict[int, int]:
        """How many read each tensor."""
        found = {value: len(readers) for value, readers in self.readers.items()}
        for value in self.fusion.block.returned:
            found[value] = found.get(value, 0) + 1
        return found

    def users(self, node: int) -> int:
        """How many read what a node makes."""
        return sum(len(self.readers.get(value, ())) for value in self.results(node))

    def greedy(self) -> list[int]:
        """Of what is ready what frees most, less what it makes; of equal ones what has most readers."""
        unread = self.unread()
        waiting = {node: len(self.read[node]) + len(self.after.get(node, ())) for node in self.nodes}
        followers: dict[int, list[int]] = {}
        for node, before in self.after.items():
            for each in before:
                followers.setdefault(each, []).append(node)
        made = {node: self.written(node) + self.inside.get(node, 0) for node in self.nodes}
        queue: list[tuple[int, int, int, int]] = []
        best: dict[int, int] = {}
        order: list[int] = []
        done: set[int] = set()
        count = 0

        def push(node: int) -> None:
            nonlocal count
            count += 1
            freed = sum(self.sizes[value] for value in self.read[node] if unread[value] == 1)
            best[node] = freed - made[node]
            heappush(queue, (-best[node], -self.users(node), -count, node))

        for node in self.nodes:
            if not waiting[node]:
                push(node)
        while queue:
            known, _, _, node = heappop(queue)
            if node in done or -known != best[node]:
                continue
            done.add(node)
            order.append(node)
            for value in self.read[node]:
                unread[value] -= 1
                if unread[value] == 1:
                    for reader in self.readers[value]:
                        if reader not in done and not waiting[reader]:
                            push(reader)
            readers = (reader for value in self.results(node) for reader in self.readers.get(value, ()))
            for reader in (*readers, *followers.get(node, ())):
                waiting[reader] -= 1
                if not waiting[reader]:
                    push(reader)
        return order

    def depth_first(self) -> list[int]:
        """From the ends to what they read, first what has most other readers and what takes most memory behind it."""
        others: dict[int, int] = {}
        total: dict[int, int] = {}
        for node in self.post_order():
            before = self.producers(node)
            others[node] = min(max(self.users(node) - 1, 0) + sum(others[each] for each in before), _MOST)
            total[node] = min(self.written(node) + sum(total[each] for each in before), _MOST)
        return self.visit(lambda before: sorted(before, key=lambda each: (-others[each], -total[each])))

    def post_order(self) -> list[int]:
        """From the ends to what they read, in the order in which they read it."""
        return self.visit(lambda before: before)

    def visit(self, arranged: Callable[[list[int]], list[int]]) -> list[int]:
        """Nodes behind all that they read, in the order of a depth-first search."""
        order: list[int] = []
        seen: set[int] = set()
        for end in self.ends():
            stack = [(end, False)]
            while stack:
                node, is_complete = stack.pop()
                if is_complete:
                    order.append(node)
                    continue
                if node in seen:
                    continue
                seen.add(node)
                stack.append((node, True))
                stack.extend((each, False) for each in reversed(arranged(self.producers(node))) if each not in seen)
        return order

    def peak(self, order: list[int]) -> int:
        """The most bytes alive at once in an order."""
        unread = self.unread()
        live = peak = 0
        for node in order:
            freed = sum(self.sizes[value] for value in self.read[node] if unread[value] == 1)
            taken = self.taken(node, unread)
            for value in self.read[node]:
                unread[value] -= 1
            live += self.written(node)
            peak = max(peak, live - taken + self.inside.get(node, 0))
            live -= freed + sum(self.sizes[value] for value in self.results(node) if not unread.get(value))
        return peak

    def taken(self, node: int, unread: Mapping[int, int]) -> int:
        """The bytes of what a node writes over, about."""
        dying = [value for value in self.read[node] if unread[value] == 1]
        op = self.ops[self.members[node][-1]]
        if op.name == "while":
            return sum(self.sizes[value] for value in dying if value in op.operands)
        straight = self.fusion.inputs[self.members[node][-1]]
        sizes = [self.sizes[value] for value in dying if straight.get(value) and not self.is_part_of_tuple(value)]
        return self.sizes[op.results[0]] if op.results and self.sizes[op.results[0]] in sizes else 0

    def is_part_of_tuple(self, value: int) -> bool:
        """Whether the tensor is one of several that a kernel writes: the schedulers see no kernel write over those."""
        producer = self.fusion.producer.get(value)
        return value in self.fusion.tuples or (producer is not None and len(self.ops[producer].results) > 1)
