"""Sorts of which few elements are read: which can be replaced by counting, and whether that is worthwhile."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log2, prod

from jaxlib.mlir import ir

from exla_opt.ir import build
from exla_opt.ir.attributes import integer
from exla_opt.ir.types import Types, element_type
from exla_opt.ir.values import defining_op, has_discardable_attributes
from exla_opt.ops.traits import Trait, has_trait
from exla_opt.options import Options
from exla_opt.remarks import Reason

from .again import Origin, origin_of, seconds_of_chain
from .keys import key_bits
from .order import Order, order_of
from .questions import compares_with_picked
from .readers import Reads, depends_on, reads_of

# The bits of all keys together that a pass finds: 4 for one or two, 2 for up to 10, 1 for up to 30. One pass counts for
# 30 numbers at once, which on a CPU takes hardly longer than for three.
_AT_ONCE = 30
_DIGITS = (4, 2, 1)
MOST_RANKS = _AT_ONCE // (2 ** _DIGITS[-1] - 1)
# For a larger fraction, a sort is as good.
_PART = 4
# The recomputation in all passes may take this many times as long as the sort, which uses one thread: a product of
# matrices uses all. 784 numbers a point, on two cores: 1.2 by these figures, and all together 0.33 of the time.
_MOST_AGAIN = 2.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A sort to replace.

    order: of its elements. reads: its readers. dim: the sorted dimension. base: the tensor whose elements are sorted,
    in some shape. reduced: its dimensions that are sorted as one. chain: the ops that recompute the base in each pass;
    empty if it is kept. digit: the bits of a key that a pass finds.
    """

    sort: ir.Operation
    order: Order
    reads: Reads
    dim: int
    base: ir.Value
    reduced: tuple[int, ...]
    chain: tuple[ir.Operation, ...]
    digit: int

    @property
    def passes(self) -> int:
        """The number of passes over all elements."""
        return key_bits(element_type(self.base)) // self.digit


@dataclass(frozen=True, slots=True)
class Refusal:
    """A sort of which few elements are read, and why it stays."""

    sort: ir.Operation
    reason: Reason


def candidate_of(sort: ir.Operation, options: Options, types: Types) -> Candidate | Refusal | None:
    """The replacement of a sort; None if nothing would be gained, or more than a few elements are read."""
    dim = _sorted_dimension(sort)
    if not _is_long(sort, dim, options, types):
        return None
    read = [place for place, result in enumerate(sort.results) if next(iter(result.uses), None) is not None]
    found = [reads_of(sort.results[place], dim, options.reassociate) for place in read]
    reads = [each for each in found if each is not None]
    ranks = sum(reader.count for each in reads for reader in each.few)
    size = build.shape_of(sort.results[0])[dim]
    if len(reads) < len(read) or not 0 < ranks <= min(MOST_RANKS, size // _PART) or has_discardable_attributes(sort):
        return None
    order = order_of(sort)
    if order is None:
        return Refusal(sort, Reason("EX701", "its comparator is not known to be a total order"))
    if read != [order.operand]:
        return Refusal(sort, Reason("EX702", "a result of the sort other than its keys is read"))
    return _legal(sort, dim, order, reads[0], options, types)


def _legal(
    sort: ir.Operation, dim: int, order: Order, reads: Reads, options: Options, types: Types
) -> Candidate | Refusal | None:
    if any(depends_on(reader.given(), reads, sort) for reader in reads.few):
        return None
    base, reduced = _base_of(sort, order.operand, dim)
    origin = origin_of(base, sort.block, types, options.size_threshold)
    elements = [reader.op.results[0] for reader in reads.few]
    if not origin.is_exact and compares_with_picked(sort, origin.chain, base, elements):
        text = "an element that is read is compared with the tensor that it comes from, which would need its exact bits"
        return Refusal(sort, Reason("EX309", text))
    ranks = sum(reader.count for reader in reads.few)
    digit = next(each for each in _DIGITS if ranks * (2**each - 1) <= _AT_ONCE)
    candidate = Candidate(sort, order, reads, dim, base, reduced, (), digit)
    return _with_chain(candidate, origin, options, types)


def _with_chain(candidate: Candidate, origin: Origin, options: Options, types: Types) -> Candidate:
    """With the ops that recompute the base, if they take about the time of the sort in all passes."""
    size = prod(build.shape_of(candidate.base))
    rows = size // prod(build.shape_of(candidate.base)[dim] for dim in candidate.reduced)
    sorting = size * log2(max(size // rows, 2)) * options.machine.seconds_per_comparison
    again = candidate.passes * seconds_of_chain(origin.chain, types, options.machine)
    if not origin.chain or again > _MOST_AGAIN * sorting:
        return candidate
    return replace(candidate, chain=origin.chain)


def _sorted_dimension(sort: ir.Operation) -> int:
    rank = len(build.shape_of(sort.results[0]))
    return integer(sort, "dimension", -1) % max(rank, 1)


def _is_long(sort: ir.Operation, dim: int, options: Options, types: Types) -> bool:
    """Whether the sort's result is big, and no slice can hold the elements that are sorted together."""
    kinds = [types.of(result) for result in sort.results]
    if not any(kind.bytes > options.size_threshold for kind in kinds):
        return False
    return any(kind.shape[dim] * kind.element_bytes > options.slice_bytes for kind in kinds)


def _base_of(sort: ir.Operation, operand: int, dim: int) -> tuple[ir.Value, tuple[int, ...]]:
    """The tensor that is sorted, and its dimensions that are sorted as one.

    If those are all of its elements, their shape and order do not matter.
    """
    value = sort.operands[operand]
    shape = build.shape_of(value)
    if prod(shape) != shape[dim]:
        return value, (dim,)
    while (op := defining_op(value)) is not None and has_trait(op, Trait.REARRANGES) and _keeps_all(op):
        value = op.operands[0]
    return value, tuple(range(len(build.shape_of(value))))


def _keeps_all(op: ir.Operation) -> bool:
    """Whether an op that rearranges has each element of its operand once."""
    same = prod(build.shape_of(op.operands[0])) == prod(build.shape_of(op.results[0]))
    return same and not has_discardable_attributes(op)
