"""tensor-splitter: paths through huge tensors -> while loops over slices of them.

    %k = exp(dot(%a, %b))  : [n, m], huge          while i < n / tile:
    %y = dot(%k, %v)       : [n]             ->        %y[i] = dot(exp(dot(%a[i], %b)), %v)

Applies to every tensor over the threshold that XLA would write to memory and that one factor cuts, together with
everything big that the factor reaches, in every block of the module. Values that are reduced over the factor are
accumulated; ops that need the complete sum are moved to a second loop, in which big tensors are recomputed. Refuses,
with a remark, ops without a rule, tensors that a reader needs unsplit, and splits without gain.
"""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.options import Options
from exla_opt.remarks import Remark

from .driver import split_module

NAME = "tensor-splitter"


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Split every big tensor of the module that can be split; return the remarks."""
    return split_module(module, options)
