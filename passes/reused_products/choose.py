"""Decides whether a sum may use a dot that contains a part of it, and whether that pays."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op
from exla_opt.ops.traits import Trait, has_trait
from exla_opt.options import Options
from exla_opt.remarks import Reason

from .match import Match, letters_of

# The new sum has to be shorter by this factor.
_CLEARLY = 1.2
# A factor further from 1 than this could cause new overflow or lost digits.
_FARTHEST = 1e15
# How many definitions of a factor are followed.
_MOST_SOURCES = 64
_PRECISIONS = ("DEFAULT", "HIGH", "HIGHEST")


# NOTE [Digits]: the gradient of a softmax is p (dp - sum p dp), in which a row of one large p cancels. If the sum is
# computed with more digits than dp has, it sums exactly the numbers that it is subtracted from, and the row cancels to
# their last digit, in which the other sum differs: measured, the gradient of bf16 attention with its softmax in f32
# then has up to five times the error, and of one with its softmax in bf16 no more than before. So the known product
# must have as many digits as the arithmetic of the sum. The digits of the opened dot do not matter.


def refusal(match: Match, options: Options) -> Reason | None:
    """Why the sum has to stay; None when it need not."""
    if not options.reassociate:
        return Reason("EX310", "another order of the sum is forbidden (--no-reassociate)")
    before, known = match.sum.formula, match.known.formula
    if before.overflows or known.overflows:
        return Reason("EX502", "products of f16 overflow, and in another order they overflow elsewhere")
    if known.digits < before.digits:
        return Reason("EX502", "it is rounded to fewer digits")
    return None


def is_possible(match: Match) -> bool:
    """Whether the formula can be computed at all: dots of one kind, no empty dimension, no extreme number."""
    if 0 in match.sum.formula.sizes.values() or not 1 / _FARTHEST < abs(match.coefficient) < _FARTHEST:
        return False
    one, other = match.sum.dot, match.known.op
    return _algorithm(one) == _algorithm(other) and _precision(one) <= _precision(other)


def is_worthwhile(match: Match, threshold: int, positions: Mapping[ir.Value, int], types: Types) -> bool:
    """Whether the sum reads a big tensor, would read a smaller one, and keeps nothing longer.

    positions: of the results of the ops of the block.
    """
    sizes = match.sum.formula.sizes
    big = match.sum.op.operands[0]
    letters = letters_of(match.place).union(*(letters_of(factor.place) for factor in match.left))
    before = prod(types.of(big).shape)
    after = prod(sizes[letter] for letter in letters)
    return types.of(big).bytes > threshold and after * _CLEARLY <= before and _is_alive(match, positions)


def _is_alive(match: Match, positions: Mapping[ir.Value, int]) -> bool:
    """Whether the known product is alive anyway when the other factor of the new sum is computed.

    It is if it is computed no earlier than that factor's operands, or if something reads it later.
    """
    since = _made_of(match.sum.operand.value, positions)
    values = [match.known.op.results[0]]
    for value in values:
        if positions[value] >= since:
            return True
        readers = [use.owner.operation for use in value.uses if use.owner.operation.block == match.sum.op.block]
        if any(not len(reader.results) or positions[reader.results[0]] > since for reader in readers):
            return True  # the block's terminator has no results
        values += [reader.results[0] for reader in readers if has_trait(reader, Trait.CHEAP)]
    return False


def _made_of(value: ir.Value, positions: Mapping[ir.Value, int]) -> int:
    """The position of the last operand that a value depends on; elementwise ops do not count."""
    values, since = [value], -1
    for each in values:
        op = defining_op(each)
        if op is None or each not in positions:
            continue
        is_free = has_trait(op, Trait.POINTWISE) or has_trait(op, Trait.CHEAP)
        if is_free and len(values) < _MOST_SOURCES:
            values += [operand for operand in op.operands if operand not in values]
        else:
            since = max(since, *(positions.get(operand, -1) for operand in op.operands), -1)
    return since


def _algorithm(op: ir.Operation) -> str:
    return str(op.attributes["algorithm"]) if "algorithm" in op.attributes else ""


def _precision(op: ir.Operation) -> int:
    """The lowest of the precisions of a dot's operands."""
    if "precision_config" not in op.attributes:
        return 0
    names = [stablehlo.PrecisionAttr(each).value for each in ir.ArrayAttr(op.attributes["precision_config"])]
    return min(map(_PRECISIONS.index, names), default=0)
