"""JAX functions whose big tensors are computed in slices: a layer below `jax.jit`.

While `jax.jit` traces, the function is traced separately, exported and rewritten, and the rewritten version is called.
Everything else stays with `jax.jit`: its cache, weak types, x64, static arguments, donation, `lower` and `compile`.

Values that a function closes over, arrays or tracers of outer functions, become arguments of the exported one: the
module has no constants, and gradients flow into them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from exla_opt.runtime import pjrt
from exla_opt.runtime.exported import Rewrite, rewritten
from exla_opt.runtime.tpus import target_of_kind

# Locations name the lines of the user's program, not the lines here that trace it.
pjrt.leave_out_lines_of(Path(__file__).parents[1])

# An exported function is a program of its own, outside of the functions that give these axes their names.
_OUTER_AXES = (
    "exla_opt cannot rewrite a function that communicates along an axis of an enclosing vmap, pmap or shard_map ({}): "
    "put exla_opt.jit around the enclosing function"
)


def sliced_jit(function: Callable[..., Any], rewrite: Rewrite, options: dict[str, Any]) -> Any:
    """`jax.jit(function, **options)` with every module that it lowers to rewritten.

    With several devices in this process, each call checks the shardings of its arrays. Raises what `jax.jit` raises,
    and NotImplementedError for a function that calls Python while it runs, or communicates along an outer axis.
    """

    @functools.cache
    def jitted(shardings: tuple[Any, ...]) -> Any:
        return jax.jit(_sliced(function, rewrite, shardings, options), **options)

    plain = jitted(())
    if jax.device_count() == 1:
        return plain

    def of_spread(name: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def method(*arguments: Any, **named: Any) -> Any:
            return getattr(jitted(_shardings((arguments, named))), name)(*arguments, **named)

        return method

    call: Any = of_spread("__call__")
    call.lower, call.trace, call.eval_shape = map(of_spread, ("lower", "trace", "eval_shape"))
    call.clear_cache = plain.clear_cache
    return call


def backend_target() -> str:
    """The target that stands for jax's own backend."""
    backend = jax.default_backend()
    if backend == "tpu":
        return target_of_kind(jax.devices()[0].device_kind)
    return "cuda" if backend == "gpu" else backend


def _shardings(arguments: Any) -> tuple[Any, ...]:
    """The shardings of the leaves, None for a leaf without one; () if no leaf has one."""
    found = tuple(map(_sharding, jax.tree.leaves(arguments)))
    return found if any(found) else ()


def _sharding(leaf: Any) -> Any:
    if isinstance(leaf, jax.core.Tracer) or not isinstance(leaf, jax.Array | jax.ShapeDtypeStruct):
        return None
    return leaf.sharding if leaf.sharding is not None and leaf.sharding.num_devices > 1 else None


def _sliced(
    function: Callable[..., Any], rewrite: Rewrite, shardings: tuple[Any, ...], options: Mapping[str, Any]
) -> Callable[..., Any]:
    """The function that `jax.jit` traces. shardings: of the leaves of its arguments; () if none is sharded."""

    @functools.wraps(function)
    def traced(*arguments: Any, **named: Any) -> Any:
        if jax.config.jax_disable_jit:  # type: ignore[attr-defined]
            return function(*arguments, **named)
        leaves, structure = jax.tree.flatten((arguments, named))
        # Everything else is a static argument, or a part of one.
        dynamic = [place for place, leaf in enumerate(leaves) if isinstance(leaf, jax.core.Tracer)]
        given = [leaves[place] for place in dynamic]
        spread = [shardings[place] if shardings else None for place in dynamic]
        results: list[Any] = []

        def flat(*given: Any) -> list[Any]:
            known = dict(zip(dynamic, given, strict=True))
            filled = [known.get(place, leaf) for place, leaf in enumerate(leaves)]
            arguments, named = jax.tree.unflatten(structure, filled)
            found, tree = jax.tree.flatten(function(*arguments, **named))
            results.append(tree)
            return found

        closed = jax.make_jaxpr(flat)(*map(_spec, given, spread))
        if axes := pjrt.outer_axes(closed):
            raise NotImplementedError(_OUTER_AXES.format(", ".join(axes)))
        opened = pjrt.with_constants_as_arguments(closed, getattr(function, "__name__", "function"))
        count = len(closed.consts)
        is_donated = _donated(function, options, arguments, named)
        donated = [count + number for number, place in enumerate(dynamic) if is_donated[place]]
        call = rewritten(opened, rewrite, [None] * count + spread, donated)
        found = map(_as_typed, call(*closed.consts, *given), closed.out_avals)
        return jax.tree.unflatten(results[0], list(found))

    return traced


def _donated(
    function: Callable[..., Any], options: Mapping[str, Any], arguments: Sequence[Any], named: Mapping[str, Any]
) -> list[bool]:
    """Which leaves of the arguments `jax.jit` donates: it infers names from positions, or positions from names."""
    by_place, by_name = options.get("donate_argnums"), options.get("donate_argnames")
    places = set() if by_place is None else set(np.atleast_1d(by_place).tolist())
    names = set() if by_name is None else {by_name} if isinstance(by_name, str) else set(by_name)
    if not places and not names:
        return [False] * len(jax.tree.leaves((arguments, named)))
    try:
        parameters = list(inspect.signature(function).parameters)
    except ValueError:  # of a builtin
        parameters = []
    if _counts_from_the_end():
        places = {place + len(parameters) if place < 0 else place for place in places}
    if by_name is None:
        names = {parameters[place] for place in places if 0 <= place < len(parameters)}
    if by_place is None:
        places = {place for place, name in enumerate(parameters) if name in names}
    flags = (
        [jax.tree.map(lambda _, place=place: place in places, one) for place, one in enumerate(arguments)],
        {name: jax.tree.map(lambda _, name=name: name in names, one) for name, one in named.items()},
    )
    return list(map(bool, jax.tree.leaves(flags)))


@functools.cache
def _counts_from_the_end() -> bool:
    """Whether this jax donates arguments whose position is counted from the end."""
    lowered = jax.jit(lambda x: x, donate_argnums=-1).lower(np.zeros(1, np.float32))
    return bool(jax.tree.leaves(lowered.args_info)[0].donated)


def _as_typed(result: Any, wanted: Any) -> Any:
    """The result, weakly typed if the function's own is: exported functions have no weak types."""
    if not getattr(wanted, "weak_type", False):
        return result
    return pjrt.as_weak(result)


def _spec(leaf: Any, sharding: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding, weak_type=leaf.weak_type)
