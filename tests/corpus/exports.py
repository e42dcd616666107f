"""StableHLO modules made of JAX's public functions: each in the middle of big tensors, its gradient, and a batch of it.

A function alone takes and returns its tensors, and what is an argument or a result cannot be cut. So its arguments
are multiplied by an identity matrix first, which changes no bit of them, and its results by a vector of weights:

    f(x)  ->  f(x @ identity) @ weights
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from tests.corpus.arguments import Call, NoArgumentsError, find_calls
from tests.corpus.check import Export
from tests.corpus.functions import Function

Array = npt.NDArray[Any]
Tree = Any
BATCH = 3


@dataclass(frozen=True, slots=True)
class _Embedded:
    """A call between two products: takes the arrays of `specs`, then the identities and weights of `extra`."""

    function: Callable[..., Tree]
    call: Call
    extra: tuple[Array, ...]


def exports(name: str, function: Function) -> Iterator[Export]:
    """The modules of one function. Raises NoArgumentsError when no arguments for it are found."""
    first, *others = find_calls(name, function)
    yield from forms(name, first)
    for other in others:
        embedded = _embed(other)
        yield _export(f"{name}: {other.what}", embedded.function, other.specs, embedded.extra)


def forms(name: str, call: Call) -> Iterator[Export]:
    """The modules of one call: within big tensors, its gradient and a batch of it, where there are such."""
    embedded = _embed(call)
    yield _export(f"{name}: within", embedded.function, call.specs, embedded.extra)
    if differentiated := _gradient(embedded):
        yield _export(f"{name}: gradient", differentiated, call.specs, embedded.extra)
    if batched := _batch(embedded):
        yield _export(f"{name}: batch", batched, _batched_specs(call.specs), embedded.extra)


def _embed(call: Call) -> _Embedded:
    sizes = sorted({spec.shape[-1] for spec in call.specs if spec.shape and _multiplies(spec.dtype)})
    results = [leaf for leaf in jax.tree.leaves(jax.eval_shape(call.function, *call.specs)) if hasattr(leaf, "shape")]
    lengths = sorted({leaf.shape[-1] for leaf in results if leaf.shape and _is_number(leaf.dtype)})
    extra = [np.eye(size, dtype=np.float32) for size in sizes]
    # Integers, so that they weigh integers too.
    extra += [np.arange(length, dtype=np.float32) % 7 + 1 for length in lengths]

    def embedded(*arrays: Any) -> Tree:
        given, known = arrays[: len(call.specs)], arrays[len(call.specs) :]
        identities = dict(zip(sizes, known, strict=False))
        weights = dict(zip(lengths, known[len(sizes) :], strict=True))
        made = [x @ identities[x.shape[-1]].astype(x.dtype) if x.ndim and _multiplies(x.dtype) else x for x in given]
        return jax.tree.map(lambda leaf: _weigh(leaf, weights), call.function(*made))

    return _Embedded(embedded, call, tuple(extra))


def _multiplies(dtype: Any) -> bool:
    return jnp.issubdtype(dtype, jnp.inexact) or jnp.issubdtype(dtype, jnp.signedinteger)


def _is_number(dtype: Any) -> bool:
    return not jnp.issubdtype(dtype, jax.dtypes.extended)


def _weigh(leaf: Any, weights: dict[int, Any]) -> Any:
    if not _is_number(leaf.dtype) or not leaf.ndim:
        return leaf
    number = leaf.astype(jnp.int32) if leaf.dtype == jnp.bool_ else leaf
    return jnp.tensordot(number, weights[leaf.shape[-1]].astype(number.dtype), 1)


def _gradient(embedded: _Embedded) -> Callable[..., Tree] | None:
    """The gradient of the sum of the results by all inexact arguments; None where there is none."""
    places = tuple(i for i, spec in enumerate(embedded.call.specs) if jnp.issubdtype(spec.dtype, jnp.inexact))

    def loss(*arrays: Any) -> Any:
        leaves = jax.tree.leaves(embedded.function(*arrays))
        parts = [jnp.real(leaf).sum() for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.inexact)]
        return sum(parts[1:], parts[0])

    gradient = jax.grad(loss, places)
    return gradient if places and _traces(gradient, (*embedded.call.specs, *embedded.extra)) else None


def _batch(embedded: _Embedded) -> Callable[..., Tree] | None:
    axes = (0,) * len(embedded.call.specs) + (None,) * len(embedded.extra)
    if not embedded.call.specs:
        return None
    batched = jax.vmap(embedded.function, axes)
    return batched if _traces(batched, (*_batched_specs(embedded.call.specs), *embedded.extra)) else None


def _batched_specs(specs: Sequence[jax.ShapeDtypeStruct]) -> tuple[jax.ShapeDtypeStruct, ...]:
    return tuple(jax.ShapeDtypeStruct((BATCH, *spec.shape), spec.dtype) for spec in specs)


def _traces(function: Callable[..., Tree], arguments: Sequence[Any]) -> bool:
    try:
        return bool(jax.tree.leaves(jax.eval_shape(function, *arguments)))
    except Exception:  # whatever is not differentiable or has no batching rule
        return False


def _export(
    name: str, function: Callable[..., Tree], specs: Sequence[jax.ShapeDtypeStruct], extra: Sequence[Array] = ()
) -> Export:
    try:
        text = jax.jit(function, keep_unused=True).lower(*specs, *extra).as_text()
    except Exception as error:
        raise NoArgumentsError("it does not lower", f"{type(error).__name__}: {error}"[:120]) from None
    return Export(name, text, tuple((*fill(specs), *extra) for fill in FILLS))


Fill = Callable[[Sequence[jax.ShapeDtypeStruct]], tuple[Array, ...]]


def _normal(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return generator.standard_normal(shape)


def _unit(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return generator.uniform(0.05, 0.95, shape)


def _above_one(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return generator.uniform(1.1, 3.0, shape)


def _positive_definite(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    if len(shape) < 2 or shape[-1] != shape[-2]:
        return _unit(generator, shape)
    half = generator.standard_normal(shape)
    return half @ np.swapaxes(half, -1, -2) / shape[-1] + 2 * np.eye(shape[-1])


def _fill(draw: Callable[[np.random.Generator, tuple[int, ...]], Array]) -> Fill:
    """Arrays of which the floats are drawn so; integers are small enough to be an index of most dimensions."""

    def one(generator: np.random.Generator, spec: jax.ShapeDtypeStruct) -> Array:
        if jnp.issubdtype(spec.dtype, jnp.complexfloating):
            return np.asarray(draw(generator, spec.shape) + 1j * draw(generator, spec.shape)).astype(spec.dtype)
        if jnp.issubdtype(spec.dtype, jnp.inexact):
            return np.asarray(draw(generator, spec.shape)).astype(spec.dtype)
        return np.asarray(generator.integers(0, 2 if spec.dtype == jnp.bool_ else 6, spec.shape)).astype(spec.dtype)

    def all_of(specs: Sequence[jax.ShapeDtypeStruct]) -> tuple[Array, ...]:
        generator = np.random.default_rng(0)
        return tuple(one(generator, spec) for spec in specs)

    return all_of


FILLS: tuple[Fill, ...] = tuple(_fill(draw) for draw in (_normal, _unit, _above_one, _positive_definite))
