"""Kernel matrices, pairwise distances, optimal transport, solvers: programs around an [n, m] matrix."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tests.programs.model import Program, both, gradient

Array = Any


def squared_distances(x: Array, y: Array) -> Array:
    return ((x[:, None, :] - y[None, :, :]) ** 2).sum(-1)


def by_matmul(x: Array, y: Array) -> Array:
    return (x**2).sum(1)[:, None] + (y**2).sum(1)[None] - 2 * x @ y.T


def kernel(x: Array, y: Array) -> Array:
    return jnp.exp(-0.5 * squared_distances(x, y))


def matvec(x: Array, y: Array, v: Array) -> Array:
    return kernel(x, y) @ v


def matvec_by_matmul(x: Array, y: Array, v: Array) -> Array:
    return jnp.exp(-0.5 * by_matmul(x, y)) @ v


def gram(x: Array) -> Array:
    return kernel(x, x) @ x


def gram_twice(x: Array) -> Array:
    k = kernel(x, x)
    return k @ (k @ x)


def sgpr_bound(x: Array, z: Array, y: Array) -> Array:
    kuu = kernel(z, z) + 0.1 * jnp.eye(z.shape[0])
    lower = jnp.linalg.cholesky(kuu)
    a = jax.scipy.linalg.solve_triangular(lower, kernel(z, x), lower=True)
    b = a @ a.T + jnp.eye(z.shape[0])
    chol = jnp.linalg.cholesky(b)
    c = jax.scipy.linalg.solve_triangular(chol, a @ y, lower=True)
    return jnp.log(jnp.diag(chol)).sum() + 0.5 * (c**2).sum() - 0.5 * (a**2).sum()


def sinkhorn_step(cost: Array, f: Array, g: Array) -> tuple[Array, Array]:
    f = -jax.nn.logsumexp(g[None, :] - cost, axis=1)
    g = -jax.nn.logsumexp(f[:, None] - cost, axis=0)
    return f, g


def sinkhorn_captured(x: Array, y: Array) -> Array:
    cost = squared_distances(x, y)
    start = (jnp.zeros(x.shape[0]), jnp.zeros(y.shape[0]))
    return lax.fori_loop(0, 5, lambda i, fg: sinkhorn_step(cost, *fg), start)


def sinkhorn_inside(x: Array, y: Array) -> Array:
    start = (jnp.zeros(x.shape[0]), jnp.zeros(y.shape[0]))
    return lax.fori_loop(0, 5, lambda i, fg: sinkhorn_step(squared_distances(x, y), *fg), start)


def sinkhorn_scan(x: Array, y: Array) -> Array:
    cost = squared_distances(x, y)
    start = (jnp.zeros(x.shape[0]), jnp.zeros(y.shape[0]))
    f, g = lax.scan(lambda fg, _: (sinkhorn_step(cost, *fg), None), start, None, length=4)[0]
    return f.sum() + g.sum()


def sinkhorn_checkpointed(x: Array, y: Array) -> Array:
    start = (jnp.zeros(x.shape[0]), jnp.zeros(y.shape[0]))
    step = jax.checkpoint(lambda fg, _: (sinkhorn_step(squared_distances(x, y), *fg), None))
    f, g = lax.scan(step, start, None, length=4)[0]
    return f.sum() + g.sum()


def sinkhorn_until(x: Array, y: Array) -> Array:
    """A while over a captured cost matrix whose condition looks at the state."""
    cost = squared_distances(x, y)

    def body(state: Any) -> Any:
        step, (f, g), _ = state
        new = sinkhorn_step(cost, f, g)
        return step + 1, new, jnp.abs(new[0] - f).max()

    def more(state: Any) -> Any:
        return (state[0] < 20) & (state[2] > 1e-3)

    start = (0, (jnp.zeros(x.shape[0]), jnp.zeros(y.shape[0])), jnp.float32(jnp.inf))
    return lax.while_loop(more, body, start)[1]


def conjugate_gradients(x: Array, b: Array) -> Array:
    k = kernel(x, x) + jnp.eye(x.shape[0])
    return jax.scipy.sparse.linalg.cg(lambda v: k @ v, b, maxiter=10, tol=0.0)[0]


def conjugate_gradients_inside(x: Array, b: Array) -> Array:
    return jax.scipy.sparse.linalg.cg(lambda v: kernel(x, x) @ v + v, b, maxiter=10, tol=0.0)[0]


def scan_big_body(x: Array, v: Array) -> Any:
    def step(carry: Array, centre: Array) -> Any:
        k = jnp.exp(-squared_distances(x - centre, x))
        return k @ carry * 1e-2, (k.sum(), carry[0])

    return lax.scan(step, v, x[:4])


def cond_big(x: Array, v: Array, choose: Array) -> Array:
    return lax.cond(choose > 3, lambda: kernel(x, x) @ v, lambda: jnp.sin(x @ x.T) @ v)


def switch_captured(x: Array, v: Array, choose: Array) -> Array:
    k = kernel(x, x)
    return lax.switch(choose % 3, [lambda: k @ v, lambda: (k**2) @ v, lambda: k.max(1)])


def l1_distances(x: Array, y: Array) -> Array:
    return jnp.abs(x[:, None] - y[None]).sum(-1).min(1)


def l1_kernel(x: Array, y: Array, v: Array) -> Array:
    return jnp.exp(-jnp.abs(x[:, None] - y[None]).sum(-1)) @ v


def nbody(x: Array, m: Array) -> Array:
    r = x[None, :, :] - x[:, None, :]
    inverse = ((r**2).sum(-1) + 1e-2) ** -1.5
    return (r * (inverse * m[None, :])[..., None]).sum(1)


def nearest(x: Array, y: Array) -> Any:
    d = squared_distances(x, y)
    return d.min(1), d.argmin(1), d.argmax(0)


def nearest_matmul(x: Array, y: Array) -> Any:
    d = by_matmul(x, y)
    return d.min(1), d.argmin(1), d.argmax(0)


def neighbours(x: Array, y: Array) -> Any:
    values, places = lax.top_k(-by_matmul(x, y), 5)
    return values, places


def chamfer(x: Array, y: Array) -> Array:
    d = by_matmul(x, y)
    return d.min(1).mean() + d.min(0).mean()


def median_of_each(x: Array, y: Array) -> Array:
    return jnp.sort(by_matmul(x, y), axis=1)[:, 7]


def rank_of_each(x: Array, y: Array) -> Array:
    return jnp.argsort(by_matmul(x, y), axis=1)[:, :3]


def sum_of_three(x: Array, y: Array, z: Array) -> Array:
    return jnp.einsum("ia,ja,ka->i", x, y, z) + jnp.tanh(x @ y.T).sum(1)


def eigen_power(x: Array) -> Array:
    k = kernel(x, x)
    return lax.fori_loop(0, 6, lambda i, v: (k @ v) / jnp.linalg.norm(k @ v), jnp.ones(x.shape[0]))


def wasserstein_plan(x: Array, y: Array) -> Array:
    """A plan out of the loop's result and the matrix the loop used."""
    cost = squared_distances(x, y)
    start = (jnp.zeros(x.shape[0]), jnp.zeros(y.shape[0]))
    f, g = lax.fori_loop(0, 5, lambda i, fg: sinkhorn_step(cost, *fg), start)
    return (jnp.exp(f[:, None] + g[None] - cost) * cost).sum()


XY = "401x3xf32 307x3xf32"
XVI = "300x4xf32 300xf32 i32"
PROGRAMS: list[Program] = [
    *both("matvec", matvec, "401x3xf32 307x3xf32 307xf32"),
    *both("matvec_matmul", matvec_by_matmul, "401x3xf32 307x3xf32 307xf32"),
    *both("gram", gram, "400x4xf32"),
    *both("gram_twice", gram_twice, "300x4xf32"),
    *both("sgpr_bound", sgpr_bound, "2003x3xf64 24x3xf64 2003xf64"),
    Program("sinkhorn_scan", sinkhorn_scan, XY),
    Program("sinkhorn_scan_gradient", gradient(sinkhorn_scan), XY, 0.22),
    *both("sinkhorn_checkpointed", sinkhorn_checkpointed, XY),
    Program("sinkhorn_captured", sinkhorn_captured, XY),
    Program("sinkhorn_inside", sinkhorn_inside, XY),
    Program("sinkhorn_until", sinkhorn_until, XY),
    Program("wasserstein_plan", wasserstein_plan, XY),
    *both("conjugate_gradients", conjugate_gradients, "300x4xf64 300xf64"),
    Program("conjugate_gradients_inside", conjugate_gradients_inside, "300x4xf32 300xf32"),
    Program("scan_big_body", scan_big_body, "300x4xf32 300xf32"),
    Program("scan_big_body_gradient", gradient(scan_big_body), "300x4xf32 300xf32"),
    Program("cond_big", cond_big, XVI),
    Program("cond_big_gradient", gradient(cond_big), XVI, 0.25, "needs a tensor of its full shape as well"),
    Program("switch_captured", switch_captured, XVI),
    Program("switch_captured_gradient", gradient(switch_captured), XVI, 0.7, "it is a result of this block"),
    *both("l1_distances", l1_distances, "301x16xf32 257x16xf32"),
    *both("l1_kernel", l1_kernel, "301x16xf32 257x16xf32 257xf32"),
    *both("nbody", nbody, "300x3xf32 300xf32"),
    Program("nearest", nearest, XY),
    Program("nearest_matmul", nearest_matmul, XY),
    *both("neighbours", neighbours, XY),
    Program("chamfer", chamfer, XY),
    Program("chamfer_gradient", gradient(chamfer), XY),
    *both("median_of_each", median_of_each, XY),
    Program("rank_of_each", rank_of_each, XY),
    *both("sum_of_three", sum_of_three, "300x6xf32 257x6xf32 100x6xf32"),
    Program("eigen_power", eigen_power, "300x4xf32"),
]
