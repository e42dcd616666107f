"""wide-sums: sums over the rows of wide tensors on a CPU, as a product with ones.

before:  reduce add of %x [50, 20000] over dimension 0
after:   dot_general(%ones [50], %x [50, 20000]) -> [20000]

XLA:CPU adds rows, element by element, with a kernel of its library YNN that takes twenty times as long if a row is
longer than 64 KiB. A product of a vector and the same matrix is as fast as for shorter rows. The same numbers are
added, in an order that may differ: with --no-reassociate nothing is done. Nothing is done for other machines, for sums
along the last dimension, for those of at most 32 rows, which XLA fuses with the ops that compute the rows, for types
other than f32 and f64, for sums of f32 in f64, and for a sum that does not start from zero.
"""

from __future__ import annotations

from math import prod

from jaxlib.mlir import ir

from exla_opt.ir import build
from exla_opt.ir.attributes import integers
from exla_opt.ir.clean_up import clean_up
from exla_opt.ir.types import Types
from exla_opt.ir.values import has_discardable_attributes, splat_value
from exla_opt.ir.walk import inside_out
from exla_opt.ops.reducers import body_of, componentwise
from exla_opt.options import Options
from exla_opt.remarks import Remark

# Bytes of a row up to which the kernel is fast: on jaxlib 0.10, 16,384 numbers of f32 are, and 17,000 are not.
_LONGEST_ROW = 2**16
_TYPES = {"f32", "f64"}


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Rewrite the sums over rows of wide tensors in `module`, in place, if it is for a CPU."""
    if options.machine.kind != "cpu" or not options.reassociate:
        return []
    types = Types()
    fused = options.machine.longest_fused_reduction or 0
    slow = [op for op in inside_out(module, "stablehlo.reduce") if _is_legal(op, types) and _gains(op, types, fused)]
    for op in slow:
        _rewrite(op)
    if slow:
        clean_up(module)
    return []


def _is_legal(op: ir.Operation, types: Types) -> bool:
    """Whether the op sums one tensor of floats over its first dimensions, from zero."""
    if len(op.results) != 1 or has_discardable_attributes(op):
        return False
    first = list(range(len(_summed(op))))
    kinds = {types.of(value).dtype for value in (op.operands[0], op.results[0])}  # a reduce may widen its operand
    plain = len(kinds) == 1 and kinds <= _TYPES and _summed(op) == first
    return plain and componentwise(body_of(op)) == ("add",) and splat_value(op.operands[1]) == 0


def _gains(op: ir.Operation, types: Types, fused: int) -> bool:
    """Whether XLA uses the slow kernel for it. fused: the longest sum that does not write its operand."""
    rows = prod(types.of(op.operands[0]).shape[dim] for dim in _summed(op))
    return rows > fused and types.of(op.results[0]).bytes > _LONGEST_ROW


def _rewrite(op: ir.Operation) -> None:
    summed = _summed(op)
    kind, result = build.tensor_of(op.operands[0]), build.tensor_of(op.results[0])
    with op.location, ir.InsertionPoint(op):
        ones = build.splat(build.with_shape(kind, [kind.shape[dim] for dim in summed]), 1)
        both = (summed, summed)
        product = build.dot(ones, op.operands[0], ([], []), both, list(result.shape), build.precision("HIGHEST"))
    op.results[0].replace_all_uses_with(product)


def _summed(op: ir.Operation) -> list[int]:
    return sorted(integers(op, "dimensions", []))
