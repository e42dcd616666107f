"""A block as the memory model sees it: numbered tensors and ops.

`reading` makes one of IR; the splitter makes one of a loop that it only plans.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

from jaxlib.mlir import ir

from exla_opt.ops.traits import Trait

from .machine import Machine

Shape = tuple[int, ...]

_FUSED = Trait.POINTWISE | Trait.MOVES | Trait.FREE


@dataclass(frozen=True, slots=True)
class Operation:
    """One op.

    name: without the dialect; "splat" for a constant that is one number, "loop" for one that is only planned.
    traits: of the op that XLA makes of it. operands, captures, results: tensor numbers.
    lengths: the sizes of the dimensions that a reduce reduces, of the matrix that a triangular_solve solves, or of the
    rows that a concatenate makes of shorter ones.
    together: how many elements that lie side by side a reduce or a transpose leaves so.
    copied: the operands that a dot or a library wants in another order of dimensions. bodies: of control flow.
    outside: for each body the numbers that tensors from around it have there, by the number in the body.
    narrow: the floats of less than 32 bits of which some machines make wider ones for this op.
    scratch: bytes that the op needs while it runs, as far as they are known beforehand. seconds: those of bodies that
    are only planned.
    is_library: whether a custom call is one of those whose memory is in its operands and results, or a reduce one that
    a library's kernel computes.
    shared: the dimensions of a product's result that both operands have: those of a dot's batch, or the one of a
    convolution's result features. trips: how often a loop runs; 1 where that is not known.
    order: the dimensions of a convolution's result, from the outermost on, as its library writes them; those of one
    element count for nothing, the others from 0.
    is_bare: whether a convolution's library neither scales its result nor adds to it.
    """

    name: str
    traits: Trait
    operands: tuple[int, ...]
    results: tuple[int, ...]
    captures: tuple[int, ...] = ()
    lengths: Shape = ()
    copied: tuple[int, ...] = ()
    together: int = 1
    bodies: tuple[Block, ...] = ()
    outside: tuple[dict[int, int], ...] = ()
    narrow: frozenset[int] = frozenset()
    scratch: int = 0
    is_library: bool = False
    shared: Shape = ()
    trips: int = 1
    order: Shape = ()
    is_bare: bool = False
    seconds: float = 0.0


@dataclass(slots=True)
class Block:
    """ops in program order. shapes, sizes (bytes): of every tensor. arguments, returned: in order.

    dtypes: the element type of every tensor. values: those that are in IR.
    viewed: the tensors that are read in another shape only: the kernel that makes one ends with a bitcast.
    merged: the tensors that are written in another shape, and read through a bitcast.
    donated: the tensors returned that are written over an argument, and that argument.
    kept: the tensors that are written although all that reads them could compute them.
    widened: the copy of 32-bit numbers that stands for a tensor of narrower ones, or from which that is rounded.
    wider: the tensors in wider floats or integers than the program's own, and the element type that those have.
    held: what is made of what comes out of an optimization barrier, and all that goes into it, on any machine.
    rounded: the tensors of narrow numbers that are rounded from wider ones, and those.
    behind: what is made of what comes out of an optimization barrier that the machine keeps, and all that goes into it.
    """

    ops: list[Operation] = field(default_factory=list)
    shapes: list[Shape] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    arguments: list[int] = field(default_factory=list)
    returned: list[int] = field(default_factory=list)
    dtypes: list[str] = field(default_factory=list)
    values: dict[int, ir.Value] = field(default_factory=dict)
    viewed: set[int] = field(default_factory=set)
    merged: set[int] = field(default_factory=set)
    donated: dict[int, int] = field(default_factory=dict)
    behind: dict[int, frozenset[int]] = field(default_factory=dict)
    widened: dict[int, int] = field(default_factory=dict)
    kept: set[int] = field(default_factory=set)
    wider: dict[int, str] = field(default_factory=dict)
    rounded: dict[int, int] = field(default_factory=dict)
    held: dict[int, frozenset[int]] = field(default_factory=dict)

    def add_tensor(self, shape: Shape, size: int, dtype: str) -> int:
        """The number of a new tensor."""
        self.shapes.append(shape)
        self.sizes.append(size)
        self.dtypes.append(dtype)
        return len(self.shapes) - 1

    def copied(self) -> Block:
        """A block of its own with the same ops and tensors."""
        return Block(
            list(self.ops),
            list(self.shapes),
            list(self.sizes),
            list(self.arguments),
            list(self.returned),
            list(self.dtypes),
            dict(self.values),
            set(self.viewed),
            set(self.merged),
            dict(self.donated),
            dict(self.behind),
            dict(self.widened),
            set(self.kept),
            dict(self.wider),
            dict(self.rounded),
            dict(self.held),
        )


def is_short(op: Operation, machine: Machine) -> bool:
    """Whether the machine keeps a reduce as one op, which fuses."""
    longest = machine.longest_fused_reduction
    return longest is None or len(op.results) > 1 or all(length <= longest for length in op.lengths)


def sums_apart(op: Operation, machine: Machine) -> bool:
    """Whether a library computes a reduce, of any length, in a kernel of its own."""
    return machine.sums_apart and op.name == "reduce" and op.is_library


def fuses(op: Operation) -> bool:
    """Whether the op, which is no reduce, is fused with its readers and with what it reads."""
    return _fuses(op.traits)


@cache
def _fuses(traits: Trait) -> bool:
    return Trait.IN_PLACE not in traits and bool(traits & _FUSED)
