"""A block as the memory model sees it: numbered tensors and ops.

`reading` builds one from IR; the splitter builds one for a loop that is only planned.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

from jaxlib.mlir import ir

from exla_opt.ops.traits import Trait

from .machine import Machine

Shape = tuple[int, ...]

_FUSED = Trait.POINTWISE | Trait.MOVES | Trait.FREE


# Not frozen, for speed: a search makes millions.
@dataclass(slots=True, eq=False)
class Operation:
    """One op, which does not change.

    name: without the dialect; "splat" for a constant with one value everywhere, "loop" for a planned loop.
    traits: of the op that XLA turns it into. operands, captures, results: tensor numbers.
    lengths: of the reduced dimensions of a reduce, of the matrix of a triangular_solve, of the dimension that a sort
    orders, of an index of a scatter, or of the rows that a concatenate builds from shorter ones.
    together: how many contiguous elements stay contiguous in a reduce or a transpose.
    copied: the operands that a dot or a library needs in another dimension order. bodies: of control flow.
    outside: for each body, the outer numbers of captured tensors, by their numbers in the body.
    narrow: the floats of less than 32 bits that some machines widen for this op.
    scratch: bytes that the op needs while it runs, as far as known in advance. seconds: of bodies that are only
    planned, and of a convolution without a fast kernel; else 0.
    is_library: whether a custom call needs no memory but its operands and results, or XLA:CPU's library of kernels
    computes a reduce or a product of matrices.
    shared: the dimensions of a product's result that both operands have: the batch of a dot, or the result features of
    a convolution. features: of a convolution, the input features of one group, and the number of groups. trips: the
    trip count of a loop; 1 if unknown.
    order: the dimensions of a convolution's result as its library writes them, outermost first, counted from 0 without
    those of one element.
    is_bare: whether a convolution's library neither scales its result nor adds to it.
    by_vector: whether a dot multiplies a matrix with a vector, before any plan cuts it.
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
    by_vector: bool = False
    features: Shape = ()

    def renumbered(
        self,
        operands: tuple[int, ...],
        results: tuple[int, ...],
        captures: tuple[int, ...],
        narrow: frozenset[int],
        scratch: int,
    ) -> Operation:
        """The same op on other tensors; faster than `dataclasses.replace`."""
        return Operation(
            self.name,
            self.traits,
            operands,
            results,
            captures,
            self.lengths,
            self.copied,
            self.together,
            self.bodies,
            self.outside,
            narrow,
            scratch,
            self.is_library,
            self.shared,
            self.trips,
            self.order,
            self.is_bare,
            self.seconds,
            self.by_vector,
            self.features,
        )


@dataclass(slots=True)
class Block:
    """ops in program order. shapes, sizes (bytes): of every tensor. arguments, returned: in order.

    dtypes: the element type of every tensor. values: those of the IR.
    viewed: the tensors that are only read in another shape: the kernel that writes one ends with a bitcast.
    merged: the tensors that are written in another shape, and read through a bitcast.
    donated: the returned tensors that overwrite an argument, and that argument.
    kept: the tensors that are written although all their readers could recompute them.
    widened: the 32-bit copy of a tensor of narrower numbers, or the 32-bit tensor that it is rounded from.
    wider: the tensors in wider floats or integers than the program's own, and that element type.
    held: each result of an optimization barrier's outputs, and all inputs of that barrier, on any machine.
    rounded: the tensors of narrow numbers that are rounded from wider ones, and the wider ones.
    behind: as `held`, for the optimization barriers that the machine keeps.
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
        """A separate block with the same ops and tensors."""
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
    """Whether the machine keeps a reduce as one op, which it can fuse."""
    longest = machine.longest_fused_reduction
    return longest is None or len(op.results) > 1 or all(length <= longest for length in op.lengths)


def sums_apart(op: Operation, machine: Machine) -> bool:
    """Whether a library computes a reduce of any length in a separate kernel."""
    return machine.sums_apart and op.name == "reduce" and op.is_library


def fuses(op: Operation) -> bool:
    """Whether the op, other than a reduce, is fused with its readers and with its operands."""
    return _fuses(op.traits)


@cache
def _fuses(traits: Trait) -> bool:
    return Trait.IN_PLACE not in traits and bool(traits & _FUSED)
