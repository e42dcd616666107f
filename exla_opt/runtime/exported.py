"""JAX functions that call their exported and rewritten module, with derivatives and batching rules of their own.

JAX has no batching rule for an exported function, and its derivative would not be rewritten. So each is exported and
rewritten like the function itself; a derivative only by the arguments that it is requested for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import export
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import SymbolicZero, custom_vjp_primal_tree_values
from jaxlib.mlir import ir

from exla_opt.ir.aliasing import alias, forget_aliases, paired_results
from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.walk import main_function
from exla_opt.ir.write import serialise
from exla_opt.runtime import pjrt

# From a portable artifact to one with the same signature.
Rewrite = Callable[[bytes], bytes]
# Takes arrays and returns a list of arrays.
Flat = Callable[..., list[Any]]

_NO_CALLS_BACK = (
    "exla_opt cannot rewrite a function that calls Python while it runs (jax.debug.print, jax.pure_callback, "
    "io_callback): leave the call out, or take jax.jit"
)
# jax's error for custom calls without a stability guarantee. The exporting process runs them, so none is needed.
_NO_PROMISE = "custom calls whose targets have no compatibility guarantees"


@jax.tree_util.register_static
@dataclass(frozen=True, slots=True)
class _Wanted:
    """The positions of the arguments by which a derivative is requested."""

    places: tuple[int, ...]


def rewritten(flat: Flat, rewrite: Rewrite, shardings: Sequence[Any], donated: Collection[int] = ()) -> Flat:
    """Return the function with its exported module rewritten, on every trace.

    shardings: the sharding of each argument, None if it has none. donated: the positions of the arguments that the
    enclosing `jax.jit` lets results be written over, which counts for the memory of the rewritten module. Raises
    NotImplementedError for a function that calls Python while it runs, and whatever `jax.export` raises.
    """

    @custom_vmap
    def run(*given: Any) -> list[Any]:
        specs = [_spec(one, sharding) for one, sharding in zip(given, shardings, strict=True)]
        found = _exported(flat, rewrite, specs, donated)
        if found.nr_devices == 1:
            return pjrt.call_exported(found, given)
        results = list(found.call(*given))
        if any(shardings):
            return results
        # The call needs to know that it runs on the devices that only the function itself names.
        return pjrt.on_devices_of(jax.make_jaxpr(flat)(*specs), results)

    @run.def_vmap
    def run_batch(size: int, is_batched: Sequence[bool], *given: Any) -> tuple[list[Any], list[bool]]:
        axes = tuple(0 if batched else None for batched in is_batched)
        batch = jax.vmap(flat, in_axes=axes, axis_size=size)
        results = rewritten(batch, rewrite, [None] * len(given))(*given)
        return results, [True] * len(results)

    @jax.custom_vjp
    def call(*given: Any) -> list[Any]:
        return list(run(*given))

    def forward(*given: Any) -> tuple[list[Any], Any]:
        values = custom_vjp_primal_tree_values(given)
        wanted = tuple(place for place, one in enumerate(given) if one.perturbed and _is_float(one.value))
        return call(*values), (values, _Wanted(wanted))

    def backward(kept: Any, cotangents: Sequence[Any]) -> tuple[Any, ...]:
        given, wanted = kept
        known = [place for place, one in enumerate(cotangents) if not isinstance(one, SymbolicZero) and _is_float(one)]
        pull = _pullback(flat, len(given), wanted.places, known, [(one.shape, one.dtype) for one in cotangents])
        # Under jax.grad the shardings of arguments are unknown: they are tracers.
        arguments = [*given, *[cotangents[place] for place in known]]
        found = rewritten(pull, rewrite, [None] * len(arguments))(*arguments)
        typed = [_typed_as(given[place], one) for place, one in zip(wanted.places, found, strict=True)]
        by_place = dict(zip(wanted.places, typed, strict=True))
        return tuple(by_place.get(place) for place in range(len(given)))

    call.defvjp(forward, backward, symbolic_zeros=True)
    return call


def _pullback(flat: Flat, count: int, wanted: Sequence[int], known: Sequence[int], results: Sequence[Any]) -> Flat:
    """The derivative as a function of the `count` arguments and the cotangents of the results at `known`.

    wanted: the positions of the arguments to differentiate by. results: the shape and type of every cotangent.
    """

    def pull(*given: Any) -> list[Any]:
        arguments, cotangents = given[:count], dict(zip(known, given[count:], strict=True))

        def of_wanted(*chosen: Any) -> list[Any]:
            filled = dict(zip(wanted, chosen, strict=True))
            return list(flat(*[filled.get(place, one) for place, one in enumerate(arguments)]))

        _, pulled = jax.vjp(of_wanted, *[arguments[place] for place in wanted])
        full = [cotangents.get(place, np.zeros(*one)) for place, one in enumerate(results)]
        return list(pulled(full))

    return pull


def _exported(
    flat: Flat, rewrite: Rewrite, specs: Sequence[jax.ShapeDtypeStruct], donated: Collection[int]
) -> export.Exported:
    try:
        jitted = jax.jit(flat)
        try:
            found = export.export(jitted)(*specs)
        except ValueError as error:
            if _NO_PROMISE not in str(error):
                raise
            checks = [export.DisabledSafetyCheck.custom_call(name) for name in _call_targets(jitted.lower(*specs))]
            found = export.export(jitted, disabled_checks=checks)(*specs)
    except NotImplementedError as error:
        if "host_callbacks" not in str(error) and "keepalive" not in str(error):
            raise
        raise NotImplementedError(_NO_CALLS_BACK) from None
    places = [place for place, kept in enumerate(found.module_kept_var_idx) if kept in donated]
    module = _with_donated(rewrite, places)(found.mlir_module_serialized)
    return dataclasses.replace(found, mlir_module_serialized=module)


def _with_donated(rewrite: Rewrite, places: Sequence[int]) -> Rewrite:
    """The rewrite of a module whose arguments at these positions are donated.

    The module says so while it is rewritten, and not afterwards: the enclosing function, which calls it, says it.
    """
    if not places:
        return rewrite

    def rewrite_donated(data: bytes) -> bytes:
        given = parse_module("<function>", data, new_context()).module
        function = main_function(given)
        alias(function, paired_results(function, places))
        made = parse_module("<function>", rewrite(serialise(given, "portable")), new_context()).module
        forget_aliases(main_function(made))
        return serialise(made, "portable")

    return rewrite_donated


def _call_targets(lowered: jax.stages.Lowered) -> list[str]:
    found: set[str] = set()

    def look(op: ir.Operation) -> ir.WalkResult:
        if op.name == "stablehlo.custom_call":
            found.add(ir.StringAttr(op.attributes["call_target_name"]).value)
        return ir.WalkResult.ADVANCE

    module_of(lowered).operation.walk(look)
    return sorted(found)


def module_of(lowered: jax.stages.Lowered) -> ir.Module:
    """The module of a lowered jax function."""
    module: Any = lowered.compiler_ir()
    assert isinstance(module, ir.Module)
    return module


def lowered(
    function: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any], platform: str | None
) -> ir.Module:
    """The module of a function, jitted or not, for arrays or abstract arguments. platform: None is jax's backend."""
    jitted: Any = function if hasattr(function, "trace") else jax.jit(function)
    platforms = (jax.default_backend() if platform is None else platform,)
    return module_of(jitted.trace(*arguments, **named).lower(lowering_platforms=platforms))


def _typed_as(argument: Any, gradient: Any) -> Any:
    """The gradient with the type of its argument: exported functions have no weak types and no explicit shardings."""
    wanted = jax.typeof(argument)
    if jax.typeof(gradient).sharding != wanted.sharding and not wanted.sharding.mesh.empty:
        gradient = jax.sharding.reshard(gradient, wanted.sharding)
    return pjrt.as_weak(gradient) if wanted.weak_type else gradient


def _spec(one: Any, sharding: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(one.shape, one.dtype, sharding=sharding)


def _is_float(one: Any) -> bool:
    return bool(jax.numpy.issubdtype(one.dtype, jax.numpy.inexact))
