"""The kernels of a block as XLA's memory schedulers see them: their operands, and the memory of an order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from exla_opt.ops.traits import Trait

from .fusion import Fusion


class KernelGraph:
    """The kernels of a block and their dependences.

    nodes: the kernels; one stands for all that are joined to it. members: those, with the results that may overwrite
    what a node reads last. node_of: the node of each kernel.
    read: for each node, the tensors of other nodes that it reads. readers: the nodes that read a tensor.
    after: for each node, the others that it waits for without reading their results.
    """

    def __init__(
        self,
        fusion: Fusion,
        kernels: list[int],
        inside: Mapping[int, int],
        joined: list[list[int]],
        given: Collection[int],
    ):
        self.fusion, self.inside, self.given = fusion, inside, frozenset(given)
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
        self.returned = frozenset(fusion.block.returned)

    def read_by(self, node: int) -> list[int]:
        """The tensors that a node reads, each once, in the order of the reads."""
        found = dict.fromkeys(value for kernel in self.members[node] for value in self.fusion.inputs[kernel])
        return [value for value in found if self.defining_node(value) not in (None, node)]

    def find_after(self) -> dict[int, list[int]]:
        """For each node, those it waits for without reading them: barriers, and readers of an overwritten carry."""
        awaited = dict(self.fusion.block.behind)
        found: dict[int, list[int]] = {}
        for kernel, others in self.fusion.waits.items():
            nodes = {self.node_of[other] for other in others} - {self.node_of[kernel]}
            found.setdefault(self.node_of[kernel], []).extend(sorted(nodes))
        if not awaited:
            return found
        for position, op in enumerate(self.ops):
            inherited = [
                awaited[value] for value in op.operands if value in awaited and self.defining_node(value) is None
            ]
            waits = frozenset().union(*inherited, *(awaited.get(value, ()) for value in op.results))
            if position not in self.node_of:  # fused into the kernels that read it
                awaited.update(dict.fromkeys(op.results, waits))
                continue
            node = self.node_of[position]
            sources = {self.defining_node(value) for value in waits - set(self.read[node])} - {None, node}
            found.setdefault(node, []).extend(each for each in sources if each is not None)
        return found

    def defining_node(self, value: int) -> int | None:
        """The node that computes a tensor."""
        return self.node_of.get(self.fusion.producer.get(value, -1))

    def results(self, node: int) -> list[int]:
        """The results of a node."""
        return [value for kernel in self.members[node] for value in self.ops[kernel].results]

    def written(self, node: int) -> int:
        """The bytes of a node's results."""
        return sum(self.sizes[value] for value in self.results(node))

    def producers(self, values: Iterable[int]) -> list[int]:
        """The nodes that compute these tensors, each once."""
        found = (node for value in values if (node := self.defining_node(value)) is not None)
        return list(dict.fromkeys(found))

    def ends(self) -> list[int]:
        """The returned tensors that this block computes."""
        return [value for value in self.fusion.block.returned if self.defining_node(value) is not None]

    def unread_nodes(self) -> list[int]:
        """The nodes whose results nothing reads."""
        return [node for node in self.nodes if not any(value in self.readers for value in self.results(node))]

    def uses(self, value: int) -> int:
        """The number of reads of a tensor, the return included."""
        return len(self.readers.get(value, ())) + (value in self.returned)

    def unread(self) -> dict[int, int]:
        """The number of reads of each tensor."""
        found = {value: len(readers) for value, readers in self.readers.items()}
        for value in self.fusion.block.returned:
            found[value] = found.get(value, 0) + 1
        return found

    def users(self, node: int) -> int:
        """The number of reads of a node's results."""
        return sum(len(self.readers.get(value, ())) for value in self.results(node))

    def peak(self, order: list[int]) -> int:
        """The peak in bytes of an order, without the tensors that exist before."""
        unread = self.unread()
        before = {node: self.read_before(node) for node in order} if self.given else {}
        for values in before.values():
            for value in values:
                unread[value] = unread.get(value, 0) + 1
        live = peak = 0
        for node in order:
            read = (*self.read[node], *before.get(node, ()))
            freed = sum(self.sizes[value] for value in read if unread[value] == 1)
            taken = self.taken(node, [value for value in read if unread[value] == 1])
            for value in read:
                unread[value] -= 1
            live += self.written(node)
            peak = max(peak, live - taken + self.inside.get(node, 0))
            live -= freed + sum(self.sizes[value] for value in self.results(node) if not unread.get(value))
        return peak

    def read_before(self, node: int) -> set[int]:
        """The tensors given to the block that a node reads."""
        return {value for kernel in self.members[node] for value in self.fusion.inputs[kernel] if value in self.given}

    def taken(self, node: int, dying: list[int]) -> int:
        """The bytes that a node overwrites, approximately; dying: the tensors that are read last here."""
        op = self.ops[self.members[node][-1]]
        if op.name == "while":
            return sum(self.sizes[value] for value in dying if value in op.operands)
        dying = [value for value in dying if value not in self.given]
        if op.name == "sort" or (Trait.IN_PLACE in op.traits and op.name != "scatter"):
            pairs = zip(op.results, op.operands, strict=False)
            return sum(self.sizes[old] for new, old in pairs if old in dying and self.sizes[new] == self.sizes[old])
        straight = self.fusion.inputs[self.members[node][-1]]
        sizes = [self.sizes[value] for value in dying if straight.get(value) and not self.is_part_of_tuple(value)]
        return self.sizes[op.results[0]] if op.results and self.sizes[op.results[0]] in sizes else 0

    def is_part_of_tuple(self, value: int) -> bool:
        """Whether the tensor is one of several that a kernel or a library writes: the schedulers see no kernel write
        over those.
        """
        position = self.fusion.producer.get(value)
        if position is None or value in self.fusion.tuples:
            return position is not None
        op = self.ops[position]
        is_product = op.name == "dot_general" and self.fusion.machine.workspace > 0
        return is_product or op.name == "convolution" or len(op.results) > 1
