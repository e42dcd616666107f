"""matrix-chain-order: products of several matrices -> the cheapest order of multiplications.

    (A B') v        ->   A (B' v)                         diag(A B)   ->   sum_k A[i,k] B[k,i]
    sum_j (A B)_ij  ->   A (sum_j B_j)                    trace(A B)  ->   sum_ik A[i,k] B[k,i]

Applies to every maximal product of dots, with the transposes, sums, broadcasts, batch dimensions, scalar factors and
diagonals between them, in every block. A part that others also read is kept, unless recomputing it costs less. Leaves
alone products that another order does not make clearly cheaper, floats of less than 32 bits (each order rounds other
intermediate tensors), dots that change the element type, dots of another algorithm than the rest of their product, and
with --no-reassociate all floats. Integers are exact in any order.
"""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.clean_up import clean_up
from exla_opt.ir.locations import describe
from exla_opt.ir.types import Types
from exla_opt.ir.walk import all_blocks
from exla_opt.options import Options
from exla_opt.remarks import Kind, Reason, Remark
from exla_opt.sizes import format_size

from .order import Kept, Order, choose_orders
from .product import Writer

NAME = "matrix-chain-order"


# A product that is recomputed, or no longer needed, may allow a better order for its neighbours; each round costs less
# than the one before, and two are nearly always enough.
_ROUNDS = 8


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Reorder every product that becomes clearly cheaper; return the remarks on reordered and refused big products."""
    types = Types()
    remarks: list[Remark] = []
    for _ in range(_ROUNDS):
        passed, missed = _round(module, options, types)
        remarks += passed
        if not passed:
            break
        clean_up(module)  # removes the products that are no longer needed
    return remarks + missed


def _round(module: ir.Module, options: Options, types: Types) -> tuple[list[Remark], list[Remark]]:
    passed: list[Remark] = []
    missed: list[Remark] = []
    for block in list(all_blocks(module)):
        writer = Writer()
        orders, kept = choose_orders(block, options, types)
        missed += [_missed(each, types) for each in kept if each.order.old.largest > options.size_threshold]
        for order in orders:
            passed.append(_passed(order, types))
            writer.write(order)
    return passed, missed


def _passed(order: Order, types: Types) -> Remark:
    message = f"multiplied in another order: {_gain(order, 'become')}"
    return _remark(Kind.PASSED, order, types, Reason("EX003", message))


def _missed(kept: Kept, types: Types) -> Remark:
    message = f"not multiplied in another order: {kept.reason.text}; {_gain(kept.order, 'would become')}"
    return _remark(Kind.MISSED, kept.order, types, Reason(kept.reason.code, message))


def _gain(order: Order, become: str) -> str:
    old, new = format_size(order.old.largest), format_size(order.new.largest)
    flops = f"{order.old.flops:,} operations {become} {order.new.flops:,}"
    return f"{flops}, intermediate tensors of at most {old} {become} at most {new}"


def _remark(kind: Kind, order: Order, types: Types, reason: Reason) -> Remark:
    root = order.tree.root
    tensor = types.of(root.results[0])
    return Remark(kind, reason.code, NAME, str(tensor), tensor.bytes, describe(root), reason.text)
