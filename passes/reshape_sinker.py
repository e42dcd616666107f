"""reshape-sinker: reshapes and transposes before dots, reduces and elementwise ops -> behind them, or gone.

    dot(reshape(x), y)    ->   reshape(dot(x, y))         f(reshape(x), reshape(y))   ->   reshape(f(x, y))
    dot(transpose(x), y)  ->   dot(x, y), other numbers   reduce(transpose(x))        ->   reduce(x), other numbers

Applies where the op needs what it contracts or sums, or each element, in the same groups before and after the reshape.
Elementwise ops only above the threshold: there a merged or split dimension stands in the splitter's way. Leaves alone
a reshape that others read as well. What meets on the way is merged as rce does. Terminates: every rewrite moves a
reshape or transpose behind one more op, or takes it away, and adds none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.analysis.graph import Types
from exla_opt.analysis.op_rules.attributes import integers
from exla_opt.analysis.op_rules.pointwise import STABLEHLO_POINTWISE
from exla_opt.ir import build
from exla_opt.ir.rewrite import Pattern, apply_patterns, maker
from exla_opt.options import Options
from exla_opt.passes import normalise, rce
from exla_opt.remarks import Remark

_RESHAPE, _TRANSPOSE = "stablehlo.reshape", "stablehlo.transpose"


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Sink reshapes and transposes until none sinks further; those that meet become one, or none."""
    patterns = make_patterns(options.size_threshold)
    changed = True
    while changed:
        changed = apply_patterns(module, patterns)
        changed = apply_patterns(module, rce.PATTERNS) or changed
        normalise.clean_up(module)
    return []


@dataclass(frozen=True, slots=True)
class Group:
    """Dimensions that a reshape makes into others of the same number of elements."""

    before: tuple[int, ...]
    after: tuple[int, ...]


def groups_of(before: Sequence[int], after: Sequence[int]) -> list[Group] | None:
    """The smallest groups, in order; sizes of 1 join the group on their left. None for empty tensors."""
    if prod(before) == 0:
        return None
    groups: list[Group] = []
    one = other = 0
    while one < len(before) or other < len(after):
        start, begin = one, other
        sizes = [1, 1]
        while sizes[0] != sizes[1] or sizes[0] == 1:
            if sizes[0] <= sizes[1] and one < len(before):
                sizes[0] *= before[one]
                one += 1
            elif other < len(after):
                sizes[1] *= after[other]
                other += 1
            else:
                break
        while one < len(before) and before[one] == 1:
            one += 1
        while other < len(after) and after[other] == 1:
            other += 1
        groups.append(Group(tuple(range(start, one)), tuple(range(begin, other))))
    return groups


def _only(value: ir.Value, name: str) -> ir.Operation | None:
    """The op of this name that makes the value for one reader alone."""
    op = maker(value, name)
    return op if op is not None and len(list(value.uses)) == 1 else None


def _is_whole(group: Group, before: Sequence[int], after: Sequence[int]) -> bool:
    """Whether the group is one dimension, the same before and after."""
    return [n for d in group.before if (n := before[d]) != 1] == [n for d in group.after if (n := after[d]) != 1]


def reduce_of_reshape(op: ir.Operation) -> ir.Value | None:
    """reduce(reshape(x)) = reshape(reduce(x)), where every group is summed as a whole or not at all"""
    inner = _only(op.operands[0], _RESHAPE) if len(op.results) == 1 else None
    if inner is None:
        return None
    before, after = build.shape_of(inner.operands[0]), build.shape_of(inner.results[0])
    away = set(integers(op, "dimensions", []))
    dims: list[int] = []
    for group in groups_of(before, after) or ():
        inside = [dim in away for dim in group.after if after[dim] != 1]
        if any(inside) and not all(inside):
            return None
        if any(inside):
            dims += group.before
    if not dims:
        return None
    shape = [size for dim, size in enumerate(before) if dim not in dims]
    made = _clone(op, [inner.operands[0], *list(op.operands)[1:]], shape, {"dimensions": dims})
    return made if made.type == op.results[0].type else stablehlo.reshape(op.results[0].type, made)


def reduce_of_transpose(op: ir.Operation) -> ir.Value | None:
    """reduce(transpose(x, p), d) = reduce(x, p[d]), transposed where the rest is in another order"""
    inner = _only(op.operands[0], _TRANSPOSE) if len(op.results) == 1 else None
    if inner is None:
        return None
    permutation = integers(inner, "permutation", [])
    away = integers(op, "dimensions", [])
    dims = sorted(permutation[dim] for dim in away)
    source = build.shape_of(inner.operands[0])
    rest = [dim for dim in range(len(source)) if dim not in dims]
    wanted = [dim for place, dim in enumerate(permutation) if place not in away]
    made = _clone(op, [inner.operands[0], *list(op.operands)[1:]], [source[dim] for dim in rest], {"dimensions": dims})
    if rest == wanted:
        return made
    return stablehlo.transpose(made, ir.DenseI64ArrayAttr.get([rest.index(dim) for dim in wanted]))


def _clone(
    op: ir.Operation, operands: Sequence[ir.Value], shape: Sequence[int], numbers: dict[str, list[int]]
) -> ir.Value:
    made = op.clone(ip=ir.InsertionPoint.current).operation
    for index, value in enumerate(operands):
        made.operands[index] = value
    for name, values in numbers.items():
        made.attributes[name] = ir.DenseI64ArrayAttr.get(values)
    made.results[0].set_type(build.with_shape(build.tensor_of(op.results[0]), shape))
    result: ir.Value = made.results[0]
    return result


@dataclass(frozen=True, slots=True)
class _Side:
    """One operand of a dot: the value, and which of its dimensions are batch, contracted and free."""

    value: ir.Value
    batch: list[int]
    contracted: list[int]

    @property
    def free(self) -> list[int]:
        return [d for d in range(len(build.shape_of(self.value))) if d not in self.batch and d not in self.contracted]

    @property
    def free_shape(self) -> list[int]:
        shape = build.shape_of(self.value)
        return [shape[dim] for dim in self.free]


def _sides(op: ir.Operation) -> list[_Side]:
    numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    return [
        _Side(op.operands[0], list(numbers.lhs_batching_dimensions), list(numbers.lhs_contracting_dimensions)),
        _Side(op.operands[1], list(numbers.rhs_batching_dimensions), list(numbers.rhs_contracting_dimensions)),
    ]


def _dot(op: ir.Operation, sides: Sequence[_Side]) -> ir.Value:
    """The dot of other operands, all else as it was."""
    left, right = sides
    batch = [build.shape_of(left.value)[dim] for dim in left.batch]
    numbers = stablehlo.DotDimensionNumbers.get(left.batch, right.batch, left.contracted, right.contracted)
    made = op.clone(ip=ir.InsertionPoint.current).operation
    made.attributes["dot_dimension_numbers"] = numbers
    for index, side in enumerate(sides):
        made.operands[index] = side.value
    shape = [*batch, *left.free_shape, *right.free_shape]
    made.results[0].set_type(build.with_shape(build.tensor_of(op.results[0]), shape))
    result: ir.Value = made.results[0]
    return result


def dot_of_transpose(op: ir.Operation) -> ir.Value | None:
    """dot(transpose(x), y) = dot(x, y) by other numbers, where the free dimensions keep their order"""
    sides = _sides(op)
    for index, side in enumerate(sides):
        inner = maker(side.value, _TRANSPOSE)
        if inner is None:
            continue
        permutation = integers(inner, "permutation", [])
        free = [permutation[dim] for dim in side.free]
        if free != sorted(free):
            continue
        batch, contracted = ([permutation[dim] for dim in dims] for dims in (side.batch, side.contracted))
        sides[index] = _Side(inner.operands[0], batch, contracted)
        return _dot(op, sides)
    return None


def dot_of_reshape(op: ir.Operation) -> ir.Value | None:
    """dot(reshape(x), y) = reshape(dot(x, y)), where the reshape only merges or splits free dimensions of x"""
    sides = _sides(op)
    for index, side in enumerate(sides):
        inner = _only(side.value, _RESHAPE)
        below = None if inner is None else _before_reshape(inner, side)
        if below is None:
            continue
        sides[index] = below
        return stablehlo.reshape(op.results[0].type, _dot(op, sides))
    return None


def _before_reshape(inner: ir.Operation, side: _Side) -> _Side | None:
    before, after = build.shape_of(inner.operands[0]), build.shape_of(inner.results[0])
    bound = {*side.batch, *side.contracted}
    place: dict[int, int] = {}
    for group in groups_of(before, after) or ():
        held = [dim for dim in group.after if dim in bound]
        if not held:
            continue
        if not _is_whole(group, before, after):
            return None
        source = [dim for dim in group.before if before[dim] != 1]
        if any(after[dim] == 1 for dim in held) or len(source) != len(held):
            return None
        place.update(zip(held, source, strict=True))
    if len(place) != len(bound):
        return None
    batch, contracted = ([place[dim] for dim in dims] for dims in (side.batch, side.contracted))
    below = _Side(inner.operands[0], batch, contracted)
    # Sizes of 1 that were bound in a group of their own would become free.
    return below if prod(below.free_shape) == prod(side.free_shape) else None


def elementwise_of(name: str, attribute: str | None, threshold: int) -> Pattern:
    """The pattern f(m(x), m(y), ...) = m(f(x, y, ...)) for one kind of movement m, a reshape or a transpose."""
    types = Types()

    def pattern(op: ir.Operation) -> ir.Value | None:
        """f(m(x), m(y), ...) = m(f(x, y, ...)), above the threshold; numbers and 0-d operands as they are"""
        if len(op.results) != 1 or types.of(op.results[0]).bytes <= threshold:
            return None
        moved: list[ir.Operation] = []
        sources: list[ir.Value | None] = []
        for operand in op.operands:
            inner = _only(operand, name)
            if inner is not None:
                moved.append(inner)
                sources.append(inner.operands[0])
            elif not build.shape_of(operand) or _number(operand) is not None:
                sources.append(None)
            else:
                return None
        if not moved or len({str(_key(inner, attribute)) for inner in moved}) > 1:
            return None
        shape = build.shape_of(moved[0].operands[0])
        operands = [
            source if source is not None else _as_wide(operand, shape)
            for operand, source in zip(op.operands, sources, strict=True)
        ]
        made = _clone(op, operands, shape, {})
        if attribute is None:
            return stablehlo.reshape(op.results[0].type, made)
        return stablehlo.transpose(made, ir.DenseI64ArrayAttr.get(integers(moved[0], attribute, [])))

    return pattern


def _key(inner: ir.Operation, attribute: str | None) -> tuple[list[int], list[int]]:
    return build.shape_of(inner.operands[0]), integers(inner, attribute, []) if attribute else []


def _number(value: ir.Value) -> ir.Value | None:
    """The 0-d tensor that is repeated to make the value."""
    spread = maker(value, "stablehlo.broadcast_in_dim")
    return spread.operands[0] if spread is not None and not build.shape_of(spread.operands[0]) else None


def _as_wide(operand: ir.Value, shape: Sequence[int]) -> ir.Value:
    number = _number(operand)
    return operand if number is None else build.broadcast(number, shape)


def make_patterns(threshold: int) -> dict[str, tuple[Pattern, ...]]:
    """The patterns by op. threshold: bytes above which elementwise ops are moved too."""
    elementwise = (
        elementwise_of(_RESHAPE, None, threshold),
        elementwise_of(_TRANSPOSE, "permutation", threshold),
    )
    return {
        **dict.fromkeys(STABLEHLO_POINTWISE, elementwise),
        "stablehlo.dot_general": (dot_of_transpose, dot_of_reshape),
        "stablehlo.reduce": (reduce_of_transpose, reduce_of_reshape),
    }
