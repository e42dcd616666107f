"""Makes the operands and results of ops with an explicit rule agree on a sharding along each factor of the rule.

Shardy inserts communication where an op and its operands disagree, except at ops with a rule in an attribute: their
operands and results are resharded here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy

from exla_opt.ir import build
from exla_opt.ir.walk import inside_out
from exla_opt.ops.shardy import RULE

from .mesh import Axes, Mesh, Sharding
from .shardings import read_meshes, reshard, set_shardings, sharding_of_value


def agree(module: ir.Module) -> None:
    """Reshard the operands and results of every op with a rule alike, in place; never along factors needed complete."""
    meshes = {mesh.name: mesh for mesh in read_meshes(module)}
    for op in inside_out(module):
        if RULE not in op.attributes:
            continue
        spread = [sharding_of_value(value, meshes) for value in (*op.operands, *op.results)]
        mesh = next((one.mesh for one in spread if one is not None), None)
        if mesh is not None:
            _agree(op, [None if one is None else one.sharding for one in spread], mesh)


def places_of(tensor: ir.Attribute) -> dict[int, int]:
    """The dimension of each factor."""
    return {
        factor: dim
        for dim, mapping in enumerate(sdy.TensorMappingAttr(tensor).dim_mappings)
        for factor in sdy.DimMappingAttr(mapping).factor_indices
    }


def _agree(op: ir.Operation, spread: Sequence[Sharding | None], mesh: Mesh) -> None:
    rule = sdy.OpShardingRuleAttr(op.attributes[RULE])
    values = [*op.operands, *op.results]
    before = [((),) * _rank(value) if one is None else one for value, one in zip(values, spread, strict=True)]
    places = [places_of(tensor) for tensor in (*rule.operand_mappings, *rule.result_mappings)]
    sizes = [prod(build.shape_of(value)) if _rank(value) else 1 for value in values]
    complete = {*rule.need_replication_factors, *_minor_factors(places, list(rule.factor_sizes))}
    axes = _axes_of_factors(places, before, sizes, complete)
    after = [_spread_by(place, one, axes) for place, one in zip(places, before, strict=True)]
    split = len(op.operands)
    with ir.InsertionPoint(op), op.location:
        for index, (one, two) in enumerate(zip(before[:split], after[:split], strict=True)):
            if one != two:
                op.operands[index] = reshard(op.operands[index], two, mesh)
    if before[split:] == after[split:]:
        return
    set_shardings(op, after[split:], mesh)
    with ir.InsertionPoint.after(op), op.location:
        for result, one, two in zip(op.results, before[split:], after[split:], strict=True):
            if one != two:
                uses = list(result.uses)
                value = reshard(result, one, mesh)
                for use in uses:
                    use.owner.operation.operands[use.operand_number] = value


def _minor_factors(places: Sequence[Mapping[int, int]], sizes: Sequence[int]) -> set[int]:
    """The factors after the first of a dimension: a dimension is cut along its first factor before the others."""
    found: set[int] = set()
    for place in places:
        begun: set[int] = set()
        for factor, dim in place.items():
            if dim in begun:
                found.add(factor)
            if sizes[factor] > 1:
                begun.add(dim)
    return found


def _axes_of_factors(
    places: Sequence[Mapping[int, int]], before: Sequence[Sharding], sizes: Sequence[int], complete: set[int]
) -> dict[int, Axes]:
    """The axes that shard each factor: those of the largest tensor sharded along it; of equal ones, the last tensor's.

    No axis shards two factors.
    """
    found: dict[int, Axes] = {}
    order = sorted(range(len(sizes)), key=lambda number: (sizes[number], number), reverse=True)
    for number in order:
        for factor, dim in places[number].items():
            alone = [other for other, at in places[number].items() if at == dim] == [factor]
            cut = before[number][dim]
            if factor in complete or factor in found or not cut or not alone:
                continue
            taken = {axis.name for other, axes in found.items() for axis in axes}
            if taken.isdisjoint(axis.name for axis in cut):
                found[factor] = cut
    return found


def _spread_by(places: Mapping[int, int], before: Sharding, axes: Mapping[int, Axes]) -> Sharding:
    """The sharding of a tensor whose factors are sharded along these axes."""
    by_dim: dict[int, Axes] = {}
    for factor, dim in places.items():
        by_dim[dim] = (*by_dim.get(dim, ()), *axes.get(factor, ()))
    return tuple(by_dim.get(dim, ()) for dim in range(len(before)))


def _rank(value: ir.Value) -> int:
    return len(build.shape_of(value)) if isinstance(value.type, ir.RankedTensorType) else 0
