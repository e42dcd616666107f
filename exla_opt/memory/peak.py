"""The memory that XLA will need for a module, predicted from the module alone.

XLA:CPU runs a block's kernels in the order in which they become ready, first in, first out; a GPU runs them in program
order. A tensor is freed after its last reader. Fitted to XLA's own buffer assignment; a prediction orders candidates
and is no promise.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import prod

from jaxlib.mlir import ir

from exla_opt.ir.types import Types
from exla_opt.ir.walk import main_function

from .fusion import ELEMENTWISE, LONGEST_FUSED_REDUCTION, Fusion, fuse, is_short
from .program import Block, Operation, read_block

# Their results take the buffers of their first operands where nobody reads those later.
_IN_PLACE = frozenset({"dynamic_update_slice", "scatter"})
# Several results are found through a table of addresses.
_POINTER = 8
# A matrix of at most so many rows is solved at once; a larger one block by block, into a second buffer.
_SOLVED_AT_ONCE = 128
# The bytes of a float32: XLA:CPU multiplies matrices of narrower ones, and sums bfloat16, in no other type.
_WIDE = 4
# What cuBLAS is given for its own use.
_CUBLAS_WORKSPACE = 4 * 2**20


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one run.

    arguments, results: what goes in and what comes out.
    aliased: the results that are written into donated arguments.
    temp: what exists only while the program runs.
    gemm: what multiplies matrices in the compile that this was read from, Triton or cuBLAS; "" for a CPU.
    """

    arguments: int
    results: int
    aliased: int
    temp: int
    gemm: str = ""

    @property
    def peak(self) -> int:
        """The most that is alive at once; XLA's own figure leaves out temp on CPU."""
        return self.arguments + self.results - self.aliased + self.temp


def predict(module: ir.Module, gpu: bool = False) -> Memory:
    """The memory that XLA:CPU (or XLA:GPU) will plan for the module's main function."""
    function = main_function(module)
    types = Types()
    run = run_block(read_block(function.regions[0].blocks[0], types), gpu, is_function=True)
    return memory_of(function, run, types)


def memory_of(function: ir.Operation, run: Run, types: Types) -> Memory:
    """The bytes of a function whose block has run."""
    made = run.block
    arguments = [types.of(value).bytes for value in function.regions[0].blocks[0].arguments]
    results = [made.sizes[value] or types.of(made.values[value]).bytes for value in made.returned]
    table = _POINTER * len(results) if len(results) > 1 else 0
    return Memory(sum(arguments), sum(results) + table, _aliased(function, arguments), run.peak)


def _aliased(function: ir.Operation, arguments: Sequence[int]) -> int:
    if "arg_attrs" not in function.attributes:
        return 0
    attributes = [ir.DictAttr(each) for each in ir.ArrayAttr(function.attributes["arg_attrs"])]
    return sum(size for size, each in zip(arguments, attributes, strict=True) if "tf.aliasing_output" in each)


def _order(fusion: Fusion, inputs: Sequence[frozenset[int]]) -> list[int]:
    """The kernels in the order in which they run."""
    kernels = [position for position, written in enumerate(fusion.written) if written]
    if fusion.gpu:
        return kernels
    waiting: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    ready: deque[int] = deque()
    for kernel in kernels:
        makers = [fusion.maker[value] for value in sorted(inputs[kernel]) if value in fusion.maker]
        waiting[kernel] = len(makers)
        for maker in makers:
            readers.setdefault(maker, []).append(kernel)
        if not makers:
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


class Run:
    """One block, kernel by kernel. What somebody else holds (a function's results) counts for nothing.

    order: the kernels as they run, as places in the block's ops; a step is a place in it.
    lives, scratches: for each step the bytes alive, and those that the kernel needs beside them while it runs.
    born, died: the first and the last step of each tensor made here; what does not die is not in the latter.
    inner: the runs of the bodies of control flow, by step.
    """

    def __init__(self, block: Block, gpu: bool, is_function: bool):
        self.block = block
        self.fusion = fuse(block, gpu)
        self.inputs = self.fusion.inputs()
        self.order = _order(self.fusion, self.inputs)
        self.last = {value: step for step, kernel in enumerate(self.order) for value in self.inputs[kernel]}
        self.last.update(dict.fromkeys(block.returned, len(self.order)))
        self.elsewhere: set[int] = self.results_in_place() if is_function else set()
        # A body's arguments are its loop's buffers: they come back when they die, for others to use.
        self.mine: set[int] = set() if is_function else set(block.arguments)
        self.start = sum(block.sizes[value] for value in self.mine)
        self.live = self.most = self.start
        self.lives: list[int] = []
        self.scratches: list[int] = []
        self.born: dict[int, int] = {}
        self.died: dict[int, int] = {}
        self.inner: dict[int, list[Run]] = {}

    @property
    def peak(self) -> int:
        """The most bytes alive at once, beyond those that the block was given."""
        return self.most - self.start

    def results_in_place(self) -> set[int]:
        """The function's results, and the tensors that became them by updates in place."""
        found = set(self.block.returned)
        for step in range(len(self.order) - 1, -1, -1):
            op = self.block.ops[self.order[step]]
            if op.name in _IN_PLACE or op.name == "while":
                pairs = zip(op.results, op.operands, strict=False)
                found.update(old for new, old in pairs if new in found and self.dies(old, step))
        return found

    def dies(self, value: int, step: int) -> bool:
        """Whether a tensor of this block is last read in this step, so that its buffer is free for another."""
        maker = self.fusion.maker.get(value)
        made_here = maker is not None and self.block.ops[maker].name not in ("constant", "splat")
        return made_here and self.last.get(value) == step

    def simulate(self) -> None:
        dying: dict[int, list[int]] = {}
        for value, step in self.last.items():
            dying.setdefault(step, []).append(value)
        if not self.fusion.gpu:
            self.fill_early()
        for step, kernel in enumerate(self.order):
            op = self.block.ops[kernel]
            made = [value for value in op.results if value not in self.elsewhere]
            if op.name == "while":
                body = op.bodies[0]
                changed = [new != old for new, old in zip(body.returned, body.arguments, strict=True)]
                made = [value for value, is_new in zip(op.results, changed, strict=True) if is_new and value in made]
            made = [value for value in made if value not in self.mine]
            self.mine.update(made)
            for value in made:
                self.take_buffer(op, kernel, value, step)
                self.live += self.block.sizes[value]
                self.born[value] = step
            self.inner[step] = [run_block(body, self.fusion.gpu) for body in op.bodies]
            scratch = max((run.peak for run in self.inner[step]), default=self.scratch(op, step))
            scratch += self.widened_before(op)
            self.lives.append(self.live)
            self.scratches.append(scratch)
            self.most = max(self.most, self.live + scratch)
            for value in dying.get(step, ()):
                if value in self.mine:
                    self.live -= self.block.sizes[value]
                    self.mine.discard(value)
                    self.died[value] = step

    def fill_early(self) -> None:
        """A loop that starts from a constant: XLA:CPU makes the constant's copy as soon as the block begins."""
        makers = self.fusion.maker
        for kernel in self.order:
            op = self.block.ops[kernel]
            if op.name != "while":
                continue
            for old, new in zip(op.operands, op.results, strict=True):
                if old in makers and self.block.ops[makers[old]].name == "splat" and new not in self.elsewhere:
                    self.mine.add(new)
                    self.live += self.block.sizes[new]
                    self.born[new] = 0

    def take_buffer(self, op: Operation, kernel: int, result: int, step: int) -> None:
        """Give the result the buffer of an operand that dies, where XLA does so."""
        size = self.block.sizes[result]
        for value in self.reusable(op, kernel, result):
            if value in self.mine and self.last.get(value) == step and self.block.sizes[value] == size:
                self.mine.discard(value)
                self.live -= size
                self.died[value] = step - 1
                return

    def reusable(self, op: Operation, kernel: int, result: int) -> Collection[int]:
        index = op.results.index(result)
        if op.name == "while":
            return op.operands[index : index + 1]
        if op.name == "custom_call":
            return op.operands
        if op.name in _IN_PLACE:
            found: Collection[int] = op.operands[:1]
        elif op.name in ("sort", "cholesky"):
            found = op.operands
        elif op.name in ELEMENTWISE:
            found = self.read_elementwise(kernel)
        else:
            return ()
        return [value for value in found if not self.is_column_major(value) and not self.is_product_on_gpu(value)]

    def is_product_on_gpu(self, value: int) -> bool:
        maker = self.fusion.maker.get(value)
        return self.fusion.gpu and maker is not None and self.block.ops[maker].name == "dot_general"

    def is_column_major(self, value: int) -> bool:
        """Whether LAPACK wrote the tensor, in an order of elements that others do not have."""
        maker = self.fusion.maker.get(value)
        return maker is not None and self.block.ops[maker].name == "custom_call"

    def read_elementwise(self, kernel: int) -> set[int]:
        """The inputs of a kernel that are read element by element all the way, and in no other way."""
        fusion, ops = self.fusion, self.block.ops
        straight: set[int] = set()
        otherwise: set[int] = set()
        visited: set[tuple[int, bool]] = set()
        stack = [(kernel, True)]
        while stack:
            position, elementwise = stack.pop()
            if (position, elementwise) in visited:
                continue
            visited.add((position, elementwise))
            elementwise = elementwise and ops[position].name in ELEMENTWISE
            for value in ops[position].operands:
                maker = fusion.maker.get(value)
                if maker is not None and position in fusion.into[maker]:
                    stack.append((maker, elementwise))
                else:
                    (straight if elementwise else otherwise).add(value)
        return straight - otherwise

    def widened_before(self, op: Operation) -> int:
        """The bytes of what XLA:CPU widens before a loop that reads slices of it: twice those of the narrow floats."""
        if op.name != "while" or self.fusion.gpu:
            return 0
        # What an outer loop captures is widened before that one.
        own = (value for value in op.narrow if value in self.fusion.maker or value in self.block.arguments)
        return sum(2 * self.block.sizes[value] for value in own)

    def widened(self, op: Operation, step: int) -> int:
        """The bytes of the float32 tensors that XLA:CPU makes of narrower ones for this op, if not in their place."""
        needed = 0
        for value in op.narrow:
            in_place = value in self.mine and (value in op.results or self.last.get(value) == step)
            needed += _WIDE * prod(self.block.shapes[value]) - (self.block.sizes[value] if in_place else 0)
        return needed

    def scratch(self, op: Operation, step: int) -> int:
        """The bytes that an op without bodies needs only while it runs."""
        sizes, gpu = self.block.sizes, self.fusion.gpu
        if gpu:
            workspace = _CUBLAS_WORKSPACE if op.name == "dot_general" else 0
            return sum(sizes[op.operands[side]] for side in op.copied) + workspace
        if op.name == "reduce" and not is_short(op):
            first = op.operands[0]
            size = _WIDE * prod(self.block.shapes[first]) if first in op.narrow else sizes[first]
            partial = size // max(prod(min(LONGEST_FUSED_REDUCTION, n) for n in op.lengths), 1)
            return partial + self.widened(op, step)
        if op.name == "triangular_solve" and op.lengths[0] > _SOLVED_AT_ONCE:
            return sizes[op.results[0]]
        if op.name != "dot_general":
            return 0
        copied = {op.operands[side] for side in op.copied}
        copied |= {value for value in op.operands if self.is_column_major(value)}
        return sum(sizes[value] for value in copied - op.narrow) + self.widened(op, step)


def run_block(block: Block, gpu: bool, is_function: bool = False) -> Run:
    """The finished run of a function's block, or of a body of control flow."""
    run = Run(block, gpu, is_function)
    run.simulate()
    return run
