"""Whether all ops of a module treat the elements along one dimension alike, as they treat the examples of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from jaxlib.mlir import ir

from exla_opt.ir.attributes import is_splat
from exla_opt.ir.walk import terminator
from exla_opt.ops.factor import DimMapping, Factor, Kind, OpRule

# Ops that tie whole tensors: what each element means is decided by the ops in their blocks, or around them.
_TRANSPARENT = frozenset(
    "stablehlo.while stablehlo.case stablehlo.if stablehlo.optimization_barrier stablehlo.return func.return".split()
)
_LOOP = "stablehlo.while"
_PRODUCTS = frozenset("stablehlo.dot_general stablehlo.dot stablehlo.einsum stablehlo.convolution".split())
_SUMS = _PRODUCTS | {"stablehlo.scatter"}


def treats_alike(pairs: Sequence[tuple[ir.Operation, OpRule]], carried: Mapping[ir.Value, int], apart: bool) -> bool:
    """Whether every op is independent along the batch or sums over it, as only examples are summed.

    pairs: all ops in program order, each with its rule. carried: the tensors that have the batch, each with its
    dimension. apart: whether no op may sum over it.
    """
    products: list[ir.Operation] = []
    summed: set[ir.Value] = set()
    for op, rule in pairs:
        if op.name in _TRANSPARENT or not any(value in carried for value in (*op.operands, *op.results)):
            continue
        if len(op.operands) == 0:  # constants, iotas
            continue
        factor = next((each for each in rule.factors if _covers(each, op, carried)), None)
        if factor is None or factor.kind is Kind.SCAN or (apart and factor.kind is not Kind.INDEPENDENT):
            return False
        if factor.kind is not Kind.INDEPENDENT and op.name in _SUMS:
            summed.update(op.results)
            products += [op] if op.name in _PRODUCTS else []
    ops = [op for op, _ in pairs]
    return not _sums_features(products, _origins(ops, carried)) and not _come_back(ops, summed, carried)


def _sums_features(products: Sequence[ir.Operation], origins: Mapping[ir.Value, frozenset[ir.Value]]) -> bool:
    """Whether one of the products takes the dimension that it sums over from different arguments."""
    for op in products:
        known = [found for value in op.operands if (found := origins.get(value))]
        if any(not one & other for one in known for other in known):
            return True
    return False


def _come_back(ops: Sequence[ir.Operation], summed: set[ir.Value], carried: Mapping[ir.Value, int]) -> bool:
    """Whether a tensor with the dimension is computed from the sums: from what edges add to nodes, for example."""
    reached, changed = set(summed), bool(summed)
    while changed:  # more than once only for what a loop carries
        changed = False
        for op in ops:
            for value, sources in _flow(op):
                if value in reached or not any(source in reached for source in sources):
                    continue
                if value in carried:
                    return True
                reached.add(value)
                changed = True
    return False


def _covers(factor: Factor, op: ir.Operation, carried: Mapping[ir.Value, int]) -> bool:
    """Whether the factor cuts exactly the op's tensors that have the batch, along it."""

    def agrees(value: ir.Value, mapping: DimMapping | None) -> bool:
        return carried.get(value) == (None if mapping is None else mapping.dim)

    return all(map(agrees, op.operands, factor.operands)) and all(map(agrees, op.results, factor.results))


def _origins(ops: Sequence[ir.Operation], carried: Mapping[ir.Value, int]) -> dict[ir.Value, frozenset[ir.Value]]:
    """The arguments and constants from which each tensor that has the batch gets it; none for a broadcast."""
    found: dict[ir.Value, frozenset[ir.Value]] = {}
    arguments = (value for value in carried if isinstance(value.owner, ir.Block))
    inner = {argument for op in ops for region in op.regions for block in region.blocks for argument in block.arguments}
    found = {value: frozenset((value,)) for value in arguments if value not in inner}
    for op in ops:
        if op.name == "stablehlo.constant" and op.results[0] in carried and not is_splat(op):
            found[op.results[0]] = frozenset(op.results)

    changed = True
    while changed:  # more than once only if a loop's carry gets it from another carry
        changed = False
        for op in ops:
            for value, sources in _flow(op):
                before = found.get(value, frozenset())
                after = before.union(*(found.get(source, ()) for source in sources if source in carried))
                if value in carried and after != before:
                    found[value], changed = after, True
    return found


def _flow(op: ir.Operation) -> Iterable[tuple[ir.Value, Sequence[ir.Value]]]:
    """The values that an op defines, with those that they are computed from."""
    if op.name not in _TRANSPARENT:
        yield from ((result, op.operands) for result in op.results)
        return
    for index, result in enumerate(op.results):
        sources = [op.operands[index]] if len(op.operands) == len(op.results) else []
        sources += [terminator(region.blocks[0]).operands[index] for region in op.regions[op.name == _LOOP :]]
        yield result, sources
        for region in op.regions:
            yield from ((argument, sources) for argument in list(region.blocks[0].arguments)[index : index + 1])
