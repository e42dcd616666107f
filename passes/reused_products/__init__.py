"""reused-products: a sum over a product of matrices, part of which another product holds -> a sum over that one.

    sum_j P[i,j] (A B')[i,j]   ->   sum_k A[i,k] O[i,k],   where O = P B is there

The left is what the gradient of a softmax subtracts from every row, and O is the product of the softmax: the equation
is that of FlashAttention (Dao et al., arXiv:2205.14135, appendix B). No row of P is read, or awaited, again.

Applies to a reduce that adds a product of floats, one of which is a dot, over a tensor above the threshold, and to a
dot before it in the block whose factors are all among those of the sum: P and B may themselves be products and
quotients of others, masked (a select with zero), converted, broadcast and transposed. The dots keep their precision.
Refuses a sum that would not be clearly shorter, a dot that would be kept for it alone, one that is rounded to fewer
digits than the sum was, arithmetic in f16, and with --no-reassociate all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jaxlib.mlir import ir

from exla_opt.ir.clean_up import clean_up
from exla_opt.ir.locations import describe
from exla_opt.ir.types import Types
from exla_opt.ir.walk import all_blocks, operations_of
from exla_opt.options import Options
from exla_opt.remarks import Kind, Reason, Remark

from .build import write
from .choose import is_possible, is_worthwhile, refusal
from .match import KnownDots, Match, is_known, is_sum, matches, open_sums

NAME = "reused-products"


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Rewrite every such sum to use the existing dot, in place; return the remarks."""
    types = Types()
    remarks: list[Remark] = []
    for block in list(all_blocks(module)):
        ops = list(operations_of(block))
        if any(_is_big_sum(op, options, types) for op in ops):
            remarks += _in_block(ops, options, types)
    if any(remark.kind is Kind.PASSED for remark in remarks):
        clean_up(module)  # removes ops that only the old sums read
    return remarks


def _is_big_sum(op: ir.Operation, options: Options, types: Types) -> bool:
    return is_sum(op) and types.of(op.operands[0]).bytes > options.size_threshold


def _in_block(ops: Sequence[ir.Operation], options: Options, types: Types) -> list[Remark]:
    positions: dict[ir.Value, int] = {result: number for number, op in enumerate(ops) for result in op.results}
    known = KnownDots()
    remarks = []
    for op in ops:
        if is_known(op):
            known.add(op)
        elif _is_big_sum(op, options, types):
            match = _best_match(op, known, options, positions, types)
            if match is None:
                continue
            reason = refusal(match, options)
            remarks.append(_remark(match, types, reason))
            if reason is None:
                write(match, ops, positions)
    return remarks


def _best_match(
    op: ir.Operation, known: KnownDots, options: Options, positions: Mapping[ir.Value, int], types: Types
) -> Match | None:
    """Of the matches that pay, the first that is legal, else the first."""
    found = [
        match
        for opened in open_sums(op)
        for match in matches(opened, known)
        if is_possible(match) and is_worthwhile(match, options.size_threshold, positions, types)
    ]
    return min(found, key=lambda match: refusal(match, options) is not None, default=None)


def _remark(match: Match, types: Types, reason: Reason | None) -> Remark:
    op = match.sum.op
    big, known = types.of(op.operands[0]), types.of(match.known.op.results[0])
    kind = Kind.PASSED if reason is None else Kind.MISSED
    text = f"summed over {known} instead, a product that is already computed"
    if reason is not None:
        text = f"not {text}: {reason.text}"
    return Remark(kind, reason.code if reason else "EX012", NAME, str(big), big.bytes, describe(op), text)
