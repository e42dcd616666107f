"""convolution-layout: convolutions in loops on a CPU in the order of dimensions that XLA has a fast kernel for.

before:  a while with  convolution(%x, %k) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]
after:   transposes around  convolution  dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]

XLA:CPU brings convolutions into that order itself, but in the entry computation alone: in the body of a loop any other
order runs on a kernel that is 10 to 160 times slower. Nothing is done for other machines, outside of loops, and where
the fast kernel is not: for batch groups, reversed windows and types other than floats of 32 and 16 bits; nor for groups
with small windows and for few features, for which the slow kernel is often the faster one. The same products are added
up, in an order that may differ: with --no-reassociate nothing is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integer
from exla_opt.ir.clean_up import clean_up
from exla_opt.ir.types import Types, element_type
from exla_opt.ir.values import has_discardable_attributes
from exla_opt.ir.walk import inside_out
from exla_opt.options import Options
from exla_opt.remarks import Remark

_FAST = ("f32", "f16", "bf16")
# Input features times output features. Chosen on 8 images of 28 x 28 with kernels of 5 x 5 and 4 of 64 x 64 with 3 x 3,
# the slow kernel's time over the fast one's: 1 x 1 features 0.04 and 0.17, 1 x 8 0.8 and 1.1, 3 x 8 1.6 and 2.9, more
# 1.4 to 95. On others, 16 of 20 x 20 with 3 x 3 and 6 of 33 x 33 with 1 x 1: below 24 0.08 to 1.6, above 3.9 to 46 and
# 0.6 to 5.8.
_LEAST_PRODUCTS = 24
# Places of a large window, and the products that are enough then, without groups: the ratio is 0.5 to 12 where this was
# chosen, one of 21 below 1, and 1.5 to 7.7 on 12 others. Of convolutions in groups only those with a large window are
# turned, the gradients of every image's kernels: 1.7 to 84 where this was chosen, and on 45 others 0.5 to 53, 11 in the
# middle, three of the smallest below 1. With windows of up to 5 x 5 it is 0.06 to 6, and depends on more than that.
_LARGE_WINDOW = 64
_LEAST_OF_LARGE = 4


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Rewrite the convolutions of `module` that stand in loops, in place, when it is for a CPU."""
    if options.machine.kind != "cpu" or not options.reassociate:
        return []
    types = Types()
    in_loops = [op for op in inside_out(module, "stablehlo.convolution") if _is_in_loop(op)]
    slow = [op for op in in_loops if _is_legal(op) and _gains(op, types, options.size_threshold)]
    for op in slow:
        _rewrite(op)
    if slow:
        clean_up(module)
    return []


def _is_in_loop(op: ir.Operation) -> bool:
    outer = op.parent
    while outer is not None and outer.name != "stablehlo.while":
        outer = outer.parent
    return outer is not None


def _is_legal(op: ir.Operation) -> bool:
    """Dimensions may be renumbered freely, but a sharding, say, speaks of them."""
    return not has_discardable_attributes(op)


def _gains(op: ir.Operation, types: Types, threshold: int) -> bool:
    """Whether XLA:CPU has a fast kernel for it and does not use it as it stands, and no copy is over the threshold."""
    reversal = "window_reversal"
    is_reversed = reversal in op.attributes and any(ir.DenseBoolArrayAttr(op.attributes[reversal]))
    numbers = _numbers(op)
    kernel = build.shape_of(op.operands[1])
    products = kernel[numbers.kernel_input_feature_dimension] * kernel[numbers.kernel_output_feature_dimension]
    is_large = prod(kernel[dim] for dim in numbers.kernel_spatial_dimensions) >= _LARGE_WINDOW
    in_groups = integer(op, "feature_group_count", 1) > 1
    pairs = zip((*op.operands, op.results[0]), _orders(numbers), strict=True)
    turned = [value for value, order in pairs if order != sorted(order)]
    return (
        integer(op, "batch_group_count", 1) == 1
        and (is_large or not in_groups)
        and products >= (_LEAST_OF_LARGE if is_large and not in_groups else _LEAST_PRODUCTS)
        and not is_reversed
        and all(str(element_type(value)) in _FAST for value in (*op.operands, op.results[0]))
        and bool(turned)
        and max(types.of(value).bytes for value in turned) <= threshold
    )


def _numbers(op: ir.Operation) -> stablehlo.ConvDimensionNumbers:
    return stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])


def _orders(numbers: stablehlo.ConvDimensionNumbers) -> tuple[list[int], list[int], list[int]]:
    """The dimensions of the input, the kernel and the result, in the order of the fast kernel."""
    return (
        [numbers.input_batch_dimension, *numbers.input_spatial_dimensions, numbers.input_feature_dimension],
        [
            *numbers.kernel_spatial_dimensions,
            numbers.kernel_input_feature_dimension,
            numbers.kernel_output_feature_dimension,
        ],
        [numbers.output_batch_dimension, *numbers.output_spatial_dimensions, numbers.output_feature_dimension],
    )


def _rewrite(op: ir.Operation) -> None:
    image, kernel, out = _orders(_numbers(op))
    spatial = len(out) - 2
    inner = list(range(1, spatial + 1))
    with op.location, ir.InsertionPoint(op):
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
        operands = [_transposed(value, order) for value, order in zip(op.operands, (image, kernel), strict=True)]
        result = build.tensor_of(op.results[0])
        named = [op.attributes[place] for place in range(len(op.attributes))]
        attributes = {each.name: each.attr for each in named} | {"dimension_numbers": numbers}
        ordered = ir.Operation.create(
            "stablehlo.convolution",
            [build.with_shape(result, [result.shape[dim] for dim in out])],
            operands,
            attributes,
        )
        back = [out.index(dim) for dim in range(len(out))]
        op.results[0].replace_all_uses_with(_transposed(ordered.results[0], back))
    op.erase()


def _transposed(value: ir.Value, order: Sequence[int]) -> ir.Value:
    if list(order) == sorted(order):
        return value
    moved: ir.Value = stablehlo.transpose(value, ir.DenseI64ArrayAttr.get(list(order)))
    return moved
