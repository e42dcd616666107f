"""Inlining of func.call: jaxlib's own `inline` pass leaves these calls alone."""

from __future__ import annotations

from jaxlib.mlir import ir, passmanager

from exla_opt.ir.diagnostics import error_at
from exla_opt.ir.locations import call_site
from exla_opt.ir.walk import is_private

# Nested calls that a location names; in deeper nests those in the middle are left out. Locations are read as text for
# every op, and longer ones help nobody.
_MOST_FRAMES = 32


def inline_calls(module: ir.Module) -> None:
    """Replace every func.call, in any region, by the body of the function that it calls, and drop dead functions.

    Calls are expanded from the public functions down, so that every op is copied once for each place where it ends up:
    the time is linear in the output. A copy is located in the callee and, after that, at the call: inside a `jnp`
    function, only the call is a line of the user's.
    Raises InputError for recursion and for a callee without a body or with several blocks.
    """
    functions = _functions(module)
    _check_recursion({name: _calls(function) for name, function in functions.items()})
    for function in functions.values():
        if not is_private(function):
            _expand(function, functions)
    with module.context:
        passmanager.PassManager.parse("builtin.module(symbol-dce)").run(module.operation)
    functions = _functions(module)
    for function in functions.values():  # private ones with references other than calls
        if is_private(function):
            _expand(function, functions)


def _functions(module: ir.Module) -> dict[str, ir.Operation]:
    operations = [view.operation for view in module.body.operations]
    return {ir.StringAttr(op.attributes["sym_name"]).value: op for op in operations if op.name == "func.func"}


def _calls(op: ir.Operation) -> list[ir.Operation]:
    found: list[ir.Operation] = []

    def visit(inner: ir.Operation) -> ir.WalkResult:
        if inner.name == "func.call":
            found.append(inner)
        return ir.WalkResult.ADVANCE

    op.walk(visit)
    return found


def _expand(function: ir.Operation, functions: dict[str, ir.Operation]) -> None:
    """Inline the calls in `function`, and those in the inlined bodies."""
    calls = [(call, call.location, 1) for call in _calls(function)]
    while calls:
        call, place, frames = calls.pop()
        for inner in _inline(call, functions[_callee(call)], place):
            calls.append((inner, inner.location, frames + 1) if frames < _MOST_FRAMES else (inner, place, frames))


def _callee(call: ir.Operation) -> str:
    return ir.FlatSymbolRefAttr(call.attributes["callee"]).value


def _check_recursion(calls: dict[str, list[ir.Operation]]) -> None:
    """Raise InputError if a function can reach itself. An explicit stack: call chains may be deep."""
    done: set[str] = set()
    for root in calls:
        path = {root: iter(calls[root])} if root not in done else {}
        while path:
            name = next(reversed(path))
            call = next(path[name], None)
            if call is None:
                del path[name]
                done.add(name)
                continue
            callee = _callee(call)
            if callee in path:
                raise error_at(call.location, f"function @{callee} calls itself: recursion cannot be compiled")
            if callee not in done:
                path[callee] = iter(calls[callee])


def _inline(call: ir.Operation, callee: ir.Operation, place: ir.Location) -> list[ir.Operation]:
    """Replace the call by the callee's body; return the calls in that body.

    place: the caller in the location of an op.
    """
    blocks = list(callee.regions[0].blocks)
    if len(blocks) != 1:
        what = "has several blocks" if blocks else "has no body"
        raise error_at(call.location, f"the call of @{_callee(call)} cannot be inlined: the function {what}")
    calls: list[ir.Operation] = []
    values: dict[ir.Value, ir.Value] = dict(zip(blocks[0].arguments, call.operands, strict=True))

    def remap(op: ir.Operation) -> ir.WalkResult:
        operands = op.operands
        for index, operand in enumerate(operands):
            if (value := values.get(operand)) is not None:
                operands[index] = value
        op.location = call_site(op.location, place)
        if op.name == "func.call":
            calls.append(op)
        return ir.WalkResult.ADVANCE

    before_call = ir.InsertionPoint(call)
    for view in blocks[0].operations:
        op = view.operation
        if op.name == "func.return":
            for result, operand in zip(call.results, op.operands, strict=True):
                result.replace_all_uses_with(values.get(operand, operand))
            break
        clone = op.clone(ip=before_call).operation
        clone.walk(remap)
        values.update(zip(op.results, clone.results, strict=True))
    call.erase()
    return calls
