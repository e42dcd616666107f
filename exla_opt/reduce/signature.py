"""Changes the arguments and results of a function, with their attributes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jaxlib.mlir import ir

from exla_opt.resize.apply import update_function_type

_ALIAS = "tf.aliasing_output"


def changeable(module: ir.Module) -> Iterator[ir.Operation]:
    """The functions of one block that nothing in the module refers to, so that their signatures can change."""
    called = _called(module)
    for view in module.body.operations:
        function = view.operation
        if function.name != "func.func" or len(list(function.regions[0].blocks)) != 1:
            continue
        if ir.StringAttr(function.attributes["sym_name"]).value not in called:
            yield function


def _called(module: ir.Module) -> set[str]:
    """The functions that calls and composites refer to."""
    found: set[str] = set()

    def visit(op: ir.Operation) -> ir.WalkResult:
        name = {"func.call": "callee", "stablehlo.composite": "decomposition"}.get(op.name)
        if name is not None:
            found.add(ir.FlatSymbolRefAttr(op.attributes[name]).value)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found


def body_of(function: ir.Operation) -> ir.Block:
    """The function's only block."""
    block: ir.Block = function.regions[0].blocks[0]
    return block


def returned(function: ir.Operation) -> ir.Operation:
    """The function's terminator."""
    *_, last = body_of(function).operations
    return last.operation


def return_values(function: ir.Operation, kept: Sequence[int], added: Sequence[ir.Value] = ()) -> None:
    """Return only the results with the numbers `kept`, and after them `added`."""
    last = returned(function)
    values = [*(last.operands[index] for index in kept), *added]
    ir.Operation.create(last.name, operands=values, loc=last.location, ip=ir.InsertionPoint(last))
    last.erase()
    _select(function, "res_attrs", kept, len(added))
    _renumber_aliases(function, {old: new for new, old in enumerate(kept)})
    update_function_type(function)


def remove_arguments(function: ir.Operation, removed: Sequence[int]) -> None:
    """Drop arguments, which nothing may use."""
    block = body_of(function)
    kept = [index for index in range(len(block.arguments)) if index not in removed]
    for index in sorted(removed, reverse=True):
        block.erase_argument(index)
    _select(function, "arg_attrs", kept, 0)
    update_function_type(function)


def add_argument(function: ir.Operation, kind: ir.Type, location: ir.Location) -> ir.Value:
    """Append a new argument."""
    block = body_of(function)
    count = len(block.arguments)
    made: ir.Value = block.add_argument(kind, location)
    _select(function, "arg_attrs", range(count), 1)
    update_function_type(function)
    return made


def _select(function: ir.Operation, name: str, kept: Sequence[int], added: int) -> None:
    if name not in function.attributes:
        return
    old = list(ir.ArrayAttr(function.attributes[name]))
    with function.context:
        empty = [ir.DictAttr.get({})] * added
        function.attributes[name] = ir.ArrayAttr.get([*(old[index] for index in kept), *empty])


def _renumber_aliases(function: ir.Operation, numbers: dict[int, int]) -> None:
    """Update the result numbers in aliasing attributes of arguments."""
    if "arg_attrs" not in function.attributes:
        return
    changed: list[ir.Attribute] = []
    for attribute in ir.ArrayAttr(function.attributes["arg_attrs"]):
        entries = dict(_entries(ir.DictAttr(attribute)))
        if _ALIAS in entries:
            alias = ir.IntegerAttr(entries.pop(_ALIAS))
            if alias.value in numbers:
                entries[_ALIAS] = ir.IntegerAttr.get(alias.type, numbers[alias.value])
        changed.append(ir.DictAttr.get(entries, function.context))
    function.attributes["arg_attrs"] = ir.ArrayAttr.get(changed, function.context)


def _entries(attribute: ir.DictAttr) -> Iterator[tuple[str, ir.Attribute]]:
    for index in range(len(attribute)):
        yield attribute[index].name, attribute[index].attr
