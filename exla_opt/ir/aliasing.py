"""Which results of a function are written over which of its arguments, as JAX's `donate_argnums` asks for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jaxlib.mlir import ir

from .types import Types
from .walk import terminator

ALIASING, DONOR = "tf.aliasing_output", "jax.buffer_donor"
_KIND = "mhlo.memory_kind"


def aliased_results(function: ir.Operation) -> dict[int, int]:
    """Map arguments that a function may overwrite to the results that are written there, by position.

    JAX names the result where it knows that both are stored alike. Otherwise, such as where the compiler chooses how a
    result is sharded, XLA pairs arguments and results of as many bytes, in their order, whatever their types
    (its pass OptimizeInputOutputBufferAlias). Arguments in the host's memory are left out.
    """
    attributes = argument_attributes(function)
    found = {place: ir.IntegerAttr(each[ALIASING]).value for place, each in enumerate(attributes) if ALIASING in each}
    donors = [place for place, each in enumerate(attributes) if _is_donor(each) and place not in found]
    if not donors:
        return found
    block, types = function.regions[0].blocks[0], Types()
    argument_bytes = [types.of(value).bytes for value in block.arguments]
    result_bytes = [types.of(value).bytes for value in terminator(block).operands]
    taken = set(found.values())
    free: dict[int, list[int]] = {}  # results by their bytes, the first last
    for place in reversed(range(len(result_bytes))):
        if place not in taken:
            free.setdefault(result_bytes[place], []).append(place)
    for place in donors:
        fitting = free.get(argument_bytes[place])
        if argument_bytes[place] and fitting:
            found[place] = fitting.pop()
    return found


def paired_results(function: ir.Operation, places: Iterable[int]) -> dict[int, int]:
    """Map arguments to results, by position, as JAX pairs donated ones: the first of each type with the first."""
    block = function.regions[0].blocks[0]
    donated: dict[ir.Type, list[int]] = {}
    for place in sorted(places, reverse=True):
        donated.setdefault(block.arguments[place].type, []).append(place)
    results = enumerate(terminator(block).operands)
    return {donated[result.type].pop(): number for number, result in results if donated.get(result.type)}


def alias(function: ir.Operation, pairs: Mapping[int, int]) -> None:
    """Let results be written over more arguments. pairs: arguments and their results, by position."""
    with function.context, ir.Location.unknown():
        index = ir.IntegerType.get_signless(32)
        attributes = argument_attributes(function)
        for place, result in pairs.items():
            attributes[place].pop(DONOR, None)
            attributes[place][ALIASING] = ir.IntegerAttr.get(index, result)
        function.attributes["arg_attrs"] = ir.ArrayAttr.get(list(map(ir.DictAttr.get, attributes)))


def forget_aliases(function: ir.Operation) -> None:
    """Let no result be written over an argument."""
    with function.context, ir.Location.unknown():
        attributes = argument_attributes(function)
        for each in attributes:
            each.pop(ALIASING, None)
            each.pop(DONOR, None)
        function.attributes["arg_attrs"] = ir.ArrayAttr.get(list(map(ir.DictAttr.get, attributes)))


def argument_attributes(function: ir.Operation) -> list[dict[str, ir.Attribute]]:
    """The attributes of each argument of a function, by name."""
    if "arg_attrs" not in function.attributes:
        return [{} for _ in function.regions[0].blocks[0].arguments]
    given = [ir.DictAttr(each) for each in ir.ArrayAttr(function.attributes["arg_attrs"])]
    return [{each[place].name: each[place].attr for place in range(len(each))} for each in given]


def _is_donor(attributes: Mapping[str, ir.Attribute]) -> bool:
    is_on_host = _KIND in attributes and "host" in ir.StringAttr(attributes[_KIND]).value
    return DONOR in attributes and not is_on_host
