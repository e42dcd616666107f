"""A minimum cut of a network, by Dinic's algorithm (1970): shortest augmenting paths until there are none."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence

UNLIMITED = 2**62


def cheapest(
    values: Sequence[int],
    targets: Collection[int],
    cost: Callable[[int], int],
    reads: Callable[[int], Iterable[int] | None],
) -> set[int]:
    """The values of the least cost in all from which others compute the targets; of several, those nearest to them.

    values: all that the targets depend on. reads: the values that one is computed from; None if it cannot be computed.
    """
    source, sink = 2 * len(values), 2 * len(values) + 1
    network = Network(sink + 1)
    place = {value: 2 * index for index, value in enumerate(values)}
    for value, enters in place.items():
        network.connect(enters, enters + 1, cost(value))
        read = reads(value)
        if read is None:
            network.connect(source, enters, UNLIMITED)
            continue
        for other in read:
            network.connect(place[other] + 1, enters, UNLIMITED)
    for value in targets:
        network.connect(place[value] + 1, sink, 2 * UNLIMITED)
    side = network.cut(source, sink)
    return {value for value, enters in place.items() if enters not in side and enters + 1 in side}


class Network:
    """Nodes 0, 1, ... and edges with capacities."""

    def __init__(self, nodes: int):
        self.edges: list[list[int]] = [[] for _ in range(nodes)]  # by node: the numbers of its edges
        self.ends: list[int] = []
        self.room: list[int] = []  # the reverse of edge n is n ^ 1

    def connect(self, start: int, end: int, room: int) -> None:
        """Add an edge."""
        for here, there, size in ((start, end, room), (end, start, 0)):
            self.edges[here].append(len(self.ends))
            self.ends.append(there)
            self.room.append(size)

    def cut(self, source: int, sink: int) -> set[int]:
        """The nodes on the sink's side of the minimum cut nearest to the sink."""
        while (levels := self._levels(source))[sink] >= 0:
            places = [0] * len(self.edges)
            while self._fill(source, sink, levels, places):
                pass
        side = {sink}
        queue = [sink]
        while queue:
            node = queue.pop()
            for edge in self.edges[node]:
                other = self.ends[edge]
                if self.room[edge ^ 1] > 0 and other not in side:
                    side.add(other)
                    queue.append(other)
        return side

    def _levels(self, source: int) -> list[int]:
        levels = [-1] * len(self.edges)
        levels[source] = 0
        queue = deque([source])
        while queue:
            node = queue.popleft()
            for edge in self.edges[node]:
                other = self.ends[edge]
                if self.room[edge] > 0 and levels[other] < 0:
                    levels[other] = levels[node] + 1
                    queue.append(other)
        return levels

    def _fill(self, source: int, sink: int, levels: list[int], places: list[int]) -> bool:
        """Augment along one path; False if there is none. places: by node, the first edge that may lead on."""
        path: list[int] = []
        node = source
        while node != sink:
            edges = self.edges[node]
            while places[node] < len(edges):
                edge = edges[places[node]]
                if self.room[edge] > 0 and levels[self.ends[edge]] == levels[node] + 1:
                    break
                places[node] += 1
            if places[node] < len(edges):
                path.append(edges[places[node]])
                node = self.ends[path[-1]]
            elif path:
                node = self.ends[path.pop() ^ 1]
                places[node] += 1
            else:
                return False
        least = min(self.room[edge] for edge in path)
        for edge in path:
            self.room[edge] -= least
            self.room[edge ^ 1] += least
        return True
