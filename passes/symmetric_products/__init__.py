"""symmetric-products: products of a big symmetric matrix with few columns -> products of the tiles of one half.

before:  %y = dot_general %k, %v,  where k[i,j] = k[j,i] = f(x[i], x[j])
after:   while: %tile of k;  y[rows] += tile @ v[columns];  y[columns] += v[rows] @ tile

Applies, on a CPU, to a matrix of f32 or f64 above the threshold that is symmetric by its formula, and that is read only
by products with few columns, and sums, if computing it takes clearly longer than reading it. Every pair of rows and
columns is in one tile; a tile takes no more than one slice. Refuses matrices, and big intermediate tensors, with other
readers, those computed by unknown ops, and with --no-reassociate all.
"""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.attributes import devices_of
from exla_opt.ir.clean_up import clean_up
from exla_opt.ir.locations import describe
from exla_opt.ir.order import restore_order
from exla_opt.ir.types import Types
from exla_opt.ir.walk import all_blocks, operations_of
from exla_opt.ops.effects import has_order
from exla_opt.options import Options
from exla_opt.remarks import Kind, Remark

from .build import write
from .candidate import Candidate, candidate_of

NAME = "symmetric-products"


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Compute products with big symmetric matrices of `module` from one half of these, in place; return the remarks."""
    if options.machine.kind != "cpu" or not options.reassociate or devices_of(module) > 1:
        return []
    types = Types()
    remarks = []
    for block in list(all_blocks(module)):
        for op in operations_of(block):
            # One by one: the result of one matrix may be an operand of another one.
            found = candidate_of(op.results[0], options, types) if len(op.results) == 1 else None
            if found is not None:
                remarks.append(_remark(found, types))
                write(found, options.machine)
                restore_order(block, has_order)
    if remarks:
        clean_up(module)  # removes the matrices
    return remarks


def _remark(found: Candidate, types: Types) -> Remark:
    kind = types.of(found.matrix)
    message = f"computed once for both halves, in {found.cover.trips} tiles: it is symmetric"
    return Remark(Kind.PASSED, "EX014", NAME, str(kind), kind.bytes, describe(found.op), message)
