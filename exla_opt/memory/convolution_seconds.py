"""The time in which a CPU packs what a convolution reads, besides that of its arithmetic."""

from __future__ import annotations

from .block import Operation, Shape
from .machine import Machine
from .operation import JAXLIB

# Before a CPU convolves, it copies the elements that each position of the result reads, for all features of a group
# together, in runs of one element's features: chosen on images of 3 to 128 features in loops. Where a program in slices
# leaves one feature, but not as the last dimension, another kernel runs, about as fast as with longer runs.
_SECONDS_TO_PACK, _SECONDS_TO_START = 1e-10, 2.4e-9
_OTHER_RUN = 16
# How much longer each run takes if its features are odd in number: before jaxlib 0.12, XLA:CPU's library convolves RGB
# images five to twenty times slower to 17 to 32 features, for example, than to 16 or 64.
_SECONDS_IF_ODD = 1.5e-8


def seconds_to_pack(op: Operation, read: int, shape: Shape, machine: Machine) -> float:
    """The seconds in which a CPU copies what a convolution reads for each position, for a group's features together.

    read: the elements that all positions read for one feature of the result. shape: of the result.
    """
    if machine.kind != "cpu" or machine.any_shape or not machine.is_written:
        return 0.0
    ins, groups = op.features
    if op.shared != (len(shape) - 1,):
        return read * groups * (_SECONDS_TO_PACK + _SECONDS_TO_START / _OTHER_RUN)
    is_slow = machine.odd_features > JAXLIB and _is_slow_if_odd(ins, shape[-1] // groups)
    run = _SECONDS_TO_START + (_SECONDS_IF_ODD if is_slow else 0.0)
    return read * groups * (_SECONDS_TO_PACK + run / max(ins, 1))


def _is_slow_if_odd(ins: int, outs: int) -> bool:
    """Whether a convolution has an odd number of input features, and a number of others for which that is slow."""
    return ins > 1 and ins % 2 == 1 and outs > 16 and 0 < outs % 64 <= 32
