"""Changes to the user's program that a compiler has confirmed: each was compiled, and needs less memory.

The written module contains none of them; the user decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from jaxlib.mlir import ir

from exla_opt.ir.attributes import aliased_results
from exla_opt.ir.rewrite import copy_of
from exla_opt.ir.types import Types
from exla_opt.ir.walk import main_function
from exla_opt.ir.write import serialise
from exla_opt.pipeline import run_pipeline
from exla_opt.remarks import Kind
from exla_opt.sizes import format_size

if TYPE_CHECKING:
    from exla_opt.budget.measured import Measure
    from exla_opt.options import Options

_ALIASING, _DONOR = "tf.aliasing_output", "jax.buffer_donor"
_SHOWN = 3
# The code of remarks on recomputed tensors: that pass also adds sums early, and orders chains.
_RECOMPUTED = "EX013"


def donation_advice(module: ir.Module, measure: Measure, peak: int, worth: int) -> str:
    """Return the arguments to donate, with the compiled peak; "" if donating saves fewer than `worth` bytes.

    A result may overwrite an argument of its type; each result overwrites one, the largest first.
    """
    pairs = _pairs(module)
    if not pairs:
        return ""
    copy = copy_of(module)
    with copy.context, ir.Location.unknown(copy.context):
        function = main_function(copy)
        attributes = _argument_attributes(function)
        number = ir.IntegerType.get_signless(32)
        for argument, result in pairs:
            old = attributes[argument]
            kept = {old[place].name: old[place].attr for place in range(len(old)) if old[place].name != _DONOR}
            attributes[argument] = ir.DictAttr.get({**kept, _ALIASING: ir.IntegerAttr.get(number, result)})
        function.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)
    found = measure(serialise(copy, "bytecode")).peak
    if peak - found < worth:
        return ""
    values = main_function(module).regions[0].blocks[0].arguments
    numbers = sorted(argument for argument, _ in pairs)
    shown = ", ".join(f"{each} ({_short(values[each].type)})" for each in numbers[:_SHOWN])
    more = f" and {len(numbers) - _SHOWN} more" if len(numbers) > _SHOWN else ""
    which = f"argument{'s' * (len(numbers) != 1)} {shown}{more}"
    used = "it is" if len(numbers) == 1 else "they are"
    return f"donate {which}, if {used} not used afterwards: peak {format_size(found)}, compiled"


def checkpoint_advice(
    module: ir.Module, options: Options, measure: Measure, peak: int, worth: int, named: Callable[[str], str]
) -> str:
    """Return where `jax.checkpoint` helps, with the compiled peak when those tensors are recomputed; "" as above.

    named: maps locations to the user's own.
    """
    copy = copy_of(module)
    least = replace(options, memory_limit=peak // 2)
    remarks = run_pipeline(copy, ("normalise", "recompute"), least).remarks
    done = [remark for remark in remarks if remark.kind is Kind.PASSED and remark.pass_name == "recompute"]
    if not done or any(remark.code != _RECOMPUTED for remark in done):  # the order of ops is not the user's to change
        return ""
    found = measure(serialise(copy, "bytecode")).peak
    if peak - found < worth:
        return ""
    largest = sorted(done, key=lambda remark: -remark.bytes)
    return (
        f"jax.checkpoint around {_places([named(remark.location) for remark in largest])}: with the tensors "
        f"created there recomputed, peak {format_size(found)}, compiled"
    )


def _places(places: Sequence[str]) -> str:
    once = list(dict.fromkeys(places))
    more = f" and {len(once) - _SHOWN} more places" if len(once) > _SHOWN else ""
    return f"{', '.join(once[:_SHOWN])}{more}"


def _pairs(module: ir.Module) -> list[tuple[int, int]]:
    """Pairs of an argument and a result of the same type, neither of which is donated yet."""
    function, types = main_function(module), Types()
    block = function.regions[0].blocks[0]
    taken = aliased_results(function)
    attributes = _argument_attributes(function)
    results = list(list(block.operations)[-1].operation.operands)
    free = [place for place in range(len(results)) if place not in taken.values()]
    pairs = []
    for place, argument in enumerate(block.arguments):
        if place in taken or _DONOR in attributes[place] or types.of(argument).bytes == 0:
            continue
        fitting = next((each for each in free if results[each].type == argument.type), None)
        if fitting is not None:
            free.remove(fitting)
            pairs.append((place, fitting))
    return pairs


def _argument_attributes(function: ir.Operation) -> list[ir.DictAttr]:
    if "arg_attrs" in function.attributes:
        return [ir.DictAttr(each) for each in ir.ArrayAttr(function.attributes["arg_attrs"])]
    with function.context:
        return [ir.DictAttr.get({}) for _ in function.regions[0].blocks[0].arguments]


def _short(kind: ir.Type) -> str:
    return str(kind).removeprefix("tensor<").removesuffix(">")
