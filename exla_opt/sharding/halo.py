"""Windows that overlap neighbouring shards: each device gets only the missing rows from its neighbours.

    rows of device 1            [ a b c d | e f g h | i j k l ]
    a window of 3 rows needs          [ d | e f g h | i ]

Positions beyond the ends of the dimension are replaced by the op's padding, as for overlapping tiles
(`ops/overlaps.py`): the local op is a tile that begins at the shard.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.values import defining_op
from exla_opt.ops.factor import DimMapping, Factor, Shapes
from exla_opt.ops.overlaps import OVERLAPS, overlapping_dims, rows_beyond
from exla_opt.ops.tile import Tile

from .localise import Form, Localiser, NoLocalForm, Results, with_own_types
from .mesh import Axes, Sharding, parts
from .running import running, running_dim
from .shardings import shardings_of_results


def is_exchanged(factor: Factor, operands: Sequence[int | None], results: Sequence[int | None], devices: int) -> bool:
    """Whether shards along a factor with overlapping tiles need rows of direct neighbours only, however it is sharded.

    operands, results: the dimension of the factor, by tensor. devices: the maximum number of shards.
    """
    stands = [None if mapping is None else mapping.dim for mapping in (*factor.operands, *factor.results)]
    if stands != [*operands, *results] or factor.size % devices:
        return False
    return all(0 <= side <= factor.size // devices for reach in factor.reaches for side in reach)


def _windowed(localiser: Localiser, op: ir.Operation, shardings: Sequence[Sharding]) -> Results:
    """A convolution or similar op on a local shard, and on the rows of its neighbours that its windows read.

    Its windows keep their length.
    """
    along = running_dim(op, shardings[0])
    if along is not None:
        return running(localiser, op, shardings, along)
    made: Results = list(with_own_types(localiser, op, shardings).results)
    shapes = Shapes(*(tuple(tuple(build.shape_of(value)) for value in values) for values in (op.operands, op.results)))
    sharding = localiser.shardings[op.operands[0]]
    sharded = {dim for dim, axes in enumerate(sharding) if parts(axes) > 1}
    exchanged = set()
    for factor in OVERLAPS[op.name].factors(op, shapes):
        mapping = factor.operands[0]
        if mapping is not None and mapping.dim in sharded:
            exchanged.add(mapping.dim)
            made = _with_neighbours(localiser, op, made, factor, sharding[mapping.dim])
    if (sharded - exchanged) & overlapping_dims(op):
        raise NoLocalForm(f"{op.name} has windows that read rows of other devices")
    return made


def _with_neighbours(localiser: Localiser, op: ir.Operation, values: Results, factor: Factor, axes: Axes) -> Results:
    """The op of these values repeated, on operands extended by rows of neighbours.

    op: the original op, of all devices.
    """
    own = defining_op(values[0])
    assert own is not None
    length = factor.size // parts(axes)
    rows = rows_beyond(op, factor, length)
    _check(localiser, op, factor, axes)
    operands = list(own.operands)
    ranges: list[tuple[int, int] | None] = []
    for place, (mapping, reach) in enumerate(zip(factor.operands, factor.reaches, strict=True)):
        if mapping is None:
            ranges.append(None)
            continue
        if reach != (0, 0):
            operands[place] = _exchanged(localiser, operands[place], mapping, reach, rows, axes)
        ranges.append((-reach[0], length + reach[1]))
    tile = Tile(
        op=own,
        factor=factor,
        operands=operands,
        start=localiser.collectives.offset(axes, length),
        operand_ranges=ranges,
        result_ranges=[None if mapping is None else (0, length) for mapping in factor.results],
        types=tuple(value.type for value in values),
    )
    made = OVERLAPS[op.name].tile(tile)
    own.erase()
    return made


def _check(localiser: Localiser, op: ir.Operation, factor: Factor, axes: Axes) -> None:
    """Raise NoLocalForm unless all tensors that carry the factor are sharded alike."""
    mappings = (*factor.operands, *factor.results)
    results = shardings_of_results(op, localiser.mesh)
    cuts = (*(localiser.shardings[value] for value in op.operands), *results)
    for mapping, cut in zip(mappings, cuts, strict=True):
        if mapping is not None and cut[mapping.dim] != axes:
            raise NoLocalForm(f"{op.name} has a dimension that is sharded differently in its operands and results")


def _exchanged(
    localiser: Localiser,
    value: ir.Value,
    mapping: DimMapping,
    reach: tuple[int, int],
    rows: tuple[int, int],
    axes: Axes,
) -> ir.Value:
    """A shard extended by `reach` indices, of which `rows` elements on each side come from the neighbours.

    The others, and those beyond the ends of the dimension, are zeros, which windows do not read unmasked.
    """
    size = build.shape_of(value)[mapping.dim]
    before, behind = (min(side * mapping.inner, read) for side, read in zip(reach, rows, strict=True))
    joined = [value]
    if before:
        joined.insert(0, localiser.collectives.shift(_rows(value, mapping.dim, size - before, size), axes, 1))
    if behind:
        joined.append(localiser.collectives.shift(_rows(value, mapping.dim, 0, behind), axes, -1))
    if left := reach[0] * mapping.inner - before:
        joined.insert(0, _zeros(value, mapping.dim, left))
    if left := reach[1] * mapping.inner - behind:
        joined.append(_zeros(value, mapping.dim, left))
    kind, shape = build.tensor_of(value), build.shape_of(value)
    shape[mapping.dim] = size + sum(reach) * mapping.inner
    found: ir.Value = stablehlo.ConcatenateOp(joined, mapping.dim, results=[build.with_shape(kind, shape)]).result
    return found


def _zeros(value: ir.Value, dim: int, length: int) -> ir.Value:
    shape = build.shape_of(value)
    shape[dim] = length
    return build.zeros(build.with_shape(build.tensor_of(value), shape))


def _rows(value: ir.Value, dim: int, start: int, limit: int) -> ir.Value:
    shape = build.shape_of(value)
    starts, limits = [0] * len(shape), list(shape)
    starts[dim], limits[dim] = start, limit
    return stablehlo.slice(value, starts, limits, [1] * len(shape))


WINDOWED: dict[str, Form] = dict.fromkeys(OVERLAPS, _windowed)
