"""symmetric-sums: sums of a symmetric tensor along one dimension and along the other -> one sum.

before:  %a = dot_general %w, %b over the columns of %w;  %c = dot_general %w, %b over its rows
after:   %a, and %a in the place of %c, where w[i,j] = w[j,i]

Applies to sums (a reduce that adds, or a dot) over a tensor above the threshold, in one block, that are equal term by
term, possibly up to the sign: of kernels of one set of points, and their gradients, of a tensor that is symmetric or
antisymmetric by its formula, and of two tensors of which one is the transpose of the other. Compares formulas, not
numbers, up to the order of factors and terms: a triangle, a weight of the rows only, another set of points are left
alone. Refuses sums whose result is above the threshold, and with --no-reassociate all.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir.clean_up import clean_up
from exla_opt.ir.locations import describe
from exla_opt.ir.types import Types
from exla_opt.ir.values import has_discardable_attributes
from exla_opt.ir.walk import all_blocks, operations_of
from exla_opt.ops.reducers import monoid_of
from exla_opt.options import Options
from exla_opt.passes.algebra.numbering import Numbering
from exla_opt.remarks import Kind, Remark

NAME = "symmetric-sums"


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """Two sums: `later` equals `first`, which is before it, or its negative."""

    first: ir.Operation
    later: ir.Operation
    negative: bool


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Merge equal sums of big tensors of `module`, in place; return the remarks."""
    if not options.reassociate:
        return []
    types = Types()
    numberings = (Numbering(labelled=False), Numbering())
    remarks = []
    for block in all_blocks(module):
        sums = [op for op in operations_of(block) if _is_sum(op) and _is_worthwhile(op, types, options.size_threshold)]
        pairs = list(_equal_sums(sums, numberings))
        remarks += [_remark(pair, types) for pair in pairs]
        for pair in pairs:
            _write(pair)
    if remarks:
        clean_up(module)  # removes ops that only the other sums read
    return remarks


def _is_sum(op: ir.Operation) -> bool:
    """Whether its terms may be added in any order, as those of dots and of reduces that add."""
    if len(op.results) != 1 or has_discardable_attributes(op):
        return False
    return op.name == "stablehlo.dot_general" or (
        op.name == "stablehlo.reduce" and len(op.operands) == 2 and monoid_of(op) == "add"
    )


def _is_worthwhile(op: ir.Operation, types: Types, threshold: int) -> bool:
    """Whether it takes long, and its result may be kept until its last reader."""
    return max(types.of(value).bytes for value in op.operands) > threshold >= types.of(op.results[0]).bytes


def _equal_sums(sums: Iterable[ir.Operation], numberings: Sequence[Numbering]) -> Iterator[Pair]:
    """The sums of one block, in order, that equal an earlier one, or its negative.

    numberings: without labels, which is fast and distinguishes most sums, and with them.
    """
    rough, exact = numberings
    for of_one_type in _groups(sums, lambda op: op.results[0].type):
        for alike in _groups(of_one_type, lambda op: rough.of_result(op)):
            seen: dict[int, tuple[ir.Operation, int]] = {}
            for op in alike:
                number, sign = exact.of_result(op)
                first, sign_of_first = seen.setdefault(number, (op, sign))
                if first is not op:
                    yield Pair(first, op, sign != sign_of_first)


def _groups(ops: Iterable[ir.Operation], key: Callable[[ir.Operation], Hashable]) -> list[list[ir.Operation]]:
    """The groups of at least two ops with the same key."""
    found: dict[Hashable, list[ir.Operation]] = {}
    for op in ops:
        found.setdefault(key(op), []).append(op)
    return [group for group in found.values() if len(group) > 1]


def _write(pair: Pair) -> None:
    value = pair.first.results[0]
    with pair.later.location, ir.InsertionPoint(pair.later):
        pair.later.results[0].replace_all_uses_with(stablehlo.negate(value) if pair.negative else value)


def _remark(pair: Pair, types: Types) -> Remark:
    big = max((types.of(value) for value in pair.later.operands), key=lambda kind: kind.bytes)
    message = f"not summed again: an earlier sum is {'its negative' if pair.negative else 'the same'}"
    return Remark(Kind.PASSED, "EX011", NAME, str(big), big.bytes, describe(pair.later), message)
