"""What is known of each op: along which factors it may be cut, and how (design: factors).

To add an op: put its name on the list of ops whose Shardy rule is true of slices, or give it a function in
`_OWN`; then add an example row to tests/unit/test_factors.py, which runs it in slices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import overload

from jaxlib.mlir import ir

from exla_opt.ir.diagnostics import error_at
from exla_opt.ir.walk import CONTROL_FLOW, walk_functions
from exla_opt.remarks import Reason

from . import custom_calls, indexing, linear, pointwise, windows
from .effects import has_side_effect
from .factor import DimMapping, Factor, Kind, OpRule, Shape, Shapes, factors_of, why_whole
from .shardy import RULE, RuleReader, annotated_copy

__all__ = ["Factor", "Kind", "OpRule", "DimMapping", "read_rules"]

# Ops whose Shardy rule, under the guards of `factors_of`, is a true statement about slices (each was run in slices).
_TRUSTED = pointwise.STABLEHLO_POINTWISE | frozenset(
    "stablehlo." + name
    for name in (
        "bitcast_convert broadcast_in_dim reshape transpose gather scatter "
        "dot dot_general sort cholesky fft batch_norm_inference"
    ).split()
)
_SUMMING = frozenset({"stablehlo.dot", "stablehlo.dot_general"})
_MAKING = frozenset({"stablehlo.broadcast_in_dim"})

_OwnRule = Callable[[ir.Operation, Shapes], tuple[Factor, ...]]

# Ops for which Shardy has no rule, one that is not true of slices, or a weaker one.
_OWN: dict[str, _OwnRule] = {
    **dict.fromkeys(pointwise.CHLO_POINTWISE, pointwise.pointwise),
    **dict.fromkeys(pointwise.CHLO_BROADCASTING, pointwise.broadcasting),
    "chlo.constant": pointwise.constant,
    "chlo.top_k": linear.chlo_top_k,
    "stablehlo.batch_norm_grad": linear.batch_norm,
    "stablehlo.batch_norm_training": linear.batch_norm,
    "stablehlo.concatenate": indexing.concatenate,
    "stablehlo.constant": pointwise.constant,
    "stablehlo.convolution": windows.convolution,
    "stablehlo.dynamic_slice": indexing.dynamic_slice,
    "stablehlo.dynamic_update_slice": indexing.dynamic_update_slice,
    "stablehlo.einsum": linear.einsum,
    "stablehlo.iota": pointwise.iota,
    "stablehlo.map": pointwise.mapped,
    "stablehlo.optimization_barrier": pointwise.barrier,
    "stablehlo.pad": indexing.pad,
    "stablehlo.reduce": linear.reduce,
    "stablehlo.reduce_window": windows.reduce_window,
    "stablehlo.reverse": indexing.reverse,
    "stablehlo.select_and_scatter": windows.select_and_scatter,
    "stablehlo.slice": indexing.slice_,
    "stablehlo.triangular_solve": linear.triangular_solve,
}

# Why the dimensions without a factor are whole, where naming the dimensions would say too little.
_REASONS = {
    "chlo.top_k": "chlo.top_k compares all elements of its last dimension",
    "stablehlo.cholesky": "stablehlo.cholesky couples all rows and columns of a matrix",
    "stablehlo.constant": "the elements of this stablehlo.constant differ: it is read in slices",
    "stablehlo.fft": "stablehlo.fft couples all elements of the dimensions that it transforms",
    "stablehlo.gather": "stablehlo.gather may read any row of the dimensions that it indexes",
    "stablehlo.optimization_barrier": "stablehlo.optimization_barrier holds several tensors together",
    "stablehlo.reduce_window": "stablehlo.reduce_window has windows that overlap: each tile reads its operand whole",
    "stablehlo.scatter": "stablehlo.scatter may write any row of the dimensions that it indexes",
    "stablehlo.sort": "stablehlo.sort compares all elements along the dimension that it sorts",
    "stablehlo.triangular_solve": "stablehlo.triangular_solve couples all rows of the matrix",
}
_NEVER = {
    **dict.fromkeys(("stablehlo.rng", "stablehlo.rng_bit_generator"), "{} draws numbers that depend on their position"),
    **dict.fromkeys(CONTROL_FLOW, "{} is not cut itself: its blocks are"),
    **dict.fromkeys(
        (
            "stablehlo.all_gather",
            "stablehlo.all_reduce",
            "stablehlo.all_to_all",
            "stablehlo.collective_broadcast",
            "stablehlo.collective_permute",
            "stablehlo.cross-replica-sum",
            "stablehlo.reduce_scatter",
        ),
        "{} talks to other devices",
    ),
}


def read_rules(module: ir.Module, op_rules: tuple[tuple[str, str], ...] = ()) -> Sequence[OpRule]:
    """The rule of every op in the module's functions, in the order of `walk` over their blocks.

    Each is worked out when it is asked for: most ops have nothing to do with a big tensor. The module must not have
    changed before the first is.

    op_rules: (call target, rule text) pairs for custom calls. The module is not changed. Raises ValueError for a
    rule text that cannot be read, and InputError for a rule that does not fit its call.
    """
    reader = _Reader({target: custom_calls.parse_user_rule(target, text) for target, text in op_rules})
    rules = _Rules(module, reader)
    if op_rules:  # what is wrong with the user's own is told at once
        for number, op in enumerate(rules.ops):
            if op.name == "stablehlo.custom_call":
                rules[number]
    return rules


class _Rules(Sequence[OpRule]):
    """The rules of a module's ops; see `read_rules`."""

    def __init__(self, module: ir.Module, reader: _Reader):
        self.module = module
        self.reader = reader
        self.ops = list(walk_functions(module.operation))
        self.made: dict[int, OpRule] = {}

    @cached_property
    def copy(self) -> ir.Operation:
        """The module with Shardy's attributes; its ops live as long as it is held."""
        return annotated_copy(self.module)

    @cached_property
    def annotated(self) -> list[ir.Operation]:
        """The same ops with Shardy's attributes."""
        found = list(walk_functions(self.copy))
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
            self.made[number] = self.reader.rule_of(self.ops[number], self.annotated[number])
        return self.made[number]


_Signature = tuple[tuple[ir.Type, ...], tuple[ir.Type, ...]]


class _Reader:
    """Makes rules. What depends on an op's name, types and sharding rule alone is made once."""

    def __init__(self, user_rules: dict[str, custom_calls.UserRule]):
        self.user_rules = user_rules
        self.shardy = RuleReader()
        self.shape_of: dict[ir.Type, Shape | None] = {}
        self.shapes_of: dict[_Signature, Shapes | None] = {}
        self.known: dict[tuple[str, ir.Attribute | None, _Signature], OpRule] = {}

    def rule_of(self, op: ir.Operation, annotated: ir.Operation) -> OpRule:
        """The rule of one op. annotated: the same op with Shardy's attribute."""
        name = op.name
        signature = (tuple(v.type for v in op.operands), tuple(v.type for v in op.results))
        shapes = self.shapes(signature)
        if name == "stablehlo.custom_call":
            return self.call(op, annotated, shapes)
        if shapes is None or name in _NEVER or (name not in _TRUSTED and name not in _OWN):
            return self.remembered(name, None, signature, lambda: OpRule((), _refusal(name, shapes)))
        if name in _OWN:
            return _rule(name, shapes, _OWN[name](op, shapes))
        attributes = annotated.attributes
        attribute = attributes.get(RULE)
        if name == "stablehlo.scatter":
            windows_ = indexing.scatter_windows(self.by_shardy(name, attribute, shapes), len(shapes.results))
            return _rule(name, shapes, windows_ + indexing.scatter_chain(op, shapes))
        if name == "stablehlo.gather":
            return _rule(name, shapes, self.by_shardy(name, attribute, shapes) + indexing.gather_windows(op, shapes))
        return self.remembered(
            name, attribute, signature, lambda: _rule(name, shapes, self.by_shardy(name, attribute, shapes))
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
        """The shapes of a signature; None where one of the types is not a tensor of fixed shape."""
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

    def by_shardy(self, name: str, attribute: ir.Attribute | None, shapes: Shapes) -> tuple[Factor, ...]:
        if attribute is None:
            return ()
        return factors_of(self.shardy.read(attribute, name in _SUMMING), shapes, makes=name in _MAKING)

    def call(self, op: ir.Operation, annotated: ir.Operation, shapes: Shapes | None) -> OpRule:
        target = custom_calls.target_of(op)
        name = f"custom_call @{target}"
        if shapes is None:
            return OpRule((), _refusal(name, shapes))
        if has_side_effect(op):
            return OpRule((), Reason("EX203", f"{name} has a side effect"))
        if target in self.user_rules:
            try:
                return _rule(name, shapes, custom_calls.factors_by_user(self.user_rules[target], shapes))
            except ValueError as error:
                raise error_at(op.location, str(error), "correct --op-rule, or leave it out") from None
        factors = custom_calls.own_factors(op, target, shapes)
        trusted = custom_calls.trusts_rule(op, target)
        if not factors and trusted:
            factors = self.by_shardy(name, annotated.attributes[RULE], shapes)
        # A rule without a factor to cut is knowledge too: asking the user for another one would invite a wrong one.
        known = factors or trusted
        return _rule(name, shapes, factors) if known else OpRule((), Reason("EX202", f"no splitting rule for {name}"))


def _refusal(name: str, shapes: Shapes | None) -> Reason:
    if name in _NEVER:
        return Reason("EX203", _NEVER[name].format(name))
    if shapes is None and (name in _TRUSTED or name in _OWN):
        return Reason("EX202", f"{name} has an operand or result of no fixed shape")
    return Reason("EX202", f"no splitting rule for {name}")


def _rule(name: str, shapes: Shapes, factors: tuple[Factor, ...]) -> OpRule:
    return OpRule(factors, Reason("EX201", _REASONS.get(name) or why_whole(name, shapes, factors)))
