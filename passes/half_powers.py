"""half-powers: on a CPU, powers with exponents that are multiples of a half, as products of roots and reciprocals.

before:  power %x, -1.5           before:  power %x, 4.0
after:   (1 / %x) * rsqrt %x      after:   ((%x * %x) * %x) * %x

XLA:CPU calls a function of the C library for every element, which takes ten times as long as vectorised roots and
products. Each product is rounded, so that the last bits may differ: with --no-reassociate nothing is done. A
non-integer exponent requires numbers whose formula shows that their sign bit is not set (sums of squares, absolute
values, exponentials): -infinity has a power, but no root. Nothing is done for other machines, for types other than f32
and f64, for exponents beyond 4, and if the module would take more memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import copysign

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.clean_up import clean_up
from exla_opt.ir.rewrite import copy_of, restore
from exla_opt.ir.types import element_type
from exla_opt.ir.values import defining_op, has_discardable_attributes, splat_value
from exla_opt.ir.walk import inside_out
from exla_opt.memory.machine import Machine
from exla_opt.memory.peak import predict
from exla_opt.ops.reducers import body_of, componentwise
from exla_opt.options import Options
from exla_opt.remarks import Remark

_TYPES = {"f32", "f64"}
# Above it, products take so many roundings that they show.
_LARGEST = 4
# A kernel reads its input in two ops, and might write it for that.
_MOST_MEMORY = 1.01
# The number of powers that are tried one by one, if all together take more memory.
_MOST_TRIES = 8
# The maximum number of tensors of a formula to follow.
_MOST_OPS = 256


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Expand the powers of `module` to products, in place, if it is for a CPU and takes no more memory then."""
    if options.machine.kind != "cpu" or not options.reassociate:
        return []
    count = len(_found(module))
    if not count or _rewrite(module, options.machine, range(count)) or count > _MOST_TRIES:
        return []
    for place in reversed(range(count)):  # from the last on, so that the positions of the others stay valid
        _rewrite(module, options.machine, [place])
    return []


def _found(module: ir.Module) -> list[ir.Operation]:
    return [op for op in inside_out(module, "stablehlo.power") if _is_legal(op)]


def _rewrite(module: ir.Module, machine: Machine, places: Sequence[int]) -> bool:
    """Expand some of the powers; return False, and change nothing, if that takes more memory."""
    original, found = copy_of(module), _found(module)
    for op in (found[place] for place in places):
        with op.location, ir.InsertionPoint(op):
            op.results[0].replace_all_uses_with(_product(op.operands[0], _exponent(op)))
    clean_up(module)
    if predict(module, machine).peak <= _MOST_MEMORY * predict(original, machine).peak:
        return True
    restore(module, original)
    return False


def _exponent(op: ir.Operation) -> float:
    """The exponent, if it is a multiple of a half everywhere; 0 if it is not."""
    value = op.operands[1]
    number = _half(value)
    while number is None and (moved := defining_op(value, "stablehlo.broadcast_in_dim")) is not None:
        value = moved.operands[0]
    less = defining_op(value, "stablehlo.subtract")  # as in derivatives
    if number is None and less is not None:
        more, one = (_half(operand) for operand in less.operands)
        return 0 if more is None or one is None else more - one
    return number or 0


def _half(value: ir.Value) -> float | None:
    """A constant's value if it is a small multiple of a half: sums of those are exact."""
    number = splat_value(value)
    small = number is not None and abs(number) <= 2 * _LARGEST and (2 * float(number)).is_integer()
    return float(number) if small and number is not None else None


def _is_legal(op: ir.Operation) -> bool:
    """Whether all elements have the same small multiple of a half as exponent, and the product is always the power."""
    twice = 2 * _exponent(op)
    if has_discardable_attributes(op) or str(element_type(op.results[0])) not in _TYPES:
        return False
    if not 0 < abs(twice) <= 2 * _LARGEST:
        return False
    return twice % 2 == 0 or _is_positive(op.operands[0])


def _product(base: ir.Value, exponent: float) -> ir.Value:
    """The base to a power. No intermediate value leaves the range of floats unless the result does."""
    whole, half = divmod(abs(exponent), 1)
    factors = [base] * int(whole)
    if exponent < 0 and whole:
        factors = [stablehlo.divide(build.splat(base.type, 1), base)] * int(whole)
    if half:
        factors.append(stablehlo.rsqrt(base) if exponent < 0 else stablehlo.sqrt(base))
    result, *others = factors
    for factor in others:
        result = stablehlo.multiply(result, factor)
    return result


def _is_positive(value: ir.Value) -> bool:
    """Whether every element is zero without a sign, positive, or NaN, by its formula."""
    pending, seen = [value], {value}
    while pending:
        reasons = _reasons(pending.pop())
        if reasons is None:
            return False
        pending += [each for each in reasons if each not in seen]
        seen.update(reasons)
        if len(seen) > _MOST_OPS:
            return False
    return True


def _reasons(value: ir.Value) -> list[ir.Value] | None:
    """The tensors that must be positive for this one to be; None if it may be negative all the same."""
    number = splat_value(value)
    if number is not None:
        return [] if copysign(1, number) > 0 else None
    op = defining_op(value)
    if op is None or len(op.results) != 1:
        return None
    operands = list(op.operands)
    match op.name.removeprefix("stablehlo."):
        case "abs" | "exponential" | "logistic":
            return []
        case "multiply" if operands[0] == operands[1]:
            return []
        case "maximum" if any((splat_value(each) or 0) > 0 for each in operands):
            return []
        case "add" | "multiply" | "divide" | "sqrt" | "concatenate":
            return operands
        case "reduce" if componentwise(body_of(op)) in (("add",), ("maximum",)):
            return operands
        case "broadcast_in_dim" | "reshape" | "transpose" | "slice" | "dynamic_slice" | "gather" | "reverse":
            return operands[:1]
    return None
