"""Gives ops sharding rules before Shardy runs: each may be sharded along the factors that have a local form.

Along all other factors its operand is gathered.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy

from exla_opt.ir import build
from exla_opt.ir.attributes import devices_of, integers
from exla_opt.ir.walk import CONTROL_FLOW, walk_functions
from exla_opt.ops.collectives import moved_dims
from exla_opt.ops.factor import Factor, Kind
from exla_opt.ops.reducers import chooses_from_the_end, monoid_of
from exla_opt.ops.rules import OpRule, read_rules
from exla_opt.ops.shardy import RULE, annotated_copy
from exla_opt.ops.traits import Trait, traits_of

from .agree import places_of
from .at_index import state_at_index
from .halo import is_exchanged
from .indexing import GATHER, SCATTER, indexed_dims, is_summing
from .running import runs_along
from .shardings import read_meshes
from .shift_parts import Readers, shard_counts
from .shifts import is_shift, mapping_of, state_shift

TOP_K = "exla_opt.top_k"
# The bodies of computations that are manual over some axes are sharded over the others.
_WALKED = CONTROL_FLOW | {"sdy.manual_computation"}
# For these, Shardy's rule holds for local shards along every factor.
_TRUSTED = frozenset("stablehlo." + name for name in "broadcast_in_dim reshape transpose dot_general dot".split())
# These need no rule of Shardy's: their shardings are those of their operands and results.
_BY_VALUES = frozenset(
    "stablehlo.while stablehlo.case stablehlo.if stablehlo.return stablehlo.constant stablehlo.iota "
    "stablehlo.optimization_barrier func.return chlo.constant".split()
)
# Shardy has no rule for custom calls, shards no two tensors alike in the gradient of a maximum in windows, and gathers
# the right-hand sides of a triangular system.
_OTHERWISE = frozenset({"stablehlo.custom_call", "stablehlo.select_and_scatter", "stablehlo.triangular_solve"})


def state_rules(module: ir.Module, divisor: int = 1) -> None:
    """Give every op a rule with only those factors that have local forms.

    divisor: factors whose size it does not divide are not sharded, either.
    """
    ops = list(walk_functions(module.operation, _WALKED))
    copy_of_all = annotated_copy(module)  # keeps its ops alive
    annotated = list(walk_functions(copy_of_all, _WALKED))
    own = read_rules(module, inside=_WALKED)
    readers = Readers(shard_counts(read_meshes(module)))
    for number, (op, copy) in enumerate(zip(ops, annotated, strict=True)):
        if op.name in _BY_VALUES or op.name.startswith("sdy.") or _is_top_k(op) or is_shift(op):
            continue
        if op.name in _TRUSTED:
            _cut_evenly(op, copy, divisor)
            continue
        if Trait.COLLECTIVE in traits_of(op.name):
            op.attributes[RULE] = _by_places(op)
            continue
        if Trait.POINTWISE in traits_of(op.name) and RULE in copy.attributes:  # Shardy knows neither chlo's nor a map
            _cut_evenly(op, copy, divisor)
            continue
        if state_shift(op, readers, divisor) or state_at_index(op, devices_of(module)):
            _cut_evenly(op, op, divisor)
            continue
        found = copy.attributes[RULE] if RULE in copy.attributes and op.name not in _OTHERWISE else None
        if found is None:
            rule = _by_own_factors(op, own[number])
        else:
            rule = _restricted(op, sdy.OpShardingRuleAttr(found), own[number], devices_of(module))
        if rule is not None:
            op.attributes[RULE] = rule
        _cut_evenly(op, op if RULE in op.attributes else copy, divisor)


def _cut_evenly(op: ir.Operation, said: ir.Operation, divisor: int) -> None:
    """Mark factors whose size the divisor does not divide as needed complete. said: carries the op's rule.

    So are dimensions of 1 that a broadcast repeats: padded to the number of devices, only the first device would hold
    the element.
    """
    is_broadcast = op.name == "stablehlo.broadcast_in_dim"
    if (divisor == 1 and not is_broadcast) or RULE not in said.attributes:
        return
    rule = sdy.OpShardingRuleAttr(said.attributes[RULE])
    kept = {factor for tensor in rule.result_mappings for factor in places_of(tensor)}
    complete = {
        factor
        for factor, size in enumerate(rule.factor_sizes)
        if size % divisor or (is_broadcast and factor not in kept)
    }
    if complete - set(rule.need_replication_factors):
        op.attributes[RULE] = _with_complete(rule, complete | set(rule.need_replication_factors), is_sum=True)


def _with_complete(
    rule: sdy.OpShardingRuleAttr, complete: set[int], *, is_sum: bool, moved: Container[int] = ()
) -> ir.Attribute:
    """A rule with some factors complete. is_sum: whether others may be reduced. moved: those with exchanged rows."""
    return sdy.OpShardingRuleAttr.get(
        list(rule.factor_sizes),
        list(rule.operand_mappings),
        list(rule.result_mappings),
        reduction_factors=[each for each in rule.reduction_factors if each not in complete and is_sum],
        need_replication_factors=sorted(complete),
        permutation_factors=[each for each in rule.permutation_factors if each not in complete and each not in moved],
        blocked_propagation_factors=[each for each in rule.blocked_propagation_factors if each not in complete],
        is_custom=True,
    )


def _by_places(op: ir.Operation) -> ir.Attribute:
    """A collective's rule: it may be sharded along dimensions in which it moves nothing, each result as its operand."""
    moved = moved_dims(op)
    sizes: list[int] = []
    operands, results = [], []
    complete: list[int] = []
    for operand, result in zip(op.operands, op.results, strict=True):
        letters: list[list[int]] = [[], []]
        for dim, (before, after) in enumerate(zip(build.shape_of(operand), build.shape_of(result), strict=True)):
            letters[0].append(len(sizes))
            sizes.append(before)
            if dim in moved:
                complete += [len(sizes) - 1, len(sizes)]
                sizes.append(after)
            letters[1].append(len(sizes) - 1)
        operands.append(mapping_of(letters[0]))
        results.append(mapping_of(letters[1]))
    return sdy.OpShardingRuleAttr.get(sizes, operands, results, need_replication_factors=complete, is_custom=True)


def _by_own_factors(op: ir.Operation, own: OpRule) -> ir.Attribute | None:
    """A rule with our own factors, all else needed complete; None if no rule is possible."""
    values = [*op.operands, *op.results]
    if not len(op.operands) or not len(op.results):  # Shardy has no rules for these
        return None
    if not all(isinstance(value.type, ir.RankedTensorType) for value in values):
        return None
    sizes: list[int] = []
    letters: list[list[list[int]]] = [[[] for _ in build.shape_of(value)] for value in values]
    within: list[tuple[list[int], int]] = []
    for factor in own.factors:
        mappings = (*factor.operands, *factor.results)
        dims = [None if each is None else each.dim for each in mappings]
        if factor.kind is Kind.INDEPENDENT and not factor.reaches and _fills(factor, values, dims):
            for letter, mapping in zip(letters, mappings, strict=True):
                if mapping is not None:
                    letter[mapping.dim].append(len(sizes))
                    if mapping.inner > 1:
                        within.append((letter[mapping.dim], mapping.inner))
            sizes.append(factor.size)
    complete = len(sizes)
    for places, size in within:
        places.append(len(sizes))
        sizes.append(size)
    for value, letter in zip(values, letters, strict=True):
        for places, size in zip(letter, build.shape_of(value), strict=True):
            if not places:
                places.append(len(sizes))
                sizes.append(size)
    mappings_of = [sdy.TensorMappingAttr.get([sdy.DimMappingAttr.get(each) for each in letter]) for letter in letters]
    split = len(op.operands)
    return sdy.OpShardingRuleAttr.get(
        sizes,
        mappings_of[:split],
        mappings_of[split:],
        need_replication_factors=list(range(complete, len(sizes))),
        is_custom=True,
    )


def _restricted(op: ir.Operation, rule: sdy.OpShardingRuleAttr, own: OpRule, devices: int) -> ir.Attribute | None:
    """Shardy's rule of an op, with factors without a local form complete; None if all have one."""
    places = [places_of(tensor) for tensors in (rule.operand_mappings, rule.result_mappings) for tensor in tensors]
    count = len(rule.operand_mappings)
    replicated, exchanged = set(rule.need_replication_factors), set[int]()
    for factor in range(len(rule.factor_sizes)):
        stands = [each.get(factor) for each in places]
        if factor in replicated or _has_local_form(op, stands[:count], stands[count:], own):
            continue
        windows = any(is_exchanged(each, stands[:count], stands[count:], devices) for each in own.overlaps)
        if windows or (rule.factor_sizes[factor] % devices == 0 and _turns_or_runs(op, stands[0])):
            exchanged.add(factor)
        else:
            replicated.add(factor)
    is_choice = op.name == "stablehlo.reduce" and len(op.results) > 1
    if (
        not replicated and not exchanged and not is_choice
    ):  # ops with explicit rules are left alone: their choices are no sums
        return None
    return _with_complete(rule, replicated, is_sum=not is_choice, moved=exchanged)


def _has_local_form(op: ir.Operation, operands: list[int | None], results: list[int | None], own: OpRule) -> bool:
    """Whether local shards along a factor can be computed from the operands' shards.

    operands, results: the dimension of the factor, by tensor.
    """
    if op.name in (GATHER, SCATTER):
        if operands[0] is not None and operands[0] in indexed_dims(op):
            return True
        if op.name == SCATTER and not any(each is not None for each in results):
            return is_summing(op)
    if op.name == "stablehlo.reduce" and not any(each is not None for each in results):
        return _adds_between_devices(op) or chooses_from_the_end(op)
    values = [*op.operands, *op.results]
    if not any(each is not None for each in results):
        return op.name == "stablehlo.convolution" and any(
            factor.kind is Kind.REDUCING and _fills(factor, values, [*operands, *results]) for factor in own.factors
        )
    return any(
        factor.kind is Kind.INDEPENDENT and not factor.reaches and _fills(factor, values, [*operands, *results])
        for factor in own.factors
    )


def _turns_or_runs(op: ir.Operation, dim: int | None) -> bool:
    """Whether the op reverses a dimension, or is a running sum along it."""
    if op.name == "stablehlo.reverse":
        return dim in integers(op, "dimensions", [])
    return dim is not None and runs_along(op, dim)


def _adds_between_devices(op: ir.Operation) -> bool:
    """Whether XLA's all-reduce can combine as the reduce does: not by exclusive or, nor by bits of integers."""
    if len(op.results) != 1:
        return False
    is_bit = build.tensor_of(op.results[0]).element_type == ir.IntegerType.get_signless(1)
    return monoid_of(op) in ({"add", "multiply", "maximum", "minimum"} | ({"and", "or"} if is_bit else set()))


def _fills(factor: Factor, values: Sequence[ir.Value], dims: Sequence[int | None]) -> bool:
    """Whether the factor fills these dimensions of the values, and is in no others."""
    for value, mapping, dim in zip(values, (*factor.operands, *factor.results), dims, strict=True):
        if mapping is None or dim is None:
            if mapping is not None or dim is not None:
                return False
        elif (mapping.dim, mapping.low, mapping.length) != (
            dim,
            0,
            factor.size,
        ) or factor.size * mapping.inner != build.shape_of(value)[dim]:
            return False
    return True


def _is_top_k(op: ir.Operation) -> bool:
    return "call_target_name" in op.attributes and op.attributes["call_target_name"] == ir.StringAttr.get(TOP_K)
