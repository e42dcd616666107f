"""Shardy's sharding rules, read as einsums.

A rule says where a partitioner may shard an op, with communication or masking if needed; the guards in
`factor.factors_of` and the ops' own `adapt` keep the factors that also hold for plain slices.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir, passmanager
from jaxlib.mlir.dialects import sdy

from .factor import Einsum, Letters
from .sizes import shapes_of

RULE = "sdy.sharding_rule"
_PIPELINE = "builtin.module(func.func(sdy-populate-op-sharding-rules))"


def annotated_copy(module: ir.Module) -> ir.Operation:
    """A copy of the module with a sharding rule on every op that Shardy knows. Raises MLIRError on dynamic shapes."""
    copy = module.operation.clone(ip=False).operation
    with module.context:
        passmanager.PassManager.parse(_PIPELINE).run(copy)
    return copy


class RuleReader:
    """Reads sharding rules; the many equal mappings are read once."""

    def __init__(self) -> None:
        self._tensors: dict[ir.Attribute, Letters] = {}

    def read(self, attribute: ir.Attribute, summing: bool) -> Einsum:
        """The rule as an einsum. summing: whether the op may be cut along what the rule calls a reduction."""
        rule = sdy.OpShardingRuleAttr(attribute)
        uncut = {*rule.need_replication_factors, *rule.permutation_factors}
        reduction = set(rule.reduction_factors)
        return Einsum(
            self._letters(rule.operand_mappings),
            self._letters(rule.result_mappings),
            dict(enumerate(rule.factor_sizes)),
            summed=reduction if summing else (),
            uncut=uncut if summing else uncut | reduction,
        )

    def _letters(self, mappings: Sequence[ir.Attribute]) -> list[Letters]:
        return [self._tensor(mapping) for mapping in mappings]

    def _tensor(self, mapping: ir.Attribute) -> Letters:
        if mapping not in self._tensors:
            dims = sdy.TensorMappingAttr(mapping).dim_mappings
            self._tensors[mapping] = [list(sdy.DimMappingAttr(dim).factor_indices) for dim in dims]
        return self._tensors[mapping]


def resize_rule(op: ir.Operation) -> None:
    """Update the letter sizes in the rule of a custom call after its types; a rule that merges letters is dropped."""
    rule = sdy.OpShardingRuleAttr(op.attributes[RULE])
    sizes = list(rule.factor_sizes)
    mappings = [*rule.operand_mappings, *rule.result_mappings]
    for mapping, shape in zip(mappings, shapes_of(op), strict=True):
        for dim, size in zip(sdy.TensorMappingAttr(mapping).dim_mappings, shape, strict=True):
            letters = list(sdy.DimMappingAttr(dim).factor_indices)
            if len(letters) != 1:
                del op.attributes[RULE]
                return
            sizes[letters[0]] = size
    op.attributes[RULE] = sdy.OpShardingRuleAttr.get(
        sizes,
        rule.operand_mappings,
        rule.result_mappings,
        rule.reduction_factors,
        rule.need_replication_factors,
        rule.permutation_factors,
        rule.blocked_propagation_factors,
        rule.is_custom,
    )
