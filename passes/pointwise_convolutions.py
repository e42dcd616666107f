"""pointwise-convolutions: on a CPU, convolutions with one position of the kernel or of the result as products.

before:  convolution(%x, %k) : (images x h x w x ins, 1 x 1 x ins x outs) -> images x h x w x outs
after:   dot_general %x, %k, contracting_dims = [3] x [0] : (images x h x w x ins, ins x outs) -> images x h x w x outs

before:  convolution(%x, %dy), a window of h x w : (ins x h x w x images, h x w x images x outs) -> 1 x 1 x ins x outs
after:   dot_general %x, %dy, contracting_dims = [1, 2, 3] x [0, 1, 2]

The first is a layer, or the gradient by its input; the second the gradient by its kernel. XLA:CPU multiplies matrices
about twice as fast as it convolves, and copies less: for the gradient by the kernel, it brings the image and the
result's gradient into another order. What a stride or a dilation skips is sliced away before the product; what a
padding or gaps between the image's elements leave zero is padded after it. Where a product may raise the module's
peak, as what reads it cannot overwrite it, the convolution stays. Nothing is done for other machines, for
groups, for types other than floats, and for few features. The same products are added, in an order that may differ:
with --no-reassociate nothing is done.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Literal

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.locations import describe
from exla_opt.ir.rewrite import copy_of
from exla_opt.ir.types import Types, element_type
from exla_opt.ir.values import has_discardable_attributes
from exla_opt.ir.walk import inside_out
from exla_opt.memory.machine import Machine
from exla_opt.memory.peak import predict
from exla_opt.memory.timeline import Timeline, read_timeline
from exla_opt.ops.convolution import Convolution, read_convolution
from exla_opt.ops.window_geometry import Window, padded
from exla_opt.options import Options
from exla_opt.remarks import Remark

Kind = Literal["summed", "read", "spread"]
Found = list[tuple[ir.Operation, Convolution]]

_TYPES = ("f32", "f64", "bf16", "f16")
# The least number of terms of a sum times output features. Chosen on 9 sizes of 1 to 512 features, in two layouts and
# three types: below it products took 0.4 to 4.6 of the time, from it on 0.2 to 1.1.
_LEAST_PRODUCTS = 64
# The same with strides or gaps, and features last: only in loops is the slice or the padding worth it for fewer.
_LEAST_WITH_GAPS = 4096
# By how much of the peak the predicted memory may rise.
_MOST_MORE = 0.01


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Rewrite the convolutions of `module` that are products, in place, if it is for a CPU."""
    if options.machine.kind != "cpu" or not options.reassociate:
        return []
    found = _found(module)
    if found:
        _write(module, _cheap(module, found, options.machine))
    return []


def _found(module: ir.Module) -> Found:
    pairs = ((op, read_convolution(op)) for op in inside_out(module, "stablehlo.convolution"))
    return [(op, convolution) for op, convolution in pairs if _is_legal(op, convolution) and _gains(convolution)]


def _write(module: ir.Module, places: Sequence[int]) -> None:
    found = _found(module)
    for op, convolution in (found[place] for place in places):
        with op.location, ir.InsertionPoint(op):
            op.results[0].replace_all_uses_with(_product(op, convolution))
        op.erase()


def _cheap(module: ir.Module, found: Found, machine: Machine) -> list[int]:
    """The places of those of the convolutions that do not raise the peak as products.

    Note: XLA:CPU reads the operands of a product, and what reads its result, as matrices. So a kernel that follows
    cannot overwrite the result as it overwrites a convolution's, and an image that others read as well is written once
    more. Where either would exceed the peak, the convolution stays. Sums over an image are small.
    """
    timeline = read_timeline(module, machine)
    most = timeline.memory.temp + int(_MOST_MORE * timeline.memory.peak)
    free = _free(timeline, most)
    sums = [place for place, (_, convolution) in enumerate(found) if _sums_image(convolution)]
    small = [
        place
        for place, (op, _) in enumerate(found)
        if max(_bytes(op.operands[0]), _bytes(op.results[0])) <= free.get(_name(op), sys.maxsize)
    ]
    for places in (sorted({*sums, *small}), sums):
        trial = copy_of(module)
        _write(trial, places)
        if predict(trial, machine).temp <= most:
            return places
    return []


def _free(timeline: Timeline, most: int) -> dict[tuple[str, int], int]:
    """The bytes that are free, of `most`, where a convolution's result is written and first read.

    Keys: its location and bytes. Of several convolutions, the least. Those that are results of the module are left out.
    """
    free: dict[tuple[str, int], int] = {}
    for tensor in timeline.tensors:
        if tensor.op == "stablehlo.convolution":
            points = timeline.points[max(tensor.first - 1, 0) : tensor.first + 2]
            room, name = most - max(point.bytes for point in points), (tensor.location, tensor.bytes)
            free[name] = min(room, free.get(name, room))
    return free


def _name(op: ir.Operation) -> tuple[str, int]:
    return describe(op), _bytes(op.results[0])


def _bytes(value: ir.Value) -> int:
    return Types().of(value).bytes


def _sums_image(convolution: Convolution) -> bool:
    """Whether the product sums over the image, as gradients by kernels do."""
    kinds = _kinds(convolution)
    return any(kind == "summed" and window.size > 1 for kind, window in zip(kinds, convolution.windows, strict=True))


def _is_legal(op: ir.Operation, convolution: Convolution) -> bool:
    """Whether each number of the result is a product of a row of the image and a column of the kernel, or zero."""
    if has_discardable_attributes(op) or convolution.is_reversed or convolution.dtype not in _TYPES:
        return False
    if convolution.groups != 1 or convolution.batch_groups != 1 or 0 in (*convolution.image, *convolution.kernel):
        return False
    if 0 in convolution.result:
        return False
    return None not in _kinds(convolution)


def _kind_of(window: Window, image: int, places: int) -> Kind | None:
    """How a spatial dimension is computed: "summed", "read" element by element, or "spread" over the result.

    Summed if there is one window, within the image; read if every window is one element of the image; spread if every
    element of the image is one window, and the others are zero, or if the first and last are dropped. None otherwise.
    """
    if places == 1 and window.base == 1 and 0 <= -window.low <= image - window.reach:
        return "summed"
    last = (places - 1) * window.stride - window.low
    if window.size == window.base == 1 and window.low <= 0 and last < image:
        return "read"
    return "spread" if window.size == window.stride == 1 else None


def _gains(convolution: Convolution) -> bool:
    """Whether the product should be faster: from some features on, and from more if its result or image is copied."""
    kinds = _kinds(convolution)
    has_gaps = any(
        (kind == "read" and window.stride > 1) or (kind == "spread" and window.is_padded)
        for kind, window in zip(kinds, convolution.windows, strict=True)
    )
    least = _LEAST_WITH_GAPS if has_gaps and convolution.has_features_last else _LEAST_PRODUCTS
    return convolution.places * convolution.ins * convolution.outs >= least


def _kinds(convolution: Convolution) -> list[Kind | None]:
    """The kinds of the spatial dimensions."""
    lengths = zip(convolution.windows, convolution.image[1:-1], convolution.result[1:-1], strict=True)
    return [_kind_of(*each) for each in lengths]


def _product(op: ir.Operation, convolution: Convolution) -> ir.Value:
    """The result of such a convolution; built at the insertion point."""
    kinds = _kinds(convolution)
    made = _multiplied(op, _sliced(op.operands[0], convolution, kinds), convolution, kinds)
    shape = [0] * len(convolution.result)
    batch, *space, features = convolution.orders[2]
    shape[batch], shape[features] = convolution.result[0], convolution.outs
    for number, (dim, kind) in enumerate(zip(space, kinds, strict=True), 1):
        shape[dim] = (convolution.image if kind == "spread" else convolution.result)[number]
    triples = zip(space, convolution.windows, kinds, strict=True)
    spread = [(dim, window) for dim, window, kind in triples if kind == "spread"]
    return padded(build.reshaped(made, shape), [dim for dim, _ in spread], [window for _, window in spread])


def _sliced(image: ir.Value, convolution: Convolution, kinds: Sequence[Kind | None]) -> ir.Value:
    """The elements of the image that the windows read, along the dimensions that are summed or read."""
    shape = build.shape_of(image)
    start, limit, stride = [0] * len(shape), list(shape), [1] * len(shape)
    parts = zip(convolution.orders[0][1:-1], convolution.windows, convolution.result[1:-1], kinds, strict=True)
    for dim, window, places, kind in parts:
        if kind == "spread":
            continue
        count = window.size if kind == "summed" else places
        stride[dim] = window.dilation if kind == "summed" else window.stride
        start[dim] = -window.low
        limit[dim] = start[dim] + (count - 1) * stride[dim] + 1
    if limit == shape and not any(start) and set(stride) == {1}:
        return image
    part: ir.Value = stablehlo.slice(image, start, limit, stride)
    return part


def _multiplied(op: ir.Operation, image: ir.Value, convolution: Convolution, kinds: Sequence[Kind | None]) -> ir.Value:
    """The product of the image and the kernel without what is summed, its dimensions in the order of the result."""
    of_image, of_kernel, of_result = convolution.orders
    places = range(1, len(kinds) + 1)
    summed = [place for place in places if kinds[place - 1] == "summed"]
    pairs = sorted([(of_image[-1], of_kernel[-2]), *((of_image[place], of_kernel[place - 1]) for place in summed)])
    of_product = sorted([*(dim for _, dim in pairs), of_kernel[-1]])
    sizes = build.shape_of(op.operands[1])
    kernel = build.reshaped(op.operands[1], [sizes[dim] for dim in of_product])
    sides = [(image, [dim for dim, _ in pairs]), (kernel, [of_product.index(dim) for _, dim in pairs])]
    target = {of_image[place]: of_result[place] for place in (0, *places) if place not in summed}
    order = [*(target[dim] for dim in sorted(target)), of_result[-1]]
    precision = op.attributes.get("precision_config", None)
    if order != sorted(order) and [order[-1], *order[:-1]] == sorted(order):
        order, sides = sorted(order), sides[::-1]
        precision = precision and ir.ArrayAttr.get(list(ir.ArrayAttr(precision))[::-1])
    numbers = stablehlo.DotDimensionNumbers.get([], [], sides[0][1], sides[1][1])
    shape = [size for value, dims in sides for dim, size in enumerate(build.shape_of(value)) if dim not in dims]
    kind = ir.RankedTensorType.get(shape, element_type(op.results[0]))
    made = stablehlo.dot_general(kind, sides[0][0], sides[1][0], numbers, precision_config=precision)
    return build.transposed(made, [order.index(dim) for dim in sorted(order)])
