"""The memory that cuBLAS's products may need on a GPU itself and not in a compile without it.

On a GPU, XLA tries out kernels for each product of matrices and takes the fastest: Triton's, which need no workspace,
or one of cuBLAS's, for which it reserves 32 MiB from compute capability 9 on. Without a GPU it counts 4 MiB or none.
"""

from __future__ import annotations

import re

from jaxlib.mlir import ir

from exla_opt.ir.walk import inside_out
from exla_opt.sizes import format_size

_MAJOR = re.compile(r"cuda_compute_capability\s*:?\s*\{[^}]*?\bmajor\s*:\s*(\d+)")
_FROM_MAJOR = 9
_WORKSPACE = 32 * 2**20


def workspace_of(description: str) -> int:
    """The bytes, for a GPU that is not here. description: a GpuTargetConfigProto as text; "" for no GPU."""
    major = _MAJOR.search(description)
    return _WORKSPACE if major is not None and int(major[1]) >= _FROM_MAJOR else 0


def tight(module: ir.Module, peak: int, limit: int, workspace: int) -> str:
    """What to say of a program that fits by less than the workspace of a product; "" if it has none or needs none.

    peak, limit, workspace: bytes.
    """
    if not 0 <= limit - peak < workspace or not inside_out(module, "stablehlo.dot_general", "stablehlo.dot"):
        return ""
    return f"fits by less than {format_size(workspace)}, which a product of cuBLAS may need as well on the GPU itself"
