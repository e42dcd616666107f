"""convolution-layout: convolutions in loops on a CPU in a form that XLA has a fast kernel for.

before:  a while with  convolution(%x, %k) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]
after:   transposes around  convolution  dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]

XLA:CPU itself brings convolutions into that order, but only in the entry computation: in the body of a loop any other
order runs on a kernel that is 10 to 160 times slower. A few large groups of features or of images become a convolution
each, as XLA is slower with groups than with separate convolutions, in loops and outside. Many groups of images with
large windows, as in gradients by a kernel, become groups of features. Groups of one input feature become a sum of
products. An f64 line becomes a plane of one row. Nothing is done for other machines, outside of loops, for reversed
windows and for types other than floats; nor where measurements showed no gain (`forms.py`). The same products are
added, in an order that may differ: with --no-reassociate nothing is done.
"""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.clean_up import clean_up
from exla_opt.ir.types import Types
from exla_opt.ir.values import has_discardable_attributes
from exla_opt.ir.walk import inside_out
from exla_opt.options import Options
from exla_opt.remarks import Remark

from .convolution import Convolution, read_convolution
from .forms import Form, fast_form
from .rewrite import write_form


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Rewrite the convolutions in loops of `module`, in place, if it is for a CPU."""
    if options.machine.kind != "cpu" or not options.reassociate:
        return []
    types = Types()
    in_loops = [op for op in inside_out(module, "stablehlo.convolution") if _is_in_loop(op)]
    legal = [(op, read_convolution(op)) for op in in_loops if _is_legal(op)]
    chosen = [(op, convolution, fast_form(convolution)) for op, convolution in legal]
    slow = [
        (op, convolution, form)
        for op, convolution, form in chosen
        if form and _largest_copy(op, convolution, form, types) <= options.size_threshold
    ]
    for op, convolution, form in slow:
        with op.location, ir.InsertionPoint(op):
            op.results[0].replace_all_uses_with(write_form(op, convolution, form))
        op.erase()
    if slow:
        clean_up(module)
    return []


def _is_in_loop(op: ir.Operation) -> bool:
    outer = op.parent
    while outer is not None and outer.name != "stablehlo.while":
        outer = outer.parent
    return outer is not None


def _is_legal(op: ir.Operation) -> bool:
    """Whether dimensions may be renumbered: not if an attribute, such as a sharding, refers to them."""
    return not has_discardable_attributes(op)


def _largest_copy(op: ir.Operation, convolution: Convolution, form: Form, types: Types) -> int:
    """The bytes of the form's largest copy: of transposed tensors, and of all groups."""
    values = (*op.operands, op.results[0])
    pairs = zip(values, convolution.orders, strict=True)
    copied = values if form != "turned" else [value for value, order in pairs if order != sorted(order)]
    return max((types.of(value).bytes for value in copied), default=0)
