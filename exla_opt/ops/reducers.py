"""What the scalar body of a reduce or scatter computes, as far as cutting it depends on that."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from jaxlib.mlir import ir

from exla_opt.ir.types import element_type, float_bits
from exla_opt.ir.values import Number, splat_value
from exla_opt.ir.walk import operations_of

from .traits import Trait, traits_of

MONOIDS = frozenset("stablehlo." + name for name in "add multiply minimum maximum and or xor".split())
_CHOOSING = frozenset(
    "stablehlo." + name for name in "compare select and or not minimum maximum constant return".split()
)
# What an element may be combined with any number of times without changing the result has no entry.
IDENTITY = {"add": 0, "multiply": 1, "xor": 0}


def body_of(op: ir.Operation) -> ir.Block:
    """The block of the op's only region."""
    block: ir.Block = op.regions[0].blocks[0]
    return block


def _makers(operations: list[ir.Operation]) -> dict[ir.Value, ir.Operation]:
    return {result: op for op in operations for result in op.results}


def _through_widening(value: ir.Value, makers: dict[ir.Value, ir.Operation]) -> ir.Value:
    """The value before a conversion between real floating types, which a body may do to compute more exactly."""
    maker = makers.get(value)
    if maker is None or maker.name != "stablehlo.convert":
        return value
    source = maker.operands[0]
    both = float_bits(element_type(source)) and float_bits(element_type(value))
    return source if both else value


def _widens(narrow: ir.Type, wide: ir.Type) -> bool:
    """Whether the types are one, or the second is a float type that holds every number of the first."""
    if narrow == wide:
        return True
    if str(narrow).startswith("f8E8M0") and str(wide) == "f16":
        return False  # eight bits of exponent
    return 0 < float_bits(narrow) < float_bits(wide)


def componentwise(block: ir.Block) -> tuple[str, ...] | None:
    """The monoid of each result, if result k is `argument k  o  argument n + k` for one of MONOIDS; else None.

    Such a body gives the same in any grouping, up to rounding. Conversions to a wider float around the op are seen
    through.
    """
    operations = operations_of(block)
    arguments = list(block.arguments)
    count = len(arguments) // 2
    makers = _makers(operations)
    names = []
    for index, value in enumerate(operations[-1].operands):
        inner = _through_widening(value, makers)
        maker = makers.get(inner)
        if maker is None or maker.name not in MONOIDS:
            return None
        if inner != value and not _widens(element_type(value), element_type(inner)):
            return None
        ends = {_through_widening(operand, makers) for operand in maker.operands}
        if ends != {arguments[index], arguments[count + index]}:
            return None
        if not _widens(element_type(arguments[index]), element_type(inner)):
            return None
        names.append(maker.name.removeprefix("stablehlo."))
    return tuple(names)


def counts_once(init: ir.Value, name: str) -> bool:
    """Whether a monoid may meet its init any number of times and still give the same.

    It may where repeating a value changes nothing, and where the init is a constant known to be the identity (of a sum,
    zero of either sign).
    """
    if name not in IDENTITY:
        return True
    return splat_value(init) == IDENTITY[name]


def chooses(block: ir.Block) -> bool:
    """Whether the body only picks between its two elements, as argmin and argmax do: nothing is computed.

    Result k must come by select, minimum or maximum from arguments k and n + k; what decides may compare anything.
    """
    operations = operations_of(block)
    if any(op.name not in _CHOOSING for op in operations):
        return False
    arguments = list(block.arguments)
    count = len(arguments) // 2
    makers = _makers(operations)
    known: set[ir.Value] = {*arguments, *makers}
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
            maker = makers.get(current)
            if current in leaves:
                continue
            if maker is None or maker.name not in ("stablehlo.select", "stablehlo.minimum", "stablehlo.maximum"):
                return False
            queue += list(maker.operands)[1:] if maker.name == "stablehlo.select" else list(maker.operands)
    return True


def selects(op: ir.Operation) -> bool:
    """Whether the results are elements of the operands, or their places, chosen among many by comparing them."""
    traits = traits_of(op.name)
    if Trait.REDUCES not in traits:
        return Trait.SELECTS in traits and Trait.POINTWISE not in traits
    names = componentwise(body_of(op))
    return chooses(body_of(op)) if names is None else not {"maximum", "minimum"}.isdisjoint(names)


def starts_at_the_end(block: ir.Block, inits: Sequence[ir.Value]) -> bool:
    """Whether something that a choosing body orders its elements by starts from an infinity or an end of its type.

    What settles a tie, as the index of an argmax, may start anywhere.
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
