"""euclidean-distance: sums of squared differences, and their gradients -> dots and row sums.

    sum_k (a[i,k] - b[j,k])^2          ->   sum_k a^2 + sum_k b^2 - 2 dot(a, b), at least 0
    sum_j w[i,j] (a[i,k] - b[j,k])     ->   a[i,k] sum_j w[i,j] - dot(w, b)
    sum_k a[i,k] b[j,k]                ->   dot(a, b)

Applies to every sum (a reduce that adds) over a tensor above the threshold that is a polynomial of smaller tensors
repeated to its shape, once nobody else needs a tensor of that shape. Differences are taken about the mean of one
side, in full precision, so that little cancels. Refuses, with a remark, other reducers, other exponents, complex
numbers, a full tensor in the formula, and what would not become smaller.
"""

from __future__ import annotations

from dataclasses import replace

from jaxlib.mlir import ir

from exla_opt.analysis.graph import TensorType, Types
from exla_opt.analysis.op_rules.bodies import float_bits
from exla_opt.ir import build
from exla_opt.ir.blocks import all_blocks
from exla_opt.ir.locations import describe
from exla_opt.options import Options
from exla_opt.passes import normalise
from exla_opt.remarks import Kind, Remark

from .candidates import Candidate, Refusal, candidate_of, looks_like_one, without_blocked
from .expression import Reader
from .formula import Writer

NAME = "euclidean-distance"


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Rewrite every sum over a big polynomial of smaller tensors; returns what was done and what was not, and why."""
    types = Types()
    remarks: list[Remark] = []
    changed = False
    for block in list(all_blocks(module)):
        reader = Reader(block)
        roots = [root for root in _sums(block) if types.of(root.operands[0]).bytes > options.size_threshold]
        found = [_legal(root, reader, options) for root in roots]
        kept, blocked = without_blocked([each for each in found if isinstance(each, Candidate)])
        refused = [each for each in found if isinstance(each, Refusal)] + blocked
        remarks += [_missed(each, types) for each in refused if looks_like_one(each.root, reader)]
        writer = Writer()
        for candidate in kept:
            terms = len(candidate.terms)
            message = f"multiplied out into {terms} sum{'s' if terms > 1 else ''} of smaller tensors"
            remarks.append(_remark(candidate.root, types, Kind.PASSED, message))
            writer.write(candidate)
        changed = changed or bool(kept)
    if changed:
        normalise.clean_up(module)  # takes away the tensors that nobody needs any more
    return remarks


def _legal(root: ir.Operation, reader: Reader, options: Options) -> Candidate | Refusal:
    if float_bits(build.tensor_of(root.results[0]).element_type) and not options.reassociate:
        return Refusal(root, "--no-reassociate forbids to sum in another order")
    return candidate_of(root, reader)


def _sums(block: ir.Block) -> list[ir.Operation]:
    """The reduces of one tensor that carry nothing but their dimensions, in program order."""
    return [
        view.operation
        for view in block.operations
        if view.operation.name == "stablehlo.reduce"
        and len(view.operation.results) == 1
        and len(view.operation.attributes) == 1
    ]


def _missed(refusal: Refusal, types: Types) -> Remark:
    remark = _remark(refusal.root, types, Kind.MISSED, f"not multiplied out: {refusal.reason}")
    op = refusal.stopped_by
    return remark if op is None else replace(remark, stopped_by=op.name, stopped_at=describe(op))


def _remark(root: ir.Operation, types: Types, kind: Kind, message: str) -> Remark:
    tensor: TensorType = types.of(root.operands[0])
    return Remark(kind, NAME, str(tensor), tensor.bytes, describe(root), message)
