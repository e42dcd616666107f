"""Shardy's sharding rules, read as einsums.

A rule says where a partitioner may shard an op, with communication or masking if needed; the guards in
`factor.factors_of` and the ops' own `adapt` keep the factors that also hold for plain slices.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir, passmanager
from jaxlib.mlir.dialects import sdy

from .effects import CUSTOM_CALL
from .factor import Einsum, Letters
from .sizes import shapes_of

RULE = "sdy.sharding_rule"
_ON_TUPLES = frozenset({CUSTOM_CALL, "stablehlo.get_tuple_element", "stablehlo.tuple"})
_PIPELINE = "builtin.module(func.func(sdy-populate-op-sharding-rules))"


def annotated_copy(module: ir.Module) -> ir.Operation:
    """A copy of the module with a sharding rule on every op that Shardy knows. Raises MLIRError on dynamic shapes."""
    copy = module.operation.clone(ip=False).operation
    _hide_tuples(copy)
    with module.context:
        passmanager.PassManager.parse(_PIPELINE).run(copy)
    return copy


def _hide_tuples(copy: ir.Operation) -> None:
    """Replace ops that read or return tuples, of which Shardy's pass crashes, by calls with the other operands.

    The ops keep their places. `normalise` unpacks the tuples of calls; this is for modules as they come.
    """
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name in _ON_TUPLES and any(isinstance(value.type, ir.TupleType) for value in (*op.operands, *op.results)):
            found.append(op)
        return ir.WalkResult.ADVANCE

    copy.walk(visit)
    for op in reversed(found):
        operands = [value for value in op.operands if not isinstance(value.type, ir.TupleType)]
        results = [value for value in op.results if not isinstance(value.type, ir.TupleType)]
        if any(next(iter(value.uses), None) is not None for value in op.results if value not in results):
            continue  # a terminator or an op with regions reads it
        name: dict[str, ir.Attribute] = {"call_target_name": ir.StringAttr.get(op.name, copy.context)}
        kinds = [value.type for value in results]
        call = ir.Operation.create(CUSTOM_CALL, kinds, operands, name, loc=op.location, ip=ir.InsertionPoint(op))
        for old, new in zip(results, call.results, strict=True):
            old.replace_all_uses_with(new)
        op.erase()


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
