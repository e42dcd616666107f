"""recompute: tensors that wait long for their readers, computed once more before them.

before:  %h = tanh(dot(%x, %w)) ... forward, loss, backward ... use(%h)
after:   %h = tanh(dot(%x, %w)) ... forward, loss, backward ... %h' = tanh(dot(%x, %w)) use(%h')

With a limit alone (--memory-limit), and only as long as the predicted peak is above it. What is alive at the peak and
read behind it is recomputed in segments, from what is stored or from arguments, in the fewest seconds. Never repeated:
what draws random numbers from a state, calls foreign code or has an order, and that of which a program asks whether it
equals another number.
"""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.options import Options
from exla_opt.remarks import Remark

from .driver import recompute


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Recompute tensors of `module`, in place, until it is predicted to fit; what was done."""
    return recompute(module, options)
