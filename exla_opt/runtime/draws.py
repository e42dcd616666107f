"""Random inputs on which a program computes finite and meaningful numbers.

Standard normal numbers make a deep network chaotic: each product of matrices multiplies a signal by the root of the
length that it sums over, and after a few layers a softmax decides by rounding errors. So a matrix that multiplies is
scaled by 1/sqrt(fan-in) (LeCun et al., "Efficient BackProp", section 4.6). If a program takes a root or a logarithm of
its inputs, normal numbers give NaN, which equals any other NaN: then other kinds of numbers are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir.attributes import string
from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import inside_out, terminator
from exla_opt.ops.traits import Trait, traits_of
from exla_opt.runtime.inputs import Array, Kind, Signature, can_be, random_inputs, read_signature

# Programs with many arguments get one try per this many.
_TRIES = 16


def choose_inputs(
    module: ir.Module, seed: int, run: Callable[[Sequence[Array]], list[Array]]
) -> tuple[list[Array], list[Array]]:
    """Draw arrays for @main that make as few results as possible NaN or infinite; return them and the results.

    The same for the same seed. Floats are standard normal; matrices that multiply are scaled by 1/sqrt(fan-in). If a
    result has NaN or infinities, numbers between 0 and 1 are tried for all floats, then positive definite matrices for
    square arguments; each argument that does not need them becomes normal again.

    run: runs the program. Raises InputError when a run fails, or the arrays do not fit in memory.
    """
    signature = read_signature(module)
    scales = {number: float(length) ** -0.5 for number, length in fan_ins(module).items()}

    normal = random_inputs(signature, seed, scales)
    results = run(normal)
    fewest = _not_finite(results)
    if not fewest:
        return normal, results

    def count(kinds: Mapping[int, Kind]) -> int:
        return _not_finite(run(random_inputs(signature, seed, scales, kinds)))

    arrays = random_inputs(signature, seed, scales, _choose_kinds(signature, fewest, count))
    return arrays, run(arrays)


def _choose_kinds(signature: Signature, fewest: int, count: Callable[[Mapping[int, Kind]], int]) -> dict[int, Kind]:
    """The kinds that leave the fewest non-finite numbers; arguments not in the dict stay normal.

    fewest: the number of non-finite numbers when all arguments are normal. count: counts them for given kinds.
    """
    best: dict[int, Kind] = {}
    within = {number: Kind.UNIT for number, one in enumerate(signature.arguments) if can_be(Kind.UNIT, one)}
    definite = {number: Kind.DEFINITE for number, one in enumerate(signature.arguments) if can_be(Kind.DEFINITE, one)}
    for kinds in (within, definite, within | definite):
        if kinds and fewest and (found := count(kinds)) < fewest:
            best, fewest = kinds, found
    for number in list(best)[:_TRIES] if len(best) > 1 else ():
        fewer = {other: kind for other, kind in best.items() if other != number}
        if count(fewer) <= fewest:
            best = fewer
    return best


def _not_finite(results: Sequence[Array]) -> int:
    floats = [array for array in results if array.dtype.kind not in "iub" and "int" not in array.dtype.name]
    return sum(int(array.size - np.count_nonzero(np.isfinite(array))) for array in floats)


def fan_ins(module: ir.Module) -> dict[int, int]:
    """The arguments of @main that are weights, each with the number of products in the sum of one element.

    A weight is the operand that a dot without batch dimensions or a convolution multiplies with a computed value, or
    the second of two arguments. A value multiplied by a weight is data, never a later weight (gradients have such).
    """
    types = Types()
    arguments = _Arguments(module)
    weights: dict[int, int] = {}
    data: set[int] = set()
    for op in inside_out(module, "stablehlo.dot_general", "stablehlo.dot", "stablehlo.convolution"):
        sides = [arguments.behind(operand) for operand in op.operands]
        if any(side in weights for side in sides) or sides[0] == sides[1]:
            continue
        weight = next((side for side in (1, 0) if sides[side] is not None and sides[side] not in data), None)
        length = None if weight is None else _fan_in(op, types)
        if weight is None or length is None:
            continue
        weights[_known(sides[weight])] = length
        if (other := sides[1 - weight]) is not None:
            data.add(other)
    return weights


def _known(number: int | None) -> int:
    assert number is not None
    return number


def _fan_in(op: ir.Operation, types: Types) -> int | None:
    """The number of products in the sum of one element; None for a dot with batch dimensions, or of scalars."""
    left, right = (types.of(operand).shape for operand in op.operands)
    if op.name == "stablehlo.convolution":
        numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
        return max(prod(right) // max(right[numbers.kernel_output_feature_dimension], 1), 1)
    if op.name == "stablehlo.dot":
        return max(left[-1], 1) if left and right else None
    dims = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    if len(dims.lhs_batching_dimensions) or not left or not right:
        return None
    return max(prod(left[dim] for dim in dims.lhs_contracting_dimensions), 1)


def _is_argument_of_main(value: ir.Value) -> bool:
    owner = value.owner
    if not isinstance(owner, ir.Block):
        return False
    function = owner.owner.operation
    return function.name == "func.func" and string(function, "sym_name") == "main"


class _Arguments:
    """Traces values back to arguments of @main, through moves, conversions, calls and loops."""

    def __init__(self, module: ir.Module) -> None:
        self.calls: dict[str, ir.Operation] = {}
        self.functions = {string(op, "sym_name"): op for op in inside_out(module, "func.func")}
        for op in inside_out(module, "func.call"):
            self.calls.setdefault(ir.FlatSymbolRefAttr(op.attributes["callee"]).value, op)
        self.known: dict[ir.Value, int | None] = {}

    def behind(self, value: ir.Value) -> int | None:
        """The number of the argument; None if the value comes from none, or was looked up in one."""
        passed = []
        found = None
        while value not in self.known:
            self.known[value] = None  # a recursive call ends here
            passed.append(value)
            if _is_argument_of_main(value):
                found = ir.BlockArgument(value).arg_number
                break
            source = self._source(value)
            if source is None:
                break
            value = source
        else:
            found = self.known[value]
        for each in passed:
            self.known[each] = found
        return found

    def _source(self, value: ir.Value) -> ir.Value | None:
        """The value of which this one is a moved or converted copy."""
        op = defining_op(value)
        if op is None:
            block = value.owner
            assert isinstance(block, ir.Block)
            outer = block.owner.operation
            number = ir.BlockArgument(value).arg_number
            if outer.name == "func.func":
                call = self.calls.get(string(outer, "sym_name"))
                return None if call is None else call.operands[number]
            unchanged = (
                outer.name == "stablehlo.while" and terminator(outer.regions[1].blocks[0]).operands[number] == value
            )
            return outer.operands[number] if unchanged else None
        number = ir.OpResult(value).result_number
        if op.name == "func.call":
            callee = self.functions[ir.FlatSymbolRefAttr(op.attributes["callee"]).value]
            if not len(callee.regions[0].blocks):
                return None
            returned: ir.Value = terminator(callee.regions[0].blocks[0]).operands[number]
            return returned
        if op.name == "stablehlo.optimization_barrier":
            carried: ir.Value = op.operands[number]
            return carried
        traits = traits_of(op.name)
        moves = op.name == "stablehlo.convert" or Trait.MOVES in traits
        # Not the table of a gather: its rows are data here, and the table may be a weight elsewhere.
        if not moves or Trait.EXPENSIVE in traits or not len(op.operands):  # an iota moves nothing
            return None
        moved: ir.Value = op.operands[0]
        return moved
