"""Inlining of func.call: jaxlib's own `inline` pass leaves these calls alone."""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.diagnostics import error_at


def inline_calls(module: ir.Module) -> None:
    """Replace every func.call, in any region, by the body of the function that it calls.

    Functions are finished callees first, so that each call copies a body that has no calls left: the time
    is linear in what comes out. The copies keep the callee's locations.
    Raises InputError for recursion and for a callee without a body or with several blocks.
    """
    functions = {
        ir.StringAttr(op.attributes["sym_name"]).value: op
        for op in (view.operation for view in module.body.operations)
        if op.name == "func.func"
    }
    calls = {name: _calls(function) for name, function in functions.items()}
    for name in _callees_first(functions, calls):
        for call in calls[name]:
            _inline(call, functions[_callee(call)])


def _calls(function: ir.Operation) -> list[ir.Operation]:
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "func.call":
            found.append(op)
        return ir.WalkResult.ADVANCE

    function.walk(visit)
    return found


def _callee(call: ir.Operation) -> str:
    return ir.FlatSymbolRefAttr(call.attributes["callee"]).value


def _callees_first(functions: dict[str, ir.Operation], calls: dict[str, list[ir.Operation]]) -> list[str]:
    """The functions' names, each after all that it calls. An explicit stack: call chains may be deep."""
    order: list[str] = []
    done: set[str] = set()
    for root in functions:
        path = {root: iter(calls[root])} if root not in done else {}
        while path:
            name = next(reversed(path))
            call = next(path[name], None)
            if call is None:
                del path[name]
                done.add(name)
                order.append(name)
                continue
            callee = _callee(call)
            if callee in path:
                raise error_at(call.location, f"function @{callee} calls itself: recursion cannot be compiled")
            if callee not in done:
                path[callee] = iter(calls[callee])
    return order


def _inline(call: ir.Operation, callee: ir.Operation) -> None:
    blocks = list(callee.regions[0].blocks)
    if len(blocks) != 1:
        what = "has several blocks" if blocks else "has no body"
        raise error_at(call.location, f"the call of @{_callee(call)} cannot be inlined: the function {what}")
    values: dict[ir.Value, ir.Value] = dict(zip(blocks[0].arguments, call.operands, strict=True))

    def remap(op: ir.Operation) -> ir.WalkResult:
        operands = op.operands
        for index, operand in enumerate(operands):
            if (value := values.get(operand)) is not None:
                operands[index] = value
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
