"""pointwise-convolutions: on a CPU, convolutions with one position of the kernel or of the result as products.

before:  convolution(%x, %k) : (images x h x w x ins, 1 x 1 x ins x outs) -> images x h x w x outs
after:   dot_general %x, %k, contracting_dims = [3] x [0] : (images x h x w x ins, ins x outs) -> images x h x w x outs

before:  convolution(%x, %dy), a window of h x w : (ins x h x w x images, h x w x images x outs) -> 1 x 1 x ins x outs
after:   dot_general %x, %dy, contracting_dims = [1, 2, 3] x [0, 1, 2]

The first is a layer, or the gradient by its input; the second the gradient by its kernel. XLA:CPU multiplies matrices
about twice as fast as it convolves, and copies less: for the gradient by the kernel, it brings the image and the
result's gradient into another order. What a stride or a dilation skips is sliced away before the product; what a
padding or gaps between the image's elements leave zero is padded after it. Nothing is done for other machines, for
groups, for types other than floats, and for few features. The same products are added, in an order that may differ:
with --no-reassociate nothing is done.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.types import element_type
from exla_opt.ir.values import has_discardable_attributes
from exla_opt.ir.walk import inside_out
from exla_opt.ops.convolution import Convolution, read_convolution
from exla_opt.ops.window_geometry import Window
from exla_opt.options import Options
from exla_opt.remarks import Remark

_TYPES = ("f32", "f64", "bf16", "f16")
# The least number of terms of a sum times output features. Chosen on 9 sizes of 1 to 512 features, in four layouts and
# three types: below it products took 0.4 to 4.6 of the time, from it on 0.2 to 1.1.
_LEAST_PRODUCTS = 64


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Rewrite the convolutions of `module` that are products, in place, if it is for a CPU."""
    if options.machine.kind != "cpu" or not options.reassociate:
        return []
    for op in inside_out(module, "stablehlo.convolution"):
        convolution = read_convolution(op)
        if _is_legal(op, convolution) and _gains(convolution):
            with op.location, ir.InsertionPoint(op):
                op.results[0].replace_all_uses_with(_product(op, convolution))
            op.erase()
    return []


def _is_legal(op: ir.Operation, convolution: Convolution) -> bool:
    """Whether each number of the result is a product of a row of the image and a column of the kernel, or zero."""
    if has_discardable_attributes(op) or convolution.is_reversed or convolution.dtype not in _TYPES:
        return False
    if convolution.groups != 1 or convolution.batch_groups != 1 or 0 in (*convolution.image, *convolution.kernel):
        return False
    lengths = zip(convolution.windows, convolution.image[1:-1], convolution.result[1:-1], strict=True)
    return all(
        _is_summed(window, image, places) or _is_sliced(window, image, places) or _is_spread(window, places)
        for window, image, places in lengths
    )


def _is_summed(window: Window, image: int, places: int) -> bool:
    """Whether there is one window, within the image."""
    return places == 1 and window.base == 1 and 0 <= -window.low <= image - window.reach


def _is_sliced(window: Window, image: int, places: int) -> bool:
    """Whether every window is one element of the image."""
    last = (places - 1) * window.stride - window.low
    return places > 0 and window.size == window.base == 1 and window.low <= 0 and last < image


def _is_spread(window: Window, places: int) -> bool:
    """Whether every element of the image is one window, and others are zero, or the first and last are dropped."""
    return places > 0 and window.size == window.stride == 1


def _gains(convolution: Convolution) -> bool:
    return convolution.places * convolution.ins * convolution.outs >= _LEAST_PRODUCTS


def _product(op: ir.Operation, convolution: Convolution) -> ir.Value:
    """The result of such a convolution; built at the insertion point."""
    lengths = list(zip(convolution.windows, convolution.image[1:-1], convolution.result[1:-1], strict=True))
    summed = [_is_summed(*each) for each in lengths]
    spread = [not is_summed and not _is_sliced(*each) for is_summed, each in zip(summed, lengths, strict=True)]
    image = _sliced(op.operands[0], convolution, summed, spread)
    made = _multiplied(op, image, convolution, summed)
    shape = [1] * len(convolution.result)
    for dim, length in zip(_kept(convolution.orders[2], summed), _kept(convolution.orders[0], summed), strict=False):
        shape[dim] = build.shape_of(image)[length]
    shape[convolution.orders[2][-1]] = convolution.outs
    return _spread(build.reshaped(made, shape), convolution, spread)


def _kept(order: Sequence[int], summed: Sequence[bool]) -> list[int]:
    """The batch dimension and the spatial ones that are not summed, of the image or the result."""
    return [order[0], *(dim for dim, is_summed in zip(order[1:-1], summed, strict=True) if not is_summed)]


def _sliced(image: ir.Value, convolution: Convolution, summed: Sequence[bool], spread: Sequence[bool]) -> ir.Value:
    """The elements of the image that the windows read, along the dimensions that are not spread."""
    shape = build.shape_of(image)
    start, limit, stride = [0] * len(shape), list(shape), [1] * len(shape)
    for number, (dim, window) in enumerate(zip(convolution.orders[0][1:-1], convolution.windows, strict=True)):
        if spread[number]:
            continue
        count = window.size if summed[number] else convolution.result[1 + number]
        stride[dim] = window.dilation if summed[number] else window.stride
        start[dim] = -window.low
        limit[dim] = start[dim] + (count - 1) * stride[dim] + 1
    if limit == shape and not any(start) and set(stride) == {1}:
        return image
    part: ir.Value = stablehlo.slice(image, start, limit, stride)
    return part


def _multiplied(op: ir.Operation, image: ir.Value, convolution: Convolution, summed: Sequence[bool]) -> ir.Value:
    """The product of the image and the kernel, its dimensions in the order of the result."""
    of_image, of_kernel, of_result = convolution.orders
    inner = [place for place, is_summed in enumerate(summed) if is_summed]
    left = sorted([(of_image[-1], of_kernel[-2]), *((of_image[1 + place], of_kernel[place]) for place in inner)])
    held = sorted([*(dim for _, dim in left), of_kernel[-1]])
    kernel = build.reshaped(op.operands[1], [build.shape_of(op.operands[1])[dim] for dim in held])
    sides = [(image, [dim for dim, _ in left]), (kernel, [held.index(dim) for _, dim in left])]
    target = dict(zip(_kept(of_image, summed), _kept(of_result, summed), strict=True))
    order = [target[dim] for dim in sorted(target)]
    order = [*order, of_result[-1]]
    precision = op.attributes.get("precision_config", None)
    if order != sorted(order) and [order[-1], *order[:-1]] == sorted(order):
        order, sides = [order[-1], *order[:-1]], sides[::-1]
        precision = precision and ir.ArrayAttr.get(list(ir.ArrayAttr(precision))[::-1])
    numbers = stablehlo.DotDimensionNumbers.get([], [], sides[0][1], sides[1][1])
    shape = [size for value, dims in sides for dim, size in enumerate(build.shape_of(value)) if dim not in dims]
    kind = ir.RankedTensorType.get(shape, element_type(op.results[0]))
    made = stablehlo.dot_general(kind, sides[0][0], sides[1][0], numbers, precision_config=precision)
    return build.transposed(made, [order.index(dim) for dim in sorted(order)])


def _spread(value: ir.Value, convolution: Convolution, spread: Sequence[bool]) -> ir.Value:
    """The product with the padding and the gaps of the windows."""
    rank = len(convolution.result)
    low, high, between = [0] * rank, [0] * rank, [0] * rank
    for dim, window, is_spread in zip(convolution.orders[2][1:-1], convolution.windows, spread, strict=True):
        if is_spread:
            low[dim], high[dim], between[dim] = window.low, window.high, window.base - 1
    if not any((*low, *high, *between)):
        return value
    zero = build.zeros(ir.RankedTensorType.get([], element_type(value)))
    made: ir.Value = stablehlo.pad(value, zero, low, high, between)
    return made
