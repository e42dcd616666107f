"""A program for several devices in which each computes all, except where it is written for one of them.

XLA's partitioner is not always right: what a program is rewritten to is held against this one where they differ.
"""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.walk import inside_out, main_function, operations_of
from exla_opt.ir.write import serialise
from exla_opt.sharding.shardings import SHARDING

_CONSTRAINT = "sdy.sharding_constraint"


def on_every_device(text: str) -> str:
    """The module with every tensor outside of manual computations whole on every device."""
    with new_context() as context, ir.Location.unknown():
        module = ir.Module.parse(text, context)
        function = main_function(module)
        for name in ("arg_attrs", "res_attrs"):
            if name in function.attributes:
                function.attributes[name] = ir.ArrayAttr.get(
                    [_without(each) for each in ir.ArrayAttr(function.attributes[name])]
                )
        for op in inside_out(module, _CONSTRAINT):
            op.results[0].replace_all_uses_with(op.operands[0])
            op.erase()
        for op in operations_of(function.regions[0].blocks[0])[:-1]:
            with ir.InsertionPoint.after(op):
                for result in op.results:
                    _hold(result)
        return serialise(module, "text").decode()


def _hold(value: ir.Value) -> None:
    uses = list(value.uses)
    rank = len(ir.RankedTensorType(value.type).shape)
    whole = ir.Attribute.parse(f"#sdy.sharding<@mesh, [{', '.join(['{}'] * rank)}]>")
    held = ir.Operation.create(_CONSTRAINT, [value.type], [value], {"sharding": whole}).results[0]
    for use in uses:
        use.owner.operation.operands[use.operand_number] = held


def _without(attributes: ir.Attribute) -> ir.Attribute:
    given = ir.DictAttr(attributes)
    every = [given[place] for place in range(len(given))]
    return ir.DictAttr.get({each.name: each.attr for each in every if each.name != SHARDING})
