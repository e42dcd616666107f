"""Ops that reduce a dimension or order its elements: reduce, sort, top_k.

reduce(x, init)  ->  state = init;  for each tile: state = body(state, reduce(tile, identity));  state
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integers
from exla_opt.ir.types import element_type

from .definition import NONE, SAME_OP, ByShardy, Combination, OpDefinition
from .factor import DimMapping, Einsum, Factor, Kind, Letters, Shape, Shapes, factors_of, numbered
from .reducers import (
    IDENTITY,
    body_of,
    chooses,
    componentwise,
    counts_once,
    rounds,
    run_body,
    starts_at_the_end,
)
from .sizes import shapes_of
from .sums import add, has_narrow_results, zeros
from .tie import Site, Spoken, all_same, tie, tie_all, tie_part
from .tile import Tile

OPS: dict[str, OpDefinition] = {}


def _reduce_factors(op: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """`([i,j],[])->([i])`: i for any body, j if the body is a monoid or selects one of its two elements.

    A selecting body must start from the limit of its type: each slice starts anew, and any other init may lose a tie.
    """
    dims = integers(op, "dimensions", [])
    letters = numbered(shapes.operands[0])
    kept = [letter for dim, letter in enumerate(letters) if dim not in dims]
    body = body_of(op)
    summed = dims if componentwise(body) is not None or (chooses(body) and starts_at_the_end(body, _inits(op))) else []
    count = len(shapes.results)
    return factors_of(Einsum([*[letters] * count, *[[]] * count], [kept] * count, summed=summed), shapes)


def _inits(op: ir.Operation) -> list[ir.Value]:
    return list(op.operands)[len(op.results) :]


def _reduce_tile(tile: Tile) -> list[ir.Value]:
    """A partial result starts from the identity, as the init counts once; narrow floats are added in float32."""
    count = len(tile.types)
    operands = list(tile.operands)
    operands[count:] = _tile_inits(tile.op, operands[count:])
    if tile.factor.kind is not Kind.REDUCING:
        made = replace(tile, operands=operands).clone()
        return _with_inits(tile.op, list(tile.operands)[count:], operands[count:], made)
    if not _adds_narrow_floats(tile.op):
        return replace(tile, operands=operands).clone()
    wide = [build.convert(value, build.wide_float()) for value in operands]
    return _sum_over(wide, tile.types, tile.op.attributes["dimensions"])


def _adds_narrow_floats(op: ir.Operation) -> bool:
    return set(componentwise(body_of(op)) or ("none",)) == {"add"} and has_narrow_results(op)


def _tile_inits(op: ir.Operation, inits: Sequence[ir.Value]) -> list[ir.Value]:
    """The inits for a reduce of one tile: the identity, unless the op's own init may be counted again."""
    names = componentwise(body_of(op))
    if names is None:
        return list(inits)
    return [
        init if counts_once(init, name) else build.splat(init.type, _identity(name))
        for init, name in zip(inits, names, strict=True)
    ]


def _identity(name: str) -> int | float:
    # Only -0.0 leaves every float unchanged: 0.0 + -0.0 is 0.0.
    return -0.0 if name == "add" else IDENTITY[name]


def _with_inits(
    op: ir.Operation, inits: Sequence[ir.Value], counted: Sequence[ir.Value], results: Sequence[ir.Value]
) -> list[ir.Value]:
    """The results of a reduce with the inits that it did not count: XLA may count one for each part of a reduction."""
    if list(inits) == list(counted):
        return list(results)
    first = [build.broadcast(init, build.shape_of(result)) for init, result in zip(inits, results, strict=True)]
    return run_body(body_of(op), [*first, *results])


def _sum_over(operands: Sequence[ir.Value], types: Sequence[ir.Type], dimensions: ir.Attribute) -> list[ir.Value]:
    """A stablehlo.reduce that adds each of the first half of `operands`, with the inits in the second half."""
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


def _reduce_ties(site: Site) -> Spoken:
    count = len(site.op.results)
    sources = list(site.op.operands)[:count]
    yield from tie(site, *sources)
    dims = integers(site.op, "dimensions", [])
    kept = [place for dim, place in enumerate(site.classes.places(sources[0])) if dim not in dims]
    for result in site.op.results:
        for one, other in zip(kept, site.classes.places(result), strict=True):
            yield from all_same(site, [one, other])


def _reduce_initial(_: ir.Operation, types: Sequence[ir.Type], operands: Sequence[ir.Value]) -> list[ir.Value]:
    """The op's own inits."""
    tensors = [ir.RankedTensorType(kind) for kind in types]
    return [
        build.broadcast(build.convert(init, kind.element_type), kind.shape)
        for init, kind in zip(operands[len(types) :], tensors, strict=True)
    ]


def _reduce_combine(
    op: ir.Operation, state: Sequence[ir.Value], partial: Sequence[ir.Value], start: ir.Value
) -> list[ir.Value]:
    if _adds_narrow_floats(op):
        return add(op, state, partial, start)
    return run_body(body_of(op), [*state, *partial])


def _reduce_reassociates(op: ir.Operation, kind: Kind) -> bool:
    """Along a dimension that it keeps, a tile whose inits count once is combined with the op's own afterwards."""
    if kind is Kind.REDUCING:
        return rounds(body_of(op))
    names = componentwise(body_of(op))
    return names is not None and not all(map(counts_once, _inits(op), names))


OPS["stablehlo.reduce"] = OpDefinition(
    factors=_reduce_factors,
    tile=_reduce_tile,
    ties=_reduce_ties,
    resize=NONE,
    combination=Combination(
        initial=_reduce_initial,
        combine=_reduce_combine,
        resume=NONE,
        widens=_adds_narrow_floats,
        converts=True,
        reassociates=_reduce_reassociates,
    ),
    reason="",
)

OPS["stablehlo.sort"] = OpDefinition(
    factors=ByShardy(),
    tile=SAME_OP,
    ties=tie_all,
    resize=NONE,
    combination=NONE,
    reason="stablehlo.sort compares all elements along the dimension that it sorts",
)


def rows_of_top_k(shapes: Shapes) -> tuple[Factor, ...]:
    """`([i,k])->([i,l],[i,l])`: every row separately."""
    rows: list[list[Hashable]] = [[dim] for dim in range(len(shapes.operands[0]) - 1)]
    result: Letters = [*rows, ["l"]]
    return factors_of(Einsum([[*rows, ["k"]]], [result] * len(shapes.results), uncut=("k", "l")), shapes)


def _top_k_factors(_: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """Rows separately; along a row the best of the tile and of those before it, once the first tile has k."""
    row, count = shapes.operands[0], shapes.results[0][-1]
    factors = rows_of_top_k(shapes)
    if count < 1 or row[-1] <= 2 * count:  # two tiles are joined to 2 k elements
        return factors
    along = DimMapping(len(row) - 1, row[-1])
    return (*factors, Factor(Kind.REDUCING, row[-1], (along,), (None, None), least=count))


def _top_k_tile(tile: Tile) -> list[ir.Value]:
    """Along the row: the best of the tile (all of a short one), with their indices in the unsplit row."""
    if tile.factor.kind is not Kind.REDUCING:
        return tile.clone()
    operand = build.shape_of(tile.operands[0])
    kinds = [ir.RankedTensorType(kind) for kind in tile.types]
    count = min(kinds[0].shape[-1], operand[-1])
    types = tuple(build.with_shape(kind, [*list(kind.shape)[:-1], count]) for kind in kinds)
    values, places = replace(tile, types=types).clone({"k": _k(count, tile.op.context)})
    begin = tile.begin(tile.operand_ranges[0], types[1].element_type)
    return [values, stablehlo.add(places, build.broadcast(begin, types[1].shape))]


def _k(count: int, context: ir.Context) -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64, context), count)


def _top_k_ties(site: Site) -> Spoken:
    classes = site.classes
    values, places = site.op.results
    yield from tie(site, values, places)
    *rows, whole = classes.places(site.op.operands[0])
    *same, part = classes.places(values)
    for one, other in zip(rows, same, strict=True):
        yield from all_same(site, [one, other])
    yield from tie_part(site, whole, part, (classes.shape(site.op.operands[0])[-1], classes.shape(values)[-1]))


def _top_k_resize(op: ir.Operation, _: Sequence[Shape]) -> None:
    op.attributes["k"] = _k(shapes_of(op)[-1][-1], op.context)


def _top_k_combine(
    _: ir.Operation, state: Sequence[ir.Value], partial: Sequence[ir.Value], start: ir.Value
) -> list[ir.Value]:
    """The best of both, earlier ones before their equals.

    No value is the identity, as NaN and -inf may win: before the first tile the state does not count.
    """
    kinds = [build.tensor_of(value) for value in state]
    last, count = len(kinds[0].shape) - 1, kinds[0].shape[-1]
    joined = [build.join(before, new, last) for before, new in zip(state, partial, strict=True)]
    index = ir.RankedTensorType.get(list(kinds[0].shape), ir.IntegerType.get_signless(32))
    best = ir.Operation.create(
        "chlo.top_k",
        results=[kinds[0], index],
        operands=[joined[0]],
        attributes={"k": _k(count, kinds[0].context)},
        loc=ir.Location.current,
    )
    merged = [best.results[0], build.take_along_last(joined[1], best.results[1])]
    if build.shape_of(partial[0]) != list(kinds[0].shape):
        return merged  # a short tile, never the first
    first = build.equal(start, build.scalar_like(start, 0))
    return [stablehlo.select(first, new, old) for new, old in zip(partial, merged, strict=True)]


OPS["chlo.top_k"] = OpDefinition(
    factors=_top_k_factors,
    tile=_top_k_tile,
    ties=_top_k_ties,
    resize=_top_k_resize,
    combination=Combination(
        initial=zeros, combine=_top_k_combine, resume=NONE, widens=NONE, converts=False, reassociates=NONE
    ),
    reason="chlo.top_k compares all elements of its last dimension",
)
