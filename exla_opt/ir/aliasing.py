"""Which results of a function are written over which of its arguments, as JAX's `donate_argnums` asks for."""

from __future__ import annotations

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
    if "arg_attrs" not in function.attributes:
        return {}
    attributes = [ir.DictAttr(each) for each in ir.ArrayAttr(function.attributes["arg_attrs"])]
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


def _is_donor(attributes: ir.DictAttr) -> bool:
    is_on_host = _KIND in attributes and "host" in ir.StringAttr(attributes[_KIND]).value
    return DONOR in attributes and not is_on_host
