"""tensor-splitter: paths through huge tensors -> while loops over slices of them.

    %k = exp(dot(%a, %b))  : [n, m], huge          while i < n / tile:
    %y = dot(%k, %v)       : [n]             ->        %y[i] = dot(exp(dot(%a[i], %b)), %v)

Applies to every tensor over the threshold that XLA would write to memory and that one factor cuts, together
with everything big that the factor reaches, in every block of the module. What is reduced over the factor
is accumulated; what needs the complete sum waits for a second loop, in which big tensors are recomputed.
Refuses, with a remark, what no rule is known for, what a reader needs whole, and what would gain nothing.
"""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.options import Options
from exla_opt.remarks import Remark

from .driver import split_module

NAME = "tensor-splitter"


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Split every big tensor of the module that can be split; returns what was done and what was not, and why."""
    return split_module(module, options)
