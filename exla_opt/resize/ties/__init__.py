"""What each op says of the dimensions of its operands and results: which are of one size.

Most of it follows from the factors of an op, which are dimensions that are cut together. The ops here are those that
tie dimensions that cannot be cut, or tie them loosely. A dimension that nothing is said of is fixed.
"""

from __future__ import annotations

from collections.abc import Callable

from jaxlib.mlir import ir

from exla_opt.ir.read import is_private
from exla_opt.ir.walk import walk_functions
from exla_opt.ops.rules import read_rules
from exla_opt.resize.dimensions import Classes, Dimensions

from . import control, linear, moves, site
from .site import Site, Told

# Ops that tie dimensions that cannot be cut, or tie them loosely; of all others the factors tell.
_RULES: dict[str, Callable[[Site], Told]] = {
    "chlo.constant": moves.constant,
    "chlo.top_k": linear.top_k,
    "func.call": control.call,
    "func.return": control.return_,
    "stablehlo.broadcast_in_dim": moves.broadcast,
    "stablehlo.case": control.branches,
    "stablehlo.cholesky": linear.cholesky,
    "stablehlo.concatenate": moves.concatenate,
    "stablehlo.constant": moves.constant,
    "stablehlo.convolution": linear.convolution,
    "stablehlo.custom_call": linear.custom_call,
    "stablehlo.dynamic_slice": moves.dynamic_slice,
    "stablehlo.dynamic_update_slice": moves.dynamic_update_slice,
    "stablehlo.gather": moves.gather,
    "stablehlo.if": control.branches,
    "stablehlo.iota": moves.made,
    "stablehlo.optimization_barrier": site.tie_pairs,
    "stablehlo.pad": moves.pad,
    "stablehlo.reduce": linear.reduce,
    "stablehlo.reduce_window": linear.reduce_window,
    "stablehlo.reshape": moves.reshape,
    "stablehlo.return": control.return_,
    "stablehlo.reverse": site.tie_all,
    "stablehlo.scatter": moves.scatter,
    "stablehlo.set_dimension_size": moves.set_dimension_size,
    "stablehlo.slice": moves.slice_,
    "stablehlo.sort": site.tie_all,
    "stablehlo.triangular_solve": linear.triangular_solve,
    "stablehlo.while": control.while_,
}


def read_dimensions(module: ir.Module, op_rules: tuple[tuple[str, str], ...] = ()) -> Dimensions:
    """The classes of all dimensions, by what is known of each op. The module is not changed.

    op_rules: (call target, rule text) pairs for custom calls. Raises what `read_rules` raises.
    """
    classes = Classes()
    functions = {_name(view.operation): view.operation for view in module.body.operations}
    pairs = list(zip(walk_functions(module.operation), read_rules(module, op_rules), strict=True))
    called = {ir.FlatSymbolRefAttr(op.attributes["callee"]).value for op, _ in pairs if op.name == "func.call"}
    used = {ir.FlatSymbolRefAttr(op.attributes["decomposition"]).value for op, _ in pairs if _is_composite(op)}
    for name, function in functions.items():
        # What else than a call refers to a function would have to change with it.
        if name in used or (function.name == "func.func" and is_private(function) and name not in called):
            _fix_signature(function, classes)
    for op, rule in pairs:
        _relate(Site(op, rule, functions, classes))
    return classes.finish()


def _is_composite(op: ir.Operation) -> bool:
    return op.name == "stablehlo.composite"


def _fix_signature(function: ir.Operation, classes: Classes) -> None:
    for block in function.regions[0].blocks:
        *_, last = block.operations
        classes.fix(*block.arguments, *last.operation.operands)


def _name(op: ir.Operation) -> str:
    return ir.StringAttr(op.attributes["sym_name"]).value if "sym_name" in op.attributes else ""


def _relate(at: Site) -> None:
    """Tell the classes what the op says; fix the dimensions of its operands and results that it says nothing of."""
    told = set(_RULES.get(at.op.name, site.by_factors)(at))
    for value in (*at.op.operands, *at.op.results):
        at.classes.fix_dimensions(*(place for place in at.classes.places(value) if place not in told))
