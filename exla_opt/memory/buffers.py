"""Which results reuse the buffer of an operand. Fitted to XLA's own buffer assignment."""

from __future__ import annotations

from collections.abc import Collection

from exla_opt.ops.traits import Trait

from .block import Operation
from .fusion import Fusion

# Ops whose results are part of the program, and not computed at run time.
STORED = ("constant", "splat")
# The operands of a product of matrices; further operands are added to it.
FACTORS = 2


class Buffers:
    """The buffers of a block whose kernels are ordered.

    order: the kernels as they run, as positions in the block's ops; a step is an index in it.
    last: the last step that reads each tensor; for returned tensors, the step after all of them.
    others: for each op that a kernel with several results writes, the ops that write the other results.
    step_of: the step of each kernel; for kernels that run as one, the step of the last.
    """

    def __init__(self, fusion: Fusion, order: list[int]):
        self.fusion = fusion
        self.block = fusion.block
        self.machine = fusion.machine
        self.order = order
        self.last = {value: step for step, kernel in enumerate(order) for value in fusion.inputs[kernel]}
        for step, kernel in enumerate(order):
            for value in self.block.ops[kernel].results:
                self.last.setdefault(value, step)
        self.step_of = {kernel: step for step, kernel in enumerate(order)}
        self.others = {
            kernel: [each for each in group if each != kernel] for group in fusion.joined for kernel in group
        }
        for group in fusion.joined:  # one kernel, which reads and writes everything at once
            steps = {self.step_of[kernel] for kernel in group}
            self.step_of.update(dict.fromkeys(group, max(steps)))
            for kernel in group:
                read = [value for value in fusion.inputs[kernel] if self.last[value] in steps]
                self.last.update(dict.fromkeys(read, max(steps)))
        self.last.update(dict.fromkeys(self.block.returned, len(order)))

    def with_updated(self, held: Collection[int]) -> set[int]:
        """These tensors, and those before and after them in chains of in-place updates.

        A tensor that overwrites a donated argument uses its buffer from the last read of the argument on.
        """
        arguments = dict(self.block.donated)
        found = {value for value in held if self.is_free_for(arguments.get(value), value)}
        for step in range(len(self.order) - 1, -1, -1):
            for new, old in self.in_place(self.block.ops[self.order[step]]):
                if new not in found or not self.dies(old, step):
                    continue
                if self.is_free_for(arguments.get(new), old):
                    found.add(old)
                    if new in arguments:
                        arguments[old] = arguments[new]
        return found

    def is_free_for(self, argument: int | None, value: int) -> bool:
        """Whether a tensor may use the buffer of a donated argument, if any, from its first write on."""
        position = self.fusion.producer.get(value)
        if argument is None or position is None or argument not in self.last:
            return True
        first, last = self.step_of[position], self.last[argument]
        if first != last:
            return last < first
        updated = (value, argument) in self.in_place(self.block.ops[position])
        return updated or argument in self.reusable(position, value, is_lent=True, is_donated=True)

    def in_place(self, op: Operation) -> list[tuple[int, int]]:
        """The results of an op with the operands whose buffers they reuse, if nothing reads those later."""
        pairs = list(zip(op.results, op.operands, strict=False))
        if op.name == "while":
            return pairs
        if Trait.IN_PLACE in op.traits or self.sorts_in_place(op):
            return [(new, old) for new, old in pairs if self.block.sizes[new] == self.block.sizes[old]]
        if op.name == "custom_call":
            return [(new, old) for new, old in pairs if self.has_type_of(old, new)]
        if op.name == "triangular_solve" and not self.machine.breadth_first:
            return [(op.results[0], op.operands[1])]
        return []

    def sorts_in_place(self, op: Operation) -> bool:
        """Whether the op is a sort that overwrites its operand."""
        return op.name == "sort" and self.machine.sorts_in_place

    def dies(self, value: int, step: int) -> bool:
        """Whether this step is the last to read a tensor of this block, so that its buffer is free."""
        producer = self.producer(value)
        return producer is not None and producer.name not in STORED and self.last.get(value) == step

    def producer(self, value: int) -> Operation | None:
        """The op of this block that computes a tensor."""
        position = self.fusion.producer.get(value)
        return None if position is None else self.block.ops[position]

    def is_made_by(self, value: int, name: str) -> bool:
        """Whether an op of this name, in this block, computes the tensor."""
        producer = self.producer(value)
        return producer is not None and producer.name == name

    def reusable(self, kernel: int, result: int, is_lent: bool = False, is_donated: bool = False) -> Collection[int]:
        """The tensors that a kernel reads and whose buffer its result may reuse, once nothing reads them later.

        is_lent: whether both are in the buffer of a function's result, which is planned before those of temporaries:
        there a GPU also overwrites parts of tuples. is_donated: whether the result must use an argument's buffer: then
        a kernel with several results may overwrite what it reads element by element.
        """
        op = self.block.ops[kernel]
        if op.name == "while":
            index = op.results.index(result)
            return op.operands[index : index + 1]
        if op.name == "custom_call":
            return op.operands
        if Trait.IN_PLACE in op.traits:
            found: Collection[int] = op.operands[:1]
        elif op.name == "triangular_solve" and not self.machine.breadth_first:
            found = op.operands[1:2]
        elif op.name == "cholesky" or self.sorts_in_place(op):
            # A GPU sorts matrices: a tensor with more dimensions becomes one only through a bitcast.
            found = [value for value in op.operands if is_lent or not self.is_scattered(value)]
            if not self.machine.breadth_first:
                known = () if result in self.fusion.viewed else op.operands
                found = [value for value in known if self.has_type_of(value, result)]
        elif op.name == "dot_general" and len(op.operands) > FACTORS:  # over its addend
            found = [value for value in op.operands[FACTORS:] if self.has_type_of(value, result)]
        elif Trait.POINTWISE in op.traits and result not in self.fusion.viewed:
            read = self.fusion.inputs[kernel].items()
            found = [
                value
                for value, straight in read
                if straight and self.has_type_of(value, result, is_lent) and (is_lent or not self.is_kept(value))
            ]
            found = [value for value in found if is_donated or self.is_for_one_result(kernel, value, result)]
        else:
            return ()
        if (is_lent or Trait.IN_PLACE in op.traits) and not self.machine.breadth_first:
            return found  # an op that must overwrite its operand does so
        return [value for value in found if not self.is_column_major(value) and not self.is_part_of_tuple(value)]

    def is_for_one_result(self, kernel: int, value: int, result: int) -> bool:
        """Whether at most one other result of a kernel, and only a reduced one, needs the tensor or the result.

        A reducing kernel may continue from its write over the tensor into the reduce that determines its loop: the
        first. XLA looks at no other.
        """
        inputs = self.fusion.inputs
        others = self.others.get(kernel, ())
        readers = [other for other in others if result in inputs[other] or value in inputs[other]]
        return not readers or (len(readers) == 1 and self.block.ops[readers[0]].name == "reduce")

    def is_kept(self, value: int) -> bool:
        """Whether no kernel reuses the buffer of a temporary although the temporary dies there.

        Only the kernel that picks out one of several results of an op may overwrite it. Only an in-place update may
        overwrite the result of a scatter on XLA:CPU.
        """
        producer = self.producer(value)
        if not self.machine.breadth_first or producer is None:
            return False
        return producer.name == "while" or len(producer.results) > 1 or self.is_scattered(value)

    def is_scattered(self, value: int) -> bool:
        """Whether a scatter of XLA:CPU, followed at most by in-place updates, has written the tensor."""
        producer = self.producer(value) if self.machine.breadth_first else None
        while producer is not None and producer.name == "dynamic_update_slice":
            producer = self.producer(producer.operands[0])
        return producer is not None and producer.name == "scatter"

    def has_type_of(self, one: int, other: int, is_lent: bool = False) -> bool:
        """Whether two tensors have the same shape and element type, also where they are written.

        is_lent: as in `reusable`. There the bitcast of a convolution that XLA turns into a product does not count: it
        follows after fusion, so that no kernel contains it.
        """
        shapes, dtypes = self.block.shapes, self.block.dtypes
        same = shapes[one] == shapes[other] and dtypes[one] == dtypes[other]
        return same and (one not in self.block.merged or (is_lent and self.is_made_by(one, "convolution")))

    def is_part_of_tuple(self, value: int) -> bool:
        """Whether the tensor comes from a tuple: of a library call with workspace, or a kernel with several results."""
        producer = self.producer(value)
        while producer is not None and Trait.IN_PLACE in producer.traits and not self.machine.breadth_first:
            value = producer.operands[0]  # which it overwrites
            producer = self.producer(value)
        if value in self.fusion.tuples:
            return True
        if not self.machine.breadth_first and producer is not None and len(producer.results) > 1:
            return True
        if not self.machine.breadth_first and self.is_made_by(value, "convolution"):
            return True
        return self.machine.workspace > 0 and self.is_made_by(value, "dot_general")

    def is_column_major(self, value: int) -> bool:
        """Whether LAPACK wrote the tensor, in column-major order, which other tensors do not have."""
        return self.is_made_by(value, "custom_call")
