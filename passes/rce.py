"""rce: redundant reshapes, transposes, broadcasts, converts and the like -> nothing, or one op in the place of two.

    reshape(reshape(x))       ->   reshape(x)          transpose(transpose(x))   ->   transpose(x), or x
    broadcast(reshape(x))     ->   broadcast(x)        reduce over sizes of 1    ->   reshape(x)

Applies everywhere. Every pattern is one equation, exact in every bit but the sign of a zero that is added to zero.
Refuses nothing and says nothing: what does not fit stays. Terminates: every rewrite lowers the number of ops, or keeps
it and turns a transpose or a broadcast into a reshape, or a reshape before a reduce into a smaller one behind it.
"""

from __future__ import annotations

from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.analysis.op_rules.attributes import integers
from exla_opt.analysis.op_rules.bodies import body_of, componentwise, element_type, float_bits
from exla_opt.ir import build
from exla_opt.ir.rewrite import Pattern, apply_patterns, maker
from exla_opt.options import Options
from exla_opt.passes import normalise
from exla_opt.remarks import Remark

# The integers that change no maximum and no minimum.
_ENDS = {
    **{("maximum", f"i{bits}"): (-(2 ** (bits - 1)),) for bits in (8, 16, 32, 64)},
    **{("minimum", f"i{bits}"): (2 ** (bits - 1) - 1,) for bits in (8, 16, 32, 64)},
    ("and", "i1"): (1, -1, True),
}
_RESHAPE, _TRANSPOSE, _BROADCAST = "stablehlo.reshape", "stablehlo.transpose", "stablehlo.broadcast_in_dim"


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Apply the patterns until none fits."""
    while apply_patterns(module, PATTERNS):
        normalise.clean_up(module)
    return []


def _same_type(op: ir.Operation) -> bool:
    return bool(op.operands[0].type == op.results[0].type)


def _units_aside(value: ir.Value) -> list[int]:
    return [size for size in build.shape_of(value) if size != 1]


def same_convert(op: ir.Operation) -> ir.Value | None:
    """convert(x), of x's own type = x"""
    return op.operands[0] if _same_type(op) else None


def convert_of_wider(op: ir.Operation) -> ir.Value | None:
    """convert(convert(x)) = convert(x), where the first loses nothing: from a float to one that holds it"""
    inner = maker(op.operands[0], op.name)
    if inner is None:
        return None
    source = inner.operands[0]
    kinds = [str(element_type(value)) for value in (source, inner.results[0])]
    holds = {("bf16", "f32"), ("bf16", "f64"), ("f16", "f32"), ("f16", "f64"), ("f32", "f64")}
    if tuple(kinds) not in holds:
        return None
    return build.convert(source, element_type(op.results[0]))


def same_reshape(op: ir.Operation) -> ir.Value | None:
    """reshape(x), of x's own shape = x"""
    return op.operands[0] if _same_type(op) else None


def reshape_of_reshape(op: ir.Operation) -> ir.Value | None:
    """reshape(reshape(x)) = reshape(x)"""
    inner = maker(op.operands[0], _RESHAPE)
    return None if inner is None else stablehlo.reshape(op.results[0].type, inner.operands[0])


def same_transpose(op: ir.Operation) -> ir.Value | None:
    """transpose(x, 0 1 2 ...) = x"""
    permutation = integers(op, "permutation", [])
    return op.operands[0] if permutation == sorted(permutation) else None


def transpose_of_transpose(op: ir.Operation) -> ir.Value | None:
    """transpose(transpose(x, p), q) = transpose(x, p[q])"""
    inner = maker(op.operands[0], _TRANSPOSE)
    if inner is None:
        return None
    first, second = integers(inner, "permutation", []), integers(op, "permutation", [])
    return stablehlo.transpose(inner.operands[0], ir.DenseI64ArrayAttr.get([first[dim] for dim in second]))


def transpose_of_units(op: ir.Operation) -> ir.Value | None:
    """transpose(x) that moves only sizes of 1 = reshape(x)"""
    shape = build.shape_of(op.operands[0])
    moved = [dim for dim in integers(op, "permutation", []) if shape[dim] != 1]
    return stablehlo.reshape(op.results[0].type, op.operands[0]) if moved == sorted(moved) else None


def same_broadcast(op: ir.Operation) -> ir.Value | None:
    """broadcast(x) that keeps every element once and in order = x, or reshape(x)"""
    if prod(build.shape_of(op.operands[0])) != prod(build.shape_of(op.results[0])):
        return None
    shape = build.shape_of(op.operands[0])
    placed = [dim for dim, size in zip(integers(op, "broadcast_dimensions", []), shape, strict=True) if size != 1]
    if placed != sorted(placed) or _units_aside(op.operands[0]) != _units_aside(op.results[0]):
        return None
    return op.operands[0] if _same_type(op) else stablehlo.reshape(op.results[0].type, op.operands[0])


def broadcast_of_broadcast(op: ir.Operation) -> ir.Value | None:
    """broadcast(broadcast(x, d), e) = broadcast(x, e[d])"""
    inner = maker(op.operands[0], _BROADCAST)
    if inner is None:
        return None
    first, second = (integers(each, "broadcast_dimensions", []) for each in (inner, op))
    dims = ir.DenseI64ArrayAttr.get([second[dim] for dim in first])
    return stablehlo.broadcast_in_dim(op.results[0].type, inner.operands[0], dims)


def broadcast_of_reshape(op: ir.Operation) -> ir.Value | None:
    """broadcast(reshape(x), d) = broadcast(x, the d of x's own), where the reshape only adds sizes of 1"""
    inner = maker(op.operands[0], _RESHAPE)
    if inner is None:
        return None
    source = inner.operands[0]
    if 1 in build.shape_of(source) or build.shape_of(source) != _units_aside(inner.results[0]):
        return None
    where = integers(op, "broadcast_dimensions", [])
    kept = [dim for dim, size in zip(where, build.shape_of(inner.results[0]), strict=True) if size != 1]
    return stablehlo.broadcast_in_dim(op.results[0].type, source, ir.DenseI64ArrayAttr.get(kept))


def same_slice(op: ir.Operation) -> ir.Value | None:
    """slice(x), of all of x = x"""
    return op.operands[0] if _same_type(op) else None


def slice_of_slice(op: ir.Operation) -> ir.Value | None:
    """slice(slice(x, s, t), u, v) = slice(x, s + t u, t v)"""
    inner = maker(op.operands[0], op.name)
    if inner is None:
        return None
    starts, limits, strides = (
        list(zip(integers(inner, name, []), integers(op, name, []), strict=True))
        for name in ("start_indices", "limit_indices", "strides")
    )
    start = [first + step * second for (first, second), (step, _) in zip(starts, strides, strict=True)]
    stride = [first * second for first, second in strides]
    lengths = build.shape_of(op.results[0])
    limit = [
        first + (length - 1) * step + 1 if length else first
        for first, length, step in zip(start, lengths, stride, strict=True)
    ]
    return stablehlo.slice(inner.operands[0], *map(ir.DenseI64ArrayAttr.get, (start, limit, stride)))


def same_pad(op: ir.Operation) -> ir.Value | None:
    """pad(x) by nothing = x"""
    edges = [integers(op, name, []) for name in ("edge_padding_low", "edge_padding_high", "interior_padding")]
    return op.operands[0] if _same_type(op) and not any(map(any, edges)) else None


def same_reverse(op: ir.Operation) -> ir.Value | None:
    """reverse(x) of sizes of 1 = x"""
    shape = build.shape_of(op.operands[0])
    return op.operands[0] if all(shape[dim] == 1 for dim in integers(op, "dimensions", [])) else None


def reverse_of_reverse(op: ir.Operation) -> ir.Value | None:
    """reverse(reverse(x, d), d) = x"""
    inner = maker(op.operands[0], op.name)
    both = inner is not None and sorted(integers(inner, "dimensions", [])) == sorted(integers(op, "dimensions", []))
    return inner.operands[0] if inner is not None and both else None


def concatenate_of_one(op: ir.Operation) -> ir.Value | None:
    """concatenate(x) = x"""
    return op.operands[0] if len(op.operands) == 1 else None


def reduce_of_units(op: ir.Operation) -> ir.Value | None:
    """reduce(x, init) over sizes of 1 = reshape(x), where the init is the identity of the body"""
    name = _monoid(op)
    shape = build.shape_of(op.operands[0])
    dims = integers(op, "dimensions", [])
    # Any other init may be counted any number of times, says the specification: XLA leaves it out here.
    if name is None or any(shape[dim] != 1 for dim in dims) or not _is_identity(name, op.operands[1]):
        return None
    return stablehlo.reshape(op.results[0].type, op.operands[0])


def reduce_of_reshape(op: ir.Operation) -> ir.Value | None:
    """reduce(reshape(x)) = reshape(reduce(x)), where the reshape only adds or takes away sizes of 1"""
    inner = maker(op.operands[0], _RESHAPE)
    if inner is None or _monoid(op) is None:
        return None
    before, after = build.shape_of(inner.operands[0]), build.shape_of(inner.results[0])
    away = set(integers(op, "dimensions", []))
    if [n for n in before if n != 1] != [n for n in after if n != 1] or all(after[dim] == 1 for dim in away):
        return None
    places = [dim for dim, size in enumerate(before) if size != 1]
    numbers = [dim for dim, size in enumerate(after) if size != 1]
    dims = [place for place, number in zip(places, numbers, strict=True) if number in away]
    shape = [size for dim, size in enumerate(before) if dim not in dims]
    kind = build.with_shape(build.tensor_of(op.results[0]), shape)
    made = op.clone(ip=ir.InsertionPoint.current).operation
    made.operands[0] = inner.operands[0]
    made.attributes["dimensions"] = ir.DenseI64ArrayAttr.get(dims)
    made.results[0].set_type(kind)
    result: ir.Value = made.results[0]
    return result if result.type == op.results[0].type else stablehlo.reshape(op.results[0].type, result)


def reduce_of_broadcast(op: ir.Operation) -> ir.Value | None:
    """reduce(broadcast(x)) over repeated elements = reduce(broadcast(x)) without them, for max, min, and, or"""
    inner = maker(op.operands[0], _BROADCAST)
    name = _monoid(op)
    if inner is None or name not in ("maximum", "minimum", "and", "or") or not _is_identity(name, op.operands[1]):
        return None
    shape, source = build.shape_of(inner.results[0]), build.shape_of(inner.operands[0])
    where = integers(inner, "broadcast_dimensions", [])
    own = {dim for dim, size in zip(where, source, strict=True) if size == shape[dim]}
    away = integers(op, "dimensions", [])
    repeated = [dim for dim in away if dim not in own and shape[dim] > 1]
    if not repeated or prod(shape) == 0:
        return None
    fewer = build.with_shape(
        build.tensor_of(inner.results[0]), [1 if d in repeated else n for d, n in enumerate(shape)]
    )
    narrow = stablehlo.broadcast_in_dim(fewer, inner.operands[0], ir.DenseI64ArrayAttr.get(where))
    made = op.clone(ip=ir.InsertionPoint.current).operation
    made.operands[0] = narrow
    result: ir.Value = made.results[0]
    return result


def _monoid(op: ir.Operation) -> str | None:
    """The op of the body of a reduce of one tensor, if that is all there is."""
    names = componentwise(body_of(op)) if len(op.results) == 1 else None
    return names[0] if names else None


def _is_identity(name: str, init: ir.Value) -> bool:
    """Whether combining with the init changes nothing."""
    made = maker(init, "stablehlo.constant")
    if made is None or isinstance(element_type(init), ir.ComplexType):
        return False
    splat = ir.DenseElementsAttr(made.attributes["value"]).get_splat_value()
    if not isinstance(splat, (ir.FloatAttr, ir.IntegerAttr)):
        return False
    value = splat.value
    kind = element_type(init)
    if name in ("add", "or", "xor"):
        return bool(value == 0)
    if name == "multiply":
        return bool(value == 1)
    if float_bits(kind):
        return bool(value == {"maximum": float("-inf"), "minimum": float("inf")}.get(name))
    return value in _ENDS.get((name, str(kind)), ())


# One line of algebra each; those that make an op disappear come first.
PATTERNS: dict[str, tuple[Pattern, ...]] = {
    "stablehlo.broadcast_in_dim": (same_broadcast, broadcast_of_broadcast, broadcast_of_reshape),
    "stablehlo.concatenate": (concatenate_of_one,),
    "stablehlo.convert": (same_convert, convert_of_wider),
    "stablehlo.pad": (same_pad,),
    "stablehlo.reduce": (reduce_of_units, reduce_of_reshape, reduce_of_broadcast),
    "stablehlo.reshape": (same_reshape, reshape_of_reshape),
    "stablehlo.reverse": (same_reverse, reverse_of_reverse),
    "stablehlo.slice": (same_slice, slice_of_slice),
    "stablehlo.transpose": (same_transpose, transpose_of_transpose, transpose_of_units),
}
