"""Writes a convolution in another form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.types import element_type
from exla_opt.ops.convolution import SHORT, Convolution
from exla_opt.ops.window_geometry import NO_WINDOW, Window, padded

from .exchanged import exchanged
from .forms import Form
from .patches import by_patches
from .positions import by_position, cut, read_at


def write_form(op: ir.Operation, convolution: Convolution, form: Form) -> ir.Value:
    """The result of a convolution, in an equivalent form; built at the insertion point."""
    if form == "sum":
        return _sum_of_products(op, convolution)
    if form == "positions":
        return by_position(op, convolution)
    if form == "patches":
        return by_patches(op, convolution)
    if form == "exchanged":
        convolution = exchanged(convolution)
        result = _in_order(op, (op.operands[1], op.operands[0]), convolution, form)
        result = stablehlo.reverse(result, list(range(1, len(convolution.result) - 1)))
    else:
        result = _in_order(op, (op.operands[0], op.operands[1]), convolution, form)
    order = convolution.orders[2]
    return build.transposed(result, [order.index(dim) for dim in range(len(order))])


def _in_order(op: ir.Operation, operands: tuple[ir.Value, ir.Value], convolution: Convolution, form: Form) -> ir.Value:
    """The result of a convolution in the order of the fast kernel. operands: image and kernel."""
    image, windows = cut(operands[0], convolution.orders[0][1:-1], convolution.windows)
    convolution = replace(convolution, windows=tuple(windows))
    image, kernel = (
        build.transposed(value, order) for value, order in zip((image, operands[1]), convolution.orders, strict=False)
    )
    groups = convolution.groups
    if form == "apart":
        parts = _groups(image, kernel, convolution)
        made = [_convolved(op, *part, convolution, 1) for part in parts]
        last = len(convolution.result) - 1
        whole = build.with_shape(build.tensor_of(made[0]), convolution.result)
        joined: ir.Value = stablehlo.ConcatenateOp(made, last, results=[whole]).result
        return joined
    if form == "joined":
        image, groups = _joined_images(image, convolution.batch_groups), convolution.batch_groups
    return _convolved(op, image, kernel, convolution, groups)


def _groups(image: ir.Value, kernel: ir.Value, convolution: Convolution) -> list[tuple[ir.Value, ir.Value]]:
    """The image and the kernel of each group."""
    count = convolution.groups * convolution.batch_groups
    dim = 0 if convolution.batch_groups > 1 else len(convolution.image) - 1
    images = _parts(image, dim, count)
    return list(zip(images, _parts(kernel, len(convolution.kernel) - 1, count), strict=True))


def _parts(value: ir.Value, dim: int, count: int) -> list[ir.Value]:
    shape = build.shape_of(value)
    length = shape[dim] // count
    parts: list[ir.Value] = []
    for place in range(count):
        start, limit = [0] * len(shape), list(shape)
        start[dim], limit[dim] = place * length, (place + 1) * length
        parts.append(stablehlo.slice(value, start, limit, [1] * len(shape)))
    return parts


def _joined_images(image: ir.Value, count: int) -> ir.Value:
    """Groups of images as groups of features: [count x images, ..., features] -> [images, ..., count x features]."""
    kind = build.tensor_of(image)
    total, *space, features = kind.shape
    apart = stablehlo.reshape(build.with_shape(kind, [count, total // count, *space, features]), image)
    places = len(space)
    moved = build.transposed(apart, [1, *range(2, 2 + places), 0, 2 + places])
    return stablehlo.reshape(build.with_shape(kind, [total // count, *space, count * features]), moved)


def _convolved(op: ir.Operation, image: ir.Value, kernel: ir.Value, convolution: Convolution, groups: int) -> ir.Value:
    """A convolution in the order of the fast kernel. An f64 line becomes a plane of one row, which has one."""
    windows = list(convolution.windows)
    shape = [*convolution.result[:-1], build.shape_of(kernel)[-1]]
    is_line = convolution.dtype == "f64" and len(windows) == 1
    if is_line:
        image, kernel, windows = _with_one(image, 1), _with_one(kernel, 0), [NO_WINDOW, *windows]
    wide = [shape[0], 1, *shape[1:]] if is_line else shape
    spatial = len(windows)
    inner = list(range(1, spatial + 1))
    numbers = stablehlo.ConvDimensionNumbers.get(
        input_batch_dimension=0,
        input_feature_dimension=spatial + 1,
        input_spatial_dimensions=inner,
        kernel_input_feature_dimension=spatial,
        kernel_output_feature_dimension=spatial + 1,
        kernel_spatial_dimensions=list(range(spatial)),
        output_batch_dimension=0,
        output_feature_dimension=spatial + 1,
        output_spatial_dimensions=inner,
    )
    kind = build.tensor_of(op.results[0])
    named = [op.attributes[place] for place in range(len(op.attributes))]
    kept = {each.name: each.attr for each in named if each.name == "precision_config"}
    made = ir.Operation.create(
        "stablehlo.convolution",
        [build.with_shape(kind, wide)],
        [image, kernel],
        {**kept, **_window_attributes(windows), "dimension_numbers": numbers, **_group_counts(groups)},
    )
    result: ir.Value = made.results[0]
    return stablehlo.reshape(build.with_shape(kind, shape), result) if is_line else result


def _group_counts(groups: int) -> dict[str, ir.Attribute]:
    number = ir.IntegerType.get_signless(64)
    return {
        "feature_group_count": ir.IntegerAttr.get(number, groups),
        "batch_group_count": ir.IntegerAttr.get(number, 1),
    }


def _window_attributes(windows: Sequence[Window]) -> dict[str, ir.Attribute]:
    """The attributes of windows that differ from the defaults."""
    lists = {
        "window_strides": [window.stride for window in windows],
        "lhs_dilation": [window.base for window in windows],
        "rhs_dilation": [window.dilation for window in windows],
    }
    found: dict[str, ir.Attribute] = {
        name: ir.DenseI64ArrayAttr.get(numbers) for name, numbers in lists.items() if set(numbers) != {1}
    }
    if any(window.low or window.high for window in windows):
        kind = ir.RankedTensorType.get([len(windows), 2], ir.IntegerType.get_signless(64))
        pairs = ", ".join(f"[{window.low}, {window.high}]" for window in windows)
        found["padding"] = ir.Attribute.parse(f"dense<[{pairs}]> : {kind}")
    return found


def _with_one(value: ir.Value, dim: int) -> ir.Value:
    kind = build.tensor_of(value)
    shape = list(kind.shape)
    return stablehlo.reshape(build.with_shape(kind, [*shape[:dim], 1, *shape[dim:]]), value)


def _sum_of_products(op: ir.Operation, convolution: Convolution) -> ir.Value:
    """For groups of one input feature: the sum over window positions of the image there times one number per feature.

    The dimensions are those of the result. Narrow floats are added in f32, as the kernels do.
    """
    order = convolution.orders[2]
    result = build.tensor_of(op.results[0])
    wide = build.wide_float() if convolution.dtype in SHORT else result.element_type
    turn = [convolution.orders[0][order.index(dim)] for dim in range(len(order))]
    image = build.convert(build.transposed(op.operands[0], turn), wide)
    kernel = build.convert(build.transposed(op.operands[1], convolution.orders[1]), wide)
    image = padded(_repeated(image, order[-1], convolution.outs), order[1:-1], convolution.windows)
    total: ir.Value | None = None
    for place in product(*(range(window.size) for window in convolution.windows)):
        factor = _factor(kernel, place, order[-1], result.shape)
        term = stablehlo.multiply(read_at(image, place, order[1:-1], convolution.windows, result.shape), factor)
        total = term if total is None else stablehlo.add(total, term)
    assert total is not None
    return build.convert(total, element_type(op.results[0]))


def _repeated(image: ir.Value, dim: int, count: int) -> ir.Value:
    """Each feature `count` times, one after the other."""
    if count == 1:
        return image
    kind = build.tensor_of(image)
    shape = list(kind.shape)
    apart = build.with_shape(kind, [*shape[: dim + 1], count, *shape[dim + 1 :]])
    places = [place if place <= dim else place + 1 for place in range(len(shape))]
    more = stablehlo.broadcast_in_dim(apart, image, ir.DenseI64ArrayAttr.get(places))
    shape[dim] *= count
    return stablehlo.reshape(build.with_shape(kind, shape), more)


def _factor(kernel: ir.Value, place: Sequence[int], dim: int, shape: Sequence[int]) -> ir.Value:
    """The kernel at one position for each output feature, broadcast to a shape that has them along `dim`."""
    kind = build.tensor_of(kernel)
    outs = kind.shape[-1]
    ones = [1] * kind.rank
    numbers = stablehlo.slice(kernel, [*place, 0, 0], [*(at + 1 for at in place), 1, outs], ones)
    line = stablehlo.reshape(build.with_shape(kind, [outs]), numbers)
    return stablehlo.broadcast_in_dim(build.with_shape(kind, shape), line, ir.DenseI64ArrayAttr.get([dim]))
