"""recompute: tensors that wait long for their late uses, recomputed just before them.

before:  %h = tanh(dot(%x, %w)) ... forward, loss, backward ... use(%h)
after:   %h = tanh(dot(%x, %w)) ... forward, loss, backward ... %h' = tanh(dot(%x, %w)) use(%h')

Only with a limit (--memory-limit), and only while the predicted peak is above it. Tensors that are alive at the peak
and read after it are recomputed in segments, from stored tensors or arguments, in the fewest seconds. Never repeated:
ops that draw random numbers from a state, call foreign code or are ordered, and tensors that the program tests for
equality with others. Before that, on a CPU, sums of big tensors take up each term once it is there (`sums`), and
independent chains of ops run one after another (`chains`).
"""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.options import Options
from exla_opt.remarks import Remark

from .driver import recompute


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Recompute tensors of `module`, in place, until it is predicted to fit; return the remarks."""
    return recompute(module, options)
