"""How the tiles' results of a contraction are combined: they are added, from zeros.

    dot(x, y)  ->  state = 0;  for each tile: state = state + dot(tile of x, tile of y);  state

The state of a sum of f16 or bf16 is float32 and is converted once, at the end.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.types import element_type, float_bits

from .definition import NONE, Combination
from .factor import Kind


def has_narrow_results(op: ir.Operation) -> bool:
    """Whether all results are floats of less than 32 bits."""
    return all(0 < float_bits(element_type(result)) < 32 for result in op.results)


def add(_: ir.Operation, state: Sequence[ir.Value], partial: Sequence[ir.Value], __: ir.Value) -> list[ir.Value]:
    """The sums of the state and of the partial results."""
    return [stablehlo.add(before, new) for before, new in zip(state, partial, strict=True)]


def zeros(_: ir.Operation, types: Sequence[ir.Type], __: Sequence[ir.Value]) -> list[ir.Value]:
    return [build.zeros(kind) for kind in types]


def _is_reducing(_: ir.Operation, kind: Kind) -> bool:
    return kind is Kind.REDUCING


SUM = Combination(
    initial=zeros, combine=add, resume=NONE, widens=has_narrow_results, converts=False, reassociates=_is_reducing
)
# For an op whose operands may be narrower than any type that should accumulate their sum.
NARROW_SUM = Combination(
    initial=zeros, combine=add, resume=NONE, widens=NONE, converts=False, reassociates=_is_reducing
)
