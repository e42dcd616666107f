"""Steps that drop functions, results, arguments, control flow, attributes and locations."""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir import build
from exla_opt.ir.diagnostics import InputError
from exla_opt.ir.loops import drop_carries
from exla_opt.ir.walk import CONTROL_FLOW, inside_out, main_function
from exla_opt.passes.normalise.inline import inline_calls

from .search import Take
from .signature import changeable, remove_arguments, return_values, returned
from .values import is_plain, is_used

# StableHLO's own attributes that an op can lack.
_OPTIONAL = frozenset(
    "algorithm backend_config indices_are_sorted is_stable precision_config result_accuracy unique_indices".split()
)


def inline_functions(module: ir.Module, take: Take) -> None:
    """Inline all calls. There is one chance: all of them."""
    if any(op.name == "func.call" for op in inside_out(module)) and take():
        try:
            inline_calls(module)
        except InputError:  # recursion stays
            return


def drop_functions(module: ir.Module, take: Take) -> None:
    """Drop functions that are not called, except the entry function."""
    first = main_function(module)
    for function in list(changeable(module)):
        if function != first and take():
            function.erase()


def drop_results(module: ir.Module, take: Take) -> None:
    """Drop results of functions."""
    for function in list(changeable(module)):
        count = len(returned(function).operands)
        kept = [index for index in range(count) if not take()]
        if len(kept) < count:
            return_values(function, kept)


def drop_arguments(module: ir.Module, take: Take) -> None:
    """Drop arguments that are not used."""
    for function in list(changeable(module)):
        arguments = function.regions[0].blocks[0].arguments
        removed = [index for index, argument in enumerate(arguments) if not is_used(argument) and take()]
        if removed:
            remove_arguments(function, removed)


def merge_arguments(module: ir.Module, take: Take) -> None:
    """Replace an argument by the first argument of its type."""
    for function in list(changeable(module)):
        first: dict[ir.Type, ir.Value] = {}
        for argument in function.regions[0].blocks[0].arguments:
            same = first.setdefault(argument.type, argument)
            if same != argument and is_used(argument) and take():
                argument.replace_all_uses_with(same)


def arguments_to_constants(module: ir.Module, take: Take) -> None:
    """Replace an argument by zeros."""
    for function in list(changeable(module)):
        block = function.regions[0].blocks[0]
        for argument in block.arguments:
            if isinstance(argument.type, ir.RankedTensorType) and is_used(argument) and take():
                with ir.InsertionPoint.at_block_begin(block), function.location:
                    argument.replace_all_uses_with(build.zeros(argument.type))


def unwrap(module: ir.Module, take: Take) -> None:
    """Replace a loop by its body, run once, and a case or an if by one of its branches.

    Inner values that become unread are returned by the function, as they may be interesting.
    """
    moved: list[ir.Operation] = []
    for op in _control_flow(module):
        blocks = [region.blocks[0] for region in op.regions]
        if op.name == "stablehlo.while":
            blocks = blocks[1:]
        chosen = [block for block in blocks if take()]
        if chosen:
            moved += _unwrap(op, chosen[0])
    for function in list(changeable(module)):
        body = function.regions[0].blocks[0]
        results = [result for op in moved if op.block == body for result in op.results]
        unread = [result for result in results if not is_used(result) and not is_plain(result)]
        if unread:
            return_values(function, range(len(returned(function).operands)), unread)


def _unwrap(op: ir.Operation, block: ir.Block) -> list[ir.Operation]:
    """Replace the op by the ops of the block, and return them."""
    for argument, operand in zip(block.arguments, op.operands if len(block.arguments) else (), strict=True):
        argument.replace_all_uses_with(operand)
    *inner, last = [view.operation for view in block.operations]
    for each in inner:
        each.move_before(op)
    for old, new in zip(op.results, last.operands, strict=True):
        old.replace_all_uses_with(new)
    op.erase()
    return inner


def drop_loop_carries(module: ir.Module, take: Take) -> None:
    """Replace a loop-carried value by its initial value."""
    for op in _control_flow(module):
        if op.name == "stablehlo.while":
            dropped = [index for index in range(len(op.operands)) if take()]
            if 0 < len(dropped) < len(op.operands):
                drop_carries(op, dropped)


def drop_attributes(module: ir.Module, take: Take) -> None:
    """Drop attributes of other dialects, and optional ones of StableHLO."""
    ops = [module.operation, *inside_out(module)]
    for op in ops:
        names = [op.attributes[place].name for place in range(len(op.attributes))]
        signature = ("arg_attrs", "res_attrs") if op.name == "func.func" else ()
        for name in names:
            if ("." in name or name in _OPTIONAL or name in signature) and take():
                del op.attributes[name]


def drop_locations(module: ir.Module, take: Take) -> None:
    """Drop the source locations of ops. There is one chance: all of them."""
    if not take():
        return
    unknown = ir.Location.unknown(module.context)
    for op in [module.operation, *inside_out(module)]:
        op.location = unknown
        for region in op.regions:
            for block in region.blocks:
                for argument in block.arguments:
                    argument.set_location(unknown)


def _control_flow(module: ir.Module) -> list[ir.Operation]:
    """Loops and cases, inner ones first: no handle is used after its op is erased with an outer one."""
    return inside_out(module, *CONTROL_FLOW)
