"""Arguments that no table of names would find: functions that take functions, dimension numbers or several shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

Function = Callable[..., Any]
Spec = jax.ShapeDtypeStruct
Special = Callable[[Function], tuple[Function, tuple[Spec, ...]]]


def _f32(*shape: int) -> Spec:
    return Spec(shape, jnp.float32)


def _i32(*shape: int) -> Spec:
    return Spec(shape, jnp.int32)


_MATRIX = _f32(13, 11)
_IMAGE = _f32(2, 3, 14, 12)
_KERNEL = _f32(5, 3, 3, 3)
_KEY = Spec((2,), jnp.uint32)
_ROWS = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
_INTO_ROWS = lax.ScatterDimensionNumbers((1,), (0,), (0,))
_RAGGED = (_f32(13, 11), _f32(3, 11, 9), _i32(3))


def _with(specs: tuple[Spec, ...], call: Callable[..., Any]) -> Special:
    """A call of the function, given first, and of arrays of these types."""
    return lambda function: (lambda *arrays: call(function, *arrays), specs)


def _scatter() -> Special:
    return _with((_MATRIX, _i32(6, 1), _f32(6, 11)), lambda f, x, i, u: f(x, i, u, _INTO_ROWS))


def _solve(matvec: Any, b: Any) -> Any:
    return jnp.linalg.solve(jax.jacobian(matvec)(b), b)


def _distribution(*parameters: Spec) -> Special:
    return _with((_KEY, *parameters), lambda f, k, *rest: f(jax.random.wrap_key_data(k), *rest))


SPECIAL: dict[str, Special] = {
    "jax.lax.associative_scan": _with((_MATRIX,), lambda f, x: f(jnp.multiply, x)),
    "jax.lax.bitcast_convert_type": _with((_MATRIX,), lambda f, x: f(x, jnp.int32)),
    "jax.lax.broadcast_in_dim": _with((_MATRIX,), lambda f, x: f(x, (13, 4, 11), (0, 2))),
    "jax.lax.broadcasted_iota": _with((_MATRIX,), lambda f, x: x * f(jnp.float32, (13, 11), 1)),
    "jax.lax.clamp": _with((_MATRIX,), lambda f, x: f(-0.5, x, 0.7)),
    "jax.lax.complex": _with((_MATRIX, _MATRIX), lambda f, x, y: f(x, y)),
    "jax.lax.concatenate": _with((_MATRIX, _f32(9, 11)), lambda f, x, y: f([x, y], 0)),
    "jax.lax.cond": _with((_MATRIX,), lambda f, x: f(x[0, 0] > 0, jnp.sin, lambda y: jnp.sort(y, 1), x)),
    "jax.lax.conv": _with((_IMAGE, _KERNEL), lambda f, x, k: f(x, k, (1, 1), "SAME")),
    "jax.lax.conv_general_dilated": _with((_IMAGE, _KERNEL), lambda f, x, k: f(x, k, (2, 1), "SAME")),
    "jax.lax.conv_general_dilated_local": _with(
        (_f32(2, 3, 8, 6), _f32(5, 27, 6, 4)), lambda f, x, k: f(x, k, (1, 1), "VALID", (3, 3))
    ),
    "jax.lax.conv_general_dilated_patches": _with((_IMAGE,), lambda f, x: f(x, (3, 2), (1, 2), "SAME")),
    "jax.lax.conv_transpose": _with(
        (_f32(2, 3, 9, 8), _f32(3, 5, 3, 3)),
        lambda f, x, k: f(x, k, (2, 2), "SAME", dimension_numbers=("NCHW", "IOHW", "NCHW")),
    ),
    "jax.lax.conv_with_general_padding": _with(
        (_IMAGE, _KERNEL), lambda f, x, k: f(x, k, (1, 1), [(2, 1), (0, 1)], (1, 1), (2, 1))
    ),
    "jax.lax.custom_linear_solve": _with(
        (_f32(12, 12), _f32(12)),
        lambda f, a, b: f(lambda x: (a @ a.T + jnp.eye(12)) @ x, b, _solve, symmetric=True),
    ),
    "jax.lax.custom_root": _with(
        (_f32(37),),
        lambda f, a: f(
            lambda x: x**3 + x - a,
            jnp.zeros_like(a),
            lambda g, x: lax.fori_loop(0, 20, lambda _, y: y - g(y) / (3 * y**2 + 1), x),
            lambda g, y: y / g(jnp.ones_like(y)),
        ),
    ),
    "jax.lax.dot_general": _with(
        (_f32(4, 6, 10), _f32(4, 10, 7)), lambda f, x, y: f(x, y, (((2,), (1,)), ((0,), (0,))))
    ),
    "jax.lax.dynamic_slice": _with((_MATRIX, _i32()), lambda f, x, i: f(x, (i, 0), (6, 11))),
    "jax.lax.dynamic_slice_in_dim": _with((_MATRIX, _i32()), lambda f, x, i: f(x, i, 5)),
    "jax.lax.dynamic_index_in_dim": _with((_MATRIX, _i32()), lambda f, x, i: f(x, i)),
    "jax.lax.dynamic_update_index_in_dim": _with((_MATRIX, _f32(11), _i32()), lambda f, x, u, i: f(x, u, i, 0)),
    "jax.lax.dynamic_update_slice": _with((_MATRIX, _f32(5, 11), _i32()), lambda f, x, u, i: f(x, u, (i, 0))),
    "jax.lax.dynamic_update_slice_in_dim": _with((_MATRIX, _f32(5, 11), _i32()), lambda f, x, u, i: f(x, u, i, 0)),
    "jax.lax.fft": _with((_MATRIX,), lambda f, x: f(x.astype(jnp.complex64), "FFT", (11,))),
    "jax.lax.fori_loop": _with((_MATRIX,), lambda f, x: f(0, 5, lambda i, y: jnp.sin(y) + i, x)),
    "jax.lax.full_like": _with((_MATRIX,), lambda f, x: f(x, 2.5) + x),
    "jax.lax.gather": _with((_MATRIX, _i32(6, 1)), lambda f, x, i: f(x, i, _ROWS, (1, 11))),
    "jax.lax.index_take": _with((_MATRIX, _i32(6)), lambda f, x, i: f(x, (i,), (0,))),
    "jax.lax.map": _with((_MATRIX,), lambda f, x: f(lambda row: jnp.outer(row, row).sum(0), x)),
    "jax.lax.pad": _with((_MATRIX,), lambda f, x: f(x, jnp.float32(0.5), ((1, 2, 0), (-1, 3, 1)))),
    "jax.lax.ragged_dot": _with(_RAGGED, lambda f, x, y, n: f(x, y, jnp.minimum(n, 4))),
    "jax.lax.reduce": _with((_MATRIX,), lambda f, x: f(x, jnp.float32(0), lax.add, (0,))),
    "jax.lax.reduce_window": _with((_MATRIX,), lambda f, x: f(x, -jnp.inf, lax.max, (3, 2), (2, 1), "SAME")),
    "jax.lax.rng_uniform": _with((_f32(), _f32()), lambda f, x, y: f(x, y, (13, 11)) * 0),
    "jax.lax.rng_bit_generator": _with((Spec((4,), jnp.uint32),), lambda f, k: f(k, (13, 11))),
    "jax.lax.scan": _with(
        (_f32(11), _MATRIX), lambda f, c, x: f(lambda a, r: (jnp.tanh(a + r), jnp.outer(a, r)), c, x)
    ),
    "jax.lax.scatter": _scatter(),
    "jax.lax.scatter_add": _scatter(),
    "jax.lax.scatter_apply": _with(
        (_MATRIX, _i32(6, 1)), lambda f, x, i: f(x, i, jnp.sin, _INTO_ROWS, update_shape=(6, 11))
    ),
    "jax.lax.scatter_max": _scatter(),
    "jax.lax.scatter_min": _scatter(),
    "jax.lax.scatter_mul": _scatter(),
    "jax.lax.scatter_sub": _scatter(),
    "jax.lax.select_n": _with((_i32(13, 11), *(_MATRIX,) * 3), lambda f, i, *x: f(jnp.clip(i, 0, 2), *x)),
    "jax.lax.slice": _with((_MATRIX,), lambda f, x: f(x, (1, 0), (11, 10), (2, 1))),
    "jax.lax.switch": _with((_i32(), _MATRIX), lambda f, i, x: f(i, [jnp.sin, jnp.tanh, lambda y: y @ y.T @ y], x)),
    "jax.lax.tile": _with((_MATRIX,), lambda f, x: f(x, (2, 3))),
    "jax.lax.while_loop": _with((_MATRIX,), lambda f, x: f(lambda y: y.max() > 0.1, lambda y: y / 2, x)),
    "jax.lax.composite": _with((_MATRIX,), lambda f, x: f(lambda y: jnp.sin(y) @ y.T, "own.product")(x)),
    "jax.lax.integer_pow": _with((_MATRIX,), lambda f, x: f(x, 3)),
    "jax.lax.squeeze": _with((_f32(13, 1, 11),), lambda f, x: f(x, (1,))),
    "jax.lax.linalg.householder_product": _with((_f32(12, 8), _f32(8)), lambda f, x, y: f(x, y)),
    "jax.lax.linalg.tridiagonal_solve": _with(
        (_f32(3, 12), _f32(3, 12), _f32(3, 12), _f32(3, 12, 5)), lambda f, x, d, y, b: f(x, d + 5, y, b)
    ),
    "jax.numpy.apply_along_axis": _with((_MATRIX,), lambda f, x: f(jnp.convolve, 0, x, jnp.ones(3))),
    "jax.numpy.apply_over_axes": _with((_MATRIX,), lambda f, x: f(jnp.sum, x, (0,))),
    "jax.numpy.arange": _with((_f32(37),), lambda f, x: f(37) * x),
    "jax.numpy.block": _with((_MATRIX, _MATRIX), lambda f, x, y: f([[x, y], [y, x]])),
    "jax.numpy.choose": _with((_i32(13, 11), _MATRIX, _MATRIX), lambda f, i, x, y: f(i, [x, y], mode="clip")),
    "jax.numpy.bincount": _with((_i32(37),), lambda f, x: f(x, length=20)),
    "jax.numpy.clip": _with((_MATRIX, _f32(11)), lambda f, x, y: f(x, -0.5, jnp.abs(y))),
    "jax.numpy.compress": _with((_MATRIX,), lambda f, x: f(jnp.arange(13) % 3 > 0, x, axis=0, size=8)),
    "jax.numpy.cross": _with((_f32(13, 3), _f32(13, 3)), lambda f, x, y: f(x, y)),
    "jax.numpy.delete": _with((_MATRIX,), lambda f, x: f(x, 3, axis=0)),
    "jax.numpy.einsum": _with(
        (_f32(4, 6, 10), _f32(10, 7), _f32(4, 7)), lambda f, x, y, z: f("bik,kj,bj->ibj", x, y, z)
    ),
    "jax.numpy.extract": _with((_MATRIX, _MATRIX), lambda f, x, y: f(x > 0, y, size=40)),
    "jax.numpy.frompyfunc": _with((_MATRIX, _MATRIX), lambda f, x, y: f(jnp.add, 2, 1, identity=0).outer(x[0], y[0])),
    "jax.numpy.fromfunction": _with((_MATRIX,), lambda f, x: x * f(lambda i, j: i * 2 + j, (13, 11), dtype=float)),
    "jax.numpy.gradient": _with((_MATRIX,), lambda f, x: f(x)),
    "jax.numpy.histogramdd": _with((_f32(37, 2),), lambda f, x: f(x, bins=5)),
    "jax.numpy.insert": _with((_MATRIX, _f32(11)), lambda f, x, y: f(x, 3, y, axis=0)),
    "jax.numpy.interp": _with((_MATRIX, _f32(37), _f32(37)), lambda f, x, p, y: f(x, jnp.sort(p), y)),
    "jax.numpy.nonzero": _with((_MATRIX,), lambda f, x: f(x > 0, size=50)),
    "jax.numpy.piecewise": _with((_MATRIX,), lambda f, x: f(x, [x < 0, x > 1], [jnp.sin, jnp.cos, 2.0])),
    "jax.numpy.place": _with((_MATRIX, _f32(9)), lambda f, x, y: f(x, x > 0, y, inplace=False)),
    "jax.numpy.put": _with((_MATRIX, _i32(9), _f32(9)), lambda f, x, i, y: f(x, i, y, inplace=False)),
    "jax.numpy.put_along_axis": _with(
        (_MATRIX, _i32(13, 3), _f32(13, 3)), lambda f, x, i, y: f(x, i, y, 1, inplace=False)
    ),
    "jax.numpy.ravel_multi_index": _with((_i32(37), _i32(37)), lambda f, x, y: f((x, y), (13, 11), mode="clip")),
    "jax.numpy.unpackbits": _with((_i32(13, 11),), lambda f, x: f(x.astype(jnp.uint8))),
    "jax.numpy.fill_diagonal": _with((_f32(12, 12), _f32()), lambda f, x, y: f(x, y, inplace=False)),
    "jax.numpy.select": _with((_MATRIX, _MATRIX), lambda f, x, y: f([x > 1, y > 0], [x, y], 0.5)),
    "jax.numpy.unique": _with((_i32(37),), lambda f, x: f(x, size=20)),
    "jax.numpy.vectorize": _with((_MATRIX, _MATRIX), lambda f, x, y: f(jnp.dot, signature="(n),(n)->()")(x, y)),
    "jax.numpy.where": _with((_MATRIX, _MATRIX), lambda f, x, y: f(x > 0, x, y)),
    "jax.numpy.linalg.cross": _with((_f32(13, 3), _f32(13, 3)), lambda f, x, y: f(x, y)),
    "jax.numpy.linalg.cond": _with((_f32(12, 12),), lambda f, x: f(x)),
    "jax.nn.dot_product_attention": _with((_f32(2, 9, 3, 4),) * 3, lambda f, q, k, v: f(q, k, v, is_causal=True)),
    "jax.image.resize": _with((_f32(13, 11, 3),), lambda f, x: f(x, (20, 17, 3), "cubic")),
    "jax.image.scale_and_translate": _with(
        (_MATRIX, _f32(2), _f32(2)), lambda f, x, s, t: f(x, (20, 17), (0, 1), 1 + s**2, t, "linear")
    ),
    "jax.ops.segment_max": _with((_MATRIX, _i32(13)), lambda f, x, i: f(x, i, num_segments=6)),
    "jax.ops.segment_min": _with((_MATRIX, _i32(13)), lambda f, x, i: f(x, i, num_segments=6)),
    "jax.ops.segment_prod": _with((_MATRIX, _i32(13)), lambda f, x, i: f(x, i, num_segments=6)),
    "jax.ops.segment_sum": _with((_MATRIX, _i32(13)), lambda f, x, i: f(x, i, num_segments=6)),
    "jax.scipy.linalg.cho_solve": _with((_f32(12, 12), _f32(12, 7)), lambda f, c, b: f((c, True), b)),
    "jax.scipy.linalg.eigh_tridiagonal": _with((_f32(12), _f32(11)), lambda f, d, e: f(d, e, eigvals_only=True)),
    "jax.scipy.linalg.leslie": _with((_f32(12), _f32(11)), lambda f, x, y: f(x, y)),
    "jax.scipy.special.bessel_jn": _with((_f32(37),), lambda f, x: f(x, v=4)),
    "jax.scipy.special.sph_harm_y": _with(
        (_f32(12), _f32(12)), lambda f, x, y: f(jnp.arange(12) % 4, jnp.arange(12) % 2, x, y, n_max=4)
    ),
    "jax.scipy.special.zeta": _with((_MATRIX, _MATRIX), lambda f, x, y: f(1 + x**2, 1 + y**2)),
    "jax.scipy.linalg.funm": _with((_f32(12, 12),), lambda f, x: f(x, jnp.exp, disp=False)),
    "jax.scipy.linalg.lu_solve": _with(
        (_f32(12, 12), _f32(12, 7)), lambda f, a, b: f(jax.scipy.linalg.lu_factor(a), b)
    ),
    "jax.scipy.ndimage.map_coordinates": _with(
        (_MATRIX, _f32(37), _f32(37)), lambda f, x, i, j: f(x, [i * 3 + 4, j * 3 + 4], order=1)
    ),
    "jax.scipy.sparse.linalg.bicgstab": _with((_f32(12, 12), _f32(12)), lambda f, a, b: f(a @ a.T + jnp.eye(12), b)),
    "jax.scipy.sparse.linalg.cg": _with((_f32(12, 12), _f32(12)), lambda f, a, b: f(a @ a.T + jnp.eye(12), b)),
    "jax.scipy.sparse.linalg.gmres": _with((_f32(12, 12), _f32(12)), lambda f, a, b: f(a @ a.T + jnp.eye(12), b)),
    "jax.random.choice": _distribution(_MATRIX),
    "jax.random.randint": _with((_KEY,), lambda f, k: f(jax.random.wrap_key_data(k), (13, 11), 0, 9)),
    "jax.random.ball": _with((_KEY,), lambda f, k: f(jax.random.wrap_key_data(k), 3, shape=(13, 11))),
    "jax.random.truncated_normal": _with((_KEY,), lambda f, k: f(jax.random.wrap_key_data(k), -1.0, 1.5, (13, 11))),
    "jax.random.wrap_key_data": _with((_KEY,), lambda f, k: jax.random.normal(f(k), (13, 11))),
}
# The samplers that return one number unless they are given a shape.
for _name in "bits cauchy exponential gumbel laplace logistic lognormal maxwell normal rademacher uniform".split():
    SPECIAL[f"jax.random.{_name}"] = _with((_KEY,), lambda f, k: f(jax.random.wrap_key_data(k), shape=(13, 11)))
# The functions that return a function of a key and a shape.
for _name in """
    delta_orthogonal glorot_normal glorot_uniform he_normal he_uniform lecun_normal lecun_uniform normal orthogonal
    truncated_normal uniform
""".split():
    _shape = (3, 11, 13) if _name == "delta_orthogonal" else (13, 11)
    SPECIAL[f"jax.nn.initializers.{_name}"] = _with(
        (_KEY,), lambda f, k, shape=_shape: f()(jax.random.wrap_key_data(k), shape)
    )
