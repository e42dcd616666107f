"""Memory tests for JAX functions: the peak that XLA plans, from abstract arguments, and the tensors that cause it.

    from exla_opt.testing import assert_fits

    def test_a_training_step_fits():
        assert_fits(train_step, (abstract_state, abstract_batch), "2GB", target="cuda:h200")

Nothing is run and no array is allocated, except that target="cuda" lets XLA try out kernels on this machine's GPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from exla_opt.sizes import format_size, parse_size

if TYPE_CHECKING:
    from jaxlib.mlir import ir

_SHOWN = 3


def peak_memory(function: Callable[..., Any], /, *arguments: Any, target: str | None = None, **named: Any) -> int:
    """Return the peak bytes of one call, as planned by XLA: arguments, results, temporaries; donated ones counted once.

    function: as for `jax.jit`, or a result of `jax.jit` or `exla_opt.jit`. arguments, named: arrays, or abstract ones
    (`jax.ShapeDtypeStruct`). target: as in `exla-opt --target`; jax's own backend by default. If the function runs on
    several devices, the bytes are per device.

    Raises InputError when XLA refuses the program, TargetError when it cannot compile for the target.
    """
    from exla_opt.ir.write import serialise

    return _peak(serialise(_lowered(function, arguments, named, target), "bytecode"), target)


def assert_fits(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    limit: int | str,
    *,
    target: str | None = None,
    named: Mapping[str, Any] | None = None,
) -> None:
    """Assert that one call needs no more than `limit`, in bytes or as "2GB".

    arguments, named: positional and keyword arguments, as for `peak_memory`. Raises AssertionError with the peak, the
    largest tensors alive at it, their lines, and a remedy; TypeError if `arguments` is no tuple or list; also whatever
    `peak_memory` raises.
    """
    from exla_opt.ir.write import serialise

    if not isinstance(arguments, tuple | list):  # the rows of an array would become arguments
        raise TypeError(f"arguments is a tuple or list, not {type(arguments).__name__}: give (x,) for one argument x")
    module = _lowered(function, arguments, named or {}, target)
    most, peak = parse_size(limit) if isinstance(limit, str) else limit, _peak(serialise(module, "bytecode"), target)
    if peak <= most:
        return
    name = getattr(function, "__name__", "the function")
    lines = [
        f"{name} needs {format_size(peak)}, {format_size(peak - most)} more than {format_size(most)}",
        *_held(module),
    ]
    lines.append(f'help: exla_opt.jit({name}, memory_limit="{format_size(most)}") computes it in slices')
    raise AssertionError("\n".join(lines))


def _lowered(
    function: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any], target: str | None
) -> ir.Module:
    from exla_opt.runtime.exported import lowered

    kind = "" if target is None else target.partition(":")[0]
    platform = None if target is None else {"cuda": "cuda", "gpu": "cuda", "tpu": "tpu"}.get(kind, "cpu")
    return lowered(function, arguments, named, platform)


def _peak(module: bytes, target: str | None) -> int:
    from exla_opt.runtime.jit import backend_target
    from exla_opt.runtime.target import compiled_memory, parse_target

    return compiled_memory(module, parse_target(target or backend_target())).memory.peak


def _held(module: ir.Module) -> list[str]:
    """The largest tensors alive at the predicted peak, with their locations."""
    from exla_opt.ir.context import new_context
    from exla_opt.ir.read import parse_module
    from exla_opt.ir.write import serialise
    from exla_opt.memory.timeline import read_timeline
    from exla_opt.options import Options
    from exla_opt.pipeline import run_pipeline

    own = parse_module("<function>", serialise(module, "bytecode"), new_context()).module
    run_pipeline(own, ("normalise",), Options())
    timeline = read_timeline(own)
    alive = [] if timeline.peak is None else timeline.alive_at(timeline.peak)
    return [f"  {format_size(one.bytes)}: {one.name} at {_short(one.location)}" for one in alive[:_SHOWN]]


def _short(place: str) -> str:
    """The location relative to the working directory, if that is shorter."""
    name, _, rest = place.partition(":")
    relative = os.path.relpath(name) if os.path.isabs(name) else name
    return place if len(relative) >= len(name) else f"{relative}:{rest}"
