"""The operand elements of one result element: indices along one dimension, traced from the result to the operands.

Along that dimension a tensor holds the indices; along the others an element keeps its position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import is_splat, splat_text
from exla_opt.ir.rewrite import clone_on
from exla_opt.ir.values import defining_op, has_discardable_attributes

from .traits import Trait, has_trait

# A dimension of size one, whose only element is always read.
ONLY = -1


class NotElementwise(Exception):
    """An element is not a function of operand elements at known indices."""


@dataclass(frozen=True)
class Frame:
    """The tensor to compute.

    dim: the indexed dimension, in that tensor before it is taken apart.
    shape: its shape with that dimension taken apart into `parts` dimensions.
    """

    dim: int
    shape: tuple[int, ...]
    parts: int

    def place(self, dim: int) -> int:
        """The position of another dimension in `shape`."""
        return dim if dim < self.dim else dim + self.parts - 1

    def counted(self) -> ir.Value:
        """The index of every element along the dimension, ui32."""
        kind = ir.RankedTensorType.get(list(self.shape), ir.IntegerType.get_unsigned(32))
        last = self.dim + self.parts - 1
        total = stablehlo.iota(kind, last)
        for dim in range(self.dim, last):
            if self.shape[dim] > 1:
                stride = build.splat(kind, prod(self.shape[dim + 1 : last + 1]))
                total = stablehlo.add(stablehlo.multiply(stablehlo.iota(kind, dim), stride), total)
        return total


@dataclass(frozen=True)
class Asked:
    """Requested elements of a value: one for each position of the frame.

    dims: for every dimension of the value, the frame's, or ONLY. shift: added to the indices along the frame's.
    """

    value: ir.Value
    dims: tuple[int, ...]
    shift: int = 0


def reads(op: ir.Operation, asked: Asked, frame: Frame) -> list[Asked]:
    """The operand elements that the elements of a result depend on. Raises NotElementwise."""
    if has_discardable_attributes(op):
        raise NotElementwise
    if is_pointwise(op):
        return [
            Asked(operand, asked.dims, asked.shift) if build.shape_of(operand) else Asked(operand, ())
            for operand in op.operands
        ]
    find = _READS.get(op.name)
    if find is None:
        raise NotElementwise
    return find(op, asked, frame)


def is_pointwise(op: ir.Operation) -> bool:
    """Whether every element depends only on the elements at its position, and on scalars."""
    if not has_trait(op, Trait.POINTWISE) or len(op.regions):
        return False
    shape = build.shape_of(op.results[0])
    return all(build.shape_of(operand) in (shape, []) for operand in op.operands)


def element_of(asked: Asked, sources: Sequence[ir.Value], frame: Frame, places: ir.Value) -> ir.Value:
    """Build the elements at the insertion point, in the frame's shape. sources: the elements that `reads` requests.

    places: the indices along the frame's dimension, without the shift.
    """
    op = defining_op(asked.value)
    if op is None or frame.dim not in asked.dims:
        return _repeated(asked, frame)
    if is_pointwise(op):
        return clone_on(op, sources, frame.shape, {})
    return _MADE[op.name](op, asked, sources, frame, _shifted(places, asked.shift))


def _shifted(places: ir.Value, shift: int) -> ir.Value:
    return stablehlo.add(places, build.splat(places.type, shift)) if shift else places


def _repeated(asked: Asked, frame: Frame) -> ir.Value:
    """A tensor without the frame's dimension, broadcast along it."""
    kind = build.tensor_of(asked.value)
    kept = [(size, dim) for size, dim in zip(kind.shape, asked.dims, strict=True) if dim != ONLY]
    value = asked.value
    if len(kept) < kind.rank:
        value = stablehlo.reshape(build.with_shape(kind, [size for size, _ in kept]), value)
    order = sorted(range(len(kept)), key=lambda place: kept[place][1])
    if order != list(range(len(kept))):
        value = stablehlo.transpose(value, ir.DenseI64ArrayAttr.get(order))
    dims = [frame.place(kept[place][1]) for place in order]
    target = build.with_shape(kind, frame.shape)
    return stablehlo.broadcast_in_dim(target, value, ir.DenseI64ArrayAttr.get(dims))


def _constant_reads(op: ir.Operation, asked: Asked, frame: Frame) -> list[Asked]:
    if not is_splat(op):
        raise NotElementwise
    return []


def _constant_made(
    op: ir.Operation, asked: Asked, sources: Sequence[ir.Value], frame: Frame, places: ir.Value
) -> ir.Value:
    kind = build.with_shape(build.tensor_of(asked.value), frame.shape)
    if isinstance(kind.element_type, ir.ComplexType):
        text = splat_text(op)
        assert text is not None
        return build.constant_of_text(kind, text)
    number = ir.DenseElementsAttr(op.attributes["value"]).get_splat_value()
    return stablehlo.constant(ir.DenseElementsAttr.get_splat(kind, number))


def _iota_reads(op: ir.Operation, asked: Asked, frame: Frame) -> list[Asked]:
    if not isinstance(build.tensor_of(asked.value).element_type, ir.IntegerType):
        raise NotElementwise
    return []


def _iota_made(op: ir.Operation, asked: Asked, sources: Sequence[ir.Value], frame: Frame, places: ir.Value) -> ir.Value:
    kind = build.with_shape(build.tensor_of(asked.value), frame.shape)
    dim = asked.dims[ir.IntegerAttr(op.attributes["iota_dimension"]).value]
    if dim == frame.dim:
        return build.convert(places, kind.element_type)
    return build.zeros(kind) if dim == ONLY else stablehlo.iota(kind, frame.place(dim))


def _broadcast_reads(op: ir.Operation, asked: Asked, frame: Frame) -> list[Asked]:
    [operand] = op.operands
    shape = build.shape_of(asked.value)
    targets = list(ir.DenseI64ArrayAttr(op.attributes["broadcast_dimensions"]))
    pairs = zip(build.shape_of(operand), targets, strict=True)
    dims = tuple(asked.dims[target] if size == shape[target] else ONLY for size, target in pairs)
    return [Asked(operand, dims, asked.shift if frame.dim in dims else 0)]


def _reshape_reads(op: ir.Operation, asked: Asked, frame: Frame) -> list[Asked]:
    """Only dimensions of size one may appear or vanish."""
    [operand] = op.operands
    kept = [(size, dim) for size, dim in zip(build.shape_of(asked.value), asked.dims, strict=True) if size > 1]
    shape = build.shape_of(operand)
    if [size for size in shape if size > 1] != [size for size, _ in kept]:
        raise NotElementwise
    left = iter(kept)
    dims = tuple(next(left)[1] if size > 1 else ONLY for size in shape)
    return [Asked(operand, dims, asked.shift)]


def _slice_reads(op: ir.Operation, asked: Asked, frame: Frame) -> list[Asked]:
    [operand] = op.operands
    starts, strides = (list(ir.DenseI64ArrayAttr(op.attributes[name])) for name in ("start_indices", "strides"))
    shift = asked.shift
    for place, (size, kept) in enumerate(zip(build.shape_of(operand), build.shape_of(asked.value), strict=True)):
        if asked.dims[place] == frame.dim and strides[place] == 1:
            shift += starts[place]
        elif size != kept:
            raise NotElementwise
    return [Asked(operand, asked.dims, shift)]


def _join_reads(op: ir.Operation, asked: Asked, frame: Frame) -> list[Asked]:
    """Each operand as if it were the only one: out of its range it gives some number, which is not selected."""
    dim = ir.IntegerAttr(op.attributes["dimension"]).value
    if asked.dims[dim] != frame.dim:
        raise NotElementwise
    found, begin = [], 0
    for operand in op.operands:
        size = build.shape_of(operand)[dim]
        dims = tuple(ONLY if place == dim and size == 1 else own for place, own in enumerate(asked.dims))
        found.append(Asked(operand, dims, asked.shift - begin if size > 1 else 0))
        begin += size
    return found


def _join_made(op: ir.Operation, asked: Asked, sources: Sequence[ir.Value], frame: Frame, places: ir.Value) -> ir.Value:
    dim = ir.IntegerAttr(op.attributes["dimension"]).value
    ends, end = [], 0
    for operand in op.operands:
        end += build.shape_of(operand)[dim]
        ends.append(end)
    chosen = sources[-1]
    for value, end in reversed(list(zip(sources[:-1], ends[:-1], strict=True))):
        below = build.compare(places, build.splat(places.type, end), "LT", "UNSIGNED")
        chosen = stablehlo.select(below, value, chosen)
    return chosen


def read_part(op: ir.Operation) -> ir.Value | None:
    """The operand of a concatenation that a slice selects exactly; None for any other op."""
    if op.name != "stablehlo.slice" or has_discardable_attributes(op):
        return None
    join = defining_op(op.operands[0], "stablehlo.concatenate")
    if join is None:
        return None
    dim, end = ir.IntegerAttr(join.attributes["dimension"]).value, 0
    starts = list(ir.DenseI64ArrayAttr(op.attributes["start_indices"]))
    for part in join.operands:
        place = [end if other == dim else 0 for other in range(len(starts))]
        if (
            part.type == op.results[0].type
            and starts == place
            and set(ir.DenseI64ArrayAttr(op.attributes["strides"])) == {1}
        ):
            return part
        end += build.shape_of(part)[dim]
    return None


def _same(op: ir.Operation, asked: Asked, sources: Sequence[ir.Value], frame: Frame, places: ir.Value) -> ir.Value:
    return sources[0]


_READS = {
    "stablehlo.constant": _constant_reads,
    "stablehlo.iota": _iota_reads,
    "stablehlo.broadcast_in_dim": _broadcast_reads,
    "stablehlo.reshape": _reshape_reads,
    "stablehlo.slice": _slice_reads,
    "stablehlo.concatenate": _join_reads,
}
_MADE = {
    "stablehlo.constant": _constant_made,
    "stablehlo.iota": _iota_made,
    "stablehlo.broadcast_in_dim": _same,
    "stablehlo.reshape": _same,
    "stablehlo.slice": _same,
    "stablehlo.concatenate": _join_made,
}
