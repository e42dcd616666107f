"""Steps that replace values by simpler ones, and drop ops that become unused."""

from __future__ import annotations

from collections.abc import Iterator

from jaxlib.mlir import ir, passmanager

from exla_opt.ir import build
from exla_opt.ir.attributes import is_splat

from .search import Take
from .signature import add_argument, body_of, changeable, return_values, returned

_CONSTANTS = frozenset({"stablehlo.constant", "chlo.constant"})


def backwards(block: ir.Block) -> Iterator[ir.Operation]:
    """The ops of a block and of all regions in it, without terminators; users before definitions."""
    _, *others = reversed([view.operation for view in block.operations])
    for op in others:
        yield op
        for region in reversed(list(op.regions)):
            for inner in region.blocks:
                yield from backwards(inner)


def _dead_ops(block: ir.Block, needed: set[ir.Value]) -> Iterator[ir.Operation]:
    """The ops whose results are not needed, users before definitions; operands of other ops are added to `needed`."""
    last, *others = reversed([view.operation for view in block.operations])
    needed.update(last.operands)
    for op in others:
        if len(op.results) and not any(result in needed for result in op.results):
            yield op
            continue
        needed.update(op.operands)
        for region in reversed(list(op.regions)):
            for inner in region.blocks:
                yield from _dead_ops(inner, needed)


def bodies(module: ir.Module) -> Iterator[tuple[ir.Operation, ir.Block]]:
    """The functions with their blocks."""
    for view in module.body.operations:
        if view.operation.name == "func.func":
            for block in view.operation.regions[0].blocks:
                yield view.operation, block


def drop_dead_ops(module: ir.Module, take: Take) -> None:
    """Drop ops whose results are not needed."""
    for _, block in bodies(module):
        for op in list(_dead_ops(block, set())):
            if take() and not _is_needed(op):
                op.erase()


def is_used(value: ir.Value) -> bool:
    """Whether any op reads the value."""
    return any(True for _ in value.uses)


def is_plain(value: ir.Value) -> bool:
    """Whether the value is a constant that cannot be simplified."""
    owner = value.owner
    return not isinstance(owner, ir.Block) and owner.operation.name in _CONSTANTS and is_splat(owner.operation)


def _is_needed(op: ir.Operation) -> bool:
    return any(map(is_used, op.results))


def _is_replaceable(op: ir.Operation) -> bool:
    """Whether the results can be replaced."""
    return (
        len(op.results) > 0
        and not is_plain(op.results[0])
        and all(isinstance(result.type, ir.RankedTensorType) for result in op.results)
    )


def cut_out(module: ir.Module, take: Take) -> None:
    """Drop ops of a function; results that others use become arguments, and operands become results."""
    for function in list(changeable(module)):
        body = body_of(function)
        ops = reversed([view.operation for view in body.operations])
        chosen = [op for op in ops if _is_replaceable(op) and take()]
        if chosen:
            _cut_out(function, chosen)


def _cut_out(function: ir.Operation, chosen: list[ir.Operation]) -> None:
    """chosen: from the last op to the first."""
    made = {result for op in chosen for result in op.results}
    read = dict.fromkeys(operand for op in reversed(chosen) for operand in op.operands if operand not in made)
    kept = [index for index, value in enumerate(returned(function).operands) if value not in made]
    return_values(function, kept)
    for op in chosen:
        for result in op.results:
            if is_used(result):  # by ops that are kept: dropped users are already gone
                result.replace_all_uses_with(add_argument(function, result.type, op.location))
        op.erase()
    unread = [v for v in read if not isinstance(v.owner, ir.Block) and not is_used(v) and not is_plain(v)]
    if unread:
        return_values(function, range(len(kept)), unread)


def ops_to_operands(module: ir.Module, take: Take) -> None:
    """Replace results by an operand of the same type; a loop's by their initial values."""
    for _, block in bodies(module):
        for op in list(backwards(block)):
            found = [_operand_like(op, index) for index in range(len(op.results))]
            values = [value for value in found if value is not None]
            if _is_needed(op) and len(values) == len(found) and take():
                _replace(op, values)


def _operand_like(op: ir.Operation, index: int) -> ir.Value | None:
    kind = op.results[index].type
    if op.name == "stablehlo.while":
        own: ir.Value = op.operands[index]
        return own
    return next((operand for operand in op.operands if operand.type == kind), None)


def _replace(op: ir.Operation, values: list[ir.Value]) -> None:
    for result, value in zip(op.results, values, strict=True):
        result.replace_all_uses_with(value)


def ops_to_constants(module: ir.Module, take: Take) -> None:
    """Replace results, including constants of several values, by zero everywhere."""
    for _, block in bodies(module):
        for op in list(backwards(block)):
            if _is_needed(op) and _is_replaceable(op) and take():
                with ir.InsertionPoint(op), op.location:
                    _replace(op, [build.zeros(result.type) for result in op.results])


def ops_to_arguments(module: ir.Module, take: Take) -> None:
    """Replace results by a function argument of the same type."""
    for function, block in bodies(module):
        arguments = {argument.type: argument for argument in reversed(list(function.regions[0].blocks[0].arguments))}
        for op in list(backwards(block)):
            if not _is_needed(op) or not _is_replaceable(op):
                continue
            if all(result.type in arguments for result in op.results) and take():
                _replace(op, [arguments[result.type] for result in op.results])


def ops_to_new_arguments(module: ir.Module, take: Take) -> None:
    """Replace results by new arguments of the function."""
    for function in list(changeable(module)):
        for op in list(backwards(body_of(function))):
            if _is_needed(op) and _is_replaceable(op) and take():
                _replace(op, [add_argument(function, result.type, op.location) for result in op.results])


def operands_to_constants(module: ir.Module, take: Take) -> None:
    """Replace single operands by zero everywhere, including operands of a loop body's terminator."""
    for _, block in bodies(module):
        for op in _with_terminators(list(backwards(block))):
            for index, operand in enumerate(op.operands):
                if isinstance(operand.type, ir.RankedTensorType) and not is_plain(operand) and take():
                    with ir.InsertionPoint(op), op.location:
                        op.operands[index] = build.zeros(operand.type)


def _with_terminators(ops: list[ir.Operation]) -> Iterator[ir.Operation]:
    for op in ops:
        yield op
        for region in op.regions:
            for block in region.blocks:
                *_, last = block.operations
                yield last.operation


def merge_equal_ops(module: ir.Module, take: Take) -> None:
    """Merge equal ops. There is one chance: all of them."""
    if take():
        with module.context:
            passmanager.PassManager.parse("builtin.module(cse)").run(module.operation)
