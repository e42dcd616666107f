"""The op of one tile, and the loop-carried state of an op whose results do not have the factor; for the splitter.

The ops' definitions say how.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeVar

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integer
from exla_opt.ir.types import element_type, float_bits

from .control_tiles import build_control
from .definition import BY_BLOCKS, BY_PAIRS, NONE, SAME_OP, Combination, Stated
from .factor import DimMapping, Factor, Kind
from .overlaps import OVERLAPS
from .partial_sums import is_zero
from .rules import OPS
from .shifts import build_shift, may_shift
from .tile import Range, Tile

_LOOP = "stablehlo.while"


def build_tile(
    op: ir.Operation,
    factor: Factor,
    operands: Sequence[ir.Value],
    start: ir.Value,
    operand_ranges: Sequence[Range | None],
    result_ranges: Sequence[Range | None],
    widens: bool = True,
) -> list[ir.Value]:
    """Build the op for one tile at the current insertion point, and return its results.

    operands: the slice for each mapping of the factor, the unsplit operand for the others; for a chained one the
    current value. start: a 0-d integer tensor, an index of the factor. operand_ranges, result_ranges: the indices of
    the tile in each tensor, counted from `start`; None without a mapping. For a pad whose operand is outside the tile
    the range is empty, and the operand is not read.
    A partial result starts from the monoid's identity, and is float32 for a sum of narrower floats.
    widens: whether that also holds for ops that could have narrow results: inside a loop that is cut they do.
    """
    types = [
        _tile_type(result.type, mapping, place)
        for result, mapping, place in zip(op.results, factor.results, result_ranges, strict=True)
    ]
    if factor.kind is Kind.REDUCING and (widens or _combination(op).converts):
        types = state_types(op, factor)
    tile = Tile(op, factor, operands, start, operand_ranges, result_ranges, tuple(types))
    if factor.is_unsplit():
        return tile.clone()
    if factor.reaches:
        return build_shift(tile) if may_shift(op.name) else OVERLAPS[op.name].tile(tile)
    rule = OPS[op.name].tile
    if rule is BY_BLOCKS:
        return build_control(tile, build_tile)
    return tile.clone() if isinstance(rule, Stated) else rule(tile)


def may_reach(op: ir.Operation, factor: Factor) -> bool:
    """Whether a tile may have indices beyond the ends of the op, where its results are never used.

    An op that slices an unsplit operand at the tile's start would slice another part.
    """
    if factor.kind is not Kind.INDEPENDENT or factor.summed:
        return False
    definition = OPS[op.name]
    by_blocks = definition.tile is BY_BLOCKS or definition.factors is BY_PAIRS
    return not by_blocks and (isinstance(definition.tile, Stated) or not op.operands or any(factor.operands))


# Ops of which a tile along an independent factor is the same at any place if their first operand is cut with it.
_ALIKE = frozenset(
    {
        "chlo.top_k",
        "stablehlo.convolution",
        "stablehlo.dynamic_slice",
        "stablehlo.dynamic_update_slice",
        "stablehlo.gather",
        "stablehlo.reduce",
        "stablehlo.reduce_window",
        "stablehlo.reverse",
    }
)


def goes_round(op: ir.Operation, factor: Factor) -> bool:
    """Whether a tile that wraps around the ends of its operands equals the results wrapped around.

    Not for an op that depends on the tile's start.
    """
    if may_shift(op.name):
        return True
    return not factor.reaches and may_reach(op, factor) and is_alike_anywhere(op, factor)


def is_alike_anywhere(op: ir.Operation, factor: Factor) -> bool:
    """Whether the op of a tile along an independent factor depends on nothing but the tile's operands."""
    if op.name == "stablehlo.iota":
        return all(mapping is None or mapping.dim != integer(op, "iota_dimension") for mapping in factor.results)
    if op.name in _ALIKE:
        return factor.operands[0] is not None
    return OPS[op.name].tile is SAME_OP or op.name == "stablehlo.constant"


def _tile_type(kind: ir.Type, mapping: DimMapping | None, place: Range | None) -> ir.Type:
    if mapping is None or place is None:
        return kind
    tensor = ir.RankedTensorType(kind)
    shape = list(tensor.shape)
    shape[mapping.dim] = (place[1] - place[0]) * mapping.inner
    return build.with_shape(tensor, shape)


_NOTHING = Combination(initial=NONE, combine=NONE, resume=NONE, widens=NONE, converts=False, reassociates=NONE)
_Rule = TypeVar("_Rule")


def _combination(op: ir.Operation) -> Combination:
    found = OPS[op.name].combination
    return _NOTHING if found is NONE else found


def _given(rule: _Rule | Literal[Stated.NONE], op: ir.Operation) -> _Rule:
    """The rule if there is one. Raises ValueError without one: the op must not have such a factor."""
    if rule is NONE:
        raise ValueError(f"{op.name} cannot combine the results of its tiles")
    return rule


def is_widened(op: ir.Operation, factor: Factor) -> bool:
    """Whether partial results of the op are float32 although its own are narrower: a sum of narrow floats."""
    widens = _combination(op).widens
    return factor.kind is Kind.REDUCING and widens is not NONE and widens(op)


def converts_operands(op: ir.Operation, factor: Factor) -> bool:
    """Whether a tile of the op reads its operands converted to float32, for its partial results."""
    return _combination(op).converts and is_widened(op, factor)


def state_types(op: ir.Operation, factor: Factor) -> list[ir.Type]:
    """The types of the state, and of a tile's partial results."""
    if not is_widened(op, factor):
        return [result.type for result in op.results]
    return [_widened(result) for result in op.results]


def _widened(value: ir.Value) -> ir.Type:
    return ir.RankedTensorType.get(list(build.shape_of(value)), build.wide_float())


def starts_anew(op: ir.Operation, factor: Factor, index: int) -> bool:
    """Whether an operand of control flow is the initial value of a loop's sum, which is zero in each tile."""
    return index in factor.summed and op.name == _LOOP


def sum_type(op: ir.Operation, index: int) -> ir.Type:
    """The type that accumulates the tiles' sums of one result of control flow."""
    result = op.results[index]
    return _widened(result) if 0 < float_bits(element_type(result)) < 32 else result.type


def add_start(op: ir.Operation, index: int, total: ir.Value) -> ir.Value:
    """One result of control flow: the sum of the tiles plus a loop's initial value."""
    kind = element_type(op.results[index])
    if op.name != _LOOP or is_zero(op.operands[index]):  # branches have no initial value
        return build.convert(total, kind)
    wide = build.convert(op.operands[index], element_type(total))
    return build.convert(stablehlo.add(wide, total), kind)


def reassociates(op: ir.Operation, factor: Factor) -> bool:
    """Whether combining the tiles may round differently from the op itself: sums and products, except of integers."""
    if factor.summed:
        return not all(isinstance(element_type(op.results[index]), ir.IntegerType) for index in factor.summed)
    may_round = _combination(op).reassociates
    if may_round is NONE or all(isinstance(element_type(result), ir.IntegerType) for result in op.results):
        return False
    return may_round(op, factor.kind)


def initial_state(op: ir.Operation, factor: Factor, operands: Sequence[ir.Value] | None = None) -> list[ir.Value]:
    """The state before the first tile: a reduce's own init, zeros for a contraction, the chained operands.

    operands: the unsplit operands, if they are no longer the op's own.
    """
    given = list(op.operands) if operands is None else list(operands)
    if factor.kind is Kind.CHAIN:
        return [given[index] for index in factor.chained]
    if factor.kind is Kind.SCAN:
        return _before_scan(factor, given[len(op.results) :], op.results)
    return _given(_combination(op).initial, op)(op, state_types(op, factor), given)


def combine(
    op: ir.Operation, factor: Factor, state: Sequence[ir.Value], partial: Sequence[ir.Value], start: ir.Value
) -> list[ir.Value]:
    """The state after one more tile: the op's own monoid on (state, partial) in this order; for a chain, partial.

    start: the factor's index at which the tile begins; at 0, the state may not count.
    """
    if factor.kind is Kind.CHAIN:
        return list(partial)
    return _given(_combination(op).combine, op)(op, state, partial, start)


def _before_scan(factor: Factor, inits: Sequence[ir.Value], results: Sequence[ir.Value]) -> list[ir.Value]:
    """The state before the first slice of a scan: its inits, which count once or do not matter."""
    return [
        build.broadcast(init, _with_one(result, mapping))
        for init, result, mapping in zip(inits, results, factor.results, strict=True)
    ]


def _with_one(value: ir.Value, mapping: DimMapping | None) -> list[int]:
    assert mapping is not None
    shape = build.shape_of(value)
    shape[mapping.dim] = 1
    return shape


def resume(
    op: ir.Operation, factor: Factor, state: Sequence[ir.Value], partial: Sequence[ir.Value]
) -> tuple[list[ir.Value], list[ir.Value]]:
    """One slice of a scan that continues from the slices before it, and the state after it: its last elements."""
    spread = [_spread(value, like) for value, like in zip(state, partial, strict=True)]
    made = _given(_combination(op).resume, op)(op, spread, partial)
    return made, [_last_of(value, mapping) for value, mapping in zip(made, factor.results, strict=True)]


def _spread(value: ir.Value, like: ir.Value) -> ir.Value:
    """A tensor with dimensions of 1 broadcast to the shape of another."""
    kind = build.tensor_of(like)
    return stablehlo.broadcast_in_dim(kind, value, ir.DenseI64ArrayAttr.get(list(range(len(kind.shape)))))


def _last_of(value: ir.Value, mapping: DimMapping | None) -> ir.Value:
    shape = build.shape_of(value)
    starts = [0] * len(shape)
    assert mapping is not None
    starts[mapping.dim] = shape[mapping.dim] - 1
    return stablehlo.slice(value, starts, shape, [1] * len(shape))


def finish(op: ir.Operation, factor: Factor, state: Sequence[ir.Value]) -> list[ir.Value]:
    """The op's results from the last state."""
    return [build.convert(value, element_type(result)) for value, result in zip(state, op.results, strict=True)]
