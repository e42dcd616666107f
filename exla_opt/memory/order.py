"""The order in which a block's kernels run: breadth first on XLA:CPU, in program order elsewhere."""

from __future__ import annotations

from collections import deque

from .fusion import Fusion


def order_kernels(fusion: Fusion) -> list[int]:
    """The kernels in the order in which they run, as places in the block's ops."""
    kernels = [position for position, written in enumerate(fusion.written) if written]
    if not fusion.machine.breadth_first:
        return sorted(kernels, key=lambda kernel: fusion.block.ops[kernel].name != "copy")
    return _breadth_first(fusion, kernels)


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
