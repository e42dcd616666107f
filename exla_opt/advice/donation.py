"""Advice to donate arguments: results may overwrite them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxlib.mlir import ir

from exla_opt.advice.words import arguments_named
from exla_opt.ir.aliasing import DONOR, alias, aliased_results, argument_attributes
from exla_opt.ir.rewrite import copy_of
from exla_opt.ir.types import Types
from exla_opt.ir.walk import main_function
from exla_opt.ir.write import serialise
from exla_opt.sizes import format_size

if TYPE_CHECKING:
    from exla_opt.budget.measured import Measure


def donation_advice(module: ir.Module, measure: Measure, peak: int, worth: int) -> str:
    """Return the arguments to donate, with the compiled peak; "" if donating saves fewer than `worth` bytes.

    A result may overwrite an argument of its type; each result overwrites one, the largest first.
    """
    pairs = _pairs(module)
    if not pairs:
        return ""
    copy = copy_of(module)
    alias(main_function(copy), dict(pairs))
    found = measure(serialise(copy, "bytecode")).peak
    if peak - found < worth:
        return ""
    numbers = sorted(argument for argument, _ in pairs)
    which = arguments_named(main_function(module).regions[0].blocks[0], numbers)
    used = "it is" if len(numbers) == 1 else "they are"
    return f"donate {which}, if {used} not used afterwards: peak {format_size(found)}, compiled"


def _pairs(module: ir.Module) -> list[tuple[int, int]]:
    """Pairs of an argument and a result of the same type, neither of which is donated yet."""
    function, types = main_function(module), Types()
    block = function.regions[0].blocks[0]
    taken = aliased_results(function)
    attributes = argument_attributes(function)
    results = list(list(block.operations)[-1].operation.operands)
    free = [place for place in range(len(results)) if place not in taken.values()]
    pairs = []
    for place, argument in enumerate(block.arguments):
        if place in taken or DONOR in attributes[place] or types.of(argument).bytes == 0:
            continue
        fitting = next((each for each in free if results[each].type == argument.type), None)
        if fitting is not None:
            free.remove(fitting)
            pairs.append((place, fitting))
    return pairs
