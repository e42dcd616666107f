"""euclidean-distance: sums of squared differences, and their gradients -> dots and row sums.

    sum_k (a[i,k] - b[j,k])^2          ->   sum_k a^2 + sum_k b^2 - 2 dot(a, b), at least 0
    sum_j w[i,j] (a[i,k] - b[j,k])     ->   a[i,k] sum_j w[i,j] - dot(w, b)
    max_k abs(a[i,k] - b[j,k]), few k  ->   maximum(abs(a[i,0] - b[j,0]), abs(a[i,1] - b[j,1])), ...
    sum_k a[i,k] b[j,k]                ->   dot(a, b)

Applies to every sum (a reduce that adds, or a dot) over a tensor above the threshold that is a polynomial of smaller
tensors broadcast to its shape, if nothing else then needs a tensor of that shape. Few elements are added, or compared,
one by one, whatever elementwise ops compute them; longer sums of differences are expanded around a midpoint of one
side, in full precision, so that little cancels. Refuses, with a remark, other reducers, other exponents, complex
numbers, a full tensor in the formula, and tensors that would not become smaller.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from jaxlib.mlir import ir

from exla_opt.ir import build
from exla_opt.ir.clean_up import clean_up
from exla_opt.ir.locations import describe
from exla_opt.ir.types import TensorType, Types, float_bits
from exla_opt.ir.walk import all_blocks, operations_of
from exla_opt.options import Options
from exla_opt.remarks import Kind, Reason, Remark

from .candidates import Candidate, Refusal, Sum, candidate_of, looks_like_one, sum_of, without_blocked
from .columns import columns_of, is_added_one_by_one
from .expression import Reader
from .formula import Writer

NAME = "euclidean-distance"


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Rewrite every sum over a big polynomial of smaller tensors; return the remarks."""
    types = Types()
    remarks: list[Remark] = []
    changed = False

    def is_big(value: ir.Value) -> bool:
        return types.of(value).bytes > options.size_threshold

    for block in list(all_blocks(module)):
        reader = Reader(block)
        sums = {
            op.results[0]: found for op in operations_of(block) if (found := sum_of(op, reader, is_big)) is not None
        }
        legal = [_legal(each, reader, options) for each in sums.values()]
        kept, blocked = without_blocked([each for each in legal if isinstance(each, Candidate)])
        for refusal in (*(each for each in legal if isinstance(each, Refusal)), *blocked):
            stays = sums[refusal.root.results[0]]
            remarks += [_missed(refusal, stays, types)] if looks_like_one(stays) else []
        writer = Writer(options.machine.doubles)
        for candidate in kept:
            remarks.append(
                _remark(candidate.sum, types, Kind.PASSED, _what_was_done(candidate, options.machine.doubles))
            )
            writer.write(candidate)
        changed = changed or bool(kept)
    if changed:
        clean_up(module)  # removes the tensors that are no longer needed
    return remarks


def _legal(given: Sum, reader: Reader, options: Options) -> Candidate | Refusal:
    if float_bits(build.tensor_of(given.big).element_type) and not options.reassociate:
        return Refusal(given.root, Reason("EX310", "--no-reassociate forbids summing in another order"))
    # A machine that fuses sums of any length never writes what they read: read once it costs less than by columns.
    writes_summed = options.machine.longest_fused_reduction is not None
    return candidate_of(given, reader, options.size_threshold, writes_summed)


def _what_was_done(candidate: Candidate, doubles: bool) -> Reason:
    if is_added_one_by_one(candidate, doubles):
        return Reason("EX004", f"added up from {candidate.sum.summed} elements, one by one")
    if columns := columns_of(candidate, doubles):
        number = prod(candidate.sum.sizes[dim] for dim in columns)
        return Reason("EX004", f"added up for each of {number} elements, one by one")
    terms = sum(len(part.terms) for part in candidate.parts)
    message = f"multiplied out into {terms} sum{'s' if terms > 1 else ''} of smaller tensors"
    return Reason("EX002", message)


def _missed(refusal: Refusal, given: Sum, types: Types) -> Remark:
    remark = _remark(
        given, types, Kind.MISSED, Reason(refusal.reason.code, f"not multiplied out: {refusal.reason.text}")
    )
    op = refusal.stopped_by
    return remark if op is None else replace(remark, stopped_by=op.name, stopped_at=describe(op))


def _remark(given: Sum, types: Types, kind: Kind, reason: Reason) -> Remark:
    tensor: TensorType = types.of(given.big)
    return Remark(kind, reason.code, NAME, str(tensor), tensor.bytes, describe(given.root), reason.text)
