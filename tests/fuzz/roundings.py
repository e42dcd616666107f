"""A program in float64 whose ops round as those of a narrower type would, by chance and a few times over.

What no argument leads to, a table of counts that is converted say, is not off when the inputs are. Its roundings are.
"""

from __future__ import annotations

import random

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.walk import operations_of
from exla_opt.ir.write import serialise
from tests.fuzz.inputs import rounding

# By the narrow type's name its bits of exponent and mantissa.
_FORMATS = {"float32": (8, 23), "float16": (5, 10), "bfloat16": (8, 7)}
_TIMES = 4
# Only these compute; what others make is as exact as what they read.
_ROUNDING = frozenset(
    f"stablehlo.{name}"
    for name in (
        *("add", "subtract", "multiply", "divide", "power", "remainder", "atan2", "convert"),
        *("exponential", "exponential_minus_one", "log", "log_plus_one", "logistic", "tanh", "sine", "cosine", "tan"),
        *("sqrt", "rsqrt", "cbrt", "dot_general", "convolution", "reduce", "reduce_window"),
    )
)


def rounded_text(text: str, narrow: np.dtype[np.generic], seed: int) -> str:
    """The program with the result of every such op of @main off by up to four roundings of the narrow type.

    All numbers of a result are off by one factor, but those that the narrow type holds: they are not rounded. ""
    where nothing is known of the type.
    """
    if narrow.name not in _FORMATS:
        return ""
    generator = random.Random(seed)
    unit = _TIMES * rounding(narrow)
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        [main] = [
            view.operation for view in module.body.operations if str(view.operation.attributes["sym_name"]) == '"main"'
        ]
        for op in operations_of(main.regions[0].blocks[0]):
            if op.name in _ROUNDING:
                for result in op.results:
                    _round(op, result, _FORMATS[narrow.name], 1 + unit * generator.uniform(-1, 1))
        return serialise(module, "text").decode()


def _round(op: ir.Operation, result: ir.Value, bits: tuple[int, int], factor: float) -> None:
    kind = ir.RankedTensorType(result.type)
    if not isinstance(kind.element_type, ir.F64Type):
        return
    uses = [(use.owner, use.operand_number) for use in result.uses]
    with op.location, ir.InsertionPoint.after(op):
        held = stablehlo.reduce_precision(result, *bits)
        is_held = stablehlo.compare(held, result, stablehlo.ComparisonDirectionAttr.get("EQ"))
        splat = ir.DenseElementsAttr.get_splat(kind, ir.FloatAttr.get_f64(factor))
        moved = stablehlo.multiply(result, stablehlo.constant(splat))
        chosen = stablehlo.select(is_held, result, moved)
    for owner, place in uses:
        owner.operands[place] = chosen
