"""The order of a block's kernels: breadth first on XLA:CPU, elsewhere the best of three.

The best needs the least memory. The three are those of XLA's memory scheduler: a greedy list that frees the most first,
depth first with the largest operands first, and post-order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from heapq import heappop, heappush

from .fusion import Fusion
from .kernel_graph import KernelGraph


def order_kernels(fusion: Fusion, inside: Mapping[int, int], given: Collection[int] = ()) -> list[int]:
    """The kernels in execution order, as positions in the block's ops.

    inside: the bytes that the bodies of an op need, by its position. given: the arguments of a loop's body, whose
    memory XLA's schedulers consider free after their last read.
    """
    kernels = [position for position, written in enumerate(fusion.written) if written]
    if fusion.machine.breadth_first:
        return _breadth_first(fusion, kernels)
    graph = KernelGraph(fusion, kernels, inside, fusion.joined, given)
    greedy = _greedy(graph)
    if len(greedy) < len(graph.nodes):  # two joined kernels depend on each other through a third
        fusion.joined, fusion.tuples = [], set()
        graph = KernelGraph(fusion, kernels, inside, [], given)
        greedy = _greedy(graph)
    if len(greedy) < len(graph.nodes):  # products merged across a barrier
        graph.after = {}
        greedy = _greedy(graph)
    orders = (greedy, _depth_first(graph), _post_order(graph))
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


def _greedy(graph: KernelGraph) -> list[int]:
    """Of the ready nodes, the one that frees the most, net of its results; of equal ones, the most read."""
    unread = graph.unread()
    waiting = {node: len(graph.read[node]) + len(graph.after.get(node, ())) for node in graph.nodes}
    followers: dict[int, list[int]] = {}
    for node, before in graph.after.items():
        for each in before:
            followers.setdefault(each, []).append(node)
    made = {node: graph.written(node) + graph.inside.get(node, 0) for node in graph.nodes}
    queue: list[tuple[int, int, int, int]] = []
    best: dict[int, int] = {}
    order: list[int] = []
    done: set[int] = set()
    count = 0

    def push(node: int) -> None:
        nonlocal count
        count += 1
        freed = sum(graph.sizes[value] for value in graph.read[node] if unread[value] == 1)
        best[node] = freed - made[node]
        heappush(queue, (-best[node], -graph.users(node), -count, node))

    for node in graph.nodes:
        if not waiting[node]:
            push(node)
    while queue:
        known, _, _, node = heappop(queue)
        if node in done or -known != best[node]:
            continue
        done.add(node)
        order.append(node)
        for value in graph.read[node]:
            unread[value] -= 1
            if unread[value] == 1:
                for reader in graph.readers[value]:
                    if reader not in done and not waiting[reader]:
                        push(reader)
        readers = (reader for value in graph.results(node) for reader in graph.readers.get(value, ()))
        for reader in (*readers, *followers.get(node, ())):
            waiting[reader] -= 1
            if not waiting[reader]:
                push(reader)
    return order


def _depth_first(graph: KernelGraph) -> list[int]:
    """From the ends to their operands: first those with the most other readers and the most memory before them.

    Both are summed over all operands, counted once per path, but are at most the number of instructions and the bytes
    of all that comes before.
    """
    most = len(graph.nodes) + sum(len(op.results) for op in graph.ops)
    others: dict[int, int] = {}
    total: dict[int, int] = {}
    before = 0
    for node in _post_order(graph):
        used = [value for value in graph.results(node) if graph.uses(value)]
        before += graph.written(node)
        count, size = max(len(used) - 1, 0), graph.written(node)
        for source in graph.read[node]:
            count, size = count + others[source], size + total[source]
        count, size = min(count, most), min(size, before)
        for value in graph.results(node):
            others[value], total[value] = min(count + max(graph.uses(value) - 1, 0), most), size

    def arranged(values: list[int]) -> list[int]:
        return sorted(values, key=lambda value: (-others[value], -total[value]))

    return _visit(graph, arranged)


def _post_order(graph: KernelGraph) -> list[int]:
    """From the ends to their operands, in the order of the reads."""
    return _visit(graph, lambda before: before)


def _visit(graph: KernelGraph, arranged: Callable[[list[int]], list[int]]) -> list[int]:
    """Nodes after all their operands, in depth-first order; arranged: orders the operands."""
    order: list[int] = []
    seen: set[int] = set()
    stack = [(node, False) for node in reversed(graph.producers(arranged(graph.ends())))]
    stack = [(node, False) for node in reversed(graph.unread_nodes())] + stack
    while stack:
        node, is_complete = stack.pop()
        if is_complete:
            order.append(node)
            continue
        if node in seen:
            continue
        seen.add(node)
        stack.append((node, True))
        before = (*graph.producers(arranged(graph.read[node])), *graph.after.get(node, ()))
        stack.extend((each, False) for each in reversed(before) if each not in seen)
    return order
