"""Running sums along a sharded dimension: each device's own, combined with the totals of the devices before it."""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integers
from exla_opt.ops.reducers import body_of, counts_once, monoid_of, run_body
from exla_opt.ops.tile import replaced
from exla_opt.ops.window_geometry import edges, is_running, windows_of

from .localise import Localiser, Results, with_own_types
from .mesh import Sharding, parts


def runs_along(op: ir.Operation, dim: int) -> bool:
    """Whether a reduce_window is a running sum, product, maximum or minimum along this dimension alone."""
    if op.name != "stablehlo.reduce_window" or len(op.results) != 1:
        return False
    monoid = monoid_of(op)
    if monoid is None or not counts_once(op.operands[1], monoid):
        return False
    windows = windows_of(op, integers(op, "window_dimensions", []))
    size = build.shape_of(op.operands[0])[dim]
    others = (each.size for at, each in enumerate(windows) if at != dim)
    return is_running(windows[dim], size, size) and all(size == 1 for size in others)


def running(localiser: Localiser, op: ir.Operation, shardings: Sequence[Sharding], dim: int) -> Results:
    """The local form, along the dimension that it runs along."""
    axes = shardings[0][dim]
    made = with_own_types(localiser, op, shardings)
    own: ir.Value = made.results[0]
    shape = build.shape_of(own)
    sizes = integers(op, "window_dimensions", [])
    padding = replaced(integers(op, "padding", []), 2 * dim, shape[dim] - 1)
    made.attributes["window_dimensions"] = ir.DenseI64ArrayAttr.get(replaced(sizes, dim, shape[dim]))
    made.attributes["padding"] = edges(padding, op.context)
    starts = replaced([0] * len(shape), dim, shape[dim] - 1)
    total = stablehlo.slice(own, starts, shape, [1] * len(shape))
    totals = localiser.collectives.gather(total, dim, axes)
    counted = ir.RankedTensorType.get(build.shape_of(totals), ir.IntegerType.get_signless(32))
    index = build.broadcast(localiser.collectives.index(axes), counted.shape)
    init = localiser.local[op.operands[1]]
    is_before = build.less_than(stablehlo.iota(counted, dim), index)
    before = stablehlo.select(is_before, totals, build.broadcast(init, counted.shape))
    rest = [place for place in range(len(shape)) if place != dim]
    kind = build.tensor_of(own)
    combined = stablehlo.ReduceOp([build.with_shape(kind, [shape[place] for place in rest])], [before], [init], [dim])
    scalar = build.with_shape(kind, [])
    block = combined.body.blocks.append(scalar, scalar)
    with ir.InsertionPoint(block):
        stablehlo.return_(run_body(body_of(op), list(block.arguments)))
    spread = stablehlo.broadcast_in_dim(own.type, combined.operation.results[0], ir.DenseI64ArrayAttr.get(rest))
    return run_body(body_of(op), [spread, own])


def running_dim(op: ir.Operation, sharding: Sharding) -> int | None:
    """The sharded dimension that an op runs along, if any."""
    return next((dim for dim, axes in enumerate(sharding) if parts(axes) > 1 and runs_along(op, dim)), None)
