"""A true boolean that XLA cannot fold: ops in a branch on it are not fused with their readers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.values import behind_constants, defining_op, splat_value


def bits_of(value: ir.Value) -> int:
    """The bits of a numeric element type; 0 for others."""
    if not isinstance(value.type, ir.RankedTensorType):
        return 0
    element = build.tensor_of(value).element_type
    if isinstance(element, ir.IntegerType):
        return int(element.width) if element.is_signless and element.width >= 8 else 0
    if isinstance(element, ir.F64Type):
        return 64
    if isinstance(element, ir.F32Type):
        return 32
    return 16 if isinstance(element, (ir.F16Type, ir.BF16Type)) else 0


def is_part_of_always(op: ir.Operation) -> bool:
    """Whether an op only reads the bits of a number for `always`, whose answer does not depend on them."""
    some = only_user(op)
    if op.name != "stablehlo.bitcast_convert" or some is None or some.name != "stablehlo.or":
        return False
    compare = only_user(some)
    return compare is not None and _is_answer(compare)


def _is_answer(compare: ir.Operation) -> bool:
    """Whether an op is the last one of `always`."""
    if compare.name != "stablehlo.compare" or "NE" not in str(compare.attributes["comparison_direction"]):
        return False
    some = defining_op(compare.operands[0], "stablehlo.or")
    return some is not None and splat_value(some.operands[1]) == 1 and splat_value(compare.operands[1]) == 0


def only_user(op: ir.Operation) -> ir.Operation | None:
    """The op that reads the results of another one, if exactly one does, once."""
    users = [use.owner.operation for result in op.results for use in result.uses]
    return users[0] if len(users) == 1 else None


def always(value: ir.Value) -> ir.Value:
    """A 0-d boolean that is always true, computed from the bits of a tensor of numbers; see `bits_of`."""
    value = behind_constants(value)
    shape = build.shape_of(value)
    kind = build.with_shape(build.tensor_of(value), [1] * len(shape))
    first = stablehlo.slice(value, [0] * len(shape), [1] * len(shape), [1] * len(shape)) if shape else value
    number = stablehlo.reshape(build.with_shape(kind, []), first) if shape else value
    element = build.tensor_of(value).element_type
    if not isinstance(element, ir.IntegerType):
        bits = ir.IntegerType.get_signless(bits_of(value))
        number = stablehlo.bitcast_convert(ir.RankedTensorType.get([], bits), number)
    some = stablehlo.or_(number, build.splat(number.type, 1))
    return build.compare(some, build.splat(number.type, 0), "NE", "SIGNED")


def once_known(number: ir.Value, after: Sequence[ir.Value]) -> ir.Value:
    """A constant 0-d integer that is there only once some tensors of numbers are; see `bits_of`, `known_later`."""
    ready = reduce(stablehlo.and_, map(always, after))
    other = build.splat(number.type, 0 if splat_value(known_later(number)) else 1)
    return stablehlo.select(ready, number, other)


def known_later(value: ir.Value) -> ir.Value:
    """The constant of which `once_known` made a value, perhaps several times; any other value itself."""
    select = defining_op(value, "stablehlo.select")
    if select is None:
        return value
    answers = [select.operands[0]]
    while (both := defining_op(answers[-1], "stablehlo.and")) is not None:
        answers[-1:] = [both.operands[1], both.operands[0]]
    known = [defining_op(answer) for answer in answers]
    is_late = all(op is not None and _is_answer(op) for op in known)
    return known_later(select.operands[1]) if is_late else value
