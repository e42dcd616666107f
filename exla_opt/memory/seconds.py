"""The time of a block on a machine, whether it is in a module or only planned: kernel by kernel.

A kernel takes as long as its arithmetic or its traffic, whichever is more, plus a fixed cost (the roofline model of
Williams, Waterman and Patterson, 2009). The figures order plans and promise nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isqrt, log, log2, prod, sqrt

from exla_opt.ops.traits import Trait

from .block import Block, Operation
from .buffers import STORED
from .called_functions import seconds_of_calls
from .convolution_seconds import seconds_to_pack
from .fusion import Fusion, fuse
from .machine import Machine
from .operation import moved_type

# An operand is in the cache if one of this many preceding kernels wrote it.
LAST_KERNELS = 3
# Operations per element of a slow function, and of any other op.
SLOW, QUICK = 10.0, 0.5
_SORTS = Trait.SELECTS | Trait.LIBRARY
# The time in which a CPU dismisses an element that is not among the largest, over that of a comparison in a sort.
_DISMISSED = 0.1
# Products of few elements wait for their operands: they are not slowed further.
_MOST_SLOWED = 2.0
# One part in `_NEAREST` of the cache is read at its speed, the rest `_FARTHER` times slower: on a CPU, products with a
# vector read matrices of up to 1 MB at 75 to 107 GB/s, and of 8 to 33 MB at 26; of 64 MB, which leaves it, at 13.
_NEAREST, _FARTHER = 8, 4
# XLA:CPU scatters one window after another.
_SECONDS_PER_WINDOW, _SECONDS_PER_UPDATE = 5e-9, 5e-10
# The bytes of a cache line: a part of a tensor takes as many bytes of traffic as the lines that it touches.
_LINE = 64
# A kernel's inputs are traced through the ops fused so far, as the fusion itself does.
_MOST_INPUTS = 64


def seconds_of(block: Block, machine: Machine) -> float:
    """The seconds of the block's kernels, with those in its loops once per trip.

    For a branch, the slowest body counts. Linear in the number of ops.

    No reader takes up a sum that a CPU's library computes: it is written. The library computes such sums and the ops
    around them in one kernel, which takes about as long as separate ones.
    """
    return sum(seconds_of_kernels(fuse(block, machine, sums_alone=True)))


def seconds_of_kernels(fusion: Fusion) -> list[float]:
    """The seconds of the kernel of each op of a block, which `seconds_of` adds up; 0 for an op that is not written."""
    block, machine = fusion.block, fusion.machine
    work, read = _work(fusion), _Traffic(fusion)
    found = [0.0] * len(block.ops)
    written: dict[int, int] = {}  # the kernel, by number, that wrote a tensor
    kernels = 0
    for position, op in enumerate(block.ops):
        if not fusion.written[position]:
            continue
        if op.bodies or op.seconds:
            found[position] = op.seconds or _seconds_of_bodies(op, machine)
            continue
        if not _is_kernel(op):
            continue
        oldest = kernels - LAST_KERNELS
        fresh = {value for value in read.inputs[position] if written.get(value, -1) >= max(oldest, 0)}
        found[position] = _seconds_of_kernel(read.of(position, fresh, machine), work[position], machine)
        found[position] += sum(_seconds_of_copy(block.sizes[op.operands[side]], machine) for side in op.copied)
        written.update(dict.fromkeys(op.results, kernels))
        kernels += 1
    return found


def seconds_in_cache(block: Block, machine: Machine) -> float:
    """The seconds of a block all of whose tensors stay in the cache, but for larger matrices that vectors multiply."""
    return sum(_seconds_in_cache(block, op, machine) for op in block.ops)


def seconds_of_ops(block: Block, machine: Machine, any_shape: bool = False) -> list[float]:
    """The seconds of each op's arithmetic alone, those in its loops once per trip.

    any_shape: whether products of few rows or elements count as if at full speed, for comparing slices with all. Those
    with a vector count the time to read their matrix, which is shorter for a slice that stays in the cache.
    """
    free = replace(machine, seconds_per_kernel=0.0, seconds_per_trip=0.0, any_shape=any_shape)
    return [_seconds_in_cache(block, op, free) for op in block.ops]


def _seconds_in_cache(block: Block, op: Operation, machine: Machine) -> float:
    if op.seconds:
        return op.seconds
    if not op.bodies:
        seconds = max(_arithmetic(block, op, machine), _seconds_to_read(block, op, machine))
        return seconds + machine.seconds_per_kernel
    longest = max(seconds_in_cache(body, machine) for body in op.bodies)
    return op.trips * (longest + machine.seconds_per_trip) if op.name == "while" else longest


def seconds_of_sum(size: int, contracts: bool, machine: Machine) -> float:
    """The seconds in which a trip adds a partial result of `size` bytes to the sum so far.

    contracts: whether the partial result is a product of matrices.
    """
    if contracts and machine.accumulates:
        return size / machine.bytes_per_second  # the product's kernel reads its addend
    return 3 * size / machine.bytes_per_second + machine.seconds_per_kernel


def seconds_to_take(elements: int, length: int, count: int, machine: Machine) -> float:
    """The seconds in which a top_k takes the `count` largest of each row of `length` elements.

    Each row has a heap of the largest so far. In random order, element i > count of a row enters it with probability
    count / i (see the records in Knuth, "The Art of Computer Programming", volume 1, 1.2.10).
    """
    entered = elements // max(length, 1) * count * (1 + log(max(length / max(count, 1), 1)))
    return (entered * log2(2 * max(count, 1)) + _DISMISSED * elements) * machine.seconds_per_comparison


def _is_kernel(op: Operation) -> bool:
    return op.name not in STORED


def _seconds_of_bodies(op: Operation, machine: Machine) -> float:
    longest = max(seconds_of(body, machine) for body in op.bodies)
    return op.trips * (longest + machine.seconds_per_trip) if op.name == "while" else longest


def _seconds_of_copy(size: int, machine: Machine) -> float:
    return 2 * size / machine.bytes_per_second + machine.seconds_per_kernel


def _seconds_of_kernel(traffic: float, work: float, machine: Machine) -> float:
    return max(traffic, work) + machine.seconds_per_kernel


def _work(fusion: Fusion) -> list[float]:
    """For each op, the seconds of its kernel's arithmetic; recomputation in several kernels counts for the first."""
    block, machine = fusion.block, fusion.machine
    work = [0.0] * len(block.ops)
    kernel = list(range(len(block.ops)))
    for position in range(len(block.ops) - 1, -1, -1):
        if not fusion.written[position] and fusion.into[position]:
            kernel[position] = kernel[min(fusion.into[position])]
        work[kernel[position]] += _arithmetic(block, block.ops[position], machine)
    return work


def _arithmetic(block: Block, op: Operation, machine: Machine) -> float:
    """The seconds of one op's arithmetic at the machine's speed."""
    if not _is_kernel(op) or op.name == "broadcast_in_dim":
        return 0.0  # its readers take the numbers from where they are
    if Trait.CONTRACTS in op.traits and len(op.operands) > 1:
        return _product(block, op, machine)
    if op.name == "dynamic_update_slice":
        return QUICK * prod(block.shapes[op.operands[1]]) / machine.flops_elementwise
    if _SORTS in op.traits:
        return _order(block, op, machine)
    if op.name == "scatter" and machine.kind == "cpu":
        updates = prod(block.shapes[op.operands[-1]])
        windows = prod(block.shapes[op.operands[len(op.operands) // 2]]) // max((1, *op.lengths))
        return windows * _SECONDS_PER_WINDOW + updates * _SECONDS_PER_UPDATE
    made = float(sum(prod(block.shapes[value]) for value in op.results))
    if op.name in ("triangular_solve", "cholesky", "custom_call") and op.operands:
        operations = made * (block.shapes[op.operands[0]] or (1,))[-1]
    elif op.name == "reduce":
        operations = float(prod(block.shapes[op.operands[0]]))
    else:
        operations = made * (SLOW if Trait.SLOW in op.traits else QUICK)
    # Plans price slow functions alike: what they may compute again was measured so.
    is_called = machine.is_written and bool(op.results)
    called = seconds_of_calls(op.name, made, block.dtypes[op.results[0]], machine) if is_called else 0.0
    return operations / machine.flops_elementwise + called


def _order(block: Block, op: Operation, machine: Machine) -> float:
    """The seconds of a sort, or of a top_k."""
    shape = block.shapes[op.operands[0]]
    if op.name == "top_k":
        return seconds_to_take(prod(shape), shape[-1], block.shapes[op.results[0]][-1], machine)
    [length] = op.lengths or shape[-1:] or (1,)
    return prod(shape) * log2(max(length, 2)) * machine.seconds_per_comparison


def _product(block: Block, op: Operation, machine: Machine) -> float:
    """Twice the multiplications of a dot of b matrices of m x k and k x n, or of a convolution."""
    left, right, out = (prod(block.shapes[value]) for value in (*op.operands[:2], op.results[0]))
    shape = block.shapes[op.results[0]]
    shared = prod(shape[dim] for dim in op.shared)
    if not left * right * out * shared:
        return 0.0
    speed = machine.flops_of(block.dtypes[op.operands[0]])
    if op.name == "convolution":
        read = out // shared * (right // shared)
        return 2.0 * read * shared / speed + seconds_to_pack(op, read, shape, machine)
    terms = isqrt(left * right // (out * shared)) or 1  # (bmk)(bkn) = bmn * b * k * k
    if machine.any_shape:
        return 2.0 * out * terms / speed
    sides = (terms, max(left // (shared * terms), 1), max(right // (shared * terms), 1))
    slower = sum(sqrt(machine.full_speed_rows / side) - 1 for side in sides if side < machine.full_speed_rows)
    slower += min(machine.half_speed_result * shared / out, _MOST_SLOWED)
    return 2.0 * out * terms * (1.0 + slower) / speed


def _seconds_to_read(block: Block, op: Operation, machine: Machine) -> float:
    """The seconds in which a product with a vector reads its matrix, most of its time; 0 for any other op."""
    if not op.by_vector:
        return 0.0
    moved = sum(block.sizes[value] for value in op.operands[:2])
    if moved > machine.cache_bytes:
        return moved / machine.bytes_per_second
    if moved * _NEAREST <= machine.cache_bytes:
        return moved / machine.cache_bytes_per_second
    return moved / max(machine.cache_bytes_per_second / _FARTHER, machine.bytes_per_second)


@dataclass(slots=True)
class _Traffic:
    """For each op, the bytes that its kernel reads of each tensor; for a slice on the way only its own bytes count."""

    fusion: Fusion
    inputs: list[dict[int, int]]

    def __init__(self, fusion: Fusion):
        self.fusion = fusion
        self.inputs = []
        for position, op in enumerate(fusion.block.ops):
            self.inputs.append(self.read_by(position, op))

    def read_by(self, position: int, op: Operation) -> dict[int, int]:
        block, fusion = self.fusion.block, self.fusion
        if op.name == "dynamic_slice" and not op.operands:  # of a planned loop: a slice of some outer tensor
            return {op.results[0]: int(block.sizes[op.results[0]] * _lines_of_planned(block, op))}
        cut = sum(block.sizes[value] for value in op.results) if Trait.CUTS in op.traits else None
        lines = _lines_read(block, op)
        read: dict[int, int] = {}
        for index, value in enumerate(op.operands):
            if Trait.IN_PLACE in op.traits and index == 0:
                continue
            producer = fusion.producer.get(value)
            if producer is not None and not _is_kernel(block.ops[producer]):
                continue
            if producer is not None and position in fusion.into[producer] and len(read) < _MOST_INPUTS:
                for other, size in self.inputs[producer].items():
                    size = size if cut is None else min(size, cut)
                    read[other] = max(read.get(other, 0), size)
                continue
            size = block.sizes[value] if cut is None or index > 0 else min(block.sizes[value], int(cut * lines))
            cutting = None if producer is None or fusion.written[producer] else block.ops[producer]
            if cutting is not None and Trait.CUTS in cutting.traits and cutting.operands:
                size = min(int(size * _lines_read(block, cutting)), block.sizes[cutting.operands[0]])
            read[value] = max(read.get(value, 0), size)
        return read

    def of(self, position: int, cached: set[int], machine: Machine) -> float:
        """The seconds of the reads and writes of an op's kernel. cached: the tensors written just before."""
        block, op = self.fusion.block, self.fusion.block.ops[position]
        far, near = self.written(op), 0
        for value, size in self.inputs[position].items():
            if value in cached and block.sizes[value] < machine.cache_bytes:
                near += size
            else:
                far += size
        return far / machine.bytes_per_second + near / machine.cache_bytes_per_second

    def written(self, op: Operation) -> int:
        block, sizes = self.fusion.block, self.fusion.block.sizes
        if op.name == "dynamic_update_slice":
            if moved_type(block.dtypes[op.results[0]], self.fusion.machine):
                return 2 * sizes[op.results[0]]  # all of it is widened, updated and narrowed again
            whole, part = op.operands[:2]
            return min(int(sizes[part] * _lines(block, whole, part)), max(sizes[whole], sizes[part]))
        if op.name == "scatter":
            return min(sum(sizes[value] for value in op.results), sizes[op.operands[-1]] * len(op.results))
        return sum(sizes[value] for value in op.results)


def _lines_read(block: Block, op: Operation) -> float:
    """The bytes that an op reads of its first operand over those of its result: more where it cuts short runs."""
    return _lines(block, op.operands[0], op.results[0]) if Trait.CUTS in op.traits and op.operands else 1.0


def _lines(block: Block, whole: int, part: int) -> float:
    """The bytes of the cache lines that a slice of a tensor touches, over its own: runs may be shorter than a line."""
    shape, size = block.shapes[part], block.sizes[part]
    if len(shape) != len(block.shapes[whole]):  # rows that a gather picks, or a view
        return 1.0
    run = size / max(prod(shape), 1)  # of an element
    for length, own in zip(reversed(block.shapes[whole]), reversed(shape), strict=True):
        run *= own
        if own < length:
            break
    return max(_LINE / max(run, 1.0), 1.0) if run < size else 1.0


def _lines_of_planned(block: Block, op: Operation) -> float:
    """The same for a slice in a planned loop, of `together` contiguous elements for each index that it is cut by."""
    [result] = op.results
    shape, size = block.shapes[result], block.sizes[result]
    run, after = size / max(prod(shape), 1) * op.together, 1
    for own in reversed(shape):
        if after == op.together and own > 1:
            run *= own
            break
        after *= own
    return max(_LINE / max(run, 1.0), 1.0) if run < size else 1.0
