"""argmin and argmax of rows: those of the first block that has the smallest, or the largest, element.

No element before that block is as small, or an earlier block would be the first; so a short last block may be replaced
by a full one that begins earlier. NaN counts as smallest and as largest.
"""

from __future__ import annotations

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integer, integers
from exla_opt.ir.clean_up import clean_up
from exla_opt.ir.rewrite import copy_of, restore
from exla_opt.ir.types import Types, element_type, float_bits
from exla_opt.ir.values import defining_op, has_discardable_attributes, splat_value
from exla_opt.ir.walk import inside_out, operations_of
from exla_opt.memory.machine import Machine
from exla_opt.memory.peak import predict
from exla_opt.ops.comparisons import direction_of
from exla_opt.ops.reducers import body_of, is_identity

from .blocks import WIDTHS, block_length, end_of, extreme, has_no_sign, in_blocks, in_order
from .picked import can_be_picked, picked, places_at

# Elements of a row: for lengths of 256 to 1,000,000, on which blocks were chosen, all take 0.1 to 0.35 of the time.
_LEAST_ROW = 256
_MOST_PLACES = 2**31
# The fraction that the extremes of all blocks may add to the peak, besides two numbers per row; rows that were never
# written would add much more.
_MOST_MEMORY = 1.05
_MONOIDS = {"LT": "minimum", "GT": "maximum"}


def rewrite_places(module: ir.Module, machine: Machine) -> None:
    """Rewrite the argmin and argmax of long rows in `module`, in place, if that takes about the same memory."""
    found = [op for op in inside_out(module, "stablehlo.reduce") if _is_legal(op)]
    if not found:
        return
    original = copy_of(module)
    types = Types()
    numbers = 2 * sum(types.of(result).bytes for op in found for result in op.results)
    for op in found:
        with op.location, ir.InsertionPoint(op):
            results = _write(op)
        for result, value in zip(op.results, results, strict=True):
            result.replace_all_uses_with(value)
    clean_up(module)
    if predict(module, machine).peak > _MOST_MEMORY * predict(original, machine).peak + numbers:
        restore(module, original)


def _is_legal(op: ir.Operation) -> bool:
    """Whether the op finds the extreme of long rows, and its first index."""
    if len(op.operands) != 4 or has_discardable_attributes(op):
        return False
    shape = build.shape_of(op.operands[0])
    last, kinds = len(shape) - 1, [element_type(value) for value in op.operands[:2]]
    if 0 in shape or (float_bits(kinds[0]) and str(kinds[0]) not in WIDTHS) or str(kinds[1]) not in ("i32", "i64"):
        return False
    counted = defining_op(op.operands[1], "stablehlo.iota")
    if integers(op, "dimensions", []) != [last] or counted is None or integer(counted, "iota_dimension", -1) != last:
        return False
    direction = _direction(body_of(op))
    return (
        direction is not None
        and _LEAST_ROW <= shape[last] < _MOST_PLACES
        and is_identity(_MONOIDS[direction], op.operands[2])
        and splat_value(op.operands[3]) == 0
        and can_be_picked(op.operands[0])
    )


def _direction(body: ir.Block) -> str | None:
    """How the body compares an element with the next: LT, GT; None if it is not that of argmin or argmax.

    It takes the first that is less, or NaN, and the index of the first of equal ones.
    """
    element, place, other, next_place = body.arguments
    chosen, chosen_place = (defining_op(value, "stablehlo.select") for value in operations_of(body)[-1].operands)
    if chosen is None or chosen_place is None:
        return None
    if list(chosen.operands)[1:] != [element, other] or list(chosen_place.operands)[1:] != [place, next_place]:
        return None
    found = chosen.operands[0]
    tie = {("EQ", element, other), ("LT", place, next_place)}
    settled = [either for either in _operands(chosen_place.operands[0], "stablehlo.or") if either != found]
    if len(settled) != 1 or {_comparison(each) for each in _operands(settled[0], "stablehlo.and")} != tie:
        return None
    for direction in _MONOIDS:
        less, no_number = (direction, element, other), ("NE", element, element)
        exact = not float_bits(element_type(element)) and _comparison(found) == less
        if exact or {_comparison(each) for each in _operands(found, "stablehlo.or")} == {less, no_number}:
            return direction
    return None


def _operands(value: ir.Value, name: str) -> list[ir.Value]:
    op = defining_op(value, name)
    return [] if op is None else list(op.operands)


def _comparison(value: ir.Value) -> tuple[str, ir.Value, ir.Value] | None:
    op = defining_op(value, "stablehlo.compare")
    if op is None or "TOTALORDER" in str(op.attributes.get("compare_type", "")):
        return None  # for which -0 is less than 0
    return (direction_of(op), op.operands[0], op.operands[1])


def _write(op: ir.Operation) -> list[ir.Value]:
    """The extreme of every row and its index."""
    operand, counted, *_ = op.operands
    *rows, length = build.shape_of(operand)
    width = block_length(length)
    direction = _direction(body_of(op))
    assert direction is not None
    first = _first(_extremes(operand, direction), build.tensor_of(counted), largest=direction == "GT")
    begin = stablehlo.multiply(first, build.splat(first.type, width))
    # The last block may be short: the one read instead begins earlier.
    read = stablehlo.minimum(begin, build.splat(begin.type, length - width))
    starts = stablehlo.reshape(build.with_shape(build.tensor_of(read), [*rows, 1]), read)
    found = [picked(operand, starts, width), places_at(starts, width)]
    shape = [*rows, width]
    return _found(op, *(stablehlo.reshape(build.with_shape(build.tensor_of(each), shape), each) for each in found))


def _extremes(operand: ir.Value, direction: str) -> ir.Value:
    """The extreme of every block, as an integer: zeros of both signs are equal, NaN is beyond all."""
    kind, largest = build.tensor_of(operand), direction == "GT"
    numbers = operand
    if float_bits(kind.element_type):
        zeros = build.zeros(kind)
        plain = stablehlo.select(build.compare(operand, zeros, "EQ", "FLOAT"), zeros, operand)
        numbers = in_order(plain)
        most = build.broadcast(end_of(build.tensor_of(numbers), largest=largest), kind.shape)
        numbers = stablehlo.select(build.compare(operand, operand, "NE", "FLOAT"), most, numbers)
    blocks = in_blocks(numbers, end_of(build.tensor_of(numbers), largest=not largest))
    return extreme(blocks, largest=largest)


def _first(numbers: ir.Value, places: ir.RankedTensorType, *, largest: bool) -> ir.Value:
    """The index of the first of the extreme integers in every row, in an integer type like `places`.

    XLA:CPU computes the numbers where it compares them: nothing else may read them.
    """
    kind = build.tensor_of(numbers)
    *rows, _ = kind.shape
    counted = stablehlo.iota(build.with_shape(places, kind.shape), len(rows))
    scalars = [build.with_shape(kind, []), build.with_shape(places, [])]
    ends = [end_of(kind, largest=not largest), build.zeros(scalars[1])]
    results = [build.with_shape(each, rows) for each in (kind, places)]
    made = stablehlo.ReduceOp(results, [numbers, counted], ends, [len(rows)])
    with ir.InsertionPoint(made.body.blocks.append(*scalars, *scalars)) as inside:
        number, place, other, next_place = inside.block.arguments
        how = "UNSIGNED" if has_no_sign(ir.IntegerType(kind.element_type)) else "SIGNED"
        beyond = build.compare(number, other, "GT" if largest else "LT", how)
        equal = build.compare(number, other, "EQ", how)
        before = stablehlo.and_(equal, build.less_than(place, next_place))
        earlier = stablehlo.or_(beyond, before)
        stablehlo.return_([stablehlo.select(beyond, number, other), stablehlo.select(earlier, place, next_place)])
    result: ir.Value = made.operation.results[1]
    return result


def _found(op: ir.Operation, elements: ir.Value, places: ir.Value) -> list[ir.Value]:
    """The op's results for shorter rows."""
    made = op.clone(ip=ir.InsertionPoint.current).operation
    made.operands[0], made.operands[1] = elements, places
    return list(made.results)
