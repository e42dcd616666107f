"""The tasks in KeOps, for arrays of numpy: symbolic matrices that are reduced without being stored.

KeOps is no dependency: `programs` returns nothing where it is not installed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Array = Any
MISSING = "KeOps is not installed, so its column stays empty (pip install pykeops keopscore, and a C++ compiler)."


def programs() -> dict[str, Callable[..., Any]]:
    """Each formula by the name that the tasks have for it; {} without KeOps."""
    try:
        import pykeops
        from pykeops.numpy import Genred, LazyTensor
    except ImportError:
        return {}
    pykeops.set_verbose(False)

    def squares(x: Array, y: Array) -> Any:
        return ((LazyTensor(x[:, None, :]) - LazyTensor(y[None, :, :])) ** 2).sum(-1)

    def gaussian(x: Array, y: Array, v: Array) -> Array:
        return ((-squares(x, y)).exp() @ v[:, None])[:, 0]

    def laplacian(x: Array, y: Array, v: Array) -> Array:
        apart = (LazyTensor(x[:, None, :]) - LazyTensor(y[None, :, :])).abs().sum(-1)
        return ((-apart).exp() @ v[:, None])[:, 0]

    def sinkhorn_step(x: Array, y: Array, potential: Array) -> Array:
        costs = (LazyTensor(potential[None, :, None]) - squares(x, y)) / 0.05
        return -0.05 * costs.logsumexp(dim=1)[:, 0]

    def nearest(x: Array, y: Array) -> Array:
        return squares(x, y).argmin(dim=1)[:, 0].astype("int32")

    def neighbours(x: Array, y: Array) -> Array:
        return squares(x, y).Kmin(10, dim=1)

    def distance_sums(x: Array, y: Array) -> Array:
        return (squares(x, y) + 1e-6).sqrt().sum(dim=1)[:, 0]

    def gravity(x: Array, y: Array, masses: Array) -> Array:
        apart = LazyTensor(y[None, :, :]) - LazyTensor(x[:, None, :])
        strength = ((apart**2).sum(-1) + 1e-2) ** -1.5
        return (LazyTensor(masses[None, :, None]) * strength * apart).sum(dim=1)

    def gradient(kernel: str) -> Callable[[Array, Array], Array]:
        # K is symmetric: twice the derivative by the points of its rows, half the work of both sides.
        variables = ["x=Vi(3)", "y=Vj(3)", "v=Vi(1)", "w=Vj(1)"]
        by_rows = Genred(f"Grad(v*{kernel}*w, x, IntCst(2))", variables, axis=1)
        return lambda x, v: by_rows(x, x, v[:, None], v[:, None])

    def attention(queries: Array, keys: Array, values: Array) -> Array:
        scale = queries.dtype.type(queries.shape[-1] ** -0.5)
        q, k, v = (each.swapaxes(0, 1) for each in (queries * scale, keys, values))
        scores = (LazyTensor(q[:, :, None, :].copy()) * LazyTensor(k[:, None, :, :].copy())).sum(-1)
        made = scores.sumsoftmaxweight(LazyTensor(v[:, None, :, :].copy()), axis=2)
        return made.swapaxes(0, 1)

    return {
        "gaussian": gaussian,
        "laplacian": laplacian,
        "sinkhorn_step": sinkhorn_step,
        "nearest": nearest,
        "neighbours": neighbours,
        "distance_sums": distance_sums,
        "gravity": gravity,
        "gaussian_gradient": gradient("Exp(-SqDist(x,y))"),
        "laplacian_gradient": gradient("Exp(-Sum(Abs(x-y)))"),
        "attention": attention,
    }
