"""The splitter's remarks: what was split and how, and why a tensor was not."""

from __future__ import annotations

from dataclasses import replace

from jaxlib.mlir import ir

from exla_opt.ir.locations import describe
from exla_opt.ir.walk import terminator
from exla_opt.ops.rules import read_rules
from exla_opt.ops.traits import Trait, has_trait
from exla_opt.options import Options
from exla_opt.passes.loop_residuals.origin import origin_of
from exla_opt.passes.loop_residuals.stacks import updates
from exla_opt.remarks import Kind, Reason, Remark

from .draws import why_not_split
from .graph import OUTSIDE, TILE_MARK, Graph, read_graphs
from .plans.plan import Plan
from .regions.loops import Refusal


def all_missed(module: ir.Module, options: Options, reason: Reason) -> list[Remark]:
    """A remark for every tensor over the threshold, with one reason for all."""
    return [
        remark_on_missed(graph, value, Refusal(reason))
        for graph in read_graphs(module, read_rules(module, options.op_rules))
        for value, tensor in enumerate(graph.tensors)
        if tensor.producer != OUTSIDE and tensor.type.bytes > options.size_threshold
    ]


def remark_on_plan(graph: Graph, plan: Plan) -> Remark:
    """The remark on a plan that is built."""
    tensor = graph.tensors[plan.seed]
    loops = " then ".join(
        f"{loop.trips} tile{'s' if loop.trips > 1 else ''} of {loop.tile * plan.mapping.inner}" for loop in plan.loops
    )
    others = len(plan.vanished) - 1
    along = f", with {others} more big tensor{'s' if others > 1 else ''}" if others else ""
    message = f"split over dimension {plan.mapping.dim} ({tensor.type.shape[plan.mapping.dim]}): {loops}{along}"
    remark = _remark(graph, plan.seed, Kind.PASSED, Reason("EX001", message))
    return replace(remark, may_nest=plan.may_nest)


def remark_on_missed(graph: Graph, value: int, refusal: Refusal) -> Remark:
    """The remark on a tensor that stays unsplit."""
    tensor = graph.tensors[value]
    made = graph.nodes[tensor.producer].op.results[tensor.result_index]
    remark = _remark(graph, value, Kind.MISSED, why_not_split(made, refusal.reason))
    if refusal.reason.stopped_by:
        return replace(remark, stopped_by=refusal.reason.stopped_by, stopped_at=refusal.reason.stopped_at)
    if refusal.node is None or refusal.node == graph.tensors[value].producer:
        return remark
    node = graph.nodes[refusal.node]
    where = describe(node.op)
    return remark if where == remark.location else replace(remark, stopped_by=node.name, stopped_at=where)


def _remark(graph: Graph, value: int, kind: Kind, reason: Reason) -> Remark:
    tensor = graph.tensors[value]
    where = describe(_defining_op(graph.nodes[tensor.producer].op, tensor.result_index))
    return Remark(kind, reason.code, "tensor-splitter", str(tensor.type), tensor.type.bytes, where, reason.text)


def _defining_op(op: ir.Operation, result: int) -> ir.Operation:
    """The op that computes a result.

    For a loop of ours, in the body: the loop has one location for all. For a tensor that the steps of a loop of the
    program store slice by slice, and for the op that stores it, the op that computes a slice.
    """
    while TILE_MARK in op.attributes:
        value = terminator(op.regions[1].blocks[0]).operands[result]
        owner = value.owner
        if not isinstance(owner, ir.Operation | ir.OpView):
            break
        result, op = ir.OpResult(value).result_number, owner.operation
    value, around = op.results[result], op.block.owner.operation
    if has_trait(op, Trait.IN_PLACE) and not has_trait(op, Trait.CONTROL_FLOW) and _is_loop(around):
        returned = terminator(op.block).operands
        op, result = next(((around, carry) for carry, own in enumerate(returned) if own == value), (op, result))
    return origin_of(op, result) if _is_loop(op) and result in updates(op) else op


def _is_loop(op: ir.Operation) -> bool:
    return has_trait(op, Trait.CONTROL_FLOW) and has_trait(op, Trait.IN_PLACE) and TILE_MARK not in op.attributes
