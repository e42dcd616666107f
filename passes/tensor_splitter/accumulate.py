"""The values that a loop carries for an op cut along a factor that its results do not have.

    reduce(x, init)  ->  state = init;  for each tile: state = body(state, reduce(tile, identity));  state

The state of a sum of f16 or bf16 is float32 and is converted once, at the end.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.types import element_type, float_bits
from exla_opt.ops.reducers import IDENTITY, body_of, componentwise, counts_once
from exla_opt.ops.rules import DimMapping, Factor, Kind

# The operand of a contraction may be narrower than any type that a sum of it should be kept in.
_KEPT_NARROW = frozenset({"stablehlo.einsum"})


def is_widened(op: ir.Operation, factor: Factor) -> bool:
    """Whether partial results of the op are float32 although the op's own are narrower: a sum of narrow floats."""
    if factor.kind is not Kind.REDUCING or op.name in _KEPT_NARROW:
        return False
    if op.name == "stablehlo.reduce" and set(componentwise(body_of(op)) or ("none",)) != {"add"}:
        return False
    return all(0 < float_bits(element_type(result)) < 32 for result in op.results)


def state_types(op: ir.Operation, factor: Factor) -> list[ir.Type]:
    """The types of the state, and of a tile's partial results."""
    if not is_widened(op, factor):
        return [result.type for result in op.results]
    wide = build.wide_float()
    return [ir.RankedTensorType.get(list(build.shape_of(result)), wide) for result in op.results]


def reassociates(op: ir.Operation, factor: Factor) -> bool:
    """Whether combining the tiles may round otherwise than the whole: sums and products that are not of integers."""
    if all(isinstance(element_type(result), ir.IntegerType) for result in op.results):
        return False
    if factor.kind is Kind.INDEPENDENT:
        return op.name == "stablehlo.reduce" and not _counts_inits_once(op)
    if op.name in ("stablehlo.dynamic_update_slice", "chlo.top_k"):
        return False
    if op.name not in ("stablehlo.reduce", "stablehlo.reduce_window", "stablehlo.scatter"):
        return True
    names = componentwise(body_of(op))
    if names is None:
        # Picking one of two elements rounds nothing; the slices of a scatter keep the order of its writes.
        return False
    return bool({"add", "multiply"} & set(names))


def _counts_inits_once(op: ir.Operation) -> bool:
    """Whether a tile of a reduce may start from the op's own inits; if not, its results are combined with them."""
    inits = list(op.operands)[len(op.results) :]
    names = componentwise(body_of(op))
    return names is None or all(counts_once(init, name) for init, name in zip(inits, names, strict=True))


def initial_state(op: ir.Operation, factor: Factor, operands: Sequence[ir.Value] | None = None) -> list[ir.Value]:
    """The state before the first tile: a reduce's own init, zeros for a contraction, the chained operands.

    operands: the whole operands, if they are not the op's own any more.
    """
    given = list(op.operands) if operands is None else list(operands)
    if factor.kind is Kind.CHAIN:
        return [given[index] for index in factor.chained]
    if factor.kind is Kind.SCAN:
        return _before_scan(factor, given[len(op.results) :], op.results)
    types = state_types(op, factor)
    if op.name != "stablehlo.reduce":
        return [build.zeros(kind) for kind in types]
    inits = given[len(types) :]
    tensors = [ir.RankedTensorType(kind) for kind in types]
    return [
        build.broadcast(build.convert(init, kind.element_type), kind.shape)
        for init, kind in zip(inits, tensors, strict=True)
    ]


def combine(
    op: ir.Operation, factor: Factor, state: Sequence[ir.Value], partial: Sequence[ir.Value], start: ir.Value
) -> list[ir.Value]:
    """The state after one more tile: the op's own monoid on (state, partial) in this order; of a chain, partial.

    start: tensor<i32>, the factor's index at which the tile begins; what the state holds at 0 may count for nothing.
    """
    if factor.kind is Kind.CHAIN:
        return list(partial)
    if op.name == "chlo.top_k":
        return _merge_top_k(state, partial, start)
    if op.name != "stablehlo.reduce" or is_widened(op, factor):
        return [stablehlo.add(before, new) for before, new in zip(state, partial, strict=True)]
    return _run_body(body_of(op), [*state, *partial])


def _before_scan(factor: Factor, inits: Sequence[ir.Value], results: Sequence[ir.Value]) -> list[ir.Value]:
    """What the first slice of a scan goes on from: its inits, which count once or do not matter."""
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
    """One slice of a scan that goes on from the slices before it, and the state after it: its last elements."""
    spread = [_spread(value, like) for value, like in zip(state, partial, strict=True)]
    made = _run_body(body_of(op), [*spread, *partial])
    return made, [_last_of(value, mapping) for value, mapping in zip(made, factor.results, strict=True)]


def _spread(value: ir.Value, like: ir.Value) -> ir.Value:
    """A tensor with dimensions of 1 repeated to the shape of another."""
    kind = build.tensor_of(like)
    return stablehlo.broadcast_in_dim(kind, value, ir.DenseI64ArrayAttr.get(list(range(len(kind.shape)))))


def _last_of(value: ir.Value, mapping: DimMapping | None) -> ir.Value:
    shape = build.shape_of(value)
    starts = [0] * len(shape)
    assert mapping is not None
    starts[mapping.dim] = shape[mapping.dim] - 1
    return stablehlo.slice(value, starts, shape, [1] * len(shape))


def _merge_top_k(state: Sequence[ir.Value], partial: Sequence[ir.Value], start: ir.Value) -> list[ir.Value]:
    """The best of the best, those found first before their equals. No value is the identity: NaN and -inf may win."""
    kinds = [build.tensor_of(value) for value in state]
    last, count = len(kinds[0].shape) - 1, kinds[0].shape[-1]
    joined = [build.join(before, new, last) for before, new in zip(state, partial, strict=True)]
    index = ir.RankedTensorType.get(list(kinds[0].shape), ir.IntegerType.get_signless(32))
    k = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), count)
    best = ir.Operation.create(
        "chlo.top_k", results=[kinds[0], index], operands=[joined[0]], attributes={"k": k}, loc=ir.Location.current
    )
    merged = [best.results[0], build.take_along_last(joined[1], best.results[1])]
    if build.shape_of(partial[0]) != list(kinds[0].shape):
        return merged  # a short tile, never the first
    first = build.equal(start, build.scalar_i32(0))
    return [stablehlo.select(first, new, old) for new, old in zip(partial, merged, strict=True)]


def finish(op: ir.Operation, factor: Factor, state: Sequence[ir.Value]) -> list[ir.Value]:
    """The op's results from the last state."""
    return [build.convert(value, element_type(result)) for value, result in zip(state, op.results, strict=True)]


def tile_inits(op: ir.Operation, inits: Sequence[ir.Value]) -> list[ir.Value]:
    """The inits for a reduce of one tile: the identity where counting the whole's init again would show."""
    names = componentwise(body_of(op))
    if names is None:
        return list(inits)
    return [
        init if counts_once(init, name) else build.splat(init.type, _identity(name))
        for init, name in zip(inits, names, strict=True)
    ]


def with_inits(
    op: ir.Operation, inits: Sequence[ir.Value], counted: Sequence[ir.Value], results: Sequence[ir.Value]
) -> list[ir.Value]:
    """The results of a reduce with the inits that it did not count: XLA may count one for each part of a reduction."""
    if list(inits) == list(counted):
        return list(results)
    first = [build.broadcast(init, build.shape_of(result)) for init, result in zip(inits, results, strict=True)]
    return _run_body(body_of(op), [*first, *results])


def _identity(name: str) -> int | float:
    # Only -0.0 leaves every float as it is: 0.0 + -0.0 is 0.0.
    return -0.0 if name == "add" else IDENTITY[name]


def sum_over(operands: Sequence[ir.Value], types: Sequence[ir.Type], dimensions: ir.Attribute) -> list[ir.Value]:
    """A stablehlo.reduce that adds each of the first half of `operands`, from the inits in the second half."""
    made = ir.Operation.create(
        "stablehlo.reduce", list(types), list(operands), attributes={"dimensions": dimensions}, regions=1
    )
    scalar = ir.RankedTensorType.get([], element_type(operands[0]))
    block = made.regions[0].blocks.append(*[scalar] * len(operands))
    arguments = list(block.arguments)
    half = len(arguments) // 2
    with ir.InsertionPoint(block):
        stablehlo.return_([stablehlo.add(arguments[k], arguments[half + k]) for k in range(half)])
    return list(made.results)


def _run_body(block: ir.Block, arguments: Sequence[ir.Value]) -> list[ir.Value]:
    """A reduce's scalar body on whole tensors, element by element."""
    shape = build.shape_of(arguments[0])
    values: dict[ir.Value, ir.Value] = dict(zip(list(block.arguments), arguments, strict=True))
    for view in block.operations:
        op = view.operation
        inputs = [values[value] if value in values else build.broadcast(value, shape) for value in op.operands]
        if op.name == "stablehlo.return":
            return inputs
        if op.name == "stablehlo.constant":
            values[op.results[0]] = build.broadcast(op.clone(ip=ir.InsertionPoint.current).results[0], shape)
            continue
        made = op.clone(ip=ir.InsertionPoint.current).operation
        for index, value in enumerate(inputs):
            made.operands[index] = value
        for result in made.results:
            result.set_type(build.with_shape(build.tensor_of(result), shape))
        values.update(zip(list(op.results), list(made.results), strict=True))
    raise ValueError("a reduce's body has no return")
