"""Kernels of a GPU while fusion is decided: what each reads, how often, and how long it runs.

The figures are those of the cost model that XLA:GPU uses, not of the machine.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from math import isqrt, prod
from typing import Any

from exla_opt.ops.traits import Trait

from ..block import Block, Operation, Shape
from ..machine import Machine

# No kernel has two reduces of this many elements.
_LONG_REDUCE = 16
# A reduce of so few columns is a kernel only with so many times more rows.
_FEW_COLUMNS = ((8, 3), (4, 8), (2, 32))
# Seconds before a kernel starts, and the fraction of computing that overlaps with memory reads.
LAUNCH, _OVERLAP = 1e-6, 0.95
# Repeated reads come from a cache, this much faster, if the tensor is at most this large in bytes.
_CACHES = ((132 * 2**11, 20.0), (50 * 2**20, 2.5))
# Cycles per element in the cost model; all other ops take a few.
_CYCLES = {
    "exponential": 79,
    "logistic": 110,
    "sqrt": 75,
    "rsqrt": 75,
    "log": 166,
    "cbrt": 178,
    "exponential_minus_one": 190,
    "log_plus_one": 229,
    "atan2": 431,
    "tanh": 467,
    "power": 513,
    "sine": 958,
    "cosine": 978,
    "divide": 19,
    "add": 7,
    "subtract": 7,
    **dict.fromkeys("acosh asinh atanh acos asin atan cosh sinh erf_inv".split(), 300),
    **dict.fromkeys("lgamma digamma polygamma zeta bessel_i1e".split(), 800),
}
_USUAL_CYCLES = 3
# Cycles of a concatenate; more if the threads of a warp may read from more than one operand.
_JOINED, _CROSSED, _WARP = 6, 400, 32
_CORES, _THREADS, _COLUMNS, _LONGEST_COLUMN = 132, 128, 64, 4096
# Reads across a kernel's own order come in sectors of this many bytes, of which it uses one element.
_SECTOR = 64
# Bytes per second that one block of threads reads.
_BLOCK_BANDWIDTH = 1.98e9 * 32
STRAIGHT = 0
# Triton, which keeps rows in registers, lacks these ops.
_WITHOUT_ROWS = frozenset("shift_left shift_right_logical shift_right_arithmetic popcnt count_leading_zeros".split())
# Only whether a kernel has none of these ops, one, or more matters.
_MOST_MOVING = 2


@dataclass(slots=True)
class Kernel:
    """The work of one kernel.

    reads: for each tensor, how often its elements are read, by path: path 0 is elementwise all the way, any other has
    its own number. code: how often the producer of each would be emitted. across: tensors that are read in another
    order than they are stored in. moving: the first ops, up to two, that are not elementwise. turned: the tensors that
    the kernel transposes in tiles, which costs nothing. row: the elements of each row that the kernel keeps in
    registers, 0 if none. by_rows: whether it could keep rows. straight: the tensors that are read element by element on
    all paths, rows or not. hero: for the reduce that determines the loop, the contiguous elements and the lengths.
    is_unary: whether all its ops have one operand. time, traffic: the seconds of the kernel and of reading each tensor,
    once known; those of a tensor hold for any kernel that reads more with as many threads.
    """

    flops: float
    threads: int
    written: int
    size: int = 1
    splits: int = 0
    reduces: bool = False
    ends_in_reduce: bool = False
    row: int = 0
    by_rows: bool = False
    reads: dict[int, dict[int, float]] = field(default_factory=dict)
    code: dict[int, int] = field(default_factory=dict)
    turned: set[int] = field(default_factory=set)
    across: set[int] = field(default_factory=set)
    ways: int = 0
    moving: tuple[Operation, ...] = ()
    straight: set[int] = field(default_factory=set)
    hero: Shape = ()
    is_unary: bool = False
    time: float = -1.0
    traffic: dict[int, float] = field(default_factory=dict)

    def use(self, value: int) -> float:
        """How often an element of the tensor is read."""
        return sum(self.reads.get(value, {}).values())


class Kernels:
    """Builds kernels of a block's ops, and computes the time of each by the cost model of XLA:GPU."""

    def __init__(self, block: Block, machine: Machine):
        self.block = block
        self.elements = [prod(shape) for shape in block.shapes]
        self.bandwidth = machine.bytes_per_second / 0.85

    def of(self, op: Operation, left_out: Collection[int] = ()) -> Kernel:
        """The kernel of one op alone, without reads of `left_out`."""
        shapes, sizes = self.block.shapes, self.block.sizes
        count = sum(prod(shapes[value]) for value in op.results[:1])
        work = prod(shapes[op.operands[0]]) if op.name == "reduce" else count
        if op.name == "reduce_window":
            work = count * max(prod(op.lengths), 1)
        if op.name == "scatter":
            work = prod(shapes[op.operands[-1]])
        made = Kernel(
            flops=float(self.cycles(op) * work),
            threads=max(self.threads(op, count, work), 1),
            written=sum(sizes[value] for value in op.results),
            splits=int(Trait.NEW_BLOCK in op.traits),
            size=int(op.name != "splat"),
        )
        if op.name == "reduce":
            length = work // max(count, 1)
            made.reduces = length >= _LONG_REDUCE
            made.ends_in_reduce = length > 1 and is_own_kernel(length, op.together)
            made.hero = (op.together, *op.lengths)
        straight = Trait.POINTWISE in op.traits
        made.moving = () if straight or op.name == "splat" else (op,)
        for index, value in enumerate(op.operands):
            if value in left_out:
                continue
            ways = made.reads.setdefault(value, {})
            made.code[value] = 1
            if straight:
                made.straight.add(value)
                ways[STRAIGHT] = 1.0
                continue
            made.ways += 1
            ways[made.ways] = self.use(op, index, work)
            if op.name == "transpose" and op.together == 1:
                made.turned.add(value)
        made.by_rows = keeps_rows(op)
        made.is_unary = len(op.operands) == 1 and straight or op.name == "reduce"
        return made

    def cycles(self, op: Operation) -> int:
        """The cycles per element."""
        if op.name == "concatenate":
            shapes = [self.block.shapes[value] for value in (op.results[0], op.operands[0])]
            dim = next((dim for dim, (one, other) in enumerate(zip(*shapes, strict=False)) if one != other), 0)
            return _CROSSED if dim and shapes[1][dim] % _WARP else _JOINED
        return 0 if op.traits & (Trait.FREE | Trait.MOVES) else _CYCLES.get(op.name, _USUAL_CYCLES)

    def use(self, op: Operation, index: int, work: int) -> float:
        """How often an op reads each element of an operand, on average."""
        own = max(prod(self.block.shapes[op.operands[index]]), 1)
        if op.name in ("reduce", "transpose", "pad", "concatenate", "reverse", "sort", "scatter"):
            return 1.0
        if op.name == "dynamic_update_slice":
            return 1.0 if index else 0.0
        return max(work, 1) / own

    def threads(self, op: Operation, count: int, work: int) -> int:
        """The number of elements computed in parallel."""
        if op.name == "scatter":
            return work
        if op.name != "reduce":
            return count
        length, columns = work // max(count, 1), op.together
        if columns == 1 or length < _LONG_REDUCE:
            return work
        # A block sums this many columns, in one part unless they are very long.
        parts = 1 if length <= _LONGEST_COLUMN else isqrt(length)
        return -(-columns // _COLUMNS) * (count // max(columns, 1)) * parts * _THREADS

    def merged(self, producer: Kernel, reader: Kernel | None, value: int) -> Kernel:
        """The kernel of a reader with the producer of one of its operands fused into it."""
        assert reader is not None
        row = reader.row or producer.row
        if row:
            reader = self.normalising(reader, row)
        ways = reader.reads[value]
        use, copies = sum(ways.values()), reader.code[value]
        straight = ways.keys() == {STRAIGHT}
        made = Kernel(
            reader.flops + producer.flops * use,
            reader.threads,
            reader.written,
            reader.size + producer.size * copies,
            reader.splits + producer.splits * copies,
            reader.reduces or producer.reduces,
            reader.ends_in_reduce or producer.ends_in_reduce,
            0,
            reader.by_rows and producer.by_rows,
            _without(reader.reads, value),
            _without(reader.code, value),
            reader.turned - {value},
            reader.across - {value},
            reader.ways + producer.ways,
            (*reader.moving, *producer.moving)[:_MOST_MOVING],
            read_straight(reader, producer, value),
            reader.hero or (producer.hero if producer.ends_in_reduce else ()),
            reader.is_unary and producer.is_unary,
            traffic=_without(reader.traffic, value),
        )
        is_slow = reader.ends_in_reduce and producer.ends_in_reduce
        for other, own in producer.reads.items():
            made.reads[other] = found = dict(made.reads.get(other, ()))
            made.traffic.pop(other, None)
            for way, often in own.items():
                if way == STRAIGHT:
                    found.update(ways)
                else:
                    found[reader.ways + way] = often * use
            made.code[other] = max(made.code.get(other, 0), copies * producer.code[other]) if found else copies
            if other in producer.across or value in reader.across or is_slow:
                made.across.add(other)
            if other in producer.turned and not straight:
                made.across.add(other)
            elif other in producer.turned or value in reader.turned:
                made.turned.add(other)
        return self.normalising(made, row) if row else made

    def normalising(self, kernel: Kernel, row: int) -> Kernel:
        """The kernel with rows of this many elements in registers: it reads each tensor once."""
        reads = {value: {1: min(sum(ways.values()), 1.0)} for value, ways in kernel.reads.items()}
        return replace(
            kernel, reads=reads, ways=1, splits=0, reduces=False, ends_in_reduce=False, row=row, time=-1.0, traffic={}
        )

    def seconds(self, kernel: Kernel) -> float:
        """The time of a kernel, without its launch."""
        if kernel.time < 0:
            kernel.time = self.estimate(kernel)
        return kernel.time

    def estimate(self, kernel: Kernel) -> float:
        cores = min(_CORES, -(-kernel.threads // _THREADS))
        threads = min(_THREADS, kernel.threads)
        compute = kernel.flops / (1.98e9 * 2 * cores * threads)
        bandwidth = self.bandwidth
        memory = kernel.written / bandwidth
        most = -(-kernel.threads // _THREADS) * _BLOCK_BANDWIDTH  # the most that so few blocks can read
        traffic = kernel.traffic
        for value in kernel.reads:
            if value not in traffic:
                traffic[value] = self.read_once(kernel, value, most)
            memory += traffic[value]
        return compute + memory - _OVERLAP * min(compute, memory)

    def read_once(self, kernel: Kernel, value: int, most: float) -> float:
        """The seconds in which a kernel reads a tensor. most: the bytes per second that its blocks can read."""
        size, bandwidth = self.block.sizes[value], self.bandwidth
        total = size * sum(kernel.reads[value].values())
        first = min(size, total)
        faster = next((speed for limit, speed in _CACHES if first < limit), 1.0)
        waste = 1.0
        if value in kernel.across and self.elements[value]:
            waste = _SECTOR / max(size / self.elements[value], 1)
        return first * waste / min(bandwidth, most) + (total - first) / min(bandwidth * faster, most)


def _without(known: dict[int, Any], value: int) -> dict[int, Any]:
    """A copy of a mapping from tensors without one of them."""
    made = known.copy()
    made.pop(value, None)
    return made


def is_own_kernel(length: int, together: int) -> bool:
    """Whether a reduce is a separate kernel, not a loop in its reader: along rows or, if long enough, along columns.

    together: the columns. A row that divides a warp is reduced by a part of it.
    """
    if together == 1:
        return length >= _WARP or _WARP % length == 0
    few = next((times for times, least in _FEW_COLUMNS if together < least), 1)
    return length >= few * _WARP


def read_straight(reader: Kernel, producer: Kernel, value: int) -> set[int]:
    """The tensors that a reader fused with the producer of one operand reads element by element."""
    own = producer.straight if value in reader.straight else set[int]()
    alone = (reader.straight - producer.reads.keys()) | (own - reader.reads.keys())
    return (alone | (own & reader.straight)) - {value}


def keeps_rows(op: Operation) -> bool:
    """Whether a kernel with rows in registers can contain an op: elementwise, or along rows."""
    if op.name == "reduce":
        return len(op.lengths) == 1 and op.together == 1 and len(op.results) == 1
    if op.name in _WITHOUT_ROWS:
        return False
    return Trait.POINTWISE in op.traits or op.name in ("broadcast_in_dim", "splat", "iota")
