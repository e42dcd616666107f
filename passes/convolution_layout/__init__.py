"""convolution-layout: convolutions on a CPU in a form that XLA is fast with, most of them in loops.

before:  a while with  convolution(%x, %k) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]
after:   transposes around  convolution  dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]

XLA:CPU itself brings convolutions into that order, but only in the entry computation: in the body of a loop any other
order runs on a kernel that is 10 to 160 times slower. A few large groups of features or of images become a convolution
each, as XLA is slower with groups than with separate convolutions, in loops and outside. Many groups of images with
large windows, as in gradients by a kernel, become groups of features. Groups of one input feature become a sum of
products. Outside of loops as well, gradients of depthwise kernels become a loop over the kernel's positions, and
kernels larger than the image a product of matrices or, as in gradients of transposed convolutions by their kernels,
images, with the image as a kernel. An f64 line becomes a plane of one row. Nothing is done for other machines, for
other convolutions outside of loops, for reversed windows and for types other than floats; nor where measurements showed
no gain (`forms.py`). The same products are added, in an order that may differ: with --no-reassociate nothing is done.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from jaxlib.mlir import ir

from exla_opt.ir.clean_up import clean_up
from exla_opt.ir.rewrite import copy_of, restore
from exla_opt.ir.types import Types
from exla_opt.ir.values import has_discardable_attributes
from exla_opt.ir.walk import inside_out, is_in_loop
from exla_opt.memory.machine import as_written
from exla_opt.memory.peak import predict
from exla_opt.ops.convolution import SHORT, Convolution, read_convolution
from exla_opt.options import Options
from exla_opt.remarks import Remark

from .forms import Form, fast_form
from .patches import bytes_of_patches, bytes_of_reversed
from .rewrite import write_form

# The largest copies, in slices: a loop's body normally holds that many.
_MOST_SLICES = 4
# Predicted peaks of loops with such copies are that much too low at times.
_CLEARLY = 1.1


# The forms of convolutions of which XLA exchanges image and kernel, in loops and outside.
_OF_LARGER_KERNELS = ("patches", "exchanged")


@dataclass(frozen=True, slots=True)
class _Slow:
    """A convolution on the slow kernel, the form that is faster, and the bytes of that form's largest copy."""

    op: ir.Operation
    convolution: Convolution
    form: Form
    copied: int

    @property
    def grows(self) -> bool:
        """Whether the form may take more than what XLA copies instead: a reversed kernel, and images in its own order.

        Of exchanged operands outside of loops, the predicted peak says it; in loops, they are copied like turned ones.
        """
        if self.form == "exchanged":
            return not is_in_loop(self.op)
        return self.form == "patches" and self.copied > bytes_of_reversed(self.op, self.convolution)


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Rewrite convolutions of `module`, in place, if it is for a CPU."""
    if options.machine.kind != "cpu" or not options.reassociate:
        return []
    _write(module, [each for each in _slow(module) if each.copied <= options.size_threshold and not each.grows])
    _turn_large(module, options)
    return []


def _turn_large(module: ir.Module, options: Options) -> None:
    """Rewrite the slow convolutions whose copies are over the threshold, as many as the memory allows, slowest first.

    They are worth it where the peak is elsewhere, or clearly below the limit all the same.
    """
    most = _MOST_SLICES * options.slice_bytes
    slow = _slow(module)
    places = [place for place, each in enumerate(slow) if each.copied <= most]
    places.sort(key=lambda place: -slow[place].convolution.multiplications)
    if not places:
        return
    machine = as_written(options.machine)
    room = max(predict(module, machine).peak, (options.memory_limit or 0) / _CLEARLY)

    def turned(count: int) -> ir.Module:
        trial = copy_of(module)
        found = _slow(trial)
        _write(trial, [found[place] for place in places[:count]])
        return trial

    counts = range(1, len(places) + 1)
    count = bisect_left(counts, True, key=lambda count: predict(turned(count), machine).peak > room)
    if count:
        restore(module, turned(count))


def _write(module: ir.Module, chosen: Sequence[_Slow]) -> None:
    for each in chosen:
        with each.op.location, ir.InsertionPoint(each.op):
            each.op.results[0].replace_all_uses_with(write_form(each.op, each.convolution, each.form))
        each.op.erase()
    if chosen:
        clean_up(module)


def _slow(module: ir.Module) -> list[_Slow]:
    types = Types()
    legal = filter(_is_legal, inside_out(module, "stablehlo.convolution"))
    found = [(op, convolution, fast_form(convolution)) for op in legal for convolution in (read_convolution(op),)]
    return [
        _Slow(op, convolution, form, _largest_copy(op, convolution, form, types))
        for op, convolution, form in found
        if form is not None and (is_in_loop(op) or _gains_anywhere(convolution, form))
    ]


def _gains_anywhere(convolution: Convolution, form: Form) -> bool:
    """Whether a form is worth it outside of loops.

    Narrow floats are about as fast there, and some are copied: they gain if XLA's pairs of features take more memory.
    """
    if form in _OF_LARGER_KERNELS:
        return True
    pairs = convolution.batch_groups * prod(convolution.result)
    return form == "positions" and (convolution.dtype not in SHORT or pairs > prod(convolution.image))


def _is_legal(op: ir.Operation) -> bool:
    """Whether dimensions may be renumbered: not if an attribute, such as a sharding, refers to them."""
    return not has_discardable_attributes(op)


def _largest_copy(op: ir.Operation, convolution: Convolution, form: Form, types: Types) -> int:
    """The bytes of the form's largest copy: of transposed tensors, and of all groups. Of patches, of all copies.

    Of exchanged operands outside of loops, of the reversed result: XLA copies the kernel as well (`_Slow.grows`).
    """
    if form == "patches":
        return bytes_of_patches(convolution)
    if form == "exchanged" and not is_in_loop(op):
        return types.of(op.results[0]).bytes
    values = (*op.operands, op.results[0])
    pairs = zip(values, convolution.orders, strict=True)
    copied = values if form != "turned" else [value for value, order in pairs if order != sorted(order)]
    if convolution.kept != [*convolution.image[1:-1]]:
        copied = [*copied, op.operands[0]]
    return max((types.of(value).bytes for value in copied), default=0)
