"""All ops by name, and the rule of every op of a module: along which factors it may be cut, and why not along others.

To add an op, write its definition in the file of its family, and an example row in tests/unit/test_factors.py, which
runs it in slices.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import overload

from jaxlib.mlir import ir

from exla_opt.ir.diagnostics import error_at
from exla_opt.ir.walk import CONTROL_FLOW, walk_functions
from exla_opt.remarks import Reason

from . import (
    collectives,
    control,
    creation,
    custom_calls,
    indexing,
    linear,
    movement,
    parts,
    pointwise,
    random,
    reductions,
    scatters,
    windows,
)
from .barriers import BarrierRule
from .control_factors import ControlRule
from .definition import BY_BLOCKS, BY_PAIRS, BY_TARGET, NONE, ByShardy, OpDefinition
from .effects import CUSTOM_CALL, has_side_effect
from .factor import DimMapping, Factor, Kind, OpRule, Shape, Shapes, factors_of, why_uncut
from .overlaps import overlaps_of
from .shardy import RULE, RuleReader, annotated_copy

__all__ = ["OPS", "Factor", "Kind", "OpRule", "DimMapping", "read_rules"]

FAMILIES = (
    collectives.OPS,
    control.OPS,
    creation.OPS,
    custom_calls.OPS,
    indexing.OPS,
    scatters.OPS,
    linear.OPS,
    movement.OPS,
    parts.OPS,
    pointwise.OPS,
    random.OPS,
    reductions.OPS,
    windows.OPS,
)
# All defined ops, by their full names.
OPS: Mapping[str, OpDefinition] = MappingProxyType({name: op for family in FAMILIES for name, op in family.items()})


def read_rules(
    module: ir.Module, op_rules: tuple[tuple[str, str], ...] = (), inside: Container[str] = CONTROL_FLOW
) -> Sequence[OpRule]:
    """The rule of every op in the module's functions, in the order of `walk` over their blocks.

    Each is computed on demand: most ops have no connection to a big tensor. The module must not change before the first
    rule that needs Shardy is read.

    op_rules: (call target, rule text) pairs for custom calls. inside: the names of the ops whose regions count. The
    module is not changed. Raises ValueError for a rule text that cannot be read, and InputError for a rule that does
    not fit its call.
    """
    reader = _Reader({target: custom_calls.parse_user_rule(target, text) for target, text in op_rules})
    rules = _Rules(module, reader, inside)
    if op_rules:  # report errors in the user's rules at once
        for number, op in enumerate(rules.ops):
            if op.name == CUSTOM_CALL:
                rules[number]
    return rules


class _Rules(Sequence[OpRule]):
    """The rules of a module's ops; see `read_rules`."""

    def __init__(self, module: ir.Module, reader: _Reader, inside: Container[str]):
        self.inside = inside
        self.module = module
        self.reader = reader
        self.ops = list(walk_functions(module.operation, inside))
        self.made: dict[int, OpRule] = {}

    @cached_property
    def copy(self) -> ir.Operation:
        """The module with Shardy's attributes; keeps its ops alive."""
        return annotated_copy(self.module)

    @cached_property
    def annotated(self) -> list[ir.Operation]:
        """The same ops with Shardy's attributes."""
        found = list(walk_functions(self.copy, self.inside))
        if len(found) != len(self.ops):
            raise RuntimeError("the module has changed since its ops were counted")
        return found

    def __len__(self) -> int:
        return len(self.ops)

    @overload
    def __getitem__(self, number: int) -> OpRule: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[OpRule]: ...
    def __getitem__(self, number: int | slice) -> OpRule | Sequence[OpRule]:
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        if number not in self.made:
            self.made[number] = self.make(number)
        return self.made[number]

    def make(self, number: int) -> OpRule:
        op = self.ops[number]
        definition = OPS.get(op.name)
        if definition is not None and definition.factors is BY_BLOCKS:
            return ControlRule((), Reason("EX301", definition.reason.format(op.name)), op, number, self)
        return self.reader.rule_of(op, lambda: self.annotated[number])


_Signature = tuple[tuple[ir.Type, ...], tuple[ir.Type, ...]]


class _Reader:
    """Computes rules. Parts that depend only on an op's name, types and sharding rule are cached."""

    def __init__(self, user_rules: dict[str, custom_calls.UserRule]):
        self.user_rules = user_rules
        self.shardy = RuleReader()
        self.shape_of: dict[ir.Type, Shape | None] = {}
        self.shapes_of: dict[_Signature, Shapes | None] = {}
        self.known: dict[tuple[str, ir.Attribute | None, _Signature], OpRule] = {}

    def rule_of(self, op: ir.Operation, annotated: Callable[[], ir.Operation]) -> OpRule:
        """The rule of one op. annotated: returns it with Shardy's attribute; the module must be unchanged for that."""
        name = op.name
        signature = (tuple(v.type for v in op.operands), tuple(v.type for v in op.results))
        shapes = self.shapes(signature)
        definition = OPS.get(name)
        factors = NONE if definition is None else definition.factors
        if factors is BY_TARGET:
            return self.call(op, annotated(), shapes)
        if factors is BY_PAIRS and shapes is not None and definition is not None:
            own = pointwise.pointwise_factors(op, shapes) if len(shapes.operands) == 1 else ()
            return BarrierRule(own, Reason("EX201", definition.reason), shapes.operands)
        if shapes is None or definition is None or factors is NONE or factors is BY_BLOCKS or factors is BY_PAIRS:
            return self.remembered(name, None, signature, lambda: OpRule((), _refusal(name, definition)))
        if not isinstance(factors, ByShardy):
            made = _rule(name, shapes, factors(op, shapes), definition.reason.format(name))
            if name in collectives.OPS and collectives.MARK not in op.attributes:
                return collectives.CollectiveRule((), Reason("EX203", definition.reason.format(name)), inside=made)
            return replace(made, overlaps=tuple(overlaps_of(op, shapes)))
        attribute = annotated().attributes.get(RULE)
        if factors.adapt is not None:
            adapted = factors.adapt(op, shapes, self.by_shardy(factors, attribute, shapes))
            return _rule(name, shapes, adapted, definition.reason)
        return self.remembered(
            name,
            attribute,
            signature,
            lambda: _rule(name, shapes, self.by_shardy(factors, attribute, shapes), definition.reason),
        )

    def remembered(
        self, name: str, attribute: ir.Attribute | None, signature: _Signature, make: Callable[[], OpRule]
    ) -> OpRule:
        key = (name, attribute, signature)
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = make()
        return found

    def shapes(self, signature: _Signature) -> Shapes | None:
        """The shapes of a signature; None if a type is not a tensor of static shape."""
        if signature not in self.shapes_of:
            operands, results = (tuple(map(self.shape, types)) for types in signature)
            known = all(shape is not None for shape in (*operands, *results))
            self.shapes_of[signature] = Shapes(operands, results) if known else None  # type: ignore[arg-type]
        return self.shapes_of[signature]

    def shape(self, kind: ir.Type) -> Shape | None:
        if kind not in self.shape_of:
            tensor = kind if isinstance(kind, ir.RankedTensorType) and kind.has_static_shape else None
            self.shape_of[kind] = tuple(tensor.shape) if tensor else None
        return self.shape_of[kind]

    def by_shardy(self, how: ByShardy, attribute: ir.Attribute | None, shapes: Shapes) -> tuple[Factor, ...]:
        if attribute is None:
            return ()
        return factors_of(self.shardy.read(attribute, how.sums), shapes, makes=how.makes)

    def call(self, op: ir.Operation, annotated: ir.Operation, shapes: Shapes | None) -> OpRule:
        target = custom_calls.target_of(op)
        name = f"custom_call @{target}"
        if shapes is None:
            return OpRule((), _refusal(name, None))
        if has_side_effect(op):
            return OpRule((), Reason("EX203", f"{name} has a side effect"))
        if target in self.user_rules:
            try:
                return _rule(name, shapes, custom_calls.factors_by_user(self.user_rules[target], shapes), "")
            except ValueError as error:
                raise error_at(op.location, str(error), "correct --op-rule, or leave it out") from None
        factors = custom_calls.own_factors(op, target, shapes)
        trusted = custom_calls.trusts_rule(op, target)
        if not factors and trusted:
            factors = self.by_shardy(ByShardy(), annotated.attributes[RULE], shapes)
        # A rule without factors is information too: asking the user for another one would invite a wrong one.
        known = factors or trusted
        return _rule(name, shapes, factors, "") if known else OpRule((), _refusal(name, None))


def _refusal(name: str, definition: OpDefinition | None) -> Reason:
    """Why an op without factors is not cut; or one that only lacks a static shape."""
    if definition is None or (definition.factors is NONE and not definition.reason):
        return Reason("EX202", f"no splitting rule for {name}")
    if definition.factors is NONE:
        return Reason("EX203", definition.reason.format(name))
    return Reason("EX202", f"{name} has an operand or result without a static shape")


def _rule(name: str, shapes: Shapes, factors: tuple[Factor, ...], reason: str) -> OpRule:
    return OpRule(factors, Reason("EX201", reason or why_uncut(name, shapes, factors)))
