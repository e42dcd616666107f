"""Walking a module: its functions, blocks, control flow, terminators, and the values that regions capture."""

from __future__ import annotations

from collections.abc import Container, Iterator

from jaxlib.mlir import ir

# Only the regions of these hold ops of their own; those of reduce, sort, ... are scalar code, a part of the op.
CONTROL_FLOW = frozenset({"stablehlo.while", "stablehlo.case", "stablehlo.if"})
# Those of which one region runs.
BRANCHES = ("stablehlo.case", "stablehlo.if")


def walk(block: ir.Block, inside: Container[str] = CONTROL_FLOW) -> Iterator[ir.Operation]:
    """All ops of a block and of the control flow in it, each before the ops of its regions.

    inside: the names of the ops whose regions count.
    """
    stack = [iter(block.operations)]
    while stack:
        view = next(stack[-1], None)
        if view is None:
            stack.pop()
            continue
        op = view.operation
        yield op
        if op.name in inside:
            inner = [block for region in op.regions for block in region.blocks]
            stack += [iter(block.operations) for block in reversed(inner)]


def walk_regions(block: ir.Block) -> Iterator[ir.Operation]:
    """All ops of a block and of all regions in it, including the scalar code of reduce, sort, ..."""
    for view in block.operations:
        op = view.operation
        yield op
        for region in op.regions:
            for inner in region.blocks:
                yield from walk_regions(inner)


def walk_functions(module: ir.Operation, inside: Container[str] = CONTROL_FLOW) -> Iterator[ir.Operation]:
    """All ops of the module's functions, in the order of `walk` over their blocks."""
    for view in module.regions[0].blocks[0].operations:
        for region in view.operation.regions:
            for block in region.blocks:
                yield from walk(block, inside)


def number_of_ops(module: ir.Module) -> int:
    """The number of ops in the module's functions and in the bodies of their control flow."""
    return sum(1 for _ in walk_functions(module.operation))


def all_blocks(module: ir.Module) -> Iterator[ir.Block]:
    """The blocks of all functions and of the control flow in them; not the bodies of reduce, sort and the like."""
    stack = [module.operation]
    while stack:
        op = stack.pop()
        for region in op.regions:
            for block in region.blocks:
                if op.name != "builtin.module":
                    yield block
                stack += [
                    view.operation
                    for view in block.operations
                    if view.operation.name in CONTROL_FLOW or view.operation.name == "func.func"
                ]


def inside_out(module: ir.Module, *names: str) -> list[ir.Operation]:
    """The ops of these names (by default all in the module), in program order, inner ones before outer ones.

    Replacing or erasing ops in this order never meets a handle whose op was erased with another.
    """
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if not names or op.name in names:
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit, ir.WalkOrder.POST_ORDER)
    return found if names else found[:-1]


def main_function(module: ir.Module) -> ir.Operation:
    """The entry function of a program: @main, else the first public one."""
    functions = [view.operation for view in module.body.operations if view.operation.name == "func.func"]
    named = {ir.StringAttr(op.attributes["sym_name"]).value: op for op in functions}
    public = [op for op in functions if "sym_visibility" not in op.attributes]
    return named.get("main") or (public or functions)[0]


def is_private(function: ir.Operation) -> bool:
    """Whether only its own module can call a func.func."""
    attributes = function.attributes
    return "sym_visibility" in attributes and str(attributes["sym_visibility"]) == '"private"'


def operations_of(block: ir.Block) -> list[ir.Operation]:
    """A list of the current ops of a block, which later changes to the block do not affect."""
    return [view.operation for view in block.operations]


def terminator(block: ir.Block) -> ir.Operation:
    """The block's terminator."""
    return block.operations[-1].operation


def captured_values(op: ir.Operation) -> list[ir.Value]:
    """The values that the regions of `op` use and do not define, each once, in order of first use."""
    inside: set[ir.Value] = set()
    found: dict[ir.Value, None] = {}
    stack = [block for region in op.regions for block in reversed(list(region.blocks))]
    while stack:
        block = stack.pop()
        inside.update(block.arguments)
        for view in block.operations:
            inner = view.operation
            for operand in inner.operands:
                if operand not in inside:
                    found.setdefault(operand)
            inside.update(inner.results)
            for region in inner.regions:
                stack.extend(region.blocks)
    # A block deeper in the stack may be visited after its uses were seen: drop values that turn out to be inside.
    return [value for value in found if value not in inside]


def operands_of(op: ir.Operation) -> list[ir.Value]:
    """The operands of an op; for control flow, followed by the captures of its blocks."""
    return [*op.operands, *(captured_values(op) if op.name in CONTROL_FLOW else ())]


def within(op: ir.Operation, block: ir.Block) -> ir.Operation | None:
    """The op of a block that is this op or has it in its regions; None if there is none."""
    while op.block != block:
        parent = op.parent
        if parent is None or parent.name == "func.func":
            return None
        op = parent.operation
    return op


def is_in_loop(op: ir.Operation) -> bool:
    """Whether an op is in a region of a `while`, at any depth."""
    outer = op.parent
    while outer is not None and outer.name != "stablehlo.while":
        outer = outer.parent
    return outer is not None
