"""The scalar bodies of reduces and scatters: their properties that matter for cutting, and running them."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from jaxlib.mlir import ir

from exla_opt.ir import build
from exla_opt.ir.types import element_type, float_bits
from exla_opt.ir.values import Number, splat_value
from exla_opt.ir.walk import operations_of, walk_regions

from .traits import Trait, traits_of
from .types import holds

MONOIDS = frozenset("stablehlo." + name for name in "add multiply minimum maximum and or xor".split())
_CHOOSING = frozenset(
    "stablehlo." + name for name in "compare select and or not minimum maximum constant return".split()
)
_OF_TWO = ("stablehlo.maximum", "stablehlo.minimum")
# Idempotent monoids have no entry.
IDENTITY = {"add": 0, "multiply": 1, "xor": 0}


def body_of(op: ir.Operation) -> ir.Block:
    """The block of the op's only region."""
    block: ir.Block = op.regions[0].blocks[0]
    return block


def _defining_ops(operations: list[ir.Operation]) -> dict[ir.Value, ir.Operation]:
    return {result: op for op in operations for result in op.results}


def _through_widening(value: ir.Value, defining: dict[ir.Value, ir.Operation]) -> ir.Value:
    """The value before a conversion between real floating types, which a body may use to compute more exactly."""
    definer = defining.get(value)
    if definer is None or definer.name != "stablehlo.convert":
        return value
    source = definer.operands[0]
    both = float_bits(element_type(source)) and float_bits(element_type(value))
    return source if both else value


def componentwise(block: ir.Block) -> tuple[str, ...] | None:
    """The monoid of each result, if result k is `argument k  o  argument n + k` for one of MONOIDS; else None.

    Such a body gives the same result in any grouping, up to rounding. Conversions to a wider float around the op are
    ignored.
    """
    operations = operations_of(block)
    arguments = list(block.arguments)
    count = len(arguments) // 2
    defining = _defining_ops(operations)
    names = []
    for index, value in enumerate(operations[-1].operands):
        inner = _through_widening(value, defining)
        definer = defining.get(inner)
        if definer is None or definer.name not in MONOIDS:
            return None
        if inner != value and not holds(element_type(inner), element_type(value)):
            return None
        ends = {_through_widening(operand, defining) for operand in definer.operands}
        if ends != {arguments[index], arguments[count + index]}:
            return None
        if not holds(element_type(inner), element_type(arguments[index])):
            return None
        names.append(definer.name.removeprefix("stablehlo."))
    return tuple(names)


def rounds(block: ir.Block) -> bool:
    """Whether the body adds or multiplies, so that another grouping of floats may round differently.

    Any other body gives the same in every grouping: selecting one of two elements does not round.
    """
    return bool({"add", "multiply"} & set(componentwise(block) or ()))


def monoid_of(op: ir.Operation) -> str | None:
    """The monoid of a reduce of one tensor, as in `componentwise`; None for a reduce that changes the type."""
    if len(op.results) != 1 or element_type(op.operands[0]) != element_type(op.results[0]):
        return None
    names = componentwise(body_of(op))
    return names[0] if names else None


def is_orderless(op: ir.Operation) -> bool:
    """Whether a reduce of one tensor gives the same bits in every order; sums and products of floats do not."""
    name = monoid_of(op)
    return name is not None and (
        name not in ("add", "multiply") or isinstance(element_type(op.operands[0]), ir.IntegerType)
    )


def counts_once(init: ir.Value, name: str) -> bool:
    """Whether a monoid may combine its init any number of times without changing the result.

    It may if repeating a value changes nothing, or if the init is a constant known to be the identity (for a sum, zero
    of either sign).
    """
    return name not in IDENTITY or is_identity(name, init)


def is_identity(name: str, init: ir.Value) -> bool:
    """Whether the init is known to be the identity of the monoid, except for the sign of a zero."""
    value = splat_value(init)
    kind = element_type(init)
    if value is None:
        return False
    if name in ("add", "or", "xor"):
        return value == 0
    if name == "multiply":
        return value == 1
    if float_bits(kind):
        return value == {"maximum": float("-inf"), "minimum": float("inf")}.get(name)
    return isinstance(kind, ir.IntegerType) and build.wrapped(kind, int(value)) == _neutral_integer(name, kind)


def _neutral_integer(name: str, kind: ir.IntegerType) -> int | None:
    """The integer that is the identity of a maximum, a minimum, or a bitwise op."""
    least = 0 if kind.is_unsigned else -(2 ** (kind.width - 1))
    if name == "and":
        return build.wrapped(kind, -1)
    if kind.width == 1:  # booleans: their maximum is `or`, their minimum `and`
        return {"maximum": 0, "minimum": -1}.get(name)
    return {"maximum": least, "minimum": least + 2**kind.width - 1}.get(name)


def chooses(block: ir.Block) -> bool:
    """Whether the body only selects one of its two elements, as for argmin and argmax, and computes nothing.

    Result k must be a select, minimum or maximum of arguments k and n + k; the predicate may compare anything.
    """
    operations = operations_of(block)
    if any(op.name not in _CHOOSING for op in operations):
        return False
    arguments = list(block.arguments)
    count = len(arguments) // 2
    defining = _defining_ops(operations)
    known: set[ir.Value] = {*arguments, *defining}
    for op in operations:
        for operand in op.operands:
            owner = operand.owner
            if operand not in known and not (isinstance(owner, ir.Operation | ir.OpView) and _is_constant(owner)):
                return False
    for index, value in enumerate(operations[-1].operands):
        leaves: set[ir.Value] = {arguments[index], arguments[count + index]}
        queue = [value]
        while queue:
            current = queue.pop()
            definer = defining.get(current)
            if current in leaves:
                continue
            if definer is None or definer.name not in ("stablehlo.select", "stablehlo.minimum", "stablehlo.maximum"):
                return False
            queue += list(definer.operands)[1:] if definer.name == "stablehlo.select" else list(definer.operands)
    return True


def selects(op: ir.Operation) -> bool:
    """Whether the results are elements of the operands, or their indices, selected among many by comparison."""
    traits = traits_of(op.name)
    if Trait.REDUCES not in traits:
        return Trait.SELECTS in traits and Trait.POINTWISE not in traits
    names = componentwise(body_of(op))
    return chooses(body_of(op)) if names is None else not {"maximum", "minimum"}.isdisjoint(names)


def selects_inside(op: ir.Operation) -> bool:
    """Whether an op in the blocks of a loop or branch selects, or takes the larger of two elements, as a step may."""
    inner = (each for region in op.regions for block in region.blocks for each in walk_regions(block))
    return any(selects(each) or each.name in _OF_TWO for each in inner)


def chooses_from_the_end(op: ir.Operation) -> bool:
    """Whether a reduce of several tensors selects, so that it may select again among the results of its parts."""
    count = len(op.results)
    inits = list(op.operands)[count:]
    return count > 1 and chooses(body_of(op)) and starts_at_the_end(body_of(op), inits)


def starts_at_the_end(block: ir.Block, inits: Sequence[ir.Value]) -> bool:
    """Whether a value that a selecting body orders its elements by starts from an infinity or the limit of its type.

    A tie-breaker, like the index of an argmax, may start anywhere.
    """
    arguments = list(block.arguments)
    count = len(arguments) // 2
    starts = [splat_value(init) for init in inits]
    return any(
        op.name in ("stablehlo.compare", "stablehlo.minimum", "stablehlo.maximum")
        and set(op.operands) == {arguments[index], arguments[count + index]}
        and _is_end(element_type(init), start)
        for op in operations_of(block)
        for index, (init, start) in enumerate(zip(inits, starts, strict=True))
    )


def _is_end(kind: ir.Type, number: Number | None) -> bool:
    if number is None:
        return False
    if not isinstance(kind, ir.IntegerType):
        return not isfinite(number)
    least = 0 if kind.is_unsigned or kind.width == 1 else -(2 ** (kind.width - 1))
    return number in (least, least + 2**kind.width - 1)


def _is_constant(owner: ir.Operation | ir.OpView) -> bool:
    return owner.operation.name == "stablehlo.constant"


def run_body(block: ir.Block, arguments: Sequence[ir.Value]) -> list[ir.Value]:
    """Apply the scalar body element by element to tensors of one shape, at the current insertion point."""
    shape = build.shape_of(arguments[0])
    values: dict[ir.Value, ir.Value] = dict(zip(list(block.arguments), arguments, strict=True))
    for view in block.operations:
        op = view.operation
        inputs = [values[value] if value in values else build.broadcast(value, shape) for value in op.operands]
        if op.name == "stablehlo.return":
            return inputs
        if op.name == "stablehlo.constant":
            values[op.results[0]] = build.broadcast(op.clone(ip=ir.InsertionPoint.current).results[0], shape)
            continue
        made = op.clone(ip=ir.InsertionPoint.current).operation
        for index, value in enumerate(inputs):
            made.operands[index] = value
        for result in made.results:
            result.set_type(build.with_shape(build.tensor_of(result), shape))
        values.update(zip(list(op.results), list(made.results), strict=True))
    raise ValueError("a reduce's body has no return")
