"""matrix-chain-order: products of several matrices -> the cheapest order of multiplications.

    (A B') v        ->   A (B' v)                         diag(A B)   ->   sum_k A[i,k] B[k,i]
    sum_j (A B)_ij  ->   A (sum_j B_j)                    trace(A B)  ->   sum_ik A[i,k] B[k,i]

Applies to every maximal product of dots, with the transposes, sums, batch dimensions, scalar factors and diagonals
between them, in every block. A part that others read as well stays, unless making it again costs less. Leaves alone
what another order does not make clearly cheaper, dots that change the element type or name an algorithm, and with
--no-reassociate all floats.
"""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.analysis.graph import Types
from exla_opt.ir.blocks import all_blocks
from exla_opt.ir.locations import describe
from exla_opt.options import Options
from exla_opt.passes import normalise
from exla_opt.remarks import Kind, Remark
from exla_opt.sizes import format_size

from .order import Order, choose_orders
from .product import Writer

NAME = "matrix-chain-order"


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Reorder every product that becomes clearly cheaper; returns what was reordered."""
    types = Types()
    remarks: list[Remark] = []
    for block in list(all_blocks(module)):
        writer = Writer()
        for order in choose_orders(block, options, types):
            remarks.append(_remark(order, types))
            writer.write(order)
    if remarks:
        normalise.clean_up(module)  # takes away the products that nobody needs any more
    return remarks


def _remark(order: Order, types: Types) -> Remark:
    root = order.tree.root
    tensor = types.of(root.results[0])
    message = (
        f"multiplied in another order: {order.old.flops:,} operations become {order.new.flops:,}, "
        f"the largest tensor between {format_size(order.old.largest)} becomes {format_size(order.new.largest)}"
    )
    return Remark(Kind.PASSED, NAME, str(tensor), tensor.bytes, describe(root), message)
