"""Comparisons for equality: they tell x from x made again, unless that has the very same bits.

The gradient of a maximum asks which elements are equal to it. When the maximum is complete, a later loop makes the
elements again, and XLA may round them otherwise there: a dot by the shape of the tile, a division by a repeated row by
what it is fused with. Inside one loop both sides have the same x.

For the same reason only one loop may ask. The gradient of a clip asks where x is at the bound. Where x is there by its
nature, as the diagonal of a correlation matrix is 1, two loops could answer differently, and sums that would cancel do
not. That holds for the loops of two plans as well: plans that make the same values are not built in one round where
one of them asks.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir

from exla_opt.ir.types import element_type
from exla_opt.ir.values import defining_op
from exla_opt.ops.reducers import body_of, chooses, componentwise

from .graph import Graph
from .stages import Makers, Stage

_MOVING = frozenset({"stablehlo.broadcast_in_dim", "stablehlo.reshape", "stablehlo.convert", "stablehlo.transpose"})
_CUTTING = frozenset({"stablehlo.slice", "stablehlo.dynamic_slice"})
_ASKING = frozenset({"stablehlo.compare", "chlo.broadcast_compare", "stablehlo.sign"})
_REDUCING = frozenset({"stablehlo.reduce", "stablehlo.reduce_window"})
_ORDERING = frozenset({"stablehlo.sort", "chlo.top_k"})


def find_unequal(graph: Graph, makers: Makers, stage: Stage) -> int | None:
    """The first comparison of computed floats in a loop whose sides read different values of earlier loops."""
    read: dict[int, frozenset[int]] = {}  # of what the loop makes: the values of earlier loops that went into it

    def sources(value: int, maker: int | None) -> frozenset[int]:
        if maker is not None and value in read:
            return read[value]
        return frozenset((value,)) & stage.awaited

    for position in stage.nodes:
        node = graph.nodes[position]
        of_each = [sources(value, maker) for value, maker in zip(node.operands, makers[position], strict=True)]
        if len(set(of_each)) > 1 and compares_computed(node.op):
            return position
        read.update(dict.fromkeys(node.results, frozenset[int]().union(*of_each)))
    return None


def find_repeated(graph: Graph, stages: Sequence[Stage]) -> int | None:
    """The first comparison of floats for equality that more than one loop makes."""
    seen: set[int] = set()
    for stage in stages:
        asking = {position for position in stage.nodes if compares_equal(graph.nodes[position].op)}
        if both := seen & asking:
            return min(both)
        seen |= asking
    return None


def compares_equal(op: ir.Operation) -> bool:
    """Whether the op asks if two floats are equal; not if one is itself, that is, a number."""
    return _compares_floats(op) and _direction(op) in ("EQ", "NE", "")


def compares_computed(op: ir.Operation) -> bool:
    """Whether the op compares two computed floats, of which one is a number that was picked from such if by order.

    What is at least the maximum of its row is that maximum: to ask so is to ask for equality. So is to ask whether the
    difference of the two is 0.
    """
    if op.name == "stablehlo.subtract":  # of which only the sign is looked at
        asked = any(use.owner.operation.name in _ASKING for use in op.results[0].uses)
        return asked and _is_float(op.operands[0]) and any(map(_is_picked, op.operands))
    if not _compares_floats(op) or any(map(_is_constant, op.operands)):
        return False
    return _direction(op) in ("EQ", "NE", "") or any(map(_is_picked, op.operands))


def asks_about(value: ir.Value, block: ir.Block) -> bool:
    """Whether anything in a block compares, as above, what is made of the value there."""
    stack = [use.owner.operation for use in value.uses if _is_inside(use.owner.operation, block)]
    seen: set[ir.Operation] = set(stack)
    while stack:
        op = stack.pop()
        if compares_equal(op) or compares_computed(op):
            return True
        users = {use.owner.operation for result in op.results for use in result.uses} - seen
        seen |= users
        stack += users
    return False


def _is_inside(op: ir.Operation, block: ir.Block) -> bool:
    while op.block != block:
        parent = op.parent
        if parent is None or parent.name == "func.func":
            return False
        op = parent.operation
    return True


def _compares_floats(op: ir.Operation) -> bool:
    if op.name == "stablehlo.map":
        inside = (view.operation for view in op.regions[0].blocks[0].operations)
        return any(map(_compares_floats, inside))
    if op.name not in ("stablehlo.compare", "chlo.broadcast_compare") or op.operands[0] == op.operands[1]:
        return False
    return _is_float(op.operands[0])


def _is_float(value: ir.Value) -> bool:
    """Whether the numbers are floats, or the bits of such."""
    op = defining_op(value)
    if op is not None and op.name == "stablehlo.bitcast_convert":
        value = op.operands[0]
    return str(element_type(value)).startswith(("f", "bf", "complex"))


def _direction(op: ir.Operation) -> str:
    """Of a comparison; "" for the body of a map, which may ask anything."""
    if "comparison_direction" not in op.attributes:
        return ""
    attribute = op.attributes["comparison_direction"]
    return str(attribute).partition("comparison_direction ")[2].rstrip(">")


def _is_constant(value: ir.Value) -> bool:
    op = _moved_from(value, _MOVING)
    return op is not None and op.name == "stablehlo.constant"


def _is_picked(value: ir.Value) -> bool:
    """Whether a tensor holds elements of another one that were chosen by their size."""
    op = _moved_from(value, _MOVING | _CUTTING)
    if op is None or op.name not in _REDUCING:
        return op is not None and op.name in _ORDERING
    names = componentwise(body_of(op))
    return chooses(body_of(op)) if names is None else not {"maximum", "minimum"}.isdisjoint(names)


def _moved_from(value: ir.Value, names: frozenset[str]) -> ir.Operation | None:
    op = defining_op(value)
    while op is not None and op.name in names:
        op = defining_op(op.operands[0])
    return op
